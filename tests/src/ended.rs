//! How a run ended.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The exit code; `None` if a signal killed it.
    pub code: Option<i32>,
    /// All of standard output.
    pub stdout: String,
    /// All of standard error.
    pub stderr: String,
    /// From its start to its end.
    pub lasted: Duration,
}

impl Ended {
    /// Stops the test unless the run went well.
    #[track_caller]
    pub fn well(self) -> Self {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self
    }

    /// Stops the test unless the run ended with this code and told why in one sentence that has all of these parts. Log lines may
    /// stand before it.
    #[track_caller]
    pub fn refused(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        let told = self.told();
        for part in parts {
            assert!(told.contains(part), "there is no {part:?} in {told:?}");
        }
    }

    /// The sentence of a run that failed.
    #[track_caller]
    #[must_use]
    pub fn told(&self) -> &str {
        let (errors, others): (Vec<_>, Vec<_>) = self.stderr.lines().partition(|line| line.starts_with("error: "));
        let [sentence] = errors[..] else { panic!("there should be one sentence: {}", self.stderr) };
        let is_log = |line: &&str| [" WARN ", " INFO "].iter().any(|level| line.contains(level));
        assert!(others.iter().all(is_log), "there is more than one sentence and log lines: {}", self.stderr);
        assert!(!sentence.contains("panicked"), "{sentence:?}");
        sentence
    }

    /// The lines of a log in JSON.
    #[must_use]
    pub fn log(&self) -> Vec<Value> {
        let lines = self.stderr.lines().filter(|line| !line.starts_with("error: "));
        lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }
}

/// Reads a JSON file.
#[track_caller]
#[must_use]
pub fn json(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
