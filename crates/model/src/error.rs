//! Why a model cannot be used.

/// What a caller decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// Something that was typed cannot work.
    Usage,
    /// The model, or a file of it, cannot be used as it is.
    Data,
    /// Python is missing or failed.
    Python,
}

/// A failure, told as a sentence that names the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What a caller decides by.
    pub kind: ModelErrorKind,
    /// What happened, for a person.
    pub message: String,
}

impl ModelError {
    /// Something typed cannot work.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { kind: ModelErrorKind::Usage, message: message.into() }
    }

    /// A file cannot be used as it is.
    pub fn data(message: impl Into<String>) -> Self {
        Self { kind: ModelErrorKind::Data, message: message.into() }
    }

    /// Python is missing or failed.
    pub fn python(message: impl Into<String>) -> Self {
        Self { kind: ModelErrorKind::Python, message: message.into() }
    }

    /// `what` cannot be done with `path`.
    pub(crate) fn file(path: &std::path::Path, what: &str, error: &dyn std::fmt::Display) -> Self {
        Self::data(format!("{} cannot be {what}: {error}", path.display()))
    }
}
