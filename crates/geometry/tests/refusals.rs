//! What is refused, and in which words.

use haloflow_geometry::{Geometry, Lattice, Plan, Seam};

/// A geometry that works, to be broken.
fn sound() -> Geometry {
    Geometry {
        volume: [100, 90, 80],
        tile: [32, 40, 48],
        patch: [16, 20, 24],
        overlap: [4, 6, 8],
        align: [1, 2, 4],
        lattice: Lattice::Block { halo: [2, 3, 4] },
        seam: Seam::Trim { voxels: [2, 3, 4] },
    }
}

fn blended(floor: f32) -> Geometry {
    Geometry { seam: Seam::Blend { floor, margin: [1, 2, 3] }, ..sound() }
}

fn assert_refused(geometry: Geometry, sentence: &str) {
    assert_eq!(geometry.check().map_err(|error| error.to_string()), Err(sentence.to_owned()));
    assert_eq!(Plan::new(geometry).map(|_| ()), geometry.check(), "a plan refuses what the check refuses");
}

#[test]
fn sound_geometries_are_not_refused() {
    for geometry in [sound(), blended(0.05), blended(1.0), Geometry { lattice: Lattice::Volume, ..sound() }] {
        assert_eq!(geometry.check(), Ok(()));
        assert!(Plan::new(geometry).is_ok());
    }
}

#[test]
fn sizes() {
    assert_refused(Geometry { volume: [100, 0, 80], ..sound() }, "the volume is empty: its size is 100 0 80 (axis y)");
    assert_refused(
        Geometry { volume: [100, 90, usize::MAX], ..sound() },
        "the volume's size is 100 90 18446744073709551615; every size must be at most 2097152 (axis x)",
    );
    assert_refused(
        Geometry { patch: [0, 20, 24], ..sound() },
        "`patch` is 0 20 24; every size must be at least 1 (axis z)",
    );
    assert_refused(
        Geometry { tile: [32, 40, 0], ..sound() },
        "`block` is 32 40 0; every size must be at least 1 (axis x)",
    );
}

#[test]
fn overlap_and_align() {
    assert_refused(
        Geometry { overlap: [4, 20, 8], ..sound() },
        "`overlap` is 20 and `patch` is 20; the overlap must be smaller than the patch (axis y)",
    );
    assert_refused(
        Geometry { align: [1, 0, 4], ..sound() },
        "`align` is 1 0 4; every value must be at least 1 (axis y)",
    );
    assert_refused(
        Geometry { align: [1, 2, 17], ..sound() },
        "`align` is 17; it must be at most patch - overlap = 16, or patches could not advance (axis x)",
    );
}

#[test]
fn blocks_and_halos() {
    let small = Geometry { tile: [32, 19, 48], ..sound() };
    assert_refused(small, "`block` is 19 and `patch` is 20; a block must be at least as large as a patch (axis y)");
    assert_eq!(Geometry { lattice: Lattice::Volume, ..small }.check(), Ok(()));
    let narrow = Geometry { lattice: Lattice::Block { halo: [1, 3, 4] }, ..sound() };
    assert_refused(narrow, "`halo` is 1 and `trim-voxels` is 2; the halo must be at least what is trimmed (axis z)");
    assert_eq!(Geometry { seam: blended(0.05).seam, ..narrow }.check(), Ok(()));
}

#[test]
fn trimming() {
    let geometry =
        |voxels| Geometry { seam: Seam::Trim { voxels }, lattice: Lattice::Block { halo: voxels }, ..sound() };
    let rule = "the overlap must be at least twice what is trimmed";
    assert_refused(geometry([3, 3, 4]), &format!("`trim-voxels` is 3 and `overlap` is 4; {rule} (axis z)"));
    assert_refused(
        geometry([2, 3, usize::MAX]),
        &format!("`trim-voxels` is 18446744073709551615 and `overlap` is 8; {rule} (axis x)"),
    );
}

#[test]
fn blending() {
    for (floor, text) in [(0.0, "0"), (-0.5, "-0.5"), (1.5, "1.5"), (f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        assert_refused(blended(floor), &format!("`min-blend-weight` is {text}; it must be above 0 and at most 1"));
    }
    let bare = Geometry { overlap: [4, 6, 0], seam: Seam::Blend { floor: 0.05, margin: [0; 3] }, ..sound() };
    assert_refused(
        bare,
        "`overlap` is 0; blending needs an overlap of at least 1 where more than one patch is needed (axis x)",
    );
    assert_eq!(Geometry { volume: [100, 90, 24], ..bare }.check(), Ok(()));
    for (margin, value) in [([2, 2, 3], 2), ([usize::MAX, 2, 3], usize::MAX)] {
        assert_refused(
            Geometry { seam: Seam::Blend { floor: 0.05, margin }, ..sound() },
            &format!(
                "`margin` is {value} and `overlap` is 4; the overlap must be larger than twice the margin (axis z)"
            ),
        );
    }
}

#[test]
fn enormous_values_make_a_plan_or_are_refused() {
    let huge = Geometry {
        tile: [usize::MAX; 3],
        patch: [usize::MAX; 3],
        overlap: [usize::MAX - 9; 3],
        align: [4; 3],
        lattice: Lattice::Block { halo: [usize::MAX; 3] },
        seam: Seam::Trim { voxels: [usize::MAX / 4; 3] },
        ..sound()
    };
    for geometry in [huge, Geometry { lattice: Lattice::Volume, ..huge }] {
        assert_eq!(Plan::new(geometry).map(|plan| plan.patches(plan.widest())), Ok(1));
    }
}
