//! Writing alone: every tile brought back into the input's range, cast, encoded and stored, as many at a time as in a run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use futures::{StreamExt, TryStreamExt, stream};
use haloflow_geometry::{Box3, Zyx};
use haloflow_pipeline::cast::{Cast, cast};
use haloflow_volume::{CpuPool, Environment, OutputPlan, VolumeWriter};

use crate::bench::Bench;
use crate::synthetic;

/// The time to write the whole volume; the output's creation is not in it. Every tile holds the voxels of the first one, which
/// compress like any others'.
pub(crate) async fn measure(bench: &Bench) -> Result<Duration> {
    let input = bench.reader().await?;
    let request = bench.settings.output.clone();
    let plan = OutputPlan::check(request, input.description(), &Environment::empty(), &bench.cpu).await?;
    let rules = bench.settings.cast(plan.element());
    let writer = plan.create(bench.spec.channels_out, serde_json::Value::Null).await?;
    let first = bench.plan.tile([0; 3]);
    let values =
        bench.cpu.run(move || synthetic::voxels(first, synthetic::blobs).into_iter().map(f32::from).collect()).await?;
    let values: Arc<[f32]> = values;

    let tiles: Vec<Zyx> = Box3::of_shape(bench.plan.tiles()).indices().collect();
    let began = Instant::now();
    let writing = stream::iter(tiles).map(|tile| {
        let store = store(bench.plan.tile(tile), Arc::clone(&values), rules, bench.cpu.clone(), writer.clone());
        tokio::spawn(store)
    });
    let mut written = writing.buffer_unordered(bench.settings.resources.writer_workers);
    while let Some(tile) = written.try_next().await? {
        tile?;
    }
    Ok(began.elapsed())
}

async fn store(tile: Box3, values: Arc<[f32]>, rules: Cast, cpu: CpuPool, writer: VolumeWriter) -> Result<()> {
    let (bytes, _) = cpu
        .run(move || cast(&values[..tile.voxels()], &rules))
        .await?
        .map_err(|index| anyhow!("voxel {index} of the tile {tile} is not finite"))?;
    writer.write(tile, vec![bytes]).await.map(drop).context("a tile was not written")
}
