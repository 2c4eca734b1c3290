//! Read: admits steps in plan order, fetches and decodes their voxels, and finds the numbers of their normalisation.
//!
//! Runs on Tokio tasks; decoding and statistics run on the CPU pool. In front of it: nothing, it pulls from the plan. Behind it:
//! a bounded channel. Bounded by byte leases: a step is admitted when its input and the tiles it opens fit into the budget, so
//! that nothing behind needs to ask for memory.
//!
//! The first step is read alone, and whenever one has been read one more is read ahead: all devices wait for the first, and those
//! behind it would only keep the processors from it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use async_channel::Sender;
use futures::{StreamExt, stream};
use haloflow_geometry::{Step, Zyx};
use haloflow_volume::carried::carried;
use haloflow_volume::{Brick, Turn};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use crate::blocks::of_step;
use crate::budget::Lease;
use crate::fault::{Fault, Stage};
use crate::messages::{PreparedStep, StepContext, StepInput};
use crate::normalise::{Normalisation, Normaliser};
use crate::quarantine::TRIES;
use crate::shared::Shared;
use crate::statistics::{Voxels, percentiles};

struct Admitted {
    step: Step,
    turn: Turn,
    input: Lease,
    tiles: HashMap<Zyx, Lease>,
}

/// Reads every step of the plan and hands them on in plan order.
pub(crate) async fn read(shared: Arc<Shared>, out: Sender<PreparedStep>) -> Result<(), Fault> {
    let steps = stream::iter(shared.plan.steps(shared.column)).take_until(shared.drain.clone().cancelled_owned());
    let room = Arc::new(Semaphore::new(1));
    let admitted = steps.then(|step| {
        let (shared, room) = (Arc::clone(&shared), Arc::clone(&room));
        async move {
            if let Ok(taken) = room.acquire().await {
                taken.forget();
            }
            admit(&shared, step).await
        }
    });
    let reading = admitted.map(|admitted| {
        let (shared, room) = (Arc::clone(&shared), Arc::clone(&room));
        let tasks = shared.tasks.clone();
        AbortOnDropHandle::new(tasks.spawn(carried(async move {
            let step = read_step(&shared, admitted).await;
            room.add_permits(2);
            step
        })))
    });
    let mut prepared = std::pin::pin!(reading.buffered(shared.read_ahead));
    while let Some(step) = prepared.next().await {
        let step = step.map_err(|error| Fault::panicked(Stage::Read, &error))??;
        if shared.meters.read.waiting(out.send(step)).await.is_err() {
            break;
        }
    }
    Ok(())
}

async fn admit(shared: &Shared, step: Step) -> Admitted {
    let input = step.read.voxels() as u64 * shared.input_bytes;
    let opened: Vec<(Zyx, u64)> = shared
        .plan
        .opened_by(&step)
        .map(|tile| (tile, shared.plan.tile(tile).voxels() as u64 * shared.tile_bytes))
        .collect();
    shared
        .meters
        .read
        .waiting(async {
            let mut tiles = HashMap::with_capacity(opened.len());
            for (tile, bytes) in opened {
                tiles.insert(tile, shared.budget.lease(bytes).await);
            }
            let input = shared.budget.lease(input).await;
            shared.traced.begun(|| of_step(&shared.plan, &step));
            let turn = shared.leftovers.begin(shared.plan.read_of(shared.column, &step));
            Admitted { step, turn, input, tiles }
        })
        .await
}

async fn read_step(shared: &Shared, admitted: Admitted) -> Result<PreparedStep, Fault> {
    let Admitted { step, turn, input, tiles } = admitted;
    let region = step.read;
    let _holding = shared.board.hold(Stage::Read, format!("block {region}"));
    let reading = shared.meters.read.working(read_region(shared, &turn));
    let (brick, failed) = match shared.traced.working("read", || of_step(&shared.plan, &step), reading).await {
        Ok(brick) => (brick, None),
        // Zeros go its way, so that everything else goes on as planned; nothing that they give to is stored.
        Err(fault) if shared.quarantine.admits(&fault) => (shared.reader.zeros(region), Some(fault)),
        Err(fault) => return Err(fault),
    };
    let (brick, normalisers) = normalisers(shared, brick, &step).await?;
    let context = StepContext::new(step, normalisers, tiles).but(failed);
    let since = Instant::now();
    Ok(PreparedStep { since, context: Arc::new(context), input: Arc::new(StepInput { brick, _lease: input }) })
}

/// Reads the voxels of a step; again if that may help.
async fn read_region(shared: &Shared, turn: &Turn) -> Result<Brick, Fault> {
    for left in (0..TRIES).rev() {
        let fault = match shared.reader.read_in_turn(turn).await {
            Ok(brick) => return Ok(brick),
            Err(error) => Fault::volume(Stage::Read, &error).at(turn.region()),
        };
        if left == 0 || !shared.quarantine.admits(&fault) {
            return Err(fault);
        }
        shared.board.note(format!("{fault}; tried again"));
    }
    Err(Fault::defect(Stage::Read, "a block was never tried"))
}

async fn normalisers(shared: &Shared, brick: Brick, step: &Step) -> Result<(Brick, Vec<Normaliser>), Fault> {
    let Normalisation::Percentile { percentiles: q } = shared.normalisation else {
        return Ok((brick, shared.normalisers.clone()));
    };
    let (region, start) = (step.read, Instant::now());
    let (eps, clip, kind, meters) = (shared.eps, shared.clip, shared.spec.input, Arc::clone(&shared.meters));
    let work = move || {
        meters.prepare.work(|| {
            let of_channel = |bytes| {
                let [low, high] = percentiles(&Voxels { element: brick.element, bytes }, q).unwrap_or_else(|| {
                    tracing::warn!("block {region} has no finite voxel to take percentiles of; 0 and 1 are used");
                    [0.0, 1.0]
                });
                Normaliser::shift_and_scale(low, high - low, eps).with_clip(clip).tabulated(brick.element, kind)
            };
            let normalisers = brick.channels.iter().map(|channel| of_channel(channel)).collect();
            (brick, normalisers)
        })
    };
    let done = shared.cpu.run(work).await.map_err(|error| Fault::volume(Stage::Prepare, &error));
    shared.traced.worked("prepare", || of_step(&shared.plan, step), start, (None, None));
    done
}
