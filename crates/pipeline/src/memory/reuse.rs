//! What it takes to read chunks once: how much of them has to be kept for later reads, and how much is read again with less.

use std::ops::Range;

use haloflow_geometry::{Column, Lattice};

use super::Demand;

/// How many reads may have been fetched for others before their turn, where there is plenty of memory.
const AHEAD: u64 = 6;

/// What the reads along each axis share.
#[derive(Debug)]
pub(super) struct Overlaps {
    axes: [Reads; 3],
}

/// What the reads of a column share.
#[derive(Debug)]
pub(super) struct Reuse {
    /// What has to be kept, bytes, so that every chunk of a column is read once.
    pub(super) kept: u64,
    /// What a column leaves for the next ones.
    across: u64,
    /// What reads that are ahead of others have of theirs, where there is plenty of memory.
    ahead: u64,
    /// How much is kept, and what is then read of the whole volume, in decoded bytes: everything once; once for every column; again with
    /// every layer of reads along z; with every row; with every read.
    levels: [(u64, u64); 5],
}

impl Overlaps {
    pub(super) fn of(demand: &Demand<'_>) -> Self {
        Self { axes: std::array::from_fn(|axis| Reads::along(demand, axis)) }
    }

    pub(super) fn reuse(&self, demand: &Demand<'_>, column: Column) -> Reuse {
        let [z, y, x] = &self.axes;
        let geometry = demand.plan.geometry();
        let is_block = matches!(geometry.lattice, Lattice::Block { .. });
        let bytes = |voxels: usize| (voxels as u64).saturating_mul(demand.input_bytes);
        let [_, tiles_y, tiles_x] = demand.plan.tiles();
        let is_one = column.y >= tiles_y && column.x >= tiles_x;
        // In the volume lattice a read is a whole row, which nothing lies beside.
        let (high, wide) = (y.side(column.y), if is_block { x.side(column.x) } else { x.row(column.x) });
        let layer = bytes(z.kept * high * wide);
        let rows = if is_block && column.y <= 1 { 0 } else { bytes(z.longest * y.kept * wide) };
        let beside = if !is_block || column.x <= 1 { 0 } else { bytes(z.longest * y.longest * x.kept) };
        let shared = if tiles_x > column.x { high * x.shared } else { wide * y.shared };
        let across = if is_one { 0 } else { bytes(z.total * shared) };
        let (all_high, all_wide) = (y.columns(column.y), x.columns(column.x));
        let whole = z.whole * y.whole * x.whole;
        Reuse {
            kept: layer + rows + beside,
            across,
            ahead: AHEAD * bytes(z.longest * y.longest * if is_block { x.longest } else { wide }),
            levels: [
                (layer + rows + beside + across, bytes(whole)),
                (layer + rows + beside, bytes(z.whole * all_high * all_wide)),
                (rows + beside, bytes(z.sum * all_high * all_wide)),
                (beside, bytes(z.sum * y.sum * all_wide)),
                (0, bytes(z.sum * y.sum * if is_block { x.sum } else { all_wide })),
            ],
        }
    }
}

impl Reuse {
    /// All that can be kept with profit if one read comes after the other.
    pub(super) fn all(&self) -> u64 {
        self.kept.saturating_add(self.across)
    }

    /// All that can be kept with profit if reads overtake each other.
    pub(super) fn ample(&self) -> u64 {
        self.all().saturating_add(self.ahead)
    }

    /// What is read of the whole volume if `kept` bytes are kept: a part of what a level takes saves that part of what it saves.
    pub(super) fn read(&self, kept: u64) -> u64 {
        let mut levels = self.levels;
        // No level is worse than one that takes less.
        for level in (0..levels.len() - 1).rev() {
            levels[level].1 = levels[level].1.min(levels[level + 1].1);
        }
        if kept >= levels[0].0 {
            return levels[0].1;
        }
        let between = levels.windows(2).find(|pair| (pair[1].0..pair[0].0).contains(&kept));
        between.map_or(levels[4].1, |pair| {
            let [(more, less_read), (less, more_read)] = [pair[0], pair[1]];
            let saved = u128::from(more_read - less_read) * u128::from(kept - less) / u128::from(more - less);
            more_read - saved as u64
        })
    }
}

/// The reads of steps along one axis.
#[derive(Debug)]
struct Reads {
    /// Voxels of the longest.
    longest: usize,
    /// Most voxels, over all later reads, that have been fetched once a read is done.
    kept: usize,
    /// Most voxels, in whole chunks, that two neighbours share.
    shared: usize,
    /// Voxels of all.
    total: usize,
    /// Voxels of all in whole chunks.
    sum: usize,
    /// Voxels of the volume in whole chunks.
    whole: usize,
    extent: usize,
    tile: usize,
    unit: usize,
}

impl Reads {
    fn along(demand: &Demand<'_>, axis: usize) -> Self {
        let (plan, unit) = (&demand.plan.axes()[axis], demand.unit[axis].max(1));
        let geometry = demand.plan.geometry();
        let reads: Vec<Range<usize>> = match geometry.lattice {
            Lattice::Volume => plan.patches().iter().map(|patch| patch.start..patch.start + patch.valid).collect(),
            Lattice::Block { .. } => (0..plan.tiles().len()).map(|tile| plan.tile_box(tile)).collect(),
        };
        let fetched = |read: &Range<usize>| read.start / unit * unit..read.end.div_ceil(unit) * unit;
        let left = |place: usize| -> usize {
            let end = fetched(&reads[place]).end;
            let later = reads[place + 1..].iter().take_while(|read| read.start < end);
            later.map(|read| read.end.min(end) - read.start).sum()
        };
        let shared = reads.windows(2).map(|pair| fetched(&pair[0]).end.saturating_sub(fetched(&pair[1]).start));
        let extent = geometry.volume[axis];
        Self {
            longest: reads.iter().map(Range::len).max().unwrap_or(0),
            kept: (0..reads.len()).map(left).max().unwrap_or(0),
            shared: shared.max().unwrap_or(0),
            total: reads.iter().map(Range::len).sum(),
            sum: reads.iter().map(|read| fetched(read).len()).sum(),
            whole: extent.div_ceil(unit) * unit,
            extent,
            tile: geometry.tile[axis],
            unit,
        }
    }

    /// Voxels of a column of `tiles` tiles.
    fn row(&self, tiles: usize) -> usize {
        self.extent.min(tiles.max(1) * self.tile + 2 * self.longest)
    }

    /// Voxels of all reads of a column of `tiles` tiles; those that two of them have count twice.
    fn side(&self, tiles: usize) -> usize {
        let all = (self.row(tiles) as u128 * self.total as u128).div_ceil(self.extent.max(1) as u128) as usize;
        // A column of one tile is one read, in the block lattice.
        all.min(self.total).max(self.longest)
    }

    /// Voxels, in whole chunks, that columns of `tiles` tiles read side by side.
    fn columns(&self, tiles: usize) -> usize {
        let count = self.extent.div_ceil(tiles.max(1) * self.tile.max(1));
        let one = self.whole.min(tiles.max(1) * self.tile + 2 * self.unit);
        self.whole.max(one * count)
    }
}
