//! How the memory of a run is split, settled before it starts.

use haloflow_engine::EngineSpec;
use haloflow_geometry::{Column, Footprint, Lattice, Plan};
use serde::Serialize;

use crate::fault::{Fault, FaultKind, Stage};

/// Slots per device: one filling, one on the device, one merging.
const SLOTS_PER_DEVICE: usize = 3;

/// The split, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemorySplit {
    /// Everything.
    pub total: u64,
    /// Batches: input and output of every slot.
    pub slots: u64,
    /// Decoded chunks that are kept for the next step.
    pub cache: u64,
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
    let fits = |column: Column, share: u64| Some(demand.plan.need(column, &footprint)).filter(|&need| need <= share);
    let with = |column: Column, need: u64| {
        let cache = (rest / 4).min(rest - need);
        (column, MemorySplit { total, slots, cache, transfer: demand.transfer, leases: rest - cache, need })
    };
    // Room beyond the need lets reading run ahead, so the first choice leaves half of the memory for that and for the cache.
    for share in [rest / 2, rest] {
        for column in candidates(demand, share, rest / 4) {
            if let Some(need) = fits(column, share) {
                return Ok(with(column, need));
            }
        }
    }
    // The one has the fewest open tiles, the other the fewest patches that wait for a large batch to fill.
    let mut least = u64::MAX;
    for column in [demand.plan.widest(), Column { y: 1, x: 1 }] {
        let need = demand.plan.need(column, &footprint);
        if need <= rest {
            return Ok(with(column, need));
        }
        least = least.min(need);
    }
    let message = format!(
        "`memory` is {}; this run needs at least {}: {} for {} slots of a batch of {}, {} for chunks on their way, {} for open blocks and \
         their input. Give more memory, or make `batch`, `block`, `chunk` or `shard` smaller",
        mib(total),
        mib(slots + demand.transfer + least),
        mib(slots),
        demand.slots,
        demand.spec.batch,
        mib(demand.transfer),
        mib(least)
    );
    Err(Fault::new(FaultKind::Usage, Stage::Plan, message))
}

/// How many columns are tried before the last resort.
const TRIES: u64 = 6;

/// Columns that may fit, those that cost the least first.
fn candidates(demand: &Demand<'_>, leases: u64, cache: u64) -> Vec<Column> {
    let plan = demand.plan;
    let [_, height, width] = plan.tiles();
    let all = (1..=height).flat_map(|y| (1..=width).map(move |x| Column { y, x }));
    let costs: Vec<_> = all
        .map(|column| (open_bytes(demand, column), column))
        .filter(|&(open, _)| open <= leases)
        .map(|(open, column)| {
            let misses = u64::from(kept_bytes(demand, column) > cache);
            (open, (plan.patches(column) * (10 + misses), reread(demand, column), column.y, column.x), column)
        })
        .collect();
    // A column needs more than its open tiles; every further try leaves more room for the rest.
    let mut columns: Vec<Column> = (0..TRIES)
        .filter_map(|tries| {
            let room = leases / TRIES * (TRIES - tries);
            costs.iter().filter(|(open, ..)| *open <= room).min_by_key(|(_, cost, _)| *cost)
        })
        .map(|&(.., column)| column)
        .collect();
    columns.dedup();
    columns
}

/// The tiles of a column that are open at one time.
fn open_bytes(demand: &Demand<'_>, column: Column) -> u64 {
    let [z, y, x] = demand.plan.axes();
    let extent = |tiles: &[std::ops::Range<usize>], count: usize| tiles[count - 1].end as u64;
    let area = extent(y.tiles(), column.y) * extent(x.tiles(), column.x);
    match demand.plan.geometry().lattice {
        Lattice::Volume => z.open_extent() as u64 * area * demand.tile_bytes,
        Lattice::Block { .. } => {
            demand.plan.geometry().tile.iter().map(|&size| size as u64).product::<u64>() * demand.tile_bytes
        }
    }
}

/// The input that has to be kept so that a column's chunks are read once.
fn kept_bytes(demand: &Demand<'_>, column: Column) -> u64 {
    let geometry = demand.plan.geometry();
    let depth = geometry.patch[0].max(demand.unit[0]) + demand.unit[0];
    let side = |axis: usize, tiles: usize| {
        (tiles * geometry.tile[axis] + geometry.patch[axis]).min(geometry.volume[axis]) + demand.unit[axis]
    };
    (depth.min(geometry.volume[0]) * side(1, column.y) * side(2, column.x)) as u64 * demand.input_bytes
}

/// How much of the input is read again because a neighbouring column needs it too: a figure to compare columns by.
fn reread(demand: &Demand<'_>, column: Column) -> u64 {
    let [_, height, width] = demand.plan.tiles();
    (height.div_ceil(column.y) * width + width.div_ceil(column.x) * height) as u64
}

fn mib(bytes: u64) -> String {
    format!("{:.0} MiB", (bytes as f64 / f64::from(1 << 20)).ceil())
}

#[cfg(test)]
mod tests;
