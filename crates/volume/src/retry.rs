//! Repeats what failed, where that may help: whole operations, so that a chunk whose body broke off is fetched anew.
//!
//! What may help is decided by the kind of the failure, here and nowhere else. Pauses double and have full jitter: they are drawn
//! between nothing and the longest ("Exponential Backoff and Jitter", AWS Architecture Blog, 2015).

use std::error::Error as _;
use std::time::Duration;

use object_store::Error;
use reqwest::StatusCode;
use tokio::time::Instant;

use crate::StorageCounters;
use crate::client::Failure;
use crate::credentials::NoCredentials;
use crate::store::Store;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// What may help against a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Nothing.
    None,
    /// Credentials that were just fetched.
    Credentials,
    /// Another try.
    Again,
    /// Another try, with fewer requests, and not before this time has passed if the store said so.
    Fewer(Option<Duration>),
}

/// An operation that failed for good.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// How often it was tried and how long, if more than once.
    pub(crate) effort: String,
    /// Whether it was given up although another try might have helped.
    pub(crate) transient: bool,
}

/// Does `operation` until it succeeds, or fails in a way that trying again cannot help, or the deadline has passed.
pub(crate) async fn persist<T, F: Future<Output = Result<T, Error>>>(
    store: &Store,
    counters: &StorageCounters,
    operation: impl Fn() -> F,
) -> Result<T, Failed> {
    let mut trying = Trying::default();
    loop {
        let error = match operation().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let remedy = remedy(&error);
        match trying.pause_after(remedy, store, counters) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => {
                let transient = store.gate.is_some() && matches!(remedy, Remedy::Again | Remedy::Fewer(_));
                return Err(Failed { error, effort: trying.effort(store), transient });
            }
        }
        if remedy == Remedy::Credentials {
            store.forget_credentials();
        }
    }
}

/// How an operation has gone so far.
#[derive(Debug, Default)]
struct Trying {
    tries: usize,
    throttled: usize,
    refreshed: bool,
    first_failure: Option<Instant>,
}

impl Trying {
    /// Counts a failure; how long to pause before the next try, or `None` if there is to be none.
    fn pause_after(&mut self, remedy: Remedy, store: &Store, counters: &StorageCounters) -> Option<Duration> {
        let now = Instant::now();
        let since = *self.first_failure.get_or_insert(now);
        self.tries += 1;
        if let Remedy::Fewer(_) = remedy {
            self.throttled += 1;
            counters.throttled();
        }
        let gate = store.gate.as_ref()?;
        let pause = match remedy {
            Remedy::None => return None,
            Remedy::Credentials if self.refreshed => return None,
            Remedy::Credentials => Duration::ZERO,
            Remedy::Again => jitter(self.tries),
            // The gate lets nobody in before the time that the store named.
            Remedy::Fewer(after) => after.unwrap_or_default() + jitter(self.tries),
        };
        self.refreshed |= remedy == Remedy::Credentials;
        if gate.attempts.is_some_and(|most| self.tries >= most) || now - since + pause > gate.deadline() {
            return None;
        }
        counters.retried();
        Some(pause)
    }

    fn effort(&self, store: &Store) -> String {
        let (Some(gate), Some(since), 2..) = (&store.gate, self.first_failure, self.tries) else {
            return String::new();
        };
        let throttled = match self.throttled {
            0 => String::new(),
            count => format!(", throttled {count} times, {} requests at one time at the end", gate.limit()),
        };
        format!("; given up after {} tries in {:.0} s{throttled}", self.tries, since.elapsed().as_secs_f64())
    }
}

/// How long to pause after so many tries.
pub(crate) fn jitter(tries: usize) -> Duration {
    let doublings = u32::try_from(tries.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    let longest = (FIRST_PAUSE * 2_u32.pow(doublings)).min(LONGEST_PAUSE);
    longest.mul_f64(fastrand::f64())
}

/// What may help against this error of an object store.
pub(crate) fn remedy(error: &Error) -> Remedy {
    let mut source = match error {
        // Their source is the store's answer, which was final.
        Error::NotFound { .. } | Error::AlreadyExists { .. } | Error::Precondition { .. } => return Remedy::None,
        error => error.source(),
    };
    while let Some(cause) = source {
        if let Some(failure) = cause.downcast_ref() {
            return remedy_of(failure);
        }
        if cause.is::<NoCredentials>() {
            return Remedy::None;
        }
        source = cause.source();
    }
    Remedy::None
}

/// Codes of S3 and Azure for credentials that were good once.
pub(crate) const STALE: [&str; 5] =
    ["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired", "InvalidToken"];

fn remedy_of(failure: &Failure) -> Remedy {
    let refusal = match failure {
        Failure::Refused(refusal) => refusal,
        Failure::Stalled(_) | Failure::Broken(_) => return Remedy::Again,
    };
    match refusal.status {
        _ if refusal.is_throttling() => Remedy::Fewer(refusal.after),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Remedy::Credentials,
        _ if STALE.contains(&&*refusal.code) => Remedy::Credentials,
        StatusCode::REQUEST_TIMEOUT => Remedy::Again,
        _ if refusal.code == "RequestTimeout" => Remedy::Again,
        status if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => Remedy::Again,
        _ => Remedy::None,
    }
}
