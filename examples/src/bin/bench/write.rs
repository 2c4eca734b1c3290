//! Writing alone: every tile brought back into the input's range, cast, encoded and stored, as many at a time as in a run.

use anyhow::{Context, Result, anyhow};
use futures::{StreamExt, TryStreamExt, stream};
use haloflow_geometry::Box3;
use haloflow_pipeline::cast::{Cast, cast};
use haloflow_volume::{AlignedBytes, CpuPool, Environment, OutputPlan, VolumeWriter};

use crate::bench::Bench;
use crate::clock::{Clock, Taken};

/// The time to write the voxels that the first run wrote, with the same settings; the output's creation is not in it. And the seconds of assembling and encoding in it, summed over threads.
pub(crate) async fn measure(bench: &Bench) -> Result<(Taken, f64)> {
    let input = bench.reader().await?;
    let request = bench.settings.output.clone();
    let plan = OutputPlan::check(request, input.description(), &Environment::empty(), &bench.cpu).await?;
    let rules = bench.settings.cast(plan.element());
    let writer = plan.create(bench.spec.channels_out, serde_json::Value::Null).await?;
    let widened = |voxels: &AlignedBytes| voxels.as_slice::<u16>().iter().map(|&voxel| voxel.into()).collect();
    let tiles: Vec<(Box3, Vec<f32>)> = bench.written.iter().map(|(tile, voxels)| (*tile, widened(voxels))).collect();
    let clock = Clock::start();
    let writing = stream::iter(tiles).map(|(tile, values)| {
        let (cpu, writer) = (bench.cpu.clone(), writer.clone());
        tokio::spawn(store(tile, values, rules, cpu, writer))
    });
    let mut written = writing.buffer_unordered(bench.settings.resources.writer_workers);
    while let Some(tile) = written.try_next().await? {
        tile?;
    }
    Ok((clock.taken(), writer.counters().encode_nanos as f64 / 1e9))
}

async fn store(tile: Box3, values: Vec<f32>, rules: Cast, cpu: CpuPool, writer: VolumeWriter) -> Result<()> {
    let (bytes, _) = cpu
        .run(move || cast(&values, &rules))
        .await?
        .map_err(|index| anyhow!("voxel {index} of the tile {tile} is not finite"))?;
    writer.write(tile, vec![bytes]).await.map(drop).context("a tile was not written")
}
