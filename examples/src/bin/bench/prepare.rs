//! Preparing alone: statistics of every region of the plan, and every patch normalised and cut into a batch.

use std::sync::Arc;

use anyhow::{Context, Result};
use haloflow_engine::EngineSpec;
use haloflow_geometry::{Plan, Step};
use haloflow_pipeline::cut::{Cutting, Padding, cut};
use haloflow_pipeline::normalise::Normaliser;
use haloflow_pipeline::statistics::{Tally, Voxels, percentiles};
use haloflow_volume::{Brick, Element};
use rayon::prelude::*;

use crate::bench::Bench;
use crate::clock::{Clock, Taken};
use crate::whole::{EPS, PERCENTILES};

/// Bytes whose values are counted in one go.
const COUNTED: usize = 4 << 20;

/// The time to prepare the whole volume, without the time to read it.
pub(crate) async fn measure(bench: &Bench) -> Result<Taken> {
    let reader = bench.reader().await?;
    let &[low, high] = bench.report.normalisation.first().context("the run took no statistics")?;
    let normaliser = Normaliser::shift_and_scale(low, high - low, EPS).tabulated(Element::U16, bench.spec.input);
    let mut batch = vec![0; bench.spec.batch * bench.spec.input_row_bytes()];
    let (mut took, leftovers) = (Taken::default(), bench.leftovers());
    for step in bench.plan.steps(bench.column) {
        let brick = reader.read_in_turn(&leftovers.begin(bench.plan.read_of(bench.column, &step))).await?;
        let (plan, spec, normaliser) = (Arc::clone(&bench.plan), bench.spec.clone(), normaliser.clone());
        let work = move || {
            let clock = Clock::start();
            let bounds = statistics(&brick);
            cut_all(&plan, &step, &spec, (&brick, normaliser), &mut batch);
            (bounds, batch, clock.taken())
        };
        let (bounds, filled, time) = bench.cpu.run(work).await?;
        bounds.context("a region without voxels was read")?;
        batch = filled;
        took += time;
    }
    Ok(took)
}

/// Exact percentiles, counted on all cores.
fn statistics(brick: &Brick) -> Option<[f64; 2]> {
    let parts = brick.channels.first()?.par_chunks(COUNTED);
    let tallies = parts.filter_map(|bytes| Tally::of(&Voxels { element: brick.element, bytes }));
    let tally = tallies.reduce_with(|mut sum, part| {
        sum.merge(&part);
        sum
    });
    percentiles(&tally?, PERCENTILES)
}

/// Cuts the patches of a step, a batch at a time, each patch on one core.
fn cut_all(plan: &Plan, step: &Step, spec: &EngineSpec, (brick, normaliser): (&Brick, Normaliser), batch: &mut [u8]) {
    let cutting = Cutting { size: spec.patch, padding: Padding::Reflect, kind: spec.input };
    let normalisers = [normaliser];
    let patches: Vec<_> = step.patches().map(|patch| plan.patch(patch)).collect();
    for patches in patches.chunks(spec.batch) {
        let rows = batch.par_chunks_exact_mut(spec.input_row_bytes());
        rows.zip(patches).for_each(|(row, patch)| cut(brick, patch, &normalisers, &cutting, row));
    }
}
