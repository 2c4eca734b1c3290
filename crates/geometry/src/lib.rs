//! The pure maths of patch-wise inference over a volume: boxes, tiles, the two patch lattices, seam weights, contributions,
//! traversal order. No I/O, and nothing fails after a [`Plan`] was made.
//!
//! Axis order is z, y, x everywhere; sizes are voxels.

mod axis;
mod box3;
mod error;
mod geometry;
mod lattice;
mod plan;
mod readers;
mod seam;
mod selection;
mod traversal;

pub use axis::{AxisPatch, AxisPlan};
pub use box3::{Box3, Zyx};
pub use error::{AXES, GeometryError};
pub use geometry::{Geometry, Lattice, Seam};
pub use lattice::{expanded, starts, stride};
pub use plan::{Contribution, Patch, Plan};
pub use readers::Read;
pub use seam::{AxisSeam, Share, blend_weights, ramp, trim_range};
pub use selection::{Selection, number, numbered};
pub use traversal::{Column, Footprint, Step};
