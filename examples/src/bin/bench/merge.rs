//! Merging alone: every patch of the plan added to its tiles, a batch at a time, as in a run.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Result, ensure};
use half::f16;
use haloflow_engine::EngineSpec;
use haloflow_geometry::{Column, Plan, Step, Zyx};
use haloflow_pipeline::accumulate::{Accumulator, Given};
use rayon::prelude::*;

use crate::bench::Bench;
use crate::clock::{Clock, Taken};

/// A patch, and the step that gives it.
type Row<'a> = (Zyx, &'a Step);

/// A tile that has some of its contributions.
struct OpenTile {
    accumulator: Accumulator,
    missing: usize,
}

/// The time to merge a batch of ones into every place where the plan has one.
pub(crate) async fn measure(bench: &Bench) -> Result<Taken> {
    let (plan, column, spec) = (Arc::clone(&bench.plan), bench.column, bench.spec.clone());
    let (took, left) = bench.cpu.run(move || merge(&plan, column, &spec)).await?;
    ensure!(left == 0, "{left} tiles lack contributions");
    Ok(took)
}

/// The time, and how many tiles were left incomplete.
fn merge(plan: &Plan, column: Column, spec: &EngineSpec) -> (Taken, usize) {
    let output = vec![f16::ONE; spec.batch * spec.output_row_bytes() / size_of::<f16>()];
    let steps: Vec<Step> = plan.steps(column).collect();
    let rows: Vec<Row<'_>> = steps.iter().flat_map(|step| step.patches().map(move |patch| (patch, step))).collect();
    let mut open = HashMap::new();
    let clock = Clock::start();
    for rows in rows.chunks(spec.batch) {
        merge_batch(plan, spec, rows, bytemuck::cast_slice(&output), &mut open);
    }
    (clock.taken(), open.len())
}

fn merge_batch(plan: &Plan, spec: &EngineSpec, rows: &[Row<'_>], output: &[u8], open: &mut HashMap<Zyx, OpenTile>) {
    let mut shares: HashMap<Zyx, (OpenTile, Vec<Given<'_>>)> = HashMap::new();
    for (&(patch, step), row) in rows.iter().zip(output.chunks_exact(spec.output_row_bytes())) {
        for tile in plan.tiles_of(patch, &step.tiles) {
            let (_, given) = shares.entry(tile).or_insert_with(|| (opened(plan, spec, tile, open), Vec::new()));
            given.push(Given { row, start: plan.patch(patch).start, contribution: plan.contribution(tile, patch) });
        }
    }
    shares.par_iter_mut().for_each(|(_, (tile, given))| {
        tile.accumulator.add(given, spec);
        tile.missing -= given.len();
    });
    for (place, (tile, _)) in shares {
        match tile.missing {
            0 => drop(tile.accumulator.into_values()),
            _ => drop(open.insert(place, tile)),
        }
    }
}

fn opened(plan: &Plan, spec: &EngineSpec, tile: Zyx, open: &mut HashMap<Zyx, OpenTile>) -> OpenTile {
    open.remove(&tile).unwrap_or_else(|| OpenTile {
        accumulator: Accumulator::zeroed(plan.tile(tile), spec.channels_out),
        missing: plan.contributions(tile),
    })
}
