//! Write: brings a finished tile back into its range, casts it, encodes and stores it whole.
//!
//! Tokio tasks, `writers` at a time; casting and encoding run on the CPU pool. In front of it: a bounded channel of finished
//! tiles. A tile's lease is held until its last put is acknowledged.

use std::sync::Arc;

use async_channel::{Receiver, Sender};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use haloflow_geometry::{Box3, Zyx, number};
use haloflow_volume::carried::carried;
use haloflow_volume::{AlignedBytes, Window, Written};
use rayon::prelude::*;
use tokio_util::task::AbortOnDropHandle;

use crate::after;
use crate::blocks::block;
use crate::cast::{CastCounts, cast_to};
use crate::fault::{Fault, FaultKind, Stage};
use crate::messages::{FinishedTile, StoredTile};
use crate::meter::Meter;
use crate::normalise::Affine;
use crate::pyramid::{coarsen, covered, window};
use crate::quarantine::TRIES;
use crate::shared::Shared;

/// Stores all tiles, and has each recorded.
pub(crate) async fn write(
    shared: Arc<Shared>,
    tiles: Receiver<FinishedTile>,
    stored: Sender<StoredTile>,
) -> Result<(), Fault> {
    let start = |tile| {
        let shared = Arc::clone(&shared);
        let (tasks, stored) = (shared.tasks.clone(), stored.clone());
        let storing = AbortOnDropHandle::new(tasks.spawn(carried(async move { store(&shared, tile, &stored).await })));
        async move { storing.await.map_err(|error| Fault::panicked(Stage::Write, &error))? }
    };
    limited(&shared.meters.write, tiles, shared.writers, start).await
}

/// Starts `work` on every item, on at most `limit` at one time. Only while there is none does the stage wait.
async fn limited<T, W: Future<Output = Result<(), Fault>>>(
    meter: &Meter,
    items: Receiver<T>,
    limit: usize,
    mut work: impl FnMut(T) -> W,
) -> Result<(), Fault> {
    let mut under_way = FuturesUnordered::new();
    let mut more = true;
    loop {
        if under_way.is_empty() {
            let Ok(item) = meter.waiting(items.recv()).await else { return Ok(()) };
            under_way.push(work(item));
        }
        tokio::select! {
            item = items.recv(), if more && under_way.len() < limit => match item {
                Ok(item) => under_way.push(work(item)),
                Err(_) => more = false,
            },
            Some(done) = under_way.next() => done?,
        }
    }
}

async fn store(shared: &Arc<Shared>, tile: FinishedTile, stored: &Sender<StoredTile>) -> Result<(), Fault> {
    let FinishedTile { since, tile, region, values, inverses, lease } = tile;
    shared.meters.write.taken(since);
    let _holding = shared.board.hold(Stage::Write, format!("block {region}"));
    let casting = Arc::clone(shared);
    let storing = async {
        let told = |error| Fault::volume(Stage::Write, &error).at(format!("block {region}"));
        let work = move || {
            let (channels, seen) = finalise(&casting, region, values, &inverses)?;
            let coarser = levels(&casting, region, &channels);
            Ok((channels, seen, coarser))
        };
        let (channels, seen, coarser) = shared.cpu.run(work).await.map_err(told)??;
        let levels = std::iter::once((region, channels)).chain(coarser);
        let levels: Vec<_> = levels.map(|(region, channels)| (region, Arc::new(channels))).collect();
        let written = put(shared, &levels).await.map_err(|fault| fault.at(format!("block {region}")))?;
        Ok((written, seen))
    };
    let storing = shared.meters.write.working(storing);
    let stored_as: Result<_, Fault> = shared.traced.working("write", || vec![block(&shared.plan, tile)], storing).await;
    shared.traced.ended(&shared.plan, tile, stored_as.as_ref().map(drop));
    drop(lease);
    let (written, seen) = match stored_as {
        Ok(stored_as) => stored_as,
        Err(fault) if fault.kind == FaultKind::Transient && shared.quarantine.admits(&fault) => {
            return shared.quarantine.set_aside(region, &fault);
        }
        Err(fault) => return Err(fault),
    };
    // The plan has no more tiles than fit. Nobody listens any more only if the record has failed, which is the run's fault then.
    let record = written.record(number(shared.plan.tiles(), tile) as u32);
    let windows = seen.iter().map(|of_channel| of_channel.window).collect();
    let _ = stored.send(StoredTile { record, windows }).await;
    shared.quarantine.stored();
    let mut counts = CastCounts::default();
    seen.iter().for_each(|of_channel| counts.add(&of_channel.counts));
    shared.progress.tile_stored(region, &counts);
    Ok(())
}

/// Puts a tile on every level, the finest first; again if that may help.
async fn put(shared: &Shared, levels: &[(Box3, Arc<Vec<AlignedBytes>>)]) -> Result<Written, Fault> {
    let mut written = Written::default();
    for (level, (region, channels)) in levels.iter().enumerate() {
        let mut tries = 1;
        let of_level = loop {
            let fault = match shared.writer.write_level(level, *region, Arc::clone(channels)).await {
                Ok(of_level) => break of_level,
                Err(error) => Fault::volume(Stage::Write, &error),
            };
            if fault.kind != FaultKind::Transient || tries == TRIES {
                return Err(fault);
            }
            tries += 1;
            shared.board.note(format!("{fault}; tried again"));
        };
        written = written.and(of_level);
    }
    Ok(written)
}

/// What a tile gives to each coarser level: the region there, and its channels.
fn levels(shared: &Shared, region: Box3, channels: &[AlignedBytes]) -> Vec<(Box3, Vec<AlignedBytes>)> {
    let mut coarser: Vec<(Box3, Vec<AlignedBytes>)> = Vec::new();
    let mut before = [1; 3];
    for &factors in &shared.factors {
        let (shape, finer) =
            coarser.last().map_or((region.shape(), channels), |(region, finer)| (region.shape(), finer));
        let steps = std::array::from_fn(|axis| factors[axis] / before[axis]);
        let made =
            finer.iter().map(|bytes| coarsen(shared.cast.element, bytes, shape, steps, shared.downsampling)).collect();
        coarser.push((covered(region, factors), made));
        before = factors;
    }
    coarser
}

/// Voxels that are finished in one go: so few that they stay in a processor's nearest cache from step to step.
const PIECE: usize = 1 << 12;

/// What was seen of the voxels that are stored.
#[derive(Clone, Copy)]
struct Seen {
    counts: CastCounts,
    window: Window,
}

impl Seen {
    const NOTHING: Self =
        Self { counts: CastCounts { clipped_low: 0, clipped_high: 0, nonfinite: 0 }, window: Window::EMPTY };

    fn and(mut self, other: Self) -> Self {
        self.counts.add(&other.counts);
        Self { window: self.window.and(other.window), ..self }
    }
}

/// The channels of a tile in the stored kind, and what was seen of each. Runs on all threads of the current pool.
fn finalise(
    shared: &Shared,
    region: Box3,
    values: AlignedBytes,
    inverses: &[Affine],
) -> Result<(Vec<AlignedBytes>, Vec<Seen>), Fault> {
    let (voxels, element) = (region.voxels(), shared.cast.element);
    let channels = values.as_slice::<f32>().par_chunks(voxels).zip(inverses).enumerate();
    let finished = channels.map(|(channel, (values, &inverse))| {
        let mut bytes = AlignedBytes::zeroed(voxels * element.size());
        let pieces = values.par_chunks(PIECE).zip(bytes.par_chunks_mut(PIECE * element.size())).enumerate();
        let seen = pieces.map(|(piece, (values, bytes))| {
            // The tile itself is only read: what is written there would have to go back to memory, for nobody.
            let mut finished = [0.0; PIECE];
            let finished = &mut finished[..values.len()];
            finished.copy_from_slice(values);
            if inverse != Affine::IDENTITY {
                finished.iter_mut().for_each(|value| *value = inverse.apply(*value));
            }
            after::apply(&shared.after, finished);
            let counts =
                cast_to(finished, &shared.cast, bytes).map_err(|index| (piece * PIECE + index, finished[index]))?;
            Ok(Seen { counts, window: window(element, bytes) })
        });
        // Of several values that are no number the first is named: the left side is always in front.
        let all = seen.reduce(|| Ok(Seen::NOTHING), |front, back| Ok(front?.and(back?)));
        let all = all.map_err(|(index, value)| not_finite(region, channel, value, index))?;
        Ok((bytes, all))
    });
    Ok(finished.collect::<Result<Vec<_>, Fault>>()?.into_iter().unzip())
}

fn not_finite(region: Box3, channel: usize, value: f32, index: usize) -> Fault {
    let [_, height, width] = region.shape();
    let place: Zyx = [index / (height * width), index / width % height, index % width];
    let [z, y, x]: Zyx = std::array::from_fn(|axis| region.start[axis] + place[axis]);
    let message = format!(
        "the result at voxel z {z}, y {y}, x {x} of channel {channel} is {value}; `--nonfinite replace` or `--nonfinite VALUE` would store a \
         number instead"
    );
    Fault::new(FaultKind::Data, Stage::Write, message).at(format!("block {region}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    use super::*;

    #[tokio::test]
    async fn at_most_as_many_as_allowed_are_under_way_and_none_of_their_time_is_waiting() {
        let (give, items) = async_channel::unbounded();
        (0..10).for_each(|item| give.try_send(item).unwrap());
        drop(give);
        let (meter, now, most) = (Meter::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let took = Duration::from_millis(10);
        let work = |_: usize| async {
            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            tokio::task::yield_now().await;
            let began = Instant::now();
            while began.elapsed() < took {}
            now.fetch_sub(1, SeqCst);
            Ok(())
        };
        limited(&meter, items, 3, work).await.unwrap();
        assert!((2..=3).contains(&most.load(SeqCst)) && now.load(SeqCst) == 0);
        assert!(meter.reading().waiting_seconds < 5.0 * took.as_secs_f64(), "{:?}", meter.reading());
    }
}
