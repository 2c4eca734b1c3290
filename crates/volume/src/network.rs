//! How remote stores are talked to.

use std::time::Duration;

/// Limits on the requests to a remote store. They say nothing about local files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Requests to one store at one time, at most, at least 1. There are fewer while the store throttles.
    pub requests: usize,
    /// For how long an operation is repeated after it failed for the first time. A store that has not answered at all yet gets
    /// ten seconds at most, so that a wrong address is told soon.
    pub deadline: Duration,
    /// How long a request may go without a byte moving in either direction. There is no limit on a whole request.
    pub stall: Duration,
    /// Whether requests go unsigned, without a search for credentials.
    pub anonymous: bool,
}

impl Default for Network {
    /// 64 requests, 300 s, 60 s, signed.
    fn default() -> Self {
        Self { requests: 64, deadline: Duration::from_secs(300), stall: Duration::from_secs(60), anonymous: false }
    }
}
