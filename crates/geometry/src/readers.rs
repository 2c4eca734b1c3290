//! Which steps read a cell of voxels, and when: what a reader keeps of a chunk goes by that.

use std::ops::Range;

use crate::{Box3, Column, Lattice, Plan, Step};

/// A read that a plan makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Its place in plan order: later steps have larger numbers, which are not consecutive.
    pub order: u64,
    /// The voxels.
    pub region: Box3,
}

impl Plan {
    /// What `step` reads, and its place in the order of steps of `column`.
    #[must_use]
    pub fn read_of(&self, column: Column, step: &Step) -> Read {
        Read { order: self.order(column, step), region: step.read }
    }

    /// The reads of all steps that need voxels of `cell`, in no particular order.
    #[must_use]
    pub fn reads_of(&self, column: Column, cell: &Box3) -> Vec<Read> {
        let steps: Vec<Step> = match self.geometry().lattice {
            Lattice::Block { .. } => {
                let reads = |axis: usize| {
                    let plan = &self.axes()[axis];
                    met(0..plan.tiles().len(), cell, axis, |tile| plan.tile_box(tile))
                };
                let tiles = Box3::from_ranges(&reads(0), &reads(1), &reads(2)).indices();
                tiles.filter(|&tile| self.selection().contains(tile)).map(|tile| self.tile_step(tile)).collect()
            }
            Lattice::Volume => {
                let [depth, height, width] = self.tiles();
                // Of the columns those whose tiles read the cell.
                let columns = |axis: usize, count: usize, size: usize| {
                    let plan = &self.axes()[axis];
                    let tiles = met(0..plan.tiles().len(), cell, axis, |tile| plan.tile_box(tile));
                    let size = size.max(1);
                    let of_columns = tiles.start / size..if tiles.is_empty() { 0 } else { (tiles.end - 1) / size + 1 };
                    of_columns.map(move |place| place * size..((place + 1) * size).min(count))
                };
                let columns = columns(1, height, column.y)
                    .flat_map(|y| columns(2, width, column.x).map(move |x| [0..depth, y.clone(), x]));
                columns.flat_map(|tiles| self.row_steps(&tiles, cell)).collect()
            }
        };
        steps.iter().map(|step| self.read_of(column, step)).collect()
    }

    /// The steps of a column of the volume lattice that read voxels of `cell`.
    fn row_steps(&self, tiles: &[Range<usize>; 3], cell: &Box3) -> Vec<Step> {
        let rows = |axis: usize| {
            let plan = &self.axes()[axis];
            let data = |patch: usize| {
                let patch = &plan.patches()[patch];
                patch.start..patch.start + patch.valid
            };
            met(plan.patches_of(&tiles[axis]), cell, axis, data)
        };
        let (deep, high, wide) = (rows(0), rows(1), rows(2));
        if wide.is_empty() {
            return Vec::new();
        }
        let rows = deep.flat_map(|z| high.clone().map(move |y| [z, y]));
        rows.flat_map(|row| self.steps_of_row(row, tiles))
            .filter(|step| !step.read.intersect(cell).is_empty())
            .collect()
    }

    fn order(&self, column: Column, step: &Step) -> u64 {
        let [depth, height, width] = self.tiles();
        let (high, wide) = (column.y.clamp(1, height.max(1)), column.x.clamp(1, width.max(1)));
        let number = step.tiles[1].start / high * width.div_ceil(wide) + step.tiles[2].start / wide;
        let (place, sizes) = match self.geometry().lattice {
            Lattice::Block { .. } => {
                let [z, y, x] = std::array::from_fn(|axis| step.tiles[axis].start);
                ([z, y % high, x % wide], [depth, high, wide])
            }
            Lattice::Volume => (
                std::array::from_fn(|axis| step.patches[axis].start),
                std::array::from_fn(|axis| self.axes()[axis].patches().len()),
            ),
        };
        (0..3).fold(number as u64, |number, axis| number * sizes[axis] as u64 + place[axis] as u64)
    }
}

/// The indices of a range whose reads along an axis have voxels of `cell`: reads begin and end ever later.
fn met(all: Range<usize>, cell: &Box3, axis: usize, read: impl Fn(usize) -> Range<usize>) -> Range<usize> {
    let first_where = |is: &dyn Fn(Range<usize>) -> bool| {
        let (mut low, mut high) = (all.start, all.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if is(read(middle)) { high = middle } else { low = middle + 1 }
        }
        low
    };
    let start = first_where(&|read| read.end > cell.start[axis]);
    let end = first_where(&|read| read.start >= cell.stop[axis]);
    start..end.max(start)
}
