//! How the memory of a run is split, settled before it starts.

use haloflow_engine::EngineSpec;
use haloflow_geometry::{Column, Footprint, Lattice, Plan};
use serde::Serialize;

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
    /// Decoded chunks that are kept for the next step.
    pub cache: u64,
    /// What has to be kept so that every chunk of a column is read once: with a smaller cache some are read again.
    pub kept: u64,
    /// Encoded and decoded chunks on their way from and to storage.
    pub transfer: u64,
    /// Input of steps, accumulators and finished tiles.
    pub leases: u64,
    /// The least that steps and tiles need.
    pub need: u64,
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
    // Room beyond the need lets reading run ahead: better a column that leaves as much again.
    for ahead in [2, 1] {
        for column in candidates(demand, rest / 2) {
            let kept = kept_bytes(demand, column);
            let cache = kept.min(rest / 2);
            if let Some(need) = demand.plan.need_within(column, &footprint, (rest - cache) / ahead) {
                let (leases, transfer) = (rest - cache, demand.transfer);
                return Ok((column, MemorySplit { total, slots, cache, kept, transfer, leases, need }));
            }
        }
    }
    // Whatever is left beyond the need is shared.
    for column in candidates(demand, 0) {
        if let Some(need) = demand.plan.need_within(column, &footprint, rest) {
            let kept = kept_bytes(demand, column);
            let (cache, transfer) = (kept.min((rest - need) / 2), demand.transfer);
            return Ok((column, MemorySplit { total, slots, cache, kept, transfer, leases: rest - cache, need }));
        }
    }
    Err(too_little(total, slots, demand, demand.plan.need(NARROWEST, &footprint)))
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
fn candidates(demand: &Demand<'_>, cache: u64) -> Vec<Column> {
    let mut columns = ladder(demand);
    columns.sort_by_cached_key(|&column| {
        // A column whose input is not kept from one step to the next reads its chunks again: about a tenth of the work.
        let misses = u64::from(kept_bytes(demand, column) > cache);
        (demand.plan.patches_of_all(column) * (10 + misses), reread(demand, column))
    });
    columns
}

/// Columns from the widest to the narrowest, each the one that computes the fewest patches among all that keep an eighth less
/// input than the one before.
fn ladder(demand: &Demand<'_>) -> Vec<Column> {
    let [_, height, width] = demand.plan.tiles();
    let across = sizes(width);
    let all = sizes(height).into_iter().flat_map(|y| across.iter().map(move |&x| Column { y, x }));
    let mut left: Vec<_> = all
        .map(|column| {
            (kept_bytes(demand, column), (demand.plan.patches_of_all(column), reread(demand, column)), column)
        })
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

/// The decoded chunks that have to be kept so that those of a column are read once: what a layer of reads along z shares with the
/// next one, over the whole column; and below that what a row shares with the next one, and a read with the one beside it.
fn kept_bytes(demand: &Demand<'_>, column: Column) -> u64 {
    let [z, y, x] = std::array::from_fn(|axis| Reads::along(demand, axis));
    let geometry = demand.plan.geometry();
    let side = |axis: usize, tiles: usize| {
        let (unit, all) = (demand.unit[axis].max(1), geometry.volume[axis]);
        let whole = all.div_ceil(unit) * unit;
        if tiles * geometry.tile[axis] >= all { whole } else { whole.min(tiles * geometry.tile[axis] + 2 * unit) }
    };
    let (high, wide) = (side(1, column.y), side(2, column.x));
    // In the volume lattice a read is a whole row.
    let beside = if matches!(geometry.lattice, Lattice::Block { .. }) { x.longest } else { wide };
    let layer = z.shared * high * wide;
    let rows = (z.longest - z.shared) * (y.shared * wide + (y.longest - y.shared) * beside);
    (layer + rows) as u64 * demand.input_bytes
}

/// The reads of steps along one axis, in whole chunks.
struct Reads {
    /// Voxels of the longest.
    longest: usize,
    /// Most voxels that two neighbours share.
    shared: usize,
}

impl Reads {
    fn along(demand: &Demand<'_>, axis: usize) -> Self {
        let (plan, unit) = (&demand.plan.axes()[axis], demand.unit[axis].max(1));
        let whole = |range: std::ops::Range<usize>| range.start / unit * unit..range.end.div_ceil(unit) * unit;
        let reads: Vec<_> = match demand.plan.geometry().lattice {
            Lattice::Volume => {
                plan.patches().iter().map(|patch| whole(patch.start..patch.start + patch.valid)).collect()
            }
            Lattice::Block { .. } => (0..plan.tiles().len()).map(|tile| whole(plan.tile_box(tile))).collect(),
        };
        let shared = reads.windows(2).map(|pair| pair[0].end.saturating_sub(pair[1].start));
        let longest = reads.iter().map(|read| read.len()).max().unwrap_or(0);
        Self { longest, shared: shared.max().unwrap_or(0).min(longest) }
    }
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

#[cfg(test)]
mod tests;
