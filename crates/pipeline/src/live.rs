//! What a run shows of its inside while it goes on, for whoever plots it or counts it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_channel::{Receiver, WeakReceiver};
use haloflow_volume::CounterSnapshot;

use crate::histogram::HistogramReading;
use crate::meter::{Meter, Meters, Reading};

/// The stages, in the order of the data's way.
pub const STAGES: [&str; 6] = ["read", "prepare", "batch", "device", "merge", "write"];

/// A stage at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LiveStage {
    /// Its clock.
    pub reading: Reading,
    /// How long items were worked on.
    pub worked: HistogramReading,
    /// How long items waited in front of it; nothing for stages that pull.
    pub queued: HistogramReading,
    /// Items that wait in front of it now.
    pub queue: usize,
    /// How many may; 0 if nothing waits in front of it.
    pub queue_capacity: usize,
}

/// A run at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Live {
    /// The stages, as in [`STAGES`].
    pub stages: [LiveStage; STAGES.len()],
    /// Requests and bytes of the input's store.
    pub storage_read: CounterSnapshot,
    /// Requests and bytes of the outputs' stores.
    pub storage_written: CounterSnapshot,
    /// Bytes that steps and tiles lease.
    pub held_bytes: u64,
    /// Bytes that they may.
    pub budget_bytes: u64,
}

/// What storage and memory show: asked for as long as the run streams.
pub(crate) type Streaming = Box<dyn Fn() -> Option<Holdings> + Send + Sync>;

/// Storage and memory at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holdings {
    pub(crate) storage_read: CounterSnapshot,
    pub(crate) storage_written: CounterSnapshot,
    pub(crate) held_bytes: u64,
    pub(crate) budget_bytes: u64,
}

/// Where a run hangs out what it shows.
#[derive(Default)]
pub(crate) struct Window {
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    meters: Option<Arc<Meters>>,
    queues: [Option<Queue>; STAGES.len()],
    streaming: Option<Streaming>,
    last: Holdings,
}

type Queue = Box<dyn Fn() -> Option<(usize, usize)> + Send + Sync>;

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Window")
    }
}

impl Window {
    pub(crate) fn set_meters(&self, meters: &Arc<Meters>) {
        self.parts().meters = Some(Arc::clone(meters));
    }

    /// What waits in front of the stage of this place in [`STAGES`]. The channel does not stay open for it.
    pub(crate) fn set_queue<T: Send + 'static>(&self, stage: usize, channel: &Receiver<T>) {
        let channel: WeakReceiver<T> = channel.downgrade();
        let queue: Queue = Box::new(move || {
            let channel = channel.upgrade()?;
            Some((channel.len(), channel.capacity().unwrap_or(0)))
        });
        if let Some(place) = self.parts().queues.get_mut(stage) {
            *place = Some(queue);
        }
    }

    pub(crate) fn set_streaming(&self, streaming: Streaming) {
        self.parts().streaming = Some(streaming);
    }

    /// What is shown from now on: the run has ended.
    pub(crate) fn settle(&self) {
        let mut parts = self.parts();
        if let Some(last) = parts.streaming.take().and_then(|streaming| streaming()) {
            parts.last = last;
        }
        parts.last.held_bytes = 0;
        parts.queues = Default::default();
    }

    /// How things are.
    pub(crate) fn live(&self) -> Live {
        let mut parts = self.parts();
        if let Some(now) = parts.streaming.as_ref().and_then(|streaming| streaming()) {
            parts.last = now;
        }
        let Holdings { storage_read, storage_written, held_bytes, budget_bytes } = parts.last;
        let mut live = Live { storage_read, storage_written, held_bytes, budget_bytes, ..Live::default() };
        let Some(meters) = &parts.meters else { return live };
        for ((stage, meter), queue) in live.stages.iter_mut().zip(all(meters)).zip(&parts.queues) {
            let (queue, queue_capacity) = queue.as_ref().and_then(|queue| queue()).unwrap_or_default();
            let (reading, worked, queued) = (meter.reading(), meter.worked(), meter.queued());
            *stage = LiveStage { reading, worked, queued, queue, queue_capacity };
        }
        live
    }

    fn parts(&self) -> std::sync::MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn all(meters: &Meters) -> [&Meter; STAGES.len()] {
    let Meters { read, prepare, batch, device, merge, write } = meters;
    [read, prepare, batch, device, merge, write]
}
