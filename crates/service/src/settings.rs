//! What the daemon is told, checked.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::queue::Capacity;
use crate::roots::Roots;

/// What a client has to show. Never printed.
#[derive(Clone)]
pub struct Token {
    sum: [u8; 32],
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The least length of a token, in bytes: shorter ones can be guessed.
pub const SHORTEST_TOKEN: usize = 16;

impl Token {
    /// The token of this text, without white space around it.
    ///
    /// # Errors
    /// A sentence, if it is too short or holds what a header cannot.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() < SHORTEST_TOKEN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "the token must have at least {SHORTEST_TOKEN} visible ASCII characters and no spaces; `openssl rand -hex 32` makes one"
            ));
        }
        Ok(Self { sum: Sha256::digest(text).into() })
    }

    /// Whether `given` is it, in a time that does not tell how much of it is right.
    #[must_use]
    pub fn is(&self, given: &[u8]) -> bool {
        let given: [u8; 32] = Sha256::digest(given).into();
        self.sum.ct_eq(&given).into()
    }
}

/// What one client may ask of the daemon.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Requests per second of one address, over a while; none if 0.
    pub rate: f64,
    /// Requests that are worked on at one time; event streams are not counted.
    pub requests: usize,
    /// Open connections.
    pub connections: usize,
    /// Jobs that wait.
    pub waiting: u64,
    /// How long a head or a body may take to arrive.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 20,
            rate: 500.0,
            requests: 256,
            connections: 4096,
            waiting: 100_000,
            patience: Duration::from_secs(20),
        }
    }
}

/// Which jobs stay in the table once they have ended.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// Those that ended no longer ago; all if there is none.
    pub age: Option<Duration>,
    /// The last ones, so many; all if there is none.
    pub jobs: Option<u64>,
}

impl Default for Keep {
    fn default() -> Self {
        Self { age: Some(Duration::from_secs(30 * 24 * 60 * 60)), jobs: Some(10_000) }
    }
}

/// Everything that the daemon is told.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// Where it listens; port 0 takes any.
    pub listen: SocketAddr,
    /// What clients have to show; none is allowed on loopback addresses only.
    pub token: Option<Token>,
    /// Names under which clients reach it, besides those of this machine's loopback addresses and IP addresses.
    pub hosts: Vec<String>,
    /// What jobs may read.
    pub read_roots: Roots,
    /// What jobs may write.
    pub write_roots: Roots,
    /// The folders that models may lie in.
    pub models: Vec<PathBuf>,
    /// The job table's file.
    pub table: PathBuf,
    /// What may run at one time.
    pub capacity: Capacity,
    /// What clients may ask for.
    pub limits: Limits,
    /// Which jobs stay.
    pub keep: Keep,
    /// How long jobs may take to stop when the daemon does.
    pub drain: Duration,
}

impl ServiceSettings {
    /// Checks what would be dangerous or cannot work.
    ///
    /// # Errors
    /// A sentence each.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut errors = Vec::new();
        if !self.listen.ip().is_loopback() && self.token.is_none() {
            errors.push(format!(
                "`listen` is {}, which others can reach, and there is no token; set `token-file` or HALOFLOW_TOKEN, or listen on 127.0.0.1",
                self.listen
            ));
        }
        let counts = [
            ("jobs-at-once", self.capacity.jobs as u64),
            ("memory", self.capacity.memory_bytes),
            ("connections", self.limits.connections as u64),
            ("requests-at-once", self.limits.requests as u64),
            ("body-limit", self.limits.body_bytes as u64),
            ("queue-limit", self.limits.waiting),
        ];
        errors.extend(
            counts
                .iter()
                .filter(|(_, count)| *count == 0)
                .map(|(key, _)| format!("`{key}` is 0; it must be at least 1")),
        );
        if !(self.limits.rate >= 0.0 && self.limits.rate.is_finite()) {
            errors.push(format!("`rate` is {}; it must be 0 (no limit) or more", self.limits.rate));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_compared_and_never_shown() {
        let token = Token::new(" 0123456789abcdef\n").unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for wrong in [&b""[..], b"0123456789abcdeg", b"0123456789abcdef0"] {
            assert!(!token.is(wrong));
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
        for wrong in ["short", "0123456789 abcdef", ""] {
            assert!(Token::new(wrong).unwrap_err().contains("at least 16"), "{wrong}");
        }
    }
}
