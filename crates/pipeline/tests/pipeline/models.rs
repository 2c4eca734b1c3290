//! What the fakes compute: the golden models, and models of known reach.

use haloflow_engine::EngineSpec;
use haloflow_engine::fake::Fake;
use haloflow_geometry::{Box3, Zyx};

/// A golden model by its name. Elements are rounded to the batch's kind where they are written.
pub(crate) fn golden_model(name: &str, device: &str, spec: EngineSpec) -> Fake {
    let patch = spec.patch;
    match name {
        "identity" => Fake::identity(device, spec),
        "affine" => Fake::affine(device, spec, 0.5, 0.1),
        "box3" => Fake::new(device, spec, move |input, output| {
            box_filter(input, output, patch, 1, |sum| (sum * f64::from(1.0_f32 / 27.0)) as f32);
        }),
        "edge" => edge(device, spec),
        "two" => Fake::new(device, spec, |input, output| {
            let (same, flipped) = output.split_at_mut(input.len());
            same.copy_from_slice(input);
            flipped.iter_mut().zip(input).for_each(|(y, x)| *y = 1.0 - x);
        }),
        _ => panic!("no model is called {name}"),
    }
}

/// `y = x + 0.05 k`, `k` the plane of the patch: where a patch starts can be seen in the result.
pub(crate) fn edge(device: &str, spec: EngineSpec) -> Fake {
    let plane = spec.patch[1] * spec.patch[2];
    Fake::new(device, spec, move |input, output| {
        for (i, (y, x)) in output.iter_mut().zip(input).enumerate() {
            *y = x + (i / plane) as f32 * 0.05;
        }
    })
}

/// The mean over the cube of this radius; beyond the patch there is zero.
pub(crate) fn mean_filter(device: &str, spec: EngineSpec, radius: usize) -> Fake {
    let patch = spec.patch;
    Fake::new(device, spec, move |input, output| filtered(input, output, patch, radius))
}

/// What [`mean_filter`] computes.
pub(crate) fn filtered(input: &[f32], output: &mut [f32], shape: Zyx, radius: usize) {
    let count = (2 * radius + 1).pow(3) as f64;
    box_filter(input, output, shape, radius, |sum| (sum / count) as f32);
}

fn box_filter(input: &[f32], output: &mut [f32], shape: Zyx, radius: usize, finish: impl Fn(f64) -> f32) {
    let [_, height, width] = shape;
    for ([z, y, x], out) in Box3::of_shape(shape).indices().zip(output) {
        let stop = std::array::from_fn(|axis| ([z, y, x][axis] + radius + 1).min(shape[axis]));
        let reach = Box3::new([z, y, x].map(|index| index.saturating_sub(radius)), stop);
        *out = finish(reach.indices().map(|[z, y, x]| f64::from(input[(z * height + y) * width + x])).sum());
    }
}

/// The mean over the cell of a regular grid, for every voxel of the cell: a model that strides. The grid starts with the patch.
pub(crate) fn pooled(device: &str, spec: EngineSpec, cell: Zyx) -> Fake {
    let patch = spec.patch;
    Fake::new(device, spec, move |input, output| pool(input, output, patch, cell))
}

/// What [`pooled`] computes; a cell that reaches past the shape holds zeros there.
pub(crate) fn pool(input: &[f32], output: &mut [f32], shape: Zyx, cell: Zyx) {
    let [_, height, width] = shape;
    let place = |[z, y, x]: Zyx| (z * height + y) * width + x;
    let whole = Box3::of_shape(shape);
    for index in whole.cells(cell).indices() {
        let voxels = Box3::of_cell(index, cell).intersect(&whole);
        let sum: f64 = voxels.indices().map(|at| f64::from(input[place(at)])).sum();
        let mean = (sum / cell.iter().product::<usize>() as f64) as f32;
        voxels.indices().for_each(|at| output[place(at)] = mean);
    }
}
