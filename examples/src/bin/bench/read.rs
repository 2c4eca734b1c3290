//! Reading alone: every region of the plan, fetched, decoded and gathered, as many at a time as in a run.

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};

use crate::bench::Bench;
use crate::clock::{Clock, Taken};

/// The time to read the whole volume, in the plan's order, with as much kept for later reads as in the run (the system's cache is warm).
pub(crate) async fn measure(bench: &Bench) -> Result<Taken> {
    let reader = bench.reader().await?;
    let leftovers = bench.leftovers();
    let clock = Clock::start();
    let reading = stream::iter(bench.plan.steps(bench.column)).map(|step| {
        let (reader, turn) = (reader.clone(), leftovers.begin(bench.plan.read_of(bench.column, &step)));
        tokio::spawn(async move { reader.read_in_turn(&turn).await })
    });
    let mut bricks = reading.buffered(bench.settings.resources.prep_workers);
    while let Some(brick) = bricks.try_next().await? {
        drop(brick?);
    }
    Ok(clock.taken())
}
