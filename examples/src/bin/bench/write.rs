//! Writing alone: every tile encoded and stored, as many at a time as in a run.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use haloflow_volume::{Environment, OutputPlan};

use crate::bench::Bench;
use crate::clock::{Clock, Taken};
use crate::whole;

/// The time to write the voxels that the first run wrote, with the same settings; the output's creation is not in it.
pub(crate) async fn measure(bench: &Bench) -> Result<Taken> {
    whole::make_way(&bench.settings)?;
    let input = bench.reader().await?;
    let request = bench.settings.output.clone();
    let plan = OutputPlan::check(request, input.description(), &Environment::empty(), &bench.cpu).await?;
    let writer = plan.create(bench.spec.channels_out, serde_json::Value::Null).await?;
    let tiles = bench.written.clone();
    let clock = Clock::start();
    let writing = stream::iter(tiles).map(|(tile, voxels)| {
        let writer = writer.clone();
        tokio::spawn(async move { writer.write(tile, vec![voxels]).await.context("a tile was not written") })
    });
    let mut written = writing.buffer_unordered(bench.settings.resources.writer_workers);
    while let Some(tile) = written.try_next().await? {
        tile?;
    }
    Ok(clock.taken())
}
