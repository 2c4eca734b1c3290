//! What every plan keeps to: tiles, patches, shares. The oracle below is written voxel by voxel from the definitions.
#![allow(clippy::unwrap_used, reason = "a plan that cannot be made fails the test")]

mod arbitrary;

use std::collections::BTreeMap;
use std::ops::Range;

use haloflow_geometry::{AxisPlan, Box3, Geometry, Lattice, Plan, Seam, Zyx, starts};
use proptest::prelude::*;

/// The weight of each patch, by its start, in each voxel of a volume.
type Weights = Vec<BTreeMap<Zyx, f64>>;

fn place(volume: Zyx, [z, y, x]: Zyx) -> usize {
    (z * volume[1] + y) * volume[2] + x
}

/// What the plan gives to each voxel.
fn planned(plan: &Plan) -> Weights {
    let volume = plan.geometry().volume;
    let mut weights = vec![BTreeMap::new(); volume.iter().product()];
    for tile in Box3::of_shape(plan.tiles()).indices() {
        let [z, y, x] = std::array::from_fn(|axis| plan.axes()[axis].patches_of(&(tile[axis]..tile[axis] + 1)));
        for patch in Box3::from_ranges(&z, &y, &x).indices() {
            let contribution = plan.contribution(tile, patch);
            for voxel in contribution.range().indices() {
                let weight: f64 = (0..3)
                    .map(|axis| {
                        let share = contribution.axes[axis];
                        f64::from(share.weights[voxel[axis] - share.range.start])
                    })
                    .product();
                let before = weights[place(volume, voxel)].insert(plan.patch(patch).start, weight);
                assert_eq!(before, None, "a patch gives to a voxel once");
            }
        }
    }
    weights
}

/// A patch's weight in the voxel `at` along one axis, from the definition of the seam. `area` is the box the patch is cut from.
fn axis_weight(geometry: &Geometry, axis: usize, area: &Range<usize>, start: usize, at: usize) -> f64 {
    let end = (start + geometry.patch[axis]).min(area.end);
    let [low, high] = [start > area.start, end < area.end];
    let [from_low, from_high] = [at - start, end - 1 - at];
    match geometry.seam {
        Seam::Trim { voxels } => {
            let cut = (low && from_low < voxels[axis]) || (high && from_high < voxels[axis]);
            if cut { 0.0 } else { 1.0 }
        }
        Seam::Blend { floor, margin } => {
            let (overlap, margin) = (geometry.overlap[axis], margin[axis]);
            if (low && from_low < margin) || (high && from_high < margin) {
                return 0.0;
            }
            let ramp = |depth: usize, outside: usize| {
                let length = overlap.min(outside).saturating_sub(margin);
                match depth - margin.min(depth) {
                    i if outside > 0 && i < length => {
                        0.5 - 0.5 * (std::f64::consts::PI * (i + 1) as f64 / (length + 1) as f64).cos()
                    }
                    _ => 1.0,
                }
            };
            (ramp(from_low, start - area.start) * ramp(from_high, area.end - end)).max(f64::from(floor))
        }
    }
}

/// Merges the patches of one box, in plan order, into the voxels of `core`.
fn merge(geometry: &Geometry, area: &[Range<usize>; 3], core: &Box3, weights: &mut Weights) {
    let axes: [Vec<usize>; 3] = std::array::from_fn(|axis| {
        starts(&area[axis], geometry.patch[axis], geometry.overlap[axis], geometry.align[axis])
    });
    for index in Box3::of_shape([0, 1, 2].map(|axis| axes[axis].len())).indices() {
        let start: Zyx = std::array::from_fn(|axis| axes[axis][index[axis]]);
        let data = Box3::new(start, std::array::from_fn(|axis| start[axis] + geometry.patch[axis]));
        for voxel in data.intersect(core).indices() {
            let weight: f64 =
                (0..3).map(|axis| axis_weight(geometry, axis, &area[axis], start[axis], voxel[axis])).product();
            let merged = &mut weights[place(geometry.volume, voxel)];
            if weight > 0.0 {
                if matches!(geometry.seam, Seam::Trim { .. }) {
                    merged.clear();
                }
                merged.insert(start, weight);
            }
        }
    }
}

/// What the definitions give to each voxel.
fn defined(plan: &Plan) -> Weights {
    let geometry = plan.geometry();
    let mut weights = vec![BTreeMap::new(); geometry.volume.iter().product()];
    match geometry.lattice {
        Lattice::Volume => {
            let area = geometry.volume.map(|extent| 0..extent);
            merge(geometry, &area, &Box3::of_shape(geometry.volume), &mut weights);
        }
        Lattice::Block { .. } => {
            for tile in Box3::of_shape(plan.tiles()).indices() {
                let area = std::array::from_fn(|axis| plan.axes()[axis].tile_box(tile[axis]));
                merge(geometry, &area, &plan.tile(tile), &mut weights);
            }
        }
    }
    for merged in &mut weights {
        let sum: f64 = merged.values().sum();
        merged.values_mut().for_each(|weight| *weight /= sum);
    }
    weights
}

/// Per voxel of an axis: the starts and weights that are given to it.
fn given(axis: &AxisPlan, extent: usize) -> Vec<Vec<(usize, f32)>> {
    let mut given = vec![Vec::new(); extent];
    for tile in 0..axis.tiles().len() {
        for share in axis.shares(tile) {
            share.range.clone().zip(&share.weights).for_each(|(at, weight)| given[at].push((share.start, *weight)));
        }
    }
    given
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn every_voxel_is_in_exactly_one_tile(plan in arbitrary::plan(24)) {
        let volume = plan.geometry().volume;
        let mut seen = vec![0_u32; volume.iter().product()];
        for tile in Box3::of_shape(plan.tiles()).indices() {
            plan.tile(tile).indices().for_each(|voxel| seen[place(volume, voxel)] += 1);
        }
        prop_assert!(seen.iter().all(|count| *count == 1));
    }

    #[test]
    fn the_weights_are_those_of_the_definition(plan in arbitrary::plan(20)) {
        for (ours, theirs) in planned(&plan).iter().zip(&defined(&plan)) {
            prop_assert!((ours.values().sum::<f64>() - 1.0).abs() <= 1e-6, "the weights sum to one: {ours:?}");
            if matches!(plan.geometry().seam, Seam::Trim { .. }) {
                prop_assert_eq!(ours, theirs);
                prop_assert_eq!(ours.len(), 1, "one patch per voxel");
                continue;
            }
            for start in ours.keys().chain(theirs.keys()) {
                let [our, their] = [ours, theirs].map(|weights| weights.get(start).copied().unwrap_or(0.0));
                prop_assert!((our - their).abs() <= 1e-6, "{start:?}: {our}, not {their}");
            }
        }
    }

    #[test]
    fn the_patches_of_a_tile_are_consecutive(plan in arbitrary::plan(60)) {
        for axis in plan.axes() {
            let mut tiles = vec![Vec::new(); axis.patches().len()];
            for tile in 0..axis.tiles().len() {
                let patches: Vec<usize> = axis.shares(tile).iter().map(|share| share.patch).collect();
                prop_assert_eq!(axis.patches_of(&(tile..tile + 1)).collect::<Vec<_>>(), patches.clone());
                for (patch, share) in patches.into_iter().zip(axis.shares(tile)) {
                    prop_assert_eq!(axis.share(tile, patch), share);
                    prop_assert_eq!(axis.patches()[patch].start, share.start);
                    let Range { start, end } = axis.tiles()[tile];
                    prop_assert!(start <= share.range.start && share.range.start < share.range.end && share.range.end <= end);
                    prop_assert_eq!(share.weights.len(), share.range.len());
                    prop_assert!(share.weights.iter().all(|weight| *weight > 0.0 && *weight <= 1.0));
                    tiles[patch].push(tile);
                }
            }
            for (patch, tiles) in axis.patches().iter().zip(tiles) {
                prop_assert_eq!(patch.tiles.clone().collect::<Vec<_>>(), tiles, "every patch gives to some tile");
            }
            let open = |patch: &haloflow_geometry::AxisPatch| patch.tiles.clone().map(|tile| axis.tiles()[tile].len()).sum();
            prop_assert_eq!(axis.open_extent(), axis.patches().iter().map(open).max().unwrap_or(0));
        }
    }

    #[test]
    fn patches_are_aligned_and_read_real_data(plan in arbitrary::plan(60)) {
        let geometry = plan.geometry();
        for (axis, along) in plan.axes().iter().enumerate() {
            let (extent, size, align) = (geometry.volume[axis], geometry.patch[axis], geometry.align[axis]);
            for patch in along.patches() {
                prop_assert_eq!(patch.start % align, 0);
                prop_assert!(patch.valid > 0 && patch.valid <= size && patch.start + patch.valid <= extent);
                let tiles = along.tile_box(patch.tiles.start).start..along.tile_box(patch.tiles.end - 1).end;
                prop_assert!(tiles.start <= patch.start && patch.start + patch.valid <= tiles.end);
                // Only a box smaller than a patch, or one that ends between two multiples of `align`, needs padding.
                let short = tiles.len() < size || size - patch.valid < align;
                prop_assert!(short, "{patch:?} is padded");
            }
        }
    }

    #[test]
    fn starts_cover_the_span_with_the_overlap(
        span in 0..200_usize, patch in 1..40_usize, free in 0..1000_usize, first in 0..9_usize,
    ) {
        let align = 1 + free % patch.min(5);
        let overlap = free % (patch - align + 1);
        let low = first * align;
        let starts = starts(&(low..low + span), patch, overlap, align);
        prop_assert_eq!(starts[0], low);
        prop_assert!(starts.iter().all(|start| start % align == 0));
        prop_assert!(starts.windows(2).all(|pair| pair[0] < pair[1] && pair[0] + patch >= pair[1] + overlap));
        let end = starts[starts.len() - 1] + patch;
        prop_assert!(end >= low + span && (starts.len() == 1 || end < low + span + align));
        // The patch before the last does not reach the end, or the last would be needless.
        prop_assert!(starts.len() == 1 || starts[starts.len() - 2] + patch < low + span);
    }

    #[test]
    fn the_volume_lattice_does_not_depend_on_the_tile(geometry in arbitrary::geometry(60), tile in 1..70_usize) {
        prop_assume!(geometry.lattice == Lattice::Volume);
        let [ours, theirs] = [geometry, Geometry { tile: [tile; 3], ..geometry }].map(|geometry| Plan::new(geometry).unwrap());
        for axis in 0..3 {
            let [ours, theirs] = [&ours, &theirs].map(|plan| given(&plan.axes()[axis], geometry.volume[axis]));
            prop_assert_eq!(ours, theirs);
        }
    }
}
