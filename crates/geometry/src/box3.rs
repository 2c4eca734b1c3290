//! Boxes of voxels.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

/// Three numbers, one per axis: z, y, x.
pub type Zyx = [usize; 3];

/// A half-open box of voxels: `start[axis] <= index < stop[axis]`, axes z, y, x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Box3 {
    /// First voxel.
    pub start: Zyx,
    /// One past the last voxel.
    pub stop: Zyx,
}

impl Box3 {
    /// The box from `start` (inside) to `stop` (outside).
    #[must_use]
    pub const fn new(start: Zyx, stop: Zyx) -> Self {
        Self { start, stop }
    }

    /// The box of three ranges, z, y, x.
    #[must_use]
    pub const fn from_ranges(z: &Range<usize>, y: &Range<usize>, x: &Range<usize>) -> Self {
        Self { start: [z.start, y.start, x.start], stop: [z.end, y.end, x.end] }
    }

    /// The box of a whole volume of this shape.
    #[must_use]
    pub const fn of_shape(shape: Zyx) -> Self {
        Self { start: [0; 3], stop: shape }
    }

    /// Size along each axis, voxels.
    #[must_use]
    pub fn shape(&self) -> Zyx {
        std::array::from_fn(|axis| self.stop[axis].saturating_sub(self.start[axis]))
    }

    /// Number of voxels.
    #[must_use]
    pub fn voxels(&self) -> usize {
        self.shape().iter().product()
    }

    /// Whether the box holds no voxel.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shape().contains(&0)
    }

    /// The voxels in both boxes; may be empty.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let start: Zyx = std::array::from_fn(|axis| self.start[axis].max(other.start[axis]));
        let stop = std::array::from_fn(|axis| self.stop[axis].min(other.stop[axis]).max(start[axis]));
        Self { start, stop }
    }

    /// The same voxels, counted from `origin`. `origin` must not lie beyond the box's start.
    #[must_use]
    pub fn relative_to(&self, origin: Zyx) -> Self {
        Self {
            start: std::array::from_fn(|axis| self.start[axis] - origin[axis]),
            stop: std::array::from_fn(|axis| self.stop[axis] - origin[axis]),
        }
    }

    /// The indices of the cells of a regular grid of `cell`-sized boxes that this box touches, as a box of indices.
    #[must_use]
    pub fn cells(&self, cell: Zyx) -> Self {
        Self {
            start: std::array::from_fn(|axis| self.start[axis] / cell[axis]),
            stop: std::array::from_fn(|axis| self.stop[axis].div_ceil(cell[axis])),
        }
    }

    /// The box of the cell at `index` of a regular grid of `cell`-sized boxes; it may reach past the volume.
    #[must_use]
    pub fn of_cell(index: Zyx, cell: Zyx) -> Self {
        Self {
            start: std::array::from_fn(|axis| index[axis] * cell[axis]),
            stop: std::array::from_fn(|axis| (index[axis] + 1) * cell[axis]),
        }
    }

    /// Every index in the box, x innermost.
    pub fn indices(&self) -> impl Iterator<Item = Zyx> + use<> {
        let Self { start, stop } = *self;
        (start[0]..stop[0])
            .flat_map(move |z| (start[1]..stop[1]).flat_map(move |y| (start[2]..stop[2]).map(move |x| [z, y, x])))
    }
}

impl fmt::Display for Box3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [z, y, x] = [0, 1, 2].map(|axis| format!("{}..{}", self.start[axis], self.stop[axis]));
        write!(f, "z {z}, y {y}, x {x}")
    }
}
