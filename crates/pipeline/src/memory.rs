//! How the memory of a run is split, settled before it starts.

use haloflow_engine::EngineSpec;
use haloflow_geometry::{Column, Footprint, Lattice, Plan};
use serde::Serialize;

use self::reuse::{Overlaps, Reuse};
use crate::fault::{Fault, FaultKind, Stage};

/// Slots per device: one filling, one on the device, one merging.
const SLOTS_PER_DEVICE: usize = 3;

/// The column that is there in every plan.
const NARROWEST: Column = Column { y: 1, x: 1 };

/// The split, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemorySplit {
    /// Everything.
    pub total: u64,
    /// Batches: input and output of every slot.
    pub slots: u64,
    /// Voxels of fetched chunks that are kept for later steps.
    pub cache: u64,
    /// What has to be kept so that every chunk of a column is read once: with less some are read again.
    pub kept: u64,
    /// Encoded and decoded chunks on their way from and to storage.
    pub transfer: u64,
    /// Input of steps, accumulators and finished tiles.
    pub leases: u64,
    /// The least that steps and tiles need.
    pub need: u64,
    /// Decoded bytes that will be read for the whole volume: an estimate to compare splits by.
    #[serde(skip)]
    pub(crate) read: u64,
    /// Whether there is room for all that is wanted again, also by later columns.
    #[serde(skip)]
    pub(crate) reads_once: bool,
}

/// What the split is made for.
pub(crate) struct Demand<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) spec: &'a EngineSpec,
    pub(crate) slots: usize,
    pub(crate) input_bytes: u64,
    pub(crate) tile_bytes: u64,
    pub(crate) transfer: u64,
    /// Read unit, voxels.
    pub(crate) unit: [usize; 3],
}

/// Slots of all devices together, or of one of several devices.
pub(crate) fn slots_per_device(devices: usize, max_inflight: usize) -> usize {
    (max_inflight / devices.max(1)).clamp(1, SLOTS_PER_DEVICE)
}

/// Chooses the column and splits `total`.
///
/// # Errors
/// If the least that is needed does not fit; the message says what is needed for what, and what to change.
pub(crate) fn split(total: u64, demand: &Demand<'_>) -> Result<(Column, MemorySplit), Fault> {
    let slots = demand.slots as u64 * demand.spec.slot_bytes() as u64;
    let rest = total.saturating_sub(slots + demand.transfer);
    let footprint = Footprint { input: demand.input_bytes, tile: demand.tile_bytes, batch: demand.spec.batch };
    if slots + demand.transfer > total {
        return Err(too_little(total, slots, demand, demand.plan.need(NARROWEST, &footprint)));
    }
    let overlaps = Overlaps::of(demand);
    let reuse = |column| overlaps.reuse(demand, column);
    if matches!(demand.plan.geometry().lattice, Lattice::Block { .. }) {
        let found = split_blocks(rest, demand, &footprint, &overlaps);
        return found
            .map(|(column, cache, need)| (column, finish(total, demand, &reuse(column), cache, need)))
            .ok_or_else(|| too_little(total, slots, demand, demand.plan.need(NARROWEST, &footprint)));
    }
    // Room beyond the need lets reading run ahead: better a column that leaves half as much again.
    for spare in [half_spare as fn(u64) -> u64, |room| room] {
        for column in candidates(demand, &overlaps, rest / 2) {
            let reuse = reuse(column);
            let cache = reuse.kept.min(rest / 2);
            if let Some(need) = demand.plan.need_within(column, &footprint, spare(rest - cache)) {
                // What columns share is kept from one to the next if there is room for that too.
                let fits = |size: &u64| rest.checked_sub(*size).is_some_and(|left| need <= half_spare(left));
                let cache = [reuse.ample(), reuse.all()].into_iter().find(fits).unwrap_or(cache);
                return Ok((column, finish(total, demand, &reuse, cache, need)));
            }
        }
    }
    // Whatever is left beyond the need is shared.
    for column in candidates(demand, &overlaps, 0) {
        if let Some(need) = demand.plan.need_within(column, &footprint, rest) {
            let reuse = reuse(column);
            let cache = reuse.kept.min((rest - need) / 2);
            return Ok((column, finish(total, demand, &reuse, cache, need)));
        }
    }
    Err(too_little(total, slots, demand, demand.plan.need(NARROWEST, &footprint)))
}

/// The most that may be needed of `room` if half as much again is to be left.
const fn half_spare(room: u64) -> u64 {
    room / 3 * 2
}

/// In the block lattice every column computes the same patches and needs about the same, so that the column is chosen by what has to be
/// read: the least with all memory that is left, or hardly more with room to read ahead.
fn split_blocks(
    rest: u64,
    demand: &Demand<'_>,
    footprint: &Footprint,
    overlaps: &Overlaps,
) -> Option<(Column, u64, u64)> {
    let about = demand.plan.need_within(NARROWEST, footprint, rest).unwrap_or(rest);
    let columns: Vec<_> =
        ladder(demand, overlaps).into_iter().map(|column| (column, overlaps.reuse(demand, column))).collect();
    let best = |ahead: u64| {
        let room = rest.checked_sub(about.checked_mul(ahead)?)?;
        let mut columns: Vec<_> = columns.iter().collect();
        columns.sort_by_key(|(column, reuse)| (reuse.read(room), reuse.all().min(room), reread(demand, *column)));
        columns.into_iter().find_map(|(column, reuse)| {
            let need = demand.plan.need_within(*column, footprint, rest / ahead)?;
            let cache = reuse.ample().min(rest - need * ahead);
            Some((reuse.read(cache), (*column, cache, need)))
        })
    };
    let (read, least) = best(1)?;
    // Better to wait less for the store than to save a twentieth of what is read.
    Some(best(2).filter(|(roomy, _)| *roomy <= read.saturating_add(read / 20)).map_or(least, |(_, roomy)| roomy))
}

/// The split with this column and this much kept; the rest is leased.
fn finish(total: u64, demand: &Demand<'_>, reuse: &Reuse, cache: u64, need: u64) -> MemorySplit {
    let (slots, transfer) = (demand.slots as u64 * demand.spec.slot_bytes() as u64, demand.transfer);
    MemorySplit {
        total,
        slots,
        cache,
        kept: reuse.kept,
        transfer,
        leases: total - slots - transfer - cache,
        need,
        read: reuse.read(cache),
        reads_once: cache >= reuse.all(),
    }
}

/// Says what a run needs, for what, and what to change.
fn too_little(total: u64, slots: u64, demand: &Demand<'_>, least: u64) -> Fault {
    let message = format!(
        "`memory` is {}; this run needs at least {}: {} for {} slots of a batch of {}, {} for chunks on their way, {} for open blocks and \
         their input. Give more memory, or make {}`batch`, `block`, `chunk` or `shard` smaller",
        mib(total),
        mib(slots + demand.transfer + least),
        mib(slots),
        demand.slots,
        demand.spec.batch,
        mib(demand.transfer),
        mib(least),
        if demand.transfer > (slots + demand.transfer + least) / 4 { "`requests`, " } else { "" }
    );
    Fault::new(FaultKind::Usage, Stage::Plan, message)
}

/// The columns to try, those that cost the least first. They are those of one ladder, whatever the memory is, so that more memory
/// never refuses what less would admit.
fn candidates(demand: &Demand<'_>, overlaps: &Overlaps, cache: u64) -> Vec<Column> {
    let mut columns = ladder(demand, overlaps);
    columns.sort_by_cached_key(|&column| {
        // A column whose input is not kept from one step to the next reads its chunks again: about a tenth of the work.
        let misses = u64::from(overlaps.reuse(demand, column).kept > cache);
        (demand.plan.patches_of_all(column) * (10 + misses), reread(demand, column))
    });
    columns
}

/// Columns from the widest to the narrowest, each the one that computes the fewest patches among all that keep an eighth less
/// input than the one before.
fn ladder(demand: &Demand<'_>, overlaps: &Overlaps) -> Vec<Column> {
    let kept = |column| overlaps.reuse(demand, column).kept;
    let [_, height, width] = demand.plan.tiles();
    let across = sizes(width);
    let all = sizes(height).into_iter().flat_map(|y| across.iter().map(move |&x| Column { y, x }));
    let mut left: Vec<_> = all
        .map(|column| (kept(column), (demand.plan.patches_of_all(column), reread(demand, column)), column))
        .collect();
    let mut rungs = Vec::new();
    while let Some(&(kept, _, column)) = left.iter().min_by_key(|(_, cost, _)| *cost) {
        rungs.push(column);
        left.retain(|(other, ..)| *other < kept - kept / 8);
    }
    if rungs.last() != Some(&NARROWEST) {
        rungs.push(NARROWEST);
    }
    rungs
}

/// The sizes of a column along an axis of `tiles` tiles, each the least that gives its number of columns: a larger one of the same
/// number only holds more. There are at most two for each whole number up to the square root.
fn sizes(tiles: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut size = 1;
    while size < tiles {
        sizes.push(size);
        // The least size that gives fewer columns.
        size = tiles.div_ceil(tiles.div_ceil(size) - 1);
    }
    sizes.push(tiles.max(1));
    sizes
}

/// How much of the input is read again because a neighbouring column needs it too: a figure to compare columns by.
fn reread(demand: &Demand<'_>, column: Column) -> u64 {
    let [_, height, width] = demand.plan.tiles();
    (height.div_ceil(column.y) * width + width.div_ceil(column.x) * height) as u64
}

fn mib(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}

mod reuse;
#[cfg(test)]
mod tests;
