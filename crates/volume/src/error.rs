//! What can go wrong with a volume, in kinds that decide the exit code.

use std::error::Error;
use std::sync::Arc;

/// What kind of failure it is: who has to act, and which exit code a command ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolumeErrorKind {
    /// A flag or a spec holds a value that is not allowed (exit code 64).
    Usage,
    /// The data is missing, corrupt or of an unsupported form (exit code 65).
    Data,
    /// The output exists already (exit code 65).
    Exists,
    /// The store cannot be reached or does not permit it (exit code 74).
    Unavailable,
    /// The store failed again and again, for longer than its retries last; later it may not (exit code 74).
    Transient,
    /// A defect of this program, such as a panic in a worker thread (exit code 70).
    Internal,
}

/// A failure as one sentence that names the key or URL, the value and what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct VolumeError {
    /// What kind of failure it is.
    pub kind: VolumeErrorKind,
    /// The sentence; it includes the cause.
    pub message: String,
    /// The error that led to this one.
    #[source]
    pub source: Option<Arc<dyn Error + Send + Sync>>,
}

impl VolumeError {
    pub(crate) fn new(kind: VolumeErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(VolumeErrorKind::Usage, message)
    }

    pub(crate) fn data(message: impl Into<String>) -> Self {
        Self::new(VolumeErrorKind::Data, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(VolumeErrorKind::Internal, message)
    }

    pub(crate) fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }
}
