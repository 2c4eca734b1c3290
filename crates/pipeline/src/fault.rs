//! What ends a run early: the first fault wins and is the one reported.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use haloflow_engine::{EngineError, EngineErrorKind};
use haloflow_geometry::GeometryError;
use haloflow_volume::{VolumeError, VolumeErrorKind};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

/// The places where a run can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Checking the settings, before anything runs.
    Plan,
    /// Opening the input or preparing the outputs.
    Open,
    /// Fetching and decoding.
    Read,
    /// Statistics, normalising, cutting.
    Prepare,
    /// Forming batches.
    Batch,
    /// Running the network.
    Device,
    /// Merging overlaps.
    Merge,
    /// Casting, encoding, writing.
    Write,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plan => "plan",
            Self::Open => "open",
            Self::Read => "read",
            Self::Prepare => "prepare",
            Self::Batch => "batch",
            Self::Device => "device",
            Self::Merge => "merge",
            Self::Write => "write",
        })
    }
}

/// What kind of fault it is: what an exit code is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// A setting cannot work.
    Usage,
    /// Data or a model cannot be used as it is.
    Data,
    /// Storage cannot be reached or does not let us in.
    Unavailable,
    /// Storage failed again and again; later it may not.
    Transient,
    /// The model or its device failed.
    Engine,
    /// Somebody asked the run to stop.
    Interrupted,
    /// A defect of this program.
    Internal,
}

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Fault {
    /// What kind of fault it is.
    pub kind: FaultKind,
    /// Where it happened.
    pub stage: Stage,
    /// The block or patch that was worked on, if one was.
    pub block: Option<String>,
    /// What happened, as a sentence.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !matches!(self.stage, Stage::Plan | Stage::Open) {
            write!(f, " (stage {}", self.stage)?;
            if let Some(block) = &self.block {
                write!(f, ", {block}")?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl Fault {
    /// A fault without a block.
    pub fn new(kind: FaultKind, stage: Stage, message: impl Into<String>) -> Self {
        Self { kind, stage, block: None, message: message.into() }
    }

    /// The same fault, naming what was worked on.
    #[must_use]
    pub fn at(self, block: impl fmt::Display) -> Self {
        Self { block: Some(block.to_string()), ..self }
    }

    /// A storage error that happened in `stage`.
    #[must_use]
    pub fn volume(stage: Stage, error: &VolumeError) -> Self {
        let kind = match error.kind {
            VolumeErrorKind::Usage => FaultKind::Usage,
            VolumeErrorKind::Data | VolumeErrorKind::Exists => FaultKind::Data,
            VolumeErrorKind::Unavailable => FaultKind::Unavailable,
            VolumeErrorKind::Transient => FaultKind::Transient,
            VolumeErrorKind::Internal => FaultKind::Internal,
        };
        Self::new(kind, stage, error.to_string())
    }

    /// An engine's error.
    #[must_use]
    pub fn engine(error: &EngineError) -> Self {
        let kind = match error.kind {
            EngineErrorKind::NoSuchDevice => FaultKind::Usage,
            EngineErrorKind::Load | EngineErrorKind::Shape => FaultKind::Data,
            EngineErrorKind::Run | EngineErrorKind::OutOfMemory | EngineErrorKind::DeviceLost => FaultKind::Engine,
        };
        Self::new(kind, Stage::Device, error.to_string())
    }

    /// Something that must not happen.
    #[must_use]
    pub fn defect(stage: Stage, what: &str) -> Self {
        Self::new(FaultKind::Internal, stage, format!("{what}; this is a defect of haloflow"))
    }

    /// Somebody asked the run to stop.
    #[must_use]
    pub fn interrupted() -> Self {
        Self::new(
            FaultKind::Interrupted,
            Stage::Plan,
            "the run was interrupted; the output is not complete, and the same command goes on with it",
        )
    }

    /// A task of `stage` that panicked.
    #[must_use]
    pub fn panicked(stage: Stage, error: &tokio::task::JoinError) -> Self {
        Self::defect(stage, &format!("a task ended unexpectedly: {error}"))
    }

    /// A geometry that cannot work.
    #[must_use]
    pub fn geometry(error: &GeometryError) -> Self {
        Self::new(FaultKind::Usage, Stage::Plan, error.to_string())
    }
}

/// The place where the first fault is kept. Reporting one cancels everything else.
#[derive(Clone, Debug)]
pub struct Faults {
    first: Arc<Mutex<Option<Fault>>>,
    cancel: CancellationToken,
}

impl Faults {
    /// No fault yet; `cancel` is cancelled when one comes.
    #[must_use]
    pub fn new(cancel: CancellationToken) -> Self {
        Self { first: Arc::default(), cancel }
    }

    /// Keeps `fault` if it is the first, and cancels. The first is logged at once: the run may take a while to end.
    pub fn report(&self, fault: Fault) {
        if fault.kind != FaultKind::Interrupted && self.first().is_none() {
            tracing::debug!("{fault}");
        }
        self.keep(fault);
    }

    /// Keeps `fault` if it is the first, and cancels, where the run's end follows at once.
    pub(crate) fn keep(&self, fault: Fault) {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
        self.cancel.cancel();
    }

    /// The first fault.
    #[must_use]
    pub fn first(&self) -> Option<Fault> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Cancelled by the first fault.
    #[must_use]
    pub const fn cancel(&self) -> &CancellationToken {
        &self.cancel
    }
}
/// `1 channel`, `2 channels`.
pub(crate) fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
