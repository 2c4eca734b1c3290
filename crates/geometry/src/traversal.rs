//! The order in which a volume is worked off, and what that order costs.
//!
//! Tiles are visited in columns: a column is a rectangle of tiles in y and x, worked off along z. Inside a column a patch is
//! computed once; a patch that reaches two columns is computed for each. Wide columns compute fewer patches twice and hold
//! more open tiles and more input.

use std::collections::VecDeque;
use std::ops::Range;

use crate::{Box3, Lattice, Plan, Zyx};

/// Tiles per column, along y and x; zero counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Tiles along y.
    pub y: usize,
    /// Tiles along x.
    pub x: usize,
}

/// One unit of reading: a product of patches that are read together, and the tiles they may give to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Patch indices along z, y, x.
    pub patches: [Range<usize>; 3],
    /// The tiles of the step's column, selected or not (volume lattice), or the step's one tile (block lattice).
    pub tiles: [Range<usize>; 3],
    /// The voxels to read: all real data of the patches; in the block lattice the tile's whole box.
    pub read: Box3,
}

impl Step {
    /// The patches in plan order, z outermost.
    pub fn patches(&self) -> impl Iterator<Item = Zyx> + use<> {
        let [z, y, x] = &self.patches;
        Box3::from_ranges(z, y, x).indices()
    }

    /// Number of patches.
    #[must_use]
    pub fn len(&self) -> usize {
        self.patches.iter().map(Range::len).product()
    }

    /// Whether there is no patch; never so for a step of a plan.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes that a run holds for each voxel read and for each voxel of an open tile.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    /// Bytes per voxel of a step's input.
    pub input: u64,
    /// Bytes per voxel of an open tile: accumulators and the finished copy.
    pub tile: u64,
    /// Patches per batch: a batch may wait for this many patches less one.
    pub batch: usize,
}

impl Plan {
    /// The column that holds the whole plan at once.
    #[must_use]
    pub fn widest(&self) -> Column {
        let [_, y, x] = self.tiles();
        Column { y, x }
    }

    /// The steps of a run in plan order.
    pub fn steps(&self, column: Column) -> impl Iterator<Item = Step> + Send + '_ {
        let [depth, height, width] = self.tiles();
        parts(height, column.y)
            .flat_map(move |y| parts(width, column.x).map(move |x| [0..depth, y.clone(), x]))
            .flat_map(move |tiles| self.column_steps(tiles))
    }

    fn column_steps(&self, tiles: [Range<usize>; 3]) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        match self.geometry().lattice {
            Lattice::Volume => {
                let [z, y] = [0, 1].map(|axis: usize| self.axes()[axis].patches_of(&tiles[axis]));
                let rows = z.flat_map(move |z| y.clone().map(move |y| [z, y]));
                Box::new(rows.flat_map(move |row| self.steps_of_row(row, &tiles)))
            }
            Lattice::Block { .. } => {
                let [z, y, x] = &tiles;
                let tiles = Box3::from_ranges(z, y, x).indices().filter(|&tile| self.selection().contains(tile));
                Box::new(tiles.map(|tile| self.tile_step(tile)))
            }
        }
    }

    /// The steps of a row of patches of a column: one, or one for each run of patches that are computed.
    pub(crate) fn steps_of_row(&self, row: [usize; 2], tiles: &[Range<usize>; 3]) -> Vec<Step> {
        let x = self.axes()[2].patches_of(&tiles[2]);
        let runs = if self.selection().is_all() { vec![x] } else { self.runs(row, &x, tiles) };
        runs.into_iter().map(|run| self.row_step(row, run, tiles.clone())).collect()
    }

    /// The patches of a row that give to a selected tile, in runs of neighbours.
    fn runs(&self, [z, y]: [usize; 2], row: &Range<usize>, tiles: &[Range<usize>; 3]) -> Vec<Range<usize>> {
        let (deep, high) = (self.reach(0, z, &tiles[0]), self.reach(1, y, &tiles[1]));
        let chosen = |x: usize| Box3::from_ranges(&deep, &high, &(x..x + 1)).indices();
        let chosen: Vec<bool> =
            tiles[2].clone().map(|x| chosen(x).any(|tile| self.selection().contains(tile))).collect();
        let first = tiles[2].start;
        let mut runs: Vec<Range<usize>> = Vec::new();
        for patch in row.clone().filter(|&patch| self.reach(2, patch, &tiles[2]).any(|x| chosen[x - first])) {
            match runs.last_mut() {
                Some(run) if run.end == patch => run.end += 1,
                _ => runs.push(patch..patch + 1),
            }
        }
        runs
    }

    fn row_step(&self, [z, y]: [usize; 2], x: Range<usize>, tiles: [Range<usize>; 3]) -> Step {
        let patches = [z..z + 1, y..y + 1, x];
        let first = self.patch(std::array::from_fn(|axis| patches[axis].start));
        let last = self.patch(std::array::from_fn(|axis| patches[axis].end - 1));
        Step { read: Box3::new(first.start, last.data().stop), patches, tiles }
    }

    pub(crate) fn tile_step(&self, tile: Zyx) -> Step {
        let tiles: [Range<usize>; 3] = tile.map(|index| index..index + 1);
        let [z, y, x] = std::array::from_fn(|axis| self.axes()[axis].tile_box(tile[axis]));
        Step {
            read: Box3::from_ranges(&z, &y, &x),
            patches: std::array::from_fn(|axis| self.axes()[axis].patches_of(&tiles[axis])),
            tiles,
        }
    }

    /// The selected tiles whose first patch in plan order is in `step`.
    pub fn opened_by(&self, step: &Step) -> impl Iterator<Item = Zyx> + use<'_> {
        self.selected(&self.opened(step))
    }

    /// The selected tiles whose last patch in plan order is in `step`.
    pub fn closed_by(&self, step: &Step) -> impl Iterator<Item = Zyx> + use<'_> {
        self.selected(&self.closed(step))
    }

    fn selected(&self, tiles: &Box3) -> impl Iterator<Item = Zyx> + use<'_> {
        tiles.indices().filter(|&tile| self.selection().contains(tile))
    }

    /// The tiles that a step opens, selected or not, as a box of tile indices: a tile's first patch is the product of its first on each axis.
    fn opened(&self, step: &Step) -> Box3 {
        let [z, y, x] = std::array::from_fn(|axis| self.axes()[axis].opened(&step.tiles[axis], &step.patches[axis]));
        Box3::from_ranges(&z, &y, &x)
    }

    /// The tiles that a step closes, selected or not, as a box of tile indices.
    fn closed(&self, step: &Step) -> Box3 {
        let [z, y, x] = std::array::from_fn(|axis| self.axes()[axis].closed(&step.tiles[axis], &step.patches[axis]));
        Box3::from_ranges(&z, &y, &x)
    }

    /// Voxels of the selected tiles in a box of tile indices.
    fn voxels_of(&self, tiles: &Box3) -> u64 {
        if tiles.is_empty() {
            return 0;
        }
        if !self.selection().is_all() {
            return self.selected(tiles).map(|tile| self.tile(tile).voxels() as u64).sum();
        }
        let [first, last] = [self.tile(tiles.start), self.tile(tiles.stop.map(|stop| stop - 1))];
        Box3::new(first.start, last.stop).voxels() as u64
    }

    /// Patches that a run computes with this column.
    #[must_use]
    pub fn patches(&self, column: Column) -> u64 {
        if self.selection().is_all() {
            return self.patches_of_all(column);
        }
        self.steps(column).map(|step| step.len() as u64).sum()
    }

    /// Patches that a run over all tiles computes with this column: known at once, and good enough to compare columns by.
    #[must_use]
    pub fn patches_of_all(&self, column: Column) -> u64 {
        let count = |axis: usize, size: usize| -> u64 {
            let tiles = self.tiles()[axis];
            parts(tiles, size).map(|part| self.axes()[axis].patches_of(&part).len() as u64).sum()
        };
        count(0, self.tiles()[0]).saturating_mul(count(1, column.y)).saturating_mul(count(2, column.x))
    }

    /// Most bytes that steps and open tiles must hold at one time so that the run can always go on: when the next step is
    /// admitted, everything but the patches that wait in an unfilled batch may have been worked off and written.
    #[must_use]
    pub fn need(&self, column: Column, footprint: &Footprint) -> u64 {
        self.need_within(column, footprint, u64::MAX).unwrap_or(u64::MAX)
    }

    /// The [`need`](Self::need) if it is at most `limit`; else `None`, which is often known after a few steps.
    #[must_use]
    pub fn need_within(&self, column: Column, footprint: &Footprint, limit: u64) -> Option<u64> {
        let mut window = VecDeque::new();
        let (mut open, mut input, mut waiting, mut most) = (0_u64, 0_u64, 0_usize, 0_u64);
        for step in self.steps(column) {
            let bytes = (step.read.voxels() as u64).saturating_mul(footprint.input);
            let tile_bytes = |tiles: Box3| self.voxels_of(&tiles).saturating_mul(footprint.tile);
            open = open.saturating_add(tile_bytes(self.opened(&step)));
            input = input.saturating_add(bytes);
            most = most.max(open.saturating_add(input));
            if most > limit {
                return None;
            }
            window.push_back((bytes, tile_bytes(self.closed(&step)), step.len()));
            waiting += step.len();
            // A step with a whole batch, less one patch, behind it went off in full batches: its input is let go of, and the
            // tiles that it closed are written.
            while let Some(&(bytes, closed, patches)) = window.front() {
                if waiting - patches < footprint.batch.saturating_sub(1) {
                    break;
                }
                window.pop_front();
                waiting -= patches;
                input = input.saturating_sub(bytes);
                open = open.saturating_sub(closed);
            }
        }
        Some(most)
    }
}

/// Cuts `0..count` into ranges of `size`; the last may be smaller.
fn parts(count: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    let size = size.max(1);
    (0..count).step_by(size).map(move |start| start..(start + size).min(count))
}
