//! Random geometries that can work.

use haloflow_geometry::{Column, Geometry, Lattice, Plan, Seam, Selection, Zyx, number};
use proptest::array::{uniform3, uniform8};
use proptest::prelude::*;

/// One axis of a geometry; `trim` and `margin` for the one seam and the other.
#[derive(Clone, Copy, Debug)]
struct Axis {
    extent: usize,
    patch: usize,
    overlap: usize,
    align: usize,
    tile: usize,
    halo: usize,
    trim: usize,
    margin: usize,
}

/// Any axis of at most `longest` voxels. Eight free numbers are folded into what is allowed, so that no case is thrown away.
fn axis(longest: usize, block: bool, blend: bool) -> impl Strategy<Value = Axis> {
    uniform8(0..1000_usize).prop_map(move |free| {
        let pick = |which: usize, low: usize, high: usize| low + free[which] % (high - low + 1);
        let align = [1, 1, 1, 2, 3, 4][pick(0, 0, 5)];
        let patch = pick(1, align, 9);
        let overlap = pick(2, 0, patch - align);
        let longest = if blend && overlap == 0 { longest.min(patch) } else { longest };
        let extent = if free[3].is_multiple_of(9) { 1 } else { pick(3, 1, longest) };
        let tile = if block { pick(4, patch, patch + 12) } else { pick(4, 1, longest + 3) };
        let (trim, margin) = (pick(5, 0, overlap / 2), pick(6, 0, overlap.saturating_sub(1) / 2));
        let halo = pick(7, if blend { 0 } else { trim }, trim + 9);
        Axis { extent, patch, overlap, align, tile, halo, trim, margin }
    })
}

/// Any geometry that can work, at most `longest` voxels along an axis.
pub(crate) fn geometry(longest: usize) -> impl Strategy<Value = Geometry> {
    let kind = (any::<bool>(), any::<bool>(), prop_oneof![Just(0.05_f32), 0.001_f32..=1.0, Just(f32::MIN_POSITIVE)]);
    kind.prop_flat_map(move |(block, blend, floor)| {
        uniform3(axis(longest, block, blend)).prop_map(move |axes| {
            let of = |size: fn(&Axis) -> usize| -> Zyx { [0, 1, 2].map(|index| size(&axes[index])) };
            Geometry {
                volume: of(|axis| axis.extent),
                tile: of(|axis| axis.tile),
                patch: of(|axis| axis.patch),
                overlap: of(|axis| axis.overlap),
                align: of(|axis| axis.align),
                lattice: if block { Lattice::Block { halo: of(|axis| axis.halo) } } else { Lattice::Volume },
                seam: match blend {
                    true => Seam::Blend { floor, margin: of(|axis| axis.margin) },
                    false => Seam::Trim { voxels: of(|axis| axis.trim) },
                },
            }
        })
    })
}

/// Any plan, at most `longest` voxels along an axis.
pub(crate) fn plan(longest: usize) -> impl Strategy<Value = Plan> {
    geometry(longest).prop_map(|geometry| Plan::new(geometry).unwrap())
}

/// Any plan of any of its tiles: all, many, few or none.
#[allow(dead_code, reason = "not every test selects")]
pub(crate) fn selected(longest: usize) -> impl Strategy<Value = Plan> {
    (plan(longest), prop_oneof![Just(0_u64), 1..6_u64, Just(u64::MAX)], any::<u64>()).prop_map(|(plan, few, seed)| {
        let tiles = plan.tiles();
        // One tile in `few` of all, or all if that is 0.
        let drawn = |tile| (seed ^ number(tiles, tile) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let selection = Selection::new(tiles, |tile| few == 0 || drawn(tile) % few == 0);
        plan.select(&selection)
    })
}

/// Any column, also one wider than the plan.
#[allow(dead_code, reason = "not every test walks")]
pub(crate) fn column() -> impl Strategy<Value = Column> {
    (1..6_usize, 1..6_usize).prop_map(|(y, x)| Column { y, x })
}
