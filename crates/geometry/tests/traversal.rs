//! What every walk through a plan keeps to, whatever the columns.
#![allow(clippy::unwrap_used, reason = "a plan that cannot be made fails the test")]

mod arbitrary;

use std::collections::BTreeMap;
use std::ops::Range;

use haloflow_geometry::{Box3, Column, Footprint, Lattice, Plan, Selection, Zyx, number, numbered};
use proptest::prelude::*;

/// The patches of a tile in plan order.
fn patches_of(plan: &Plan, tile: Zyx) -> Vec<Zyx> {
    let [z, y, x] = std::array::from_fn(|axis| plan.axes()[axis].patches_of(&(tile[axis]..tile[axis] + 1)));
    Box3::from_ranges(&z, &y, &x).indices().collect()
}

/// A walk, patch by patch: for every patch the number of its step and the tiles that it gives to.
fn walk(plan: &Plan, column: Column) -> Vec<(usize, Zyx, Vec<Zyx>)> {
    let steps = plan.steps(column).enumerate();
    let patches = steps.flat_map(|(number, step)| {
        step.patches().map(move |patch| (number, patch, step.tiles.clone())).collect::<Vec<_>>()
    });
    patches.map(|(number, patch, tiles)| (number, patch, plan.tiles_of(patch, &tiles).collect())).collect()
}

/// The most bytes that are held when a step is admitted and all full batches before it have been worked off: patches are
/// counted, a step is held until its last patch is through, a tile from the step of its first patch until its last is through.
fn held(plan: &Plan, column: Column, footprint: &Footprint) -> u64 {
    let walk = walk(plan, column);
    let mut spans: BTreeMap<Zyx, (usize, usize)> = BTreeMap::new();
    for (count, (number, _, tiles)) in walk.iter().enumerate() {
        tiles.iter().for_each(|&tile| spans.entry(tile).or_insert((*number, 0)).1 = count + 1);
    }
    let mut bounds = vec![0];
    bounds.extend(plan.steps(column).scan(0, |end, step| {
        *end += step.len();
        Some(*end)
    }));
    let reads: Vec<u64> = plan.steps(column).map(|step| step.read.voxels() as u64 * footprint.input).collect();
    let at = |number: usize| -> u64 {
        let through = bounds[number] / footprint.batch * footprint.batch;
        let input = (0..=number).filter(|&step| bounds[step + 1] > through).map(|step| reads[step]);
        let open = spans.iter().filter(|(_, (first, last))| *first <= number && *last > through);
        input.sum::<u64>() + open.map(|(&tile, _)| plan.tile(tile).voxels() as u64 * footprint.tile).sum::<u64>()
    };
    (0..reads.len()).map(at).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn the_reads_of_a_cell_are_those_of_the_steps_that_need_it_in_plan_order(
        plan in arbitrary::selected(24),
        column in arbitrary::column(),
        start in prop::array::uniform3(0..24_usize),
        size in prop::array::uniform3(1..12_usize),
    ) {
        let cell = Box3::new(start, std::array::from_fn(|axis| start[axis] + size[axis]));
        let reads: Vec<_> = plan.steps(column).map(|step| plan.read_of(column, &step)).collect();
        prop_assert!(reads.is_sorted_by(|one, next| one.order < next.order), "{reads:?}");
        let mut found = plan.reads_of(column, &cell);
        found.sort_by_key(|read| read.order);
        let needed: Vec<_> = reads.into_iter().filter(|read| !read.region.intersect(&cell).is_empty()).collect();
        prop_assert_eq!(found, needed);
    }

    #[test]
    fn every_contribution_is_made_once_and_in_plan_order(plan in arbitrary::selected(24), column in arbitrary::column()) {
        let mut made: BTreeMap<Zyx, Vec<Zyx>> = BTreeMap::new();
        for (_, patch, tiles) in walk(&plan, column) {
            prop_assert!(!tiles.is_empty(), "a patch that gives nothing is not computed");
            tiles.into_iter().for_each(|tile| made.entry(tile).or_default().push(patch));
        }
        prop_assert!(made.keys().copied().eq(plan.selection().iter()), "the selected tiles and no other");
        for (tile, patches) in made {
            prop_assert_eq!(patches.len(), plan.contributions(tile));
            prop_assert_eq!(patches, patches_of(&plan, tile));
        }
    }

    #[test]
    fn a_tile_is_opened_by_its_first_patch_and_closed_by_its_last(plan in arbitrary::selected(24), column in arbitrary::column()) {
        let (mut opened, mut closed) = (BTreeMap::new(), BTreeMap::new());
        for (number, step) in plan.steps(column).enumerate() {
            let [opens, closes]: [Vec<Zyx>; 2] = [plan.opened_by(&step).collect(), plan.closed_by(&step).collect()];
            for (met, by) in [(&mut opened, opens), (&mut closed, closes)] {
                for tile in by {
                    prop_assert_eq!(met.insert(tile, number), None, "tile {:?} is met twice", tile);
                }
            }
        }
        let (mut first, mut last) = (BTreeMap::new(), BTreeMap::new());
        for (number, _, tiles) in walk(&plan, column) {
            for tile in tiles {
                first.entry(tile).or_insert(number);
                last.insert(tile, number);
            }
        }
        prop_assert_eq!((opened, closed), (first, last));
    }

    #[test]
    fn a_step_reads_the_data_of_its_patches(plan in arbitrary::selected(24), column in arbitrary::column()) {
        let volume = Box3::of_shape(plan.geometry().volume);
        for step in plan.steps(column) {
            prop_assert!(!step.is_empty());
            prop_assert_eq!(step.len(), step.patches().count());
            prop_assert_eq!(step.read.intersect(&volume), step.read);
            for patch in step.patches() {
                prop_assert!(plan.tiles_of(patch, &step.tiles).next().is_some(), "what gives nothing is not read for");
            }
            let mut hull = Box3::new([usize::MAX; 3], [0; 3]);
            for data in step.patches().map(|patch| plan.patch(patch).data()) {
                prop_assert_eq!(step.read.intersect(&data), data);
                hull.start = std::array::from_fn(|axis| hull.start[axis].min(data.start[axis]));
                hull.stop = std::array::from_fn(|axis| hull.stop[axis].max(data.stop[axis]));
            }
            match plan.geometry().lattice {
                Lattice::Volume => prop_assert_eq!(step.read, hull, "nothing else is read"),
                Lattice::Block { halo } => assert_expanded(&plan, &step.tiles, step.read, halo),
            }
        }
    }

    #[test]
    fn patches_counts_those_of_all_steps(plan in arbitrary::selected(24), column in arbitrary::column()) {
        let count: usize = plan.steps(column).map(|step| step.len()).sum();
        prop_assert_eq!(plan.patches(column), count as u64);
        prop_assert!(plan.patches(plan.widest()) <= plan.patches(column));
        prop_assert!(plan.patches(column) <= plan.patches_of_all(column));
        let whole: usize = plan.axes().iter().map(|axis| axis.patches().len()).product();
        prop_assert_eq!(plan.patches_of_all(plan.widest()), whole as u64);
    }

    #[test]
    fn need_is_never_less_than_what_is_held(plan in arbitrary::selected(16), column in arbitrary::column(), batch in 1..40_usize) {
        let footprint = |batch: usize| Footprint { input: 3, tile: 5, batch };
        let need = plan.need(column, &footprint(batch));
        prop_assert!(held(&plan, column, &footprint(batch)) <= need);
        let all: u64 = plan.steps(column).map(|step| step.read.voxels() as u64 * 3).sum();
        prop_assert!(need <= all + Box3::of_shape(plan.geometry().volume).voxels() as u64 * 5);
        // Patch by patch nothing waits, and the need is exact.
        prop_assert_eq!(held(&plan, column, &footprint(1)), plan.need(column, &footprint(1)));
    }
}

/// In the block lattice a step reads its tile and the halo, inside the volume; alignment may widen that.
fn assert_expanded(plan: &Plan, tiles: &[Range<usize>; 3], read: Box3, halo: Zyx) {
    let geometry = plan.geometry();
    let core = plan.tile(std::array::from_fn(|axis| tiles[axis].start));
    for axis in 0..3 {
        assert_eq!(tiles[axis].len(), 1);
        let low = core.start[axis].saturating_sub(halo[axis]);
        let high = (core.stop[axis] + halo[axis]).min(geometry.volume[axis]);
        let reach = low - read.start[axis];
        assert!(reach < geometry.align[axis] && read.stop[axis] >= high, "{read}");
        assert!(geometry.align[axis] > 1 || read.stop[axis] == high, "{read}");
    }
}

proptest! {
    #[test]
    fn a_selection_is_a_set_of_tiles(plan in arbitrary::selected(24), other in arbitrary::selected(24)) {
        let (selection, tiles) = (plan.selection(), plan.tiles());
        let all: Vec<Zyx> = Box3::of_shape(tiles).indices().collect();
        for (count, &tile) in all.iter().enumerate() {
            prop_assert_eq!((number(tiles, tile), numbered(tiles, count)), (count, tile));
        }
        let members: Vec<Zyx> = all.iter().copied().filter(|&tile| selection.contains(tile)).collect();
        prop_assert!(selection.iter().eq(members.iter().copied()));
        prop_assert_eq!(selection.len(), members.len());
        prop_assert_eq!((selection.is_empty(), selection.is_all()), (members.is_empty(), members.len() == all.len()));
        let inside = |tile: Zyx| (0..3).all(|axis| tile[axis] < other.tiles()[axis]) && other.selection().contains(tile);
        let both = plan.clone().select(&Selection::new(tiles, inside));
        prop_assert!(both.selection().iter().eq(members.into_iter().filter(|&tile| inside(tile))));
    }
}

/// Whether the tiles hang together by their faces.
fn in_one_piece(selection: &Selection) -> bool {
    let mut left: std::collections::BTreeSet<Zyx> = selection.iter().collect();
    let mut reached: Vec<Zyx> = left.pop_first().into_iter().collect();
    while let Some(tile) = reached.pop() {
        for (axis, step) in (0..3).flat_map(|axis| [(axis, 1), (axis, usize::MAX)]) {
            let mut next = tile;
            next[axis] = next[axis].wrapping_add(step);
            reached.extend(left.take(&next));
        }
    }
    left.is_empty()
}

proptest! {
    #[test]
    fn shards_hold_every_tile_once_and_are_of_one_size(z in 1..7_usize, y in 1..7_usize, x in 1..7_usize, count in 1..40_usize) {
        let tiles = [z, y, x];
        let shards: Vec<Selection> = (0..count).map(|index| Selection::shard(tiles, index, count)).collect();
        for tile in Box3::of_shape(tiles).indices() {
            prop_assert_eq!(shards.iter().filter(|shard| shard.contains(tile)).count(), 1);
        }
        let sizes: Vec<usize> = shards.iter().map(Selection::len).collect();
        prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{:?}", sizes);
        // A shard that holds the end of one line and the start of the next, and less than a line, is in two pieces.
        let mut sides = tiles;
        sides.sort_unstable();
        let whole_lines = shards.iter().filter(|shard| shard.len() >= 2 * sides[0] * sides[1]);
        prop_assert!(whole_lines.into_iter().all(in_one_piece));
    }
}

#[test]
fn a_column_of_no_tiles_is_one_tile_wide() {
    let seam = haloflow_geometry::Seam::Trim { voxels: [1; 3] };
    let (volume, tile, patch, overlap, align) = ([9; 3], [4; 3], [5; 3], [2; 3], [1; 3]);
    let plan =
        Plan::new(haloflow_geometry::Geometry { volume, tile, patch, overlap, align, lattice: Lattice::Volume, seam })
            .unwrap();
    let [none, one] = [Column { y: 0, x: 0 }, Column { y: 1, x: 1 }];
    assert!(plan.steps(none).eq(plan.steps(one)));
    assert_eq!(plan.patches(none), plan.patches(one));
}
