//! The plan along one axis: tiles, patches, and what each patch gives to each tile.

use std::ops::Range;

use crate::lattice::{expanded, starts};
use crate::seam::{AxisSeam, Share, shares};

/// One axis of a geometry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AxisGeometry {
    pub(crate) extent: usize,
    pub(crate) patch: usize,
    pub(crate) overlap: usize,
    pub(crate) align: usize,
    pub(crate) tile: usize,
    /// `Some` in the block lattice.
    pub(crate) halo: Option<usize>,
    pub(crate) seam: AxisSeam,
}

/// A patch along one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisPatch {
    /// First voxel, in volume coordinates.
    pub start: usize,
    /// Voxels of real data; the rest of the patch is padding.
    pub valid: usize,
    /// The tiles it gives voxels to, as a range of tile indices.
    pub tiles: Range<usize>,
}

/// The plan along one axis. Patches are in ascending order within a tile, and the patches of a tile are consecutive.
#[derive(Clone, Debug)]
pub struct AxisPlan {
    tiles: Vec<Range<usize>>,
    /// What must be read for the tile: in the block lattice its expanded box.
    boxes: Vec<Range<usize>>,
    patches: Vec<AxisPatch>,
    shares: Vec<Vec<Share>>,
}

impl AxisPlan {
    /// Lays out one axis. `None` if some voxel would get no weight.
    pub(crate) fn new(axis: &AxisGeometry) -> Option<Self> {
        let tiles: Vec<Range<usize>> =
            (0..axis.extent).step_by(axis.tile).map(|start| start..(start + axis.tile).min(axis.extent)).collect();
        match axis.halo {
            Some(halo) => Self::block(axis, tiles, halo),
            None => Self::volume(axis, tiles),
        }
    }

    /// One lattice over the whole axis; every tile takes its part of it.
    fn volume(axis: &AxisGeometry, tiles: Vec<Range<usize>>) -> Option<Self> {
        let span = 0..axis.extent;
        let all = shares(&span, &starts(&span, axis.patch, axis.overlap, axis.align), axis.patch, axis.seam)?;
        let shares = vec![Vec::new(); tiles.len()];
        let mut plan = Self { boxes: Vec::new(), patches: Vec::new(), shares, tiles };
        for (patch, share) in all.into_iter().enumerate() {
            let touched = share.range.start / axis.tile..(share.range.end - 1) / axis.tile + 1;
            let share = Share { patch, ..share };
            for tile in touched.clone() {
                plan.shares[tile].extend(share.within(&plan.tiles[tile]));
            }
            plan.push_patch(share.start, axis.extent, axis.patch, touched);
        }
        for part in &plan.shares {
            plan.boxes.push(part.first()?.start..part.last()?.start.saturating_add(axis.patch).min(axis.extent));
        }
        Some(plan)
    }

    /// A lattice of its own for every tile, inside the tile's expanded box.
    fn block(axis: &AxisGeometry, tiles: Vec<Range<usize>>, halo: usize) -> Option<Self> {
        let mut plan = Self { boxes: Vec::new(), patches: Vec::new(), shares: Vec::new(), tiles };
        for (index, core) in plan.tiles.clone().into_iter().enumerate() {
            let span = expanded(&core, halo, axis.extent, axis.patch, axis.overlap, axis.align);
            let starts = starts(&span, axis.patch, axis.overlap, axis.align);
            let mut own = Vec::new();
            for share in shares(&span, &starts, axis.patch, axis.seam)?.iter().filter_map(|share| share.within(&core)) {
                own.push(Share { patch: plan.patches.len(), ..share.clone() });
                plan.push_patch(share.start, span.end, axis.patch, index..index + 1);
            }
            plan.boxes.push(span);
            plan.shares.push(own);
        }
        Some(plan)
    }

    fn push_patch(&mut self, start: usize, end: usize, patch: usize, tiles: Range<usize>) {
        self.patches.push(AxisPatch { start, valid: patch.min(end - start), tiles });
    }

    /// The tiles' cores: they cover the axis exactly once.
    #[must_use]
    pub fn tiles(&self) -> &[Range<usize>] {
        &self.tiles
    }

    /// The patches, each of which gives voxels to at least one tile.
    #[must_use]
    pub fn patches(&self) -> &[AxisPatch] {
        &self.patches
    }

    /// What must be read for a tile; in the block lattice the tile's expanded box.
    #[must_use]
    pub fn tile_box(&self, tile: usize) -> Range<usize> {
        self.boxes[tile].clone()
    }

    /// The shares of a tile, in plan order.
    #[must_use]
    pub fn shares(&self, tile: usize) -> &[Share] {
        &self.shares[tile]
    }

    /// The share that `patch` gives to `tile`.
    #[must_use]
    pub fn share(&self, tile: usize, patch: usize) -> &Share {
        &self.shares[tile][patch - self.shares[tile][0].patch]
    }

    /// The patches that give voxels to the tiles of a range, as a range of patch indices.
    #[must_use]
    pub fn patches_of(&self, tiles: &Range<usize>) -> Range<usize> {
        match (self.shares[tiles.start].first(), self.shares[tiles.end - 1].last()) {
            (Some(first), Some(last)) => first.patch..last.patch + 1,
            _ => 0..0,
        }
    }

    /// The tiles among `tiles` whose first patch is among `patches`.
    pub(crate) fn opened(&self, tiles: &Range<usize>, patches: &Range<usize>) -> Range<usize> {
        self.met(tiles, patches, <[Share]>::first)
    }

    /// The tiles among `tiles` whose last patch is among `patches`.
    pub(crate) fn closed(&self, tiles: &Range<usize>, patches: &Range<usize>) -> Range<usize> {
        self.met(tiles, patches, <[Share]>::last)
    }

    /// First and last patches ascend with the tiles, so the tiles that are met lie side by side.
    fn met(
        &self,
        tiles: &Range<usize>,
        patches: &Range<usize>,
        end: impl Fn(&[Share]) -> Option<&Share>,
    ) -> Range<usize> {
        let shares = &self.shares[tiles.clone()];
        let before = |bound: usize| shares.partition_point(|part| end(part).is_some_and(|share| share.patch < bound));
        tiles.start + before(patches.start)..tiles.start + before(patches.end)
    }

    /// Most voxels of tiles along this axis that are open at one time when patches are visited in order: a tile is open from
    /// its first patch to its last.
    #[must_use]
    pub fn open_extent(&self) -> usize {
        let open = |patch: usize| self.patches[patch].tiles.clone().map(|tile| self.tiles[tile].len()).sum();
        (0..self.patches.len()).map(open).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voxel_without_weight_is_found_when_the_plan_is_made() {
        // Five voxels are cut from each side of a face, and only two are shared: no checked geometry gets here.
        let seam = AxisSeam::Trim { voxels: 5 };
        let axis = AxisGeometry { extent: 40, patch: 16, overlap: 2, align: 1, tile: 20, halo: None, seam };
        assert!(AxisPlan::new(&axis).is_none());
        assert!(AxisPlan::new(&AxisGeometry { halo: Some(5), ..axis }).is_none());
        assert!(AxisPlan::new(&AxisGeometry { overlap: 10, ..axis }).is_some());
    }
}
