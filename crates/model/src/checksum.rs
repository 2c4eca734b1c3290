//! SHA-256: what tells one file from another.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::Digest;

use crate::error::ModelError;

/// Bytes read at one time.
const PIECE: usize = 1 << 20;

/// A sum under way.
#[derive(Clone, Debug, Default)]
pub struct Sha256(sha2::Sha256);

impl Sha256 {
    /// Adds one value, told apart from its neighbours.
    #[must_use]
    pub fn with(mut self, value: impl std::fmt::Display) -> Self {
        self.0.update(value.to_string().as_bytes());
        self.0.update(b"\n");
        self
    }

    /// The sum, 64 hexadecimal digits.
    #[must_use]
    pub fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The sum of a file's bytes.
///
/// # Errors
/// If the file cannot be read.
pub fn sha256_of_file(path: &Path) -> Result<String, ModelError> {
    let told = |error: std::io::Error| ModelError::file(path, "read", &error);
    let mut file = File::open(path).map_err(told)?;
    let mut sum = Sha256::default();
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece).map_err(told)? {
            0 => return Ok(sum.finish()),
            read => sum.0.update(&piece[..read]),
        }
    }
}

/// Checks the sum of a file.
pub(crate) fn check(path: &Path, expected: &str) -> Result<(), ModelError> {
    let found = sha256_of_file(path)?;
    if found.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    Err(ModelError::data(format!(
        "{} was changed: its SHA-256 is {found} and should be {expected}; export or download the model again",
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_the_standard_ones() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_of_file(file.path()).unwrap(), sum);
        let told = check(file.path(), "00ff").unwrap_err().message;
        assert!(told.contains(sum) && told.contains("should be 00ff"), "{told}");
        assert_ne!(Sha256::default().with("ab").with("c").finish(), Sha256::default().with("a").with("bc").finish());
    }
}
