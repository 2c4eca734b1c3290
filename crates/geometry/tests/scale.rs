//! A plan of a whole brain is made at once, and its figures are those worked out by hand.
#![allow(clippy::unwrap_used, reason = "a plan that cannot be made fails the test")]

use std::time::{Duration, Instant};

use haloflow_geometry::{Box3, Column, Footprint, Geometry, Lattice, Plan, Seam};

const VOLUME: [usize; 3] = [20480, 10640, 14192];

fn geometry(lattice: Lattice) -> Geometry {
    let seam = Seam::Blend { floor: 0.05, margin: [4; 3] };
    Geometry { volume: VOLUME, tile: [256; 3], patch: [128; 3], overlap: [16; 3], align: [1; 3], lattice, seam }
}

/// Voxels computed per voxel of the volume.
fn redundancy(patches: u64) -> f64 {
    patches as f64 * 128_f64.powi(3) / Box3::of_shape(VOLUME).voxels() as f64
}

#[test]
fn a_whole_brain_is_planned_in_under_a_second() {
    let begin = Instant::now();
    let plan = Plan::new(geometry(Lattice::Volume)).unwrap();
    assert_eq!(plan.tiles(), [80, 42, 56]);
    // Along z (20480 - 128) / 112 rounded up, and one more; likewise along y and x.
    let patches = plan.patches(plan.widest());
    assert_eq!(patches, 183 * 95 * 127);
    // (128 / 112) cubed is 1.493; the flush patches at the ends add the rest.
    assert!((1.493..1.5).contains(&redundancy(patches)), "{}", redundancy(patches));
    // A column of 1024 voxels takes between 9 and 11 patches of stride 112 where 9.14 would do.
    let column = Column { y: 4, x: 4 };
    let columns = redundancy(plan.patches(column));
    assert!((1.5..1.5 * (11_f64 / 9.14).powi(2)).contains(&columns), "{columns}");
    // A patch that reaches two layers and two rows of tiles meets the 16 tiles of the one layer, none of them closed, and two
    // rows of four of the next. No two patches in a row reach two layers: their margins part where tiles do. Beside these,
    // two rows of patches are read.
    let need = plan.need(column, &Footprint { input: 2, tile: 4, batch: 8 });
    let (open, row) = (24 * 256_u64.pow(3) * 4, 128 * 128 * (1024 + 2 * 112) * 2);
    assert!((open + row..=open + 2 * row).contains(&need), "{need}");
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

#[test]
fn a_whole_brain_is_planned_in_blocks() {
    let begin = Instant::now();
    let plan = Plan::new(geometry(Lattice::Block { halo: [8; 3] })).unwrap();
    let patches = plan.patches(plan.widest());
    assert_eq!(patches, plan.patches(Column { y: 1, x: 1 }), "blocks share no patch");
    // A block of 256 and its halo take three patches of 128; the last block is 144 thick along y (two), 112 along x (one).
    assert_eq!(patches, (80 * 3) * (41 * 3 + 2) * (55 * 3 + 1));
    // 1.5 cubed, that is 3.375, and a little for the blocks at the ends.
    assert!((3.375..3.4).contains(&redundancy(patches)), "{}", redundancy(patches));
    let need = plan.need(plan.widest(), &Footprint { input: 2, tile: 4, batch: 27 });
    // The nine patches of a block at the end of x do not fill a batch, so three blocks are held: the one before, itself, and
    // the first of the next row. Each with its input, of which the halo is missing at the faces of the volume, and its tile.
    let block = |input: u64, tile: u64| 272 * 272 * input * 2 + 256 * 256 * tile * 4;
    assert_eq!(need, block(272, 256) + block(120, 112) + block(264, 256));
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}
