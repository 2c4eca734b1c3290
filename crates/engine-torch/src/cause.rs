//! Why something failed, before the device's name is put to it.

use haloflow_engine::{EngineError, EngineErrorKind};
use tch::TchError;

use crate::ffi::Failure;
use crate::message::{meaningful_line, run_kind};

/// The kind and the sentence of an [`EngineError`].
#[derive(Debug)]
pub(crate) struct Cause {
    pub(crate) kind: EngineErrorKind,
    pub(crate) message: String,
}

impl Cause {
    pub(crate) fn new(kind: EngineErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn shape(message: impl Into<String>) -> Self {
        Self::new(EngineErrorKind::Shape, message)
    }

    /// The same cause, told to have come while doing `what`. The model's fit is told without: it is not about one batch.
    pub(crate) fn during(self, what: &str) -> Self {
        match self.kind {
            EngineErrorKind::Shape => self,
            kind => Self::new(kind, format!("{what}: {}", self.message)),
        }
    }

    pub(crate) fn on(self, device: &str) -> EngineError {
        EngineError::new(self.kind, device, self.message)
    }
}

impl From<Failure> for Cause {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Thrown(text) => Self::new(run_kind(&text), meaningful_line(&text)),
            Failure::NoTensor(what) => {
                Self::shape(format!("the model gave a {what}; it must give one tensor, or a tuple that begins with it"))
            }
        }
    }
}

impl From<TchError> for Cause {
    fn from(error: TchError) -> Self {
        Failure::from(error).into()
    }
}
