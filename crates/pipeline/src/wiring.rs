//! The stages and the channels between them: every channel of a run is made here.

use std::sync::Arc;

use async_channel::{Receiver, Sender, bounded};
use haloflow_engine::Slot;
use haloflow_geometry::number;
use haloflow_volume::Written;
use haloflow_volume::carried::carried;
use tokio::task::{JoinHandle, JoinSet};

use crate::device::{DeviceThread, GRACE, join};
use crate::fault::{Fault, Stage};
use crate::home::Home;
use crate::messages::{Batch, Flight, StoredTile};
use crate::record::record;
use crate::shared::Shared;
use crate::{batch, merge, read, write};

/// Steps that wait between read and batch. They hold leases, so few are enough.
const PREPARED: usize = 2;

/// Finished tiles that wait between merge and write.
const FINISHED: usize = 2;

/// Stored tiles that wait to be recorded. They are small.
const STORED: usize = 1024;

/// The channels that device threads hold from their start on, which is before anything else is known.
pub(crate) struct DeviceChannels {
    /// Where batches are put.
    pub(crate) batches_in: Sender<Batch>,
    /// Where devices take them.
    pub(crate) batches_out: Receiver<Batch>,
    /// Where devices put flights.
    pub(crate) flights_in: Sender<Flight>,
    /// Where flights are taken.
    pub(crate) flights_out: Receiver<Flight>,
    /// What batches get on their way.
    pub(crate) home: Home,
    /// Where devices find batches that another device could not do.
    pub(crate) returned: Receiver<Batch>,
}

impl DeviceChannels {
    /// Channels for the `devices` with `slots` slots in all: a filled batch waits for each device, and every slot can be in flight.
    pub(crate) fn new(devices: Vec<String>, slots: usize) -> Self {
        let (batches_in, batches_out) = bounded(devices.len().max(1));
        let (flights_in, flights_out) = bounded(slots.max(1));
        let (home, returned) = Home::new(devices, slots);
        Self { batches_in, batches_out, flights_in, flights_out, home, returned }
    }
}

/// Runs all stages to their end, or until the first fault has stopped them, and joins the device threads.
pub(crate) async fn stream(shared: &Arc<Shared>, slots: Vec<Slot>, devices: Vec<DeviceThread>, channels: Channels) {
    let Channels { batches, flights, home } = channels;
    let queued = flights.clone();
    let (free_in, free_out) = bounded(slots.len().max(1));
    for slot in slots {
        // The channel has room for every slot.
        drop(free_in.try_send(slot));
    }
    // Slots that nobody needs any more stay there to the end: to give pinned memory back waits for the device, and merging would wait too.
    let unused = free_out.clone();
    let (prepared_in, prepared_out) = bounded(PREPARED);
    let (finished_in, finished_out) = bounded(FINISHED);
    let (stored_in, stored_out) = bounded(STORED);
    let recording = spawn_record(shared, stored_out);
    let window = &shared.progress.window;
    window.set_queue(2, &prepared_out);
    window.set_queue(4, &flights);
    window.set_queue(5, &finished_out);
    let mut stages = JoinSet::new();
    spawn(&mut stages, shared, Stage::Read, read::read(Arc::clone(shared), prepared_in));
    spawn(&mut stages, shared, Stage::Batch, batch::batch(Arc::clone(shared), prepared_out, free_out, (batches, home)));
    spawn(&mut stages, shared, Stage::Merge, merge::merge(Arc::clone(shared), flights, free_in, finished_in));
    spawn(&mut stages, shared, Stage::Write, write::write(Arc::clone(shared), finished_out, stored_in));
    while let Some(ended) = stages.join_next().await {
        if let Err(error) = ended {
            shared.faults.report(Fault::panicked(Stage::Plan, &error));
        }
    }
    // Whatever flew when the run was cancelled lands nowhere.
    queued.close();
    while let Ok(flight) = queued.try_recv() {
        drop(flight);
    }
    recorded(shared, recording).await;
    // On a thread that may wait: a device that hangs holds it up, and is left behind below.
    shared.tasks.spawn_blocking(move || drop(unused));
    shared.tasks.close();
    if tokio::time::timeout(GRACE, shared.tasks.wait()).await.is_err() {
        tracing::error!("a batch is still on its device {GRACE:?} after the run has ended; it is left behind");
    }
    join(devices, &shared.faults, GRACE).await;
}

/// Records until nothing can come any more, also once the run is cancelled.
fn spawn_record(shared: &Shared, tiles: Receiver<StoredTile>) -> JoinHandle<()> {
    let (mut ledger, faults) = (shared.ledger.writer(), shared.faults.clone());
    for tile in shared.skipped.iter() {
        // The plan has no more tiles than fit.
        ledger.add(Written::default().record(number(shared.plan.tiles(), tile) as u32), &[]);
    }
    tokio::spawn(carried(async move {
        if let Err(fault) = record(ledger, tiles).await {
            faults.report(fault);
        }
    }))
}

/// Waits until what was stored is recorded; not for ever if the run has been cancelled.
async fn recorded(shared: &Shared, mut recording: JoinHandle<()>) {
    let ended = match shared.faults.cancel().run_until_cancelled(&mut recording).await {
        Some(ended) => Ok(ended),
        None => tokio::time::timeout(GRACE, recording).await,
    };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => shared.faults.report(Fault::panicked(Stage::Write, &error)),
        Err(_) => {
            tracing::error!("the last blocks could not be recorded within {GRACE:?}; they will be computed again");
        }
    }
}

/// The ends of the devices' channels that the stages hold.
pub(crate) struct Channels {
    /// Where the batch stage puts batches.
    pub(crate) batches: Sender<Batch>,
    /// Where the merge stage takes flights.
    pub(crate) flights: Receiver<Flight>,
    /// What the batch stage gives every batch.
    pub(crate) home: Home,
}

/// Runs a stage until it ends, fails or is cancelled. When it ends its channel ends are dropped, which ends its neighbours.
fn spawn(
    stages: &mut JoinSet<()>,
    shared: &Arc<Shared>,
    stage: Stage,
    work: impl Future<Output = Result<(), Fault>> + Send + 'static,
) {
    let faults = shared.faults.clone();
    stages.spawn(carried(async move {
        let guarded = std::panic::AssertUnwindSafe(work);
        let ended = faults.cancel().run_until_cancelled(futures::FutureExt::catch_unwind(guarded)).await;
        match ended {
            None | Some(Ok(Ok(()))) => {}
            Some(Ok(Err(fault))) => faults.report(fault),
            Some(Err(_)) => faults.report(Fault::defect(stage, "a stage panicked")),
        }
    }));
}
