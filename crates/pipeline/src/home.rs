//! The way back of a batch whose device cannot go on: to whichever other device is free.
//!
//! Every batch carries its way home from the moment it is formed until it has landed. So the devices know that nothing more can
//! come: when nobody holds a way home any more, the channel behind it closes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_channel::{Receiver, Sender, bounded};
use haloflow_engine::{EngineError, EngineErrorKind};

use crate::messages::Batch;

/// How often a batch may come back before the run is given up: a device that fails only behind its completions would take it for
/// ever.
const RETURNS: u32 = 4;

/// A batch's way home.
#[derive(Clone)]
pub(crate) struct Home {
    returned: Sender<Batch>,
    fleet: Arc<Fleet>,
    /// How often the batch has come back.
    returns: u32,
}

/// The devices of a run, as far as they still run.
#[derive(Default)]
pub(crate) struct Fleet {
    running: AtomicUsize,
    retired: Mutex<Vec<EngineError>>,
}

impl Fleet {
    /// The devices that gave up, and why.
    pub(crate) fn retired(&self) -> Vec<EngineError> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes a device out; `false` if it is the last.
    pub(crate) fn retire(&self, error: &EngineError) -> bool {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).push(error.clone());
        self.running.fetch_sub(1, Ordering::AcqRel) > 1
    }
}

impl Home {
    /// Ways home for at most `slots` batches of `devices` devices, and where the devices find what came back.
    pub(crate) fn new(devices: usize, slots: usize) -> (Self, Receiver<Batch>) {
        let (returned, again) = bounded(slots.max(1));
        let fleet = Arc::new(Fleet { running: AtomicUsize::new(devices), retired: Mutex::default() });
        (Self { returned, fleet, returns: 0 }, again)
    }

    pub(crate) fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Whether a batch that failed of `error` may run on another device.
    pub(crate) fn is_open_after(&self, error: &EngineError) -> bool {
        self.returns < RETURNS && self.fleet.running.load(Ordering::Acquire) > 1 && device_is_at_fault(error)
    }

    /// Sends a batch back. It never blocks: there is room for every slot.
    pub(crate) fn send(batch: Batch) {
        let Self { returned, fleet, returns } = batch.home;
        let home = Self { returned: returned.clone(), fleet, returns: returns + 1 };
        // Nobody takes it any more only if the run has ended.
        drop(returned.try_send(Batch { home, ..batch }));
    }
}

/// Whether another device may do better.
pub(crate) fn device_is_at_fault(error: &EngineError) -> bool {
    matches!(error.kind, EngineErrorKind::OutOfMemory | EngineErrorKind::DeviceLost)
}
