use haloflow_engine::ElementKind;
use haloflow_geometry::{Geometry, Lattice, Plan, Seam};

use super::*;

/// Patches of 3 x 4 x 9 voxels of which up to three cover a voxel along x.
fn plan() -> Plan {
    let geometry = Geometry {
        volume: [5, 6, 21],
        tile: [4, 6, 12],
        patch: [3, 4, 9],
        overlap: [1, 2, 6],
        align: [1; 3],
        lattice: Lattice::Volume,
        seam: Seam::Blend { floor: 0.05, margin: [0; 3] },
    };
    Plan::new(geometry).unwrap()
}

fn spec(output: ElementKind) -> EngineSpec {
    let (batch, patch, channels_in, channels_out) = (1, [3, 4, 9], 1, 2);
    EngineSpec { batch, patch, channels_in, channels_out, input: ElementKind::F32, output, pad_short: false }
}

/// The patches of a tile in plan order, each with values of very different size, so that the order of a sum shows.
fn patches(plan: &Plan, tile: Zyx, kind: ElementKind) -> Vec<(Zyx, Vec<u64>)> {
    let [z, y, x] = std::array::from_fn(|axis| plan.axes()[axis].patches_of(&(tile[axis]..tile[axis] + 1)));
    let row = |number: usize| {
        let values: Vec<f32> = (0..2 * 3 * 4 * 9)
            .map(|i| ((i * 37 + number * 101) % 59) as f32 * [0.1, 997.0, -997.0][number % 3])
            .collect();
        let mut bytes = vec![0_u64; (values.len() * kind.size()).div_ceil(8)];
        let used = values.len() * kind.size();
        haloflow_engine::fake::write_elements(kind, &values, &mut bytemuck::cast_slice_mut(&mut bytes)[..used]);
        bytes
    };
    Box3::from_ranges(&z, &y, &x).indices().enumerate().map(|(number, patch)| (patch, row(number))).collect()
}

fn given<'a>(plan: &'a Plan, tile: Zyx, patches: &'a [(Zyx, Vec<u64>)]) -> Vec<Given<'a>> {
    let one = |(patch, row): &'a (Zyx, Vec<u64>)| Given {
        row: bytemuck::cast_slice(row),
        start: plan.patch(*patch).start,
        contribution: plan.contribution(tile, *patch),
    };
    patches.iter().map(one).collect()
}

/// The same sums, voxel by voxel.
fn naive(plan: &Plan, tile: Zyx, given: &[Given<'_>], spec: &EngineSpec) -> Vec<f32> {
    let region = plan.tile(tile);
    let mut sums = vec![0.0_f32; 2 * region.voxels()];
    for (i, sum) in sums.iter_mut().enumerate() {
        let channel = i / region.voxels();
        let at = region.indices().nth(i % region.voxels()).unwrap();
        for one in given {
            let axes = one.contribution.axes;
            if !(0..3).all(|axis| axes[axis].range.contains(&at[axis])) {
                continue;
            }
            let [wz, wy, wx] = std::array::from_fn(|axis| axes[axis].weights[at[axis] - axes[axis].range.start]);
            let [z, y, x]: Zyx = std::array::from_fn(|axis| at[axis] - one.start[axis]);
            let place = ((channel * 3 + z) * 4 + y) * 9 + x;
            let values = haloflow_engine::fake::read_elements(spec.output, &one.row[..spec.output_row_bytes()]);
            *sum += values[place] * (wz * wy * wx);
        }
    }
    sums
}

fn accumulated(region: Box3, given: &[Given<'_>], spec: &EngineSpec, parts: usize) -> Vec<f32> {
    let mut accumulator = Accumulator::zeroed(region, 2);
    given.chunks(given.len().div_ceil(parts)).for_each(|part| accumulator.add(part, spec));
    accumulator.into_values().as_slice().to_vec()
}

#[test]
fn sums_follow_the_order_of_the_patches_bit_for_bit() {
    let plan = plan();
    for kind in [ElementKind::F32, ElementKind::F16, ElementKind::Bf16] {
        let spec = spec(kind);
        for tile in Box3::of_shape(plan.tiles()).indices() {
            let patches = patches(&plan, tile, kind);
            let mut given = given(&plan, tile, &patches);
            let expected = naive(&plan, tile, &given, &spec);
            for parts in [1, 2, given.len()] {
                let sums = accumulated(plan.tile(tile), &given, &spec, parts);
                assert!(sums == expected, "{kind} {tile:?} in {parts} parts");
            }
            given.reverse();
            let backwards = accumulated(plan.tile(tile), &given, &spec, 1);
            assert!(backwards == naive(&plan, tile, &given, &spec), "{kind} {tile:?} backwards");
            assert!(backwards != expected, "the order must show in the last bits");
        }
    }
}
