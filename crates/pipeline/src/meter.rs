//! How long each stage worked and how long it waited.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use haloflow_engine::{Span, Timeline};
use haloflow_volume::{StorageObserver, StorageWork};
use serde::Serialize;

use crate::histogram::{Histogram, HistogramReading};

/// The clock of one stage. Several tasks may add to it, so its seconds can exceed the run's.
#[derive(Debug, Default)]
pub struct Meter {
    working: AtomicU64,
    waiting: AtomicU64,
    items: AtomicU64,
    /// How long each item was worked on.
    worked: Histogram,
    /// How long each item had waited in front of the stage.
    queued: Histogram,
    /// Where work is drawn, and under which name.
    timeline: Option<(Arc<Timeline>, &'static str)>,
}

/// What a [`Meter`] showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Reading {
    /// Seconds of work, summed over all tasks of the stage.
    pub working_seconds: f64,
    /// Seconds of waiting for input or for room behind, summed over all tasks of the stage.
    pub waiting_seconds: f64,
    /// Items worked on: steps, batches or tiles.
    pub items: u64,
}

impl Meter {
    /// Does `work` and counts its time and one item.
    pub fn work<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.done(start);
        if let Some((timeline, name)) = &self.timeline {
            timeline.add_here(name, start);
        }
        result
    }

    /// Does a part of the work on an item that [`work`](Self::work) counts later.
    pub fn part<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.working.fetch_add(nanos(start), Ordering::Relaxed);
        result
    }

    /// Awaits `work` and counts its time, as long as it takes, and one item.
    pub async fn working<T>(&self, work: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let result = work.await;
        self.done(start);
        if let Some((timeline, name)) = &self.timeline {
            // A task moves between threads: it is drawn on its stage's line.
            timeline.add(Span { track: (*name).to_owned(), name, start, end: Instant::now() });
        }
        result
    }

    fn done(&self, start: Instant) {
        self.working.fetch_add(nanos(start), Ordering::Relaxed);
        self.items.fetch_add(1, Ordering::Relaxed);
        self.worked.add(start.elapsed());
    }

    /// Counts how long an item has waited in front of the stage, which now takes it.
    pub(crate) fn taken(&self, since: Instant) {
        self.queued.add(since.elapsed());
    }

    /// How long items were worked on.
    #[must_use]
    pub fn worked(&self) -> HistogramReading {
        self.worked.reading()
    }

    /// How long items waited in front of the stage.
    #[must_use]
    pub fn queued(&self) -> HistogramReading {
        self.queued.reading()
    }

    /// Awaits `event` and counts its time as waiting.
    pub async fn waiting<T>(&self, event: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let result = event.await;
        self.waiting.fetch_add(nanos(start), Ordering::Relaxed);
        result
    }

    /// Waits in `event` on a thread that may block.
    pub fn wait<T>(&self, event: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = event();
        self.waiting.fetch_add(nanos(start), Ordering::Relaxed);
        result
    }

    /// What the meter shows now.
    #[must_use]
    pub fn reading(&self) -> Reading {
        let seconds = |nanos: &AtomicU64| nanos.load(Ordering::Relaxed) as f64 / 1e9;
        Reading {
            working_seconds: seconds(&self.working),
            waiting_seconds: seconds(&self.waiting),
            items: self.items.load(Ordering::Relaxed),
        }
    }
}

/// Draws the work of a volume on `timeline`: what async code waits for on a line of its own, what the CPU pool does on its threads'.
pub(crate) fn drawn_on(timeline: &Arc<Timeline>) -> StorageObserver {
    let timeline = Arc::clone(timeline);
    let awaited = |name: &'static str, start| Span { track: name.to_owned(), name, start, end: Instant::now() };
    Box::new(move |work, start| match work {
        StorageWork::Fetch => timeline.add(awaited("fetch", start)),
        StorageWork::Put => timeline.add(awaited("put", start)),
        StorageWork::Decode => timeline.add_here("decode", start),
        StorageWork::Encode => timeline.add_here("encode", start),
    })
}

fn nanos(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The meters of all stages.
#[derive(Debug, Default)]
pub struct Meters {
    /// Fetching and decoding a step's input.
    pub read: Meter,
    /// Statistics of a step; filling the rows of a batch.
    pub prepare: Meter,
    /// Forming a batch; its waiting is for patches and for a free slot.
    pub batch: Meter,
    /// Running the network.
    pub device: Meter,
    /// Merging a batch into its tiles.
    pub merge: Meter,
    /// Casting, encoding and storing a tile.
    pub write: Meter,
}

impl Meters {
    /// Meters whose work is drawn on `timeline`, if there is one.
    #[must_use]
    pub fn drawn_on(timeline: Option<&Arc<Timeline>>) -> Self {
        let meter =
            |name| Meter { timeline: timeline.map(|timeline| (Arc::clone(timeline), name)), ..Meter::default() };
        Self {
            read: meter("read"),
            prepare: meter("prepare"),
            // Forming a batch is waiting; what work it does is drawn as `prepare`.
            batch: Meter::default(),
            device: meter("submit"),
            merge: meter("merge"),
            write: meter("write"),
        }
    }
}
