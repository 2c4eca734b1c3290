//! Reading alone: every region of the plan, fetched, decoded and gathered, as many at a time as in a run.

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};

use crate::bench::Bench;
use crate::clock::{Clock, Taken};

/// The time to read the whole volume, in the plan's order, from a cold cache of chunks (the system's own is warm).
pub(crate) async fn measure(bench: &Bench) -> Result<Taken> {
    let reader = bench.reader().await?;
    let clock = Clock::start();
    let reading = stream::iter(bench.plan.steps(bench.column)).map(|step| {
        let reader = reader.clone();
        tokio::spawn(async move { reader.read(step.read).await })
    });
    let mut bricks = reading.buffered(bench.settings.resources.prep_workers);
    while let Some(brick) = bricks.try_next().await? {
        drop(brick?);
    }
    Ok(clock.taken())
}
