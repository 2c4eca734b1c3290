//! Record: writes down which tiles are stored.
//!
//! A Tokio task that outlives the stages: after a fault or a wish to stop it still keeps what was acknowledged. In front of it: a
//! bounded channel of tiles, each sent after its last put, on every level, was acknowledged.

use std::time::Duration;

use async_channel::Receiver;
use haloflow_volume::{LedgerWriter, VolumeError};
use tokio::time::{MissedTickBehavior, interval};

use crate::fault::{Fault, Stage};
use crate::messages::StoredTile;

/// What a killed run may have to do again: what it stored in this time.
const EVERY: Duration = Duration::from_secs(2);

/// Records that are kept at once without waiting for their time.
const MANY: usize = 4096;

/// Records all tiles.
pub(crate) async fn record(mut ledger: LedgerWriter, tiles: Receiver<StoredTile>) -> Result<(), Fault> {
    let told = |error: VolumeError| Fault::volume(Stage::Write, &error);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            tile = tiles.recv() => match tile {
                Ok(StoredTile { record, windows }) => ledger.add(record, &windows),
                Err(_) => return ledger.flush().await.map_err(told),
            },
            _ = ticks.tick() => ledger.flush().await.map_err(told)?,
        }
        if ledger.waiting() >= MANY {
            ledger.flush().await.map_err(told)?;
        }
    }
}
