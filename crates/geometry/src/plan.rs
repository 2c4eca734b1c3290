//! The plan of a run: which patches give which voxels to which tiles.

use std::ops::Range;

use crate::axis::AxisPlan;
use crate::error::{AXES, GeometryError};
use crate::seam::Share;
use crate::{Box3, Geometry, Selection, Zyx};

/// A patch's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// First voxel.
    pub start: Zyx,
    /// Voxels of real data from the start on; the rest of the patch is padding on the high side.
    pub valid: Zyx,
}

impl Patch {
    /// The box of real data.
    #[must_use]
    pub fn data(&self) -> Box3 {
        Box3::new(self.start, std::array::from_fn(|axis| self.start[axis] + self.valid[axis]))
    }
}

/// What one patch gives to one tile: one share per axis; the weight of a voxel is the product of three.
#[derive(Clone, Copy, Debug)]
pub struct Contribution<'a> {
    /// The shares along z, y, x.
    pub axes: [&'a Share; 3],
}

impl Contribution<'_> {
    /// The voxels that are given, in volume coordinates.
    #[must_use]
    pub fn range(&self) -> Box3 {
        let [z, y, x] = self.axes;
        Box3::from_ranges(&z.range, &y.range, &x.range)
    }
}

/// The plan of a run: a product of three axis plans, and the tiles that are computed.
///
/// A patch that gives to no selected tile is not computed, and what only such patches need is not read.
#[derive(Clone, Debug)]
pub struct Plan {
    geometry: Geometry,
    axes: [AxisPlan; 3],
    selection: Selection,
}

impl Plan {
    /// Makes the plan of all tiles.
    ///
    /// # Errors
    /// As [`Geometry::check`]; also if some voxel would get no weight.
    pub fn new(geometry: Geometry) -> Result<Self, GeometryError> {
        geometry.check()?;
        let axis = |axis: usize| {
            AxisPlan::new(&geometry.axis(axis)).ok_or_else(|| {
                let name = AXES[axis];
                GeometryError(format!(
                    "with this overlap, margin and alignment some voxels along {name} would get no weight"
                ))
            })
        };
        let axes = [axis(0)?, axis(1)?, axis(2)?];
        let selection = Selection::all([0, 1, 2].map(|axis: usize| axes[axis].tiles().len()));
        Ok(Self { geometry, axes, selection })
    }

    /// The same plan of fewer tiles: those of its own that `selection` has too.
    #[must_use]
    pub fn select(self, selection: &Selection) -> Self {
        let selection = self.selection.filter(|tile| selection.contains(tile));
        Self { selection, ..self }
    }

    /// The tiles that are computed.
    #[must_use]
    pub const fn selection(&self) -> &Selection {
        &self.selection
    }

    /// What the plan was made from.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The plans of the three axes.
    #[must_use]
    pub const fn axes(&self) -> &[AxisPlan; 3] {
        &self.axes
    }

    /// Number of tiles along each axis, selected or not.
    #[must_use]
    pub fn tiles(&self) -> Zyx {
        std::array::from_fn(|axis| self.axes[axis].tiles().len())
    }

    /// The voxels of a tile.
    #[must_use]
    pub fn tile(&self, tile: Zyx) -> Box3 {
        let [z, y, x] = std::array::from_fn(|axis| &self.axes[axis].tiles()[tile[axis]]);
        Box3::from_ranges(z, y, x)
    }

    /// A patch by its index on each axis.
    #[must_use]
    pub fn patch(&self, patch: Zyx) -> Patch {
        let axis = |axis: usize| &self.axes[axis].patches()[patch[axis]];
        Patch { start: std::array::from_fn(|i| axis(i).start), valid: std::array::from_fn(|i| axis(i).valid) }
    }

    /// What `patch` gives to `tile`. The patch must be one of the tile's.
    #[must_use]
    pub fn contribution(&self, tile: Zyx, patch: Zyx) -> Contribution<'_> {
        Contribution { axes: std::array::from_fn(|axis| self.axes[axis].share(tile[axis], patch[axis])) }
    }

    /// Number of patches that give to `tile`.
    #[must_use]
    pub fn contributions(&self, tile: Zyx) -> usize {
        (0..3).map(|axis| self.axes[axis].shares(tile[axis]).len()).product()
    }

    /// The selected tiles among `allowed` that `patch` gives to, x innermost.
    pub fn tiles_of(&self, patch: Zyx, allowed: &[Range<usize>; 3]) -> impl Iterator<Item = Zyx> + use<'_> {
        let [z, y, x] = std::array::from_fn(|axis| self.reach(axis, patch[axis], &allowed[axis]));
        Box3::from_ranges(&z, &y, &x).indices().filter(|&tile| self.selection.contains(tile))
    }

    /// The tiles among `allowed` along one axis that a patch reaches.
    pub(crate) fn reach(&self, axis: usize, patch: usize, allowed: &Range<usize>) -> Range<usize> {
        let reach = &self.axes[axis].patches()[patch].tiles;
        reach.start.max(allowed.start)..reach.end.min(allowed.end)
    }
}
