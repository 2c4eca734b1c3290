//! The exit codes, after BSD's sysexits.h.

use haloflow_model::ModelErrorKind;
use haloflow_pipeline::FaultKind;

/// A flag or a key cannot work.
pub(crate) const USAGE: u8 = 64;
/// Input data, an output or a model cannot be used as it is.
pub(crate) const DATA: u8 = 65;
/// The network failed, or haloflow has a defect.
pub(crate) const SOFTWARE: u8 = 70;
/// Storage cannot be reached or refuses.
pub(crate) const UNAVAILABLE: u8 = 74;
/// The run was stopped before its end.
pub(crate) const INTERRUPTED: u8 = 75;

/// The code of a fault.
pub(crate) const fn code(kind: FaultKind) -> u8 {
    match kind {
        FaultKind::Usage => USAGE,
        FaultKind::Data => DATA,
        FaultKind::Engine | FaultKind::Internal => SOFTWARE,
        FaultKind::Unavailable | FaultKind::Transient => UNAVAILABLE,
        FaultKind::Interrupted => INTERRUPTED,
    }
}

/// The code of a model that cannot be used.
pub(crate) const fn model_code(kind: ModelErrorKind) -> u8 {
    code(fault_kind(kind))
}

/// The fault that a model that cannot be used is for a run.
pub(crate) const fn fault_kind(kind: ModelErrorKind) -> FaultKind {
    match kind {
        ModelErrorKind::Usage => FaultKind::Usage,
        ModelErrorKind::Data | ModelErrorKind::Python => FaultKind::Data,
    }
}
