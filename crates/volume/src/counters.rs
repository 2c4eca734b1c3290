//! Counts of what was moved to and from storage.

use std::fmt::{self, Debug, Formatter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::carried::noted;

/// Counters shared by everything that works on one volume. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct StorageCounters {
    cells: Arc<Cells>,
}

/// A piece of work on one chunk or object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageWork {
    /// Waiting for the bytes of a get, in async code.
    Fetch,
    /// Decoding a chunk, on a thread of the CPU pool.
    Decode,
    /// Assembling and encoding an object, on a thread of the CPU pool.
    Encode,
    /// Waiting for a put to be acknowledged, in async code.
    Put,
}

/// Is told of every piece of work that is done, on the thread that has just done it, and of when it began.
pub type StorageObserver = Box<dyn Fn(StorageWork, Instant) + Send + Sync>;

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

#[derive(Default)]
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
    observer: OnceLock<StorageObserver>,
}

impl Debug for Cells {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Cells")
    }
}

impl StorageCounters {
    /// Tells `observer` of all work from now on. Only the first that is given is told.
    pub(crate) fn observe(&self, observer: StorageObserver) {
        drop(self.cells.observer.set(observer));
    }

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
        self.worked(StorageWork::Fetch, &self.cells.fetch_nanos, since);
    }

    pub(crate) fn put(&self, bytes: usize, since: Instant) {
        add(&self.cells.requests, 1);
        add(&self.cells.objects_written, 1);
        add(&self.cells.bytes_written, bytes as u64);
        self.worked(StorageWork::Put, &self.cells.put_nanos, since);
    }

    pub(crate) fn decoded(&self, since: Instant) {
        add(&self.cells.chunks_decoded, 1);
        self.worked(StorageWork::Decode, &self.cells.decode_nanos, since);
    }

    pub(crate) fn absent(&self) {
        add(&self.cells.chunks_absent, 1);
    }

    pub(crate) fn encoded(&self, since: Instant) {
        self.worked(StorageWork::Encode, &self.cells.encode_nanos, since);
    }

    fn worked(&self, work: StorageWork, cell: &AtomicU64, since: Instant) {
        add(cell, nanos(since.elapsed()));
        noted(work, since);
        if let Some(observer) = self.cells.observer.get() {
            observer(work, since);
        }
    }
}

fn add(cell: &AtomicU64, amount: u64) {
    cell.fetch_add(amount, Ordering::Relaxed);
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
