//! Record: writes down which tiles are stored.
//!
//! A Tokio task that outlives the stages: after a fault or a wish to stop it still keeps what was acknowledged. In front of it: a
//! bounded channel of records, each sent after the last put of its tile was acknowledged.

use std::time::Duration;

use async_channel::Receiver;
use haloflow_volume::{LedgerWriter, Record};
use tokio::time::{MissedTickBehavior, interval};

use crate::fault::{Fault, Stage};

/// What a killed run may have to do again: what it stored in this time.
const EVERY: Duration = Duration::from_secs(2);

/// Records that are kept at once without waiting for their time.
const MANY: usize = 4096;

/// Keeps all records.
pub(crate) async fn record(mut ledger: LedgerWriter, records: Receiver<Record>) -> Result<(), Fault> {
    let told = |error| Fault::volume(Stage::Write, &error);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            record = records.recv() => match record {
                Ok(record) => ledger.add(record),
                Err(_) => return ledger.flush().await.map_err(|error| told(error)),
            },
            _ = ticks.tick() => ledger.flush().await.map_err(|error| told(error))?,
        }
        if ledger.waiting() >= MANY {
            ledger.flush().await.map_err(|error| told(error))?;
        }
    }
}
