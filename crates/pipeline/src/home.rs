//! The way back of a batch whose device cannot go on: to whichever other device is free.
//!
//! Every batch carries its way home from the moment it is formed until it has landed. So the devices know that nothing more can
//! come: when nobody holds a way home any more, the channel behind it closes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By name.
    running: BTreeSet<String>,
    retired: Vec<EngineError>,
}

impl Fleet {
    /// The devices that gave up, and why.
    pub(crate) fn retired(&self) -> Vec<EngineError> {
        self.state().retired.clone()
    }

    /// Takes a device out; `false` if it is the last.
    pub(crate) fn retire(&self, device: &str, error: &EngineError) -> bool {
        let mut state = self.state();
        state.retired.push(error.clone());
        state.running.remove(device);
        !state.running.is_empty()
    }

    /// Whether a device other than `device` still runs.
    fn runs_without(&self, device: &str) -> bool {
        self.state().running.iter().any(|name| name != device)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Home {
    /// Ways home for at most `slots` batches of the `devices`, and where the devices find what came back.
    pub(crate) fn new(devices: Vec<String>, slots: usize) -> (Self, Receiver<Batch>) {
        let (returned, again) = bounded(slots.max(1));
        let running = devices.into_iter().collect();
        let fleet = Arc::new(Fleet { state: Mutex::new(State { running, retired: Vec::new() }) });
        (Self { returned, fleet, returns: 0 }, again)
    }

    pub(crate) fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Whether a batch that failed of `error` on `device` may run on another device. The device itself may have retired before:
    /// its last completions fail after it.
    pub(crate) fn is_open_after(&self, device: &str, error: &EngineError) -> bool {
        self.returns < RETURNS && device_is_at_fault(error) && self.fleet.runs_without(device)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_after_its_device_has_retired_goes_to_a_device_that_still_runs() {
        let (home, _again) = Home::new(vec!["fake:0".into(), "fake:1".into()], 2);
        let lost = EngineError::new(EngineErrorKind::DeviceLost, "fake:0", "told so");
        assert!(home.is_open_after("fake:0", &lost));
        assert!(home.fleet().retire("fake:0", &lost), "fake:1 goes on");
        assert!(home.is_open_after("fake:0", &lost), "a late completion of the device that has retired");
        assert!(!home.is_open_after("fake:1", &lost), "no other is left");
        assert!(!home.is_open_after("fake:0", &EngineError { kind: EngineErrorKind::Run, ..lost.clone() }));
        assert!(!home.fleet().retire("fake:1", &lost));
        assert!(!home.is_open_after("fake:0", &lost));
        assert_eq!(home.fleet().retired(), [lost.clone(), lost]);
    }
}
