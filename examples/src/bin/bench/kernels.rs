//! The two loops over voxels, on one core: what a patch voxel costs before the network and after it.

use std::time::Instant;

use anyhow::{Context, Result};
use half::f16;
use haloflow_engine::EngineSpec;
use haloflow_geometry::{Box3, Column, Geometry, Lattice, Plan, Seam, Step, Zyx};
use haloflow_pipeline::accumulate::{Accumulator, Given};
use haloflow_pipeline::cut::{Cutting, Padding, cut};
use haloflow_pipeline::normalise::Normaliser;
use haloflow_volume::{AlignedBytes, Brick, Element};

use crate::synthetic::{gamma, voxels};

/// A block with its halo.
const SIDE: usize = 266;

/// Patch voxels per second on one core: prepared (u16 to normalised f16 in the batch) and merged (f16 into f32 sums, weighed). The best of
/// `repeat`: whatever else the machine does only adds.
pub(crate) fn measure(spec: &EngineSpec, seam: Seam, repeat: usize) -> Result<[f64; 2]> {
    let geometry = Geometry {
        volume: [SIDE; 3],
        tile: [SIDE; 3],
        patch: spec.patch,
        overlap: [10; 3],
        align: [1; 3],
        lattice: Lattice::Volume,
        seam,
    };
    let plan = Plan::new(geometry).context("a block cannot be planned")?;
    let core = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    core.install(|| {
        let region = Box3::of_shape([SIDE; 3]);
        let channels = vec![AlignedBytes::from_slice(&voxels(region, gamma))];
        let brick = Brick { region, element: Element::U16, channels };
        let mut rates = [0.0_f64; 2];
        for _ in 0..repeat {
            for (rate, now) in rates.iter_mut().zip(once(&plan, spec, &brick)) {
                *rate = rate.max(now);
            }
        }
        Ok(rates)
    })
}

fn once(plan: &Plan, spec: &EngineSpec, brick: &Brick) -> [f64; 2] {
    let steps: Vec<_> = plan.steps(Column { y: 1, x: 1 }).collect();
    let patches: Vec<Zyx> = steps.iter().flat_map(Step::patches).collect();
    let count = (patches.len() * spec.patch_voxels()) as f64;
    let cutting = Cutting { size: spec.patch, padding: Padding::Reflect, kind: spec.input };
    let normalisers = [Normaliser::global([0.0, 500.0], 1e-6).tabulated(Element::U16, spec.input)];
    let mut batch = vec![f16::ONE; spec.batch * spec.patch_voxels()];
    let batch: &mut [u8] = bytemuck::cast_slice_mut(&mut batch);

    let began = Instant::now();
    for (patch, row) in patches.iter().zip((0..spec.batch).cycle()) {
        let row = &mut batch[row * spec.input_row_bytes()..][..spec.input_row_bytes()];
        cut(brick, &plan.patch(*patch), &normalisers, &cutting, row);
    }
    let prepared = count / began.elapsed().as_secs_f64();

    let mut sums = Accumulator::zeroed(brick.region, 1);
    let began = Instant::now();
    for patches in patches.chunks(spec.batch) {
        let rows = batch.chunks_exact(spec.output_row_bytes());
        let given: Vec<Given<'_>> = patches
            .iter()
            .zip(rows)
            .map(|(&patch, row)| Given {
                row,
                start: plan.patch(patch).start,
                contribution: plan.contribution([0; 3], patch),
            })
            .collect();
        sums.add(&given, spec);
    }
    [prepared, count / began.elapsed().as_secs_f64()]
}
