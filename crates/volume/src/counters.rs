//! Counts of what was moved to and from storage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

/// Counters shared by everything that works on one volume. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct StorageCounters {
    cells: Arc<Cells>,
}

/// The value of every counter at one moment. Times are sums over concurrent work, so they may exceed the time on the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CounterSnapshot {
    /// Requests made to the store, of any kind.
    pub requests: u64,
    /// Operations that failed and were tried again.
    pub retries: u64,
    /// Answers that asked for fewer requests (429, 503 and their like).
    pub throttled: u64,
    /// Encoded bytes received from the store.
    pub bytes_read: u64,
    /// Encoded bytes put into the store.
    pub bytes_written: u64,
    /// Objects put into the store.
    pub objects_written: u64,
    /// Chunks (or inner chunks of shards) decoded.
    pub chunks_decoded: u64,
    /// Chunks that were absent from the store, so that the fill value stood in.
    pub chunks_absent: u64,
    /// Nanoseconds spent waiting for gets.
    pub fetch_nanos: u64,
    /// Nanoseconds spent decoding, on the CPU pool.
    pub decode_nanos: u64,
    /// Nanoseconds spent assembling and encoding, on the CPU pool.
    pub encode_nanos: u64,
    /// Nanoseconds spent waiting for puts.
    pub put_nanos: u64,
}

#[derive(Debug, Default)]
struct Cells {
    requests: AtomicU64,
    retries: AtomicU64,
    throttled: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    objects_written: AtomicU64,
    chunks_decoded: AtomicU64,
    chunks_absent: AtomicU64,
    fetch_nanos: AtomicU64,
    decode_nanos: AtomicU64,
    encode_nanos: AtomicU64,
    put_nanos: AtomicU64,
}

impl StorageCounters {
    /// The value of every counter now.
    #[must_use]
    pub fn snapshot(&self) -> CounterSnapshot {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let cells = &self.cells;
        CounterSnapshot {
            requests: load(&cells.requests),
            retries: load(&cells.retries),
            throttled: load(&cells.throttled),
            bytes_read: load(&cells.bytes_read),
            bytes_written: load(&cells.bytes_written),
            objects_written: load(&cells.objects_written),
            chunks_decoded: load(&cells.chunks_decoded),
            chunks_absent: load(&cells.chunks_absent),
            fetch_nanos: load(&cells.fetch_nanos),
            decode_nanos: load(&cells.decode_nanos),
            encode_nanos: load(&cells.encode_nanos),
            put_nanos: load(&cells.put_nanos),
        }
    }

    /// A request that was made for its answer alone (a listing, a head, a delete).
    pub(crate) fn asked(&self) {
        add(&self.cells.requests, 1);
    }

    pub(crate) fn retried(&self) {
        add(&self.cells.retries, 1);
    }

    pub(crate) fn throttled(&self) {
        add(&self.cells.throttled, 1);
    }

    pub(crate) fn fetched(&self, bytes: usize, since: Instant) {
        add(&self.cells.requests, 1);
        add(&self.cells.bytes_read, bytes as u64);
        add(&self.cells.fetch_nanos, nanos(since.elapsed()));
    }

    pub(crate) fn put(&self, bytes: usize, since: Instant) {
        add(&self.cells.requests, 1);
        add(&self.cells.objects_written, 1);
        add(&self.cells.bytes_written, bytes as u64);
        add(&self.cells.put_nanos, nanos(since.elapsed()));
    }

    pub(crate) fn decoded(&self, since: Instant) {
        add(&self.cells.chunks_decoded, 1);
        add(&self.cells.decode_nanos, nanos(since.elapsed()));
    }

    pub(crate) fn absent(&self) {
        add(&self.cells.chunks_absent, 1);
    }

    pub(crate) fn encoded(&self, since: Instant) {
        add(&self.cells.encode_nanos, nanos(since.elapsed()));
    }
}

fn add(cell: &AtomicU64, amount: u64) {
    cell.fetch_add(amount, Ordering::Relaxed);
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
