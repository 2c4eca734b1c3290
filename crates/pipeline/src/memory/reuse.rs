//! What a cache of decoded chunks saves: how much has to be kept so that chunks are read once, and how much is read with less.

use haloflow_geometry::{Column, Lattice};

use super::Demand;

/// What the reads of a column share, bytes of decoded chunks.
#[derive(Debug)]
pub(super) struct Reuse {
    /// What a layer of reads along z shares with the next one, over the whole column.
    layer: u64,
    /// Below that, what a row shares with the next one, and a read with the one beside it.
    rows: u64,
    /// A whole row of reads along x: with less, nothing of it is left when the next one comes.
    row: u64,
    /// One read.
    beside: u64,
    /// What a column shares with the next ones.
    pub(super) across: u64,
    /// What is read of the whole volume if the cache keeps all of that, all but `layer`, only `beside`, and nothing.
    read: [u64; 4],
}

impl Reuse {
    pub(super) fn of(demand: &Demand<'_>, column: Column) -> Self {
        let reads: [Reads; 3] = std::array::from_fn(|axis| Reads::along(demand, axis));
        let [z, y, x] = &reads;
        let geometry = demand.plan.geometry();
        let is_block = matches!(geometry.lattice, Lattice::Block { .. });
        let whole = |axis: usize| geometry.volume[axis].div_ceil(demand.unit[axis].max(1)) * demand.unit[axis].max(1);
        let side = |axis: usize, tiles: usize| match tiles * geometry.tile[axis] {
            all if all >= geometry.volume[axis] => whole(axis),
            part => whole(axis).min(part + 2 * demand.unit[axis].max(1)),
        };
        let (high, wide) = (side(1, column.y), side(2, column.x));
        // In the volume lattice a read is a whole row.
        let beside = if is_block { x.longest } else { wide };
        // Blocks of a column that is one wide have no neighbour in it.
        let rows = if is_block && column.y <= 1 { 0 } else { y.shared };
        let next = if is_block && column.x <= 1 { 0 } else { beside };
        let bytes = |voxels: usize| (voxels as u64).saturating_mul(demand.input_bytes);
        let [_, tiles_y, tiles_x] = demand.plan.tiles();
        // Voxels that all columns read side by side, along y and x.
        let sides =
            |axis: usize, tiles: usize, size: usize| whole(axis).max(side(axis, size) * tiles.div_ceil(size.max(1)));
        let (all_high, all_wide) = (sides(1, tiles_y, column.y), sides(2, tiles_x, column.x));
        let along = if is_block { x.sum } else { all_wide };
        let shared = z.longest * if tiles_x > column.x { high * x.shared } else { wide * y.shared };
        let is_one = column.y >= tiles_y && column.x >= tiles_x;
        let deep = whole(0).div_ceil(z.longest.max(1));
        Self {
            layer: bytes(z.shared * high * wide),
            rows: bytes((z.longest - z.shared) * (rows * wide + (y.longest - rows) * next)),
            row: bytes(z.longest * y.longest * wide),
            beside: bytes(z.longest * y.longest * beside),
            across: if is_one { 0 } else { bytes(deep * shared) },
            read: [
                bytes(whole(0) * all_high * all_wide),
                bytes(z.sum * all_high * all_wide),
                bytes(z.sum * y.sum * all_wide),
                bytes(z.sum * y.sum * along),
            ],
        }
    }

    /// What has to be kept so that every chunk of a column is read once.
    pub(super) fn kept(&self) -> u64 {
        self.layer + self.rows
    }

    /// Sizes of a cache that make a difference, and what is read with each.
    pub(super) fn levels(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let row = self.row.min(self.kept());
        let sizes = [self.kept(), row, self.beside.min(row), 0];
        sizes.into_iter().zip(self.read)
    }

    /// What is read with a cache of `bytes`.
    pub(super) fn read(&self, bytes: u64) -> u64 {
        self.levels().filter(|(size, _)| *size <= bytes).map(|(_, read)| read).min().unwrap_or(u64::MAX)
    }
}

/// The reads of steps along one axis, in whole chunks.
struct Reads {
    /// Voxels of the longest.
    longest: usize,
    /// Most voxels that two neighbours share.
    shared: usize,
    /// Voxels of all.
    sum: usize,
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
        let sum = reads.iter().map(|read| read.len()).sum();
        Self { longest, shared: shared.max().unwrap_or(0).min(longest), sum }
    }
}
