//! Merge: adds the patches of a batch to their tiles, batch after batch in plan order, whatever order they arrive in.
//!
//! A Tokio task; waiting for a device happens in `spawn_blocking`, adding on the CPU pool. In front of it: flights. Behind it: a
//! bounded channel of finished tiles. Holds no memory of its own: the leases of its tiles were taken when their patches were
//! admitted.
//!
//! It cannot starve: the batch whose turn it is has been submitted before every batch that waits for it, and needs no further
//! slot to complete.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use async_channel::{Receiver, Sender};
use futures::StreamExt;
use haloflow_engine::{Rejected, Slot};
use haloflow_geometry::Zyx;
use haloflow_volume::carried::carried_over;

use crate::accumulate::{Accumulator, Given};
use crate::blocks::{block, of_rows};
use crate::budget::Lease;
use crate::device::failed;
use crate::fault::{Fault, Stage};
use crate::home::Home;
use crate::messages::{Batch, FinishedTile, Flight, Row};
use crate::normalise::{Affine, inverses};
use crate::shared::Shared;

/// A batch that came back from its device.
struct Landed {
    since: Instant,
    sequence: u64,
    rows: Vec<Row>,
    slot: Slot,
}

/// A tile that has some of its contributions.
struct OpenTile {
    accumulator: Accumulator,
    missing: usize,
    /// One per output channel.
    inverses: Vec<Affine>,
    lease: Option<Lease>,
    /// Why it cannot be stored, if something that gives to it could not be read.
    failed: Option<Fault>,
}

/// What a batch gives to one tile: rows of the batch, in order.
struct Share {
    tile: Zyx,
    open: OpenTile,
    rows: Vec<usize>,
}

/// Merges all batches.
pub(crate) async fn merge(
    shared: Arc<Shared>,
    flights: Receiver<Flight>,
    slots: Sender<Slot>,
    out: Sender<FinishedTile>,
) -> Result<(), Fault> {
    let mut open: HashMap<Zyx, OpenTile> = HashMap::new();
    let mut early: BTreeMap<u64, Landed> = BTreeMap::new();
    let mut next = 0;
    let mut landing = std::pin::pin!(flights.map(|flight| land(&shared, flight)).buffer_unordered(usize::MAX));
    while let Some(landed) = shared.meters.merge.waiting(landing.next()).await {
        let Some(landed) = landed? else { continue };
        early.insert(landed.sequence, landed);
        while let Some(Landed { since, sequence, rows, slot }) = early.remove(&next) {
            shared.meters.merge.taken(since);
            next += 1;
            let (shares, slot) = merge_batch(&shared, &mut open, (sequence, rows), slot).await?;
            // The channel of slots has room for every slot; nobody listens any more when the last batch is formed.
            drop(slots.send(slot).await);
            for Share { tile, open: merged, .. } in shares {
                match merged.missing {
                    0 => finish(&shared, &out, tile, merged).await?,
                    _ => drop(open.insert(tile, merged)),
                }
            }
        }
    }
    Ok(())
}

/// Waits for a batch to come back, on a thread that may block; nothing if it has to go to another device.
async fn land(shared: &Shared, flight: Flight) -> Result<Option<Landed>, Fault> {
    let Flight { submitted, sequence, rows, completion, device, home, holding } = flight;
    let landed = shared.tasks.spawn_blocking(carried_over(move || completion.wait())).await;
    drop(holding);
    match landed {
        Ok(Ok(slot)) => {
            let on = (Some(sequence), Some(&*device));
            shared.traced.worked("device", || of_rows(&shared.plan, &rows), submitted, on);
            Ok(Some(Landed { since: Instant::now(), sequence, rows, slot }))
        }
        Ok(Err(Rejected { error, slot })) if home.is_open_after(&device, &error) => {
            // The device's own thread learns of it by its next batch.
            shared.board.note(format!("batch {sequence} goes to another device: {error}"));
            tracing::warn!(device = error.device, "a batch goes to another device: {}", error.message);
            Home::send(Batch { since: Instant::now(), sequence, slot, rows, home });
            Ok(None)
        }
        Ok(Err(Rejected { error, .. })) => Err(failed(&error, &rows)),
        Err(error) => Err(Fault::panicked(Stage::Device, &error)),
    }
}

async fn merge_batch(
    shared: &Arc<Shared>,
    open: &mut HashMap<Zyx, OpenTile>,
    (sequence, rows): (u64, Vec<Row>),
    slot: Slot,
) -> Result<(Vec<Share>, Slot), Fault> {
    let start = Instant::now();
    let mut shares = shares(shared, open, &rows);
    let merging = Arc::clone(shared);
    let _holding = shared.board.hold(Stage::Merge, format!("a batch of {} patches", rows.len()));
    let work = move || {
        merging.meters.merge.work(|| {
            use rayon::prelude::*;
            shares.par_iter_mut().for_each(|share| add(&merging, share, &rows, &slot));
        });
        merging.progress.batch_merged(rows.len(), merging.spec.batch);
        (shares, slot)
    };
    let merged = shared.feed.run(work).await.map_err(|error| Fault::volume(Stage::Merge, &error))?;
    let given = || merged.0.iter().map(|share| block(&shared.plan, share.tile)).collect();
    shared.traced.worked("merge", given, start, (Some(sequence), None));
    Ok(merged)
}

/// Sorts the rows of a batch by the tiles they give to, opening tiles that are met for the first time.
fn shares(shared: &Shared, open: &mut HashMap<Zyx, OpenTile>, rows: &[Row]) -> Vec<Share> {
    let mut places: HashMap<Zyx, usize> = HashMap::new();
    let mut shares: Vec<Share> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        for tile in shared.plan.tiles_of(row.patch, &row.context.step.tiles) {
            let place = *places.entry(tile).or_insert_with(|| {
                let open = open.remove(&tile).unwrap_or_else(|| open_tile(shared, row, tile));
                shares.push(Share { tile, open, rows: Vec::new() });
                shares.len() - 1
            });
            shares[place].rows.push(index);
            if let Some(fault) = &row.context.failed {
                shares[place].open.failed.get_or_insert_with(|| fault.clone());
            }
        }
    }
    shares
}

fn open_tile(shared: &Shared, row: &Row, tile: Zyx) -> OpenTile {
    let channels = shared.spec.channels_out;
    OpenTile {
        accumulator: Accumulator::zeroed(shared.plan.tile(tile), channels),
        missing: shared.plan.contributions(tile),
        inverses: match shared.denormalise {
            true => inverses(&row.context.normalisers, channels),
            false => vec![Affine::IDENTITY; channels],
        },
        lease: row.context.take_lease(tile),
        failed: None,
    }
}

fn add(shared: &Shared, share: &mut Share, rows: &[Row], slot: &Slot) {
    let row_bytes = shared.spec.output_row_bytes();
    let given: Vec<Given<'_>> = share
        .rows
        .iter()
        .map(|&index| {
            let patch = rows[index].patch;
            Given {
                row: &slot.output.bytes()[index * row_bytes..(index + 1) * row_bytes],
                start: shared.plan.patch(patch).start,
                contribution: shared.plan.contribution(share.tile, patch),
            }
        })
        .collect();
    share.open.accumulator.add(&given, &shared.spec);
    share.open.missing -= given.len();
}

async fn finish(shared: &Shared, out: &Sender<FinishedTile>, tile: Zyx, open: OpenTile) -> Result<(), Fault> {
    let OpenTile { accumulator, inverses, lease, failed, .. } = open;
    let region = shared.plan.tile(tile);
    if let Some(fault) = failed {
        shared.traced.ended(&shared.plan, tile, Err(&fault));
        return shared.quarantine.set_aside(region, &fault);
    }
    let finished =
        FinishedTile { since: Instant::now(), tile, region, values: accumulator.into_values(), inverses, lease };
    // If nobody writes any more, a fault has been reported.
    drop(shared.meters.merge.waiting(out.send(finished)).await);
    Ok(())
}
