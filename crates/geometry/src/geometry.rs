//! What a plan is made from, and what makes it impossible.

use crate::Zyx;
use crate::axis::AxisGeometry;
use crate::error::{GeometryError, check_axes, clash, typed};
use crate::lattice::stride;
use crate::seam::AxisSeam;

/// Longest axis that is planned: a plan keeps weights for every voxel of an axis, and a volume's voxels must be countable.
const MAX_EXTENT: usize = 1 << 21;

/// Where patches lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lattice {
    /// One lattice over the whole volume: the result does not depend on the tiles.
    Volume,
    /// A lattice of its own inside every tile's box, which is the tile widened by `halo`.
    Block {
        /// Voxels of neighbouring data around a tile, inside the volume.
        halo: Zyx,
    },
}

/// How overlapping patches are joined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Seam {
    /// Cut this many voxels from each inner face; the later patch wins what is left.
    Trim {
        /// Voxels cut, per axis.
        voxels: Zyx,
    },
    /// Weigh by raised-cosine ramps.
    Blend {
        /// Least weight of a voxel outside the margin.
        floor: f32,
        /// Outermost voxels of inner faces without weight, per axis.
        margin: Zyx,
    },
}

impl Seam {
    /// The halo of the block lattice where none is asked for: what is trimmed, or an eighth of the smallest side of the patch,
    /// at least 1 and at most 8, on every axis.
    #[must_use]
    pub fn default_halo(&self, patch: Zyx) -> Zyx {
        match *self {
            Self::Trim { voxels } => voxels,
            Self::Blend { .. } => [(patch[0].min(patch[1]).min(patch[2]) / 8).clamp(1, 8); 3],
        }
    }

    /// The halo to use where `asked` is asked for: trimming needs at least what is trimmed and raises a smaller one to it.
    #[must_use]
    pub fn raised_halo(&self, asked: Zyx) -> Zyx {
        match *self {
            Self::Trim { voxels } => std::array::from_fn(|axis| asked[axis].max(voxels[axis])),
            Self::Blend { .. } => asked,
        }
    }
}

/// What a plan is made from. All sizes are voxels, z y x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// Size of the volume.
    pub volume: Zyx,
    /// Size of a tile, the unit of output. The last tile of an axis may be smaller.
    pub tile: Zyx,
    /// Size of a patch, what the network sees.
    pub patch: Zyx,
    /// Least overlap of neighbouring patches.
    pub overlap: Zyx,
    /// Every patch starts on a multiple of this; 1 is no alignment.
    pub align: Zyx,
    /// Where patches lie.
    pub lattice: Lattice,
    /// How they are joined.
    pub seam: Seam,
}

impl Geometry {
    /// Checks the geometry; a geometry that passes gives a plan.
    ///
    /// # Errors
    /// Names the key, the axis, the value and what is allowed.
    pub fn check(&self) -> Result<(), GeometryError> {
        let Self { volume, tile, patch, overlap, align, .. } = *self;
        check_axes(|i| volume[i] > 0, |_| format!("the volume is empty: its size is {}", typed(volume)))?;
        check_axes(
            |i| volume[i] <= MAX_EXTENT,
            |_| format!("the volume's size is {}; every size must be at most {MAX_EXTENT}", typed(volume)),
        )?;
        check_axes(|i| patch[i] > 0, |_| format!("`patch` is {}; every size must be at least 1", typed(patch)))?;
        check_axes(|i| tile[i] > 0, |_| format!("`block` is {}; every size must be at least 1", typed(tile)))?;
        check_axes(
            |i| overlap[i] < patch[i],
            |i| clash(["overlap", "patch"], [overlap[i], patch[i]], "the overlap must be smaller than the patch"),
        )?;
        check_axes(|i| align[i] > 0, |_| format!("`align` is {}; every value must be at least 1", typed(align)))?;
        let allowed =
            |i: usize| format!("at most patch - overlap = {}, or patches could not advance", patch[i] - overlap[i]);
        check_axes(
            |i| stride(patch[i], overlap[i], align[i]) > 0,
            |i| format!("`align` is {}; it must be {}", align[i], allowed(i)),
        )?;
        self.check_lattice()?;
        match self.seam {
            Seam::Trim { voxels } => self.check_trim(voxels),
            Seam::Blend { floor, margin } => self.check_blend(floor, margin),
        }
    }

    fn check_lattice(&self) -> Result<(), GeometryError> {
        let Lattice::Block { halo } = self.lattice else { return Ok(()) };
        let Self { tile, patch, .. } = *self;
        check_axes(
            |i| tile[i] >= patch[i],
            |i| clash(["block", "patch"], [tile[i], patch[i]], "a block must be at least as large as a patch"),
        )?;
        let Seam::Trim { voxels } = self.seam else { return Ok(()) };
        check_axes(
            |i| halo[i] >= voxels[i],
            |i| clash(["halo", "trim-voxels"], [halo[i], voxels[i]], "the halo must be at least what is trimmed"),
        )
    }

    /// The overlap is smaller than the patch: where it is at least twice what is trimmed, so is the patch, and more.
    fn check_trim(&self, voxels: Zyx) -> Result<(), GeometryError> {
        let overlap = self.overlap;
        let rule = "the overlap must be at least twice what is trimmed";
        check_axes(
            |i| overlap[i] / 2 >= voxels[i],
            |i| clash(["trim-voxels", "overlap"], [voxels[i], overlap[i]], rule),
        )
    }

    fn check_blend(&self, floor: f32, margin: Zyx) -> Result<(), GeometryError> {
        let Self { volume, patch, overlap, .. } = *self;
        if !(floor > 0.0 && floor <= 1.0) {
            return Err(GeometryError(format!("`min-blend-weight` is {floor}; it must be above 0 and at most 1")));
        }
        check_axes(
            |i| overlap[i] > 0 || volume[i] <= patch[i],
            |_| "`overlap` is 0; blending needs an overlap of at least 1 where more than one patch is needed".into(),
        )?;
        check_axes(
            |i| margin[i] == 0 || margin[i] < overlap[i].div_ceil(2),
            |i| {
                clash(
                    ["margin", "overlap"],
                    [margin[i], overlap[i]],
                    "the overlap must be larger than twice the margin",
                )
            },
        )
    }

    /// The part of the geometry that concerns one axis.
    pub(crate) fn axis(&self, axis: usize) -> AxisGeometry {
        let seam = match self.seam {
            Seam::Trim { voxels } => AxisSeam::Trim { voxels: voxels[axis] },
            Seam::Blend { floor, margin } => {
                AxisSeam::Blend { overlap: self.overlap[axis], floor, margin: margin[axis] }
            }
        };
        AxisGeometry {
            extent: self.volume[axis],
            patch: self.patch[axis],
            overlap: self.overlap[axis],
            align: self.align[axis],
            tile: self.tile[axis],
            halo: match self.lattice {
                Lattice::Volume => None,
                Lattice::Block { halo } => Some(halo[axis]),
            },
            seam,
        }
    }
}
