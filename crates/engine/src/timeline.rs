//! What happened when, for a trace of a run.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// One piece of work.
#[derive(Clone, Debug)]
pub struct Span {
    /// The line it is drawn on: a thread, or a stream of a device.
    pub track: String,
    /// What was done, such as `upload`.
    pub name: &'static str,
    /// When it began.
    pub start: Instant,
    /// When it was done.
    pub end: Instant,
}

/// Collects spans from all threads, in memory.
#[derive(Debug, Default)]
pub struct Timeline {
    spans: Mutex<Vec<Span>>,
}

impl Timeline {
    /// Adds a span.
    pub fn add(&self, span: Span) {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).push(span);
    }

    /// Adds what the calling thread has done since `start`, on the thread's own line.
    pub fn add_here(&self, name: &'static str, start: Instant) {
        let end = Instant::now();
        let thread = std::thread::current();
        let track = thread.name().map_or_else(|| format!("{:?}", thread.id()), str::to_owned);
        self.add(Span { track, name, start, end });
    }

    /// All spans so far, in the order they were added.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
