//! Batch: lines patches up in plan order, `batch` at a time, and fills them into a slot.
//!
//! A Tokio task; filling runs on the CPU pool, row by row. In front of it: prepared steps. Behind it: the one channel that all
//! devices take from. Bounded by free slots: a slot is reserved first and filled last. Batches mix steps, so that only the last
//! batch of a run can be short.

use std::sync::Arc;
use std::time::Instant;

use async_channel::{Receiver, Sender, TrySendError};
use haloflow_engine::Slot;
use rayon::prelude::*;

use crate::blocks::of_rows;
use crate::cut::cut;
use crate::fault::{Fault, Stage};
use crate::home::Home;
use crate::messages::{Batch, PreparedStep, Row, StepInput};
use crate::shared::Shared;

/// Forms and fills all batches.
pub(crate) async fn batch(
    shared: Arc<Shared>,
    steps: Receiver<PreparedStep>,
    slots: Receiver<Slot>,
    (out, home): (Sender<Batch>, Home),
) -> Result<(), Fault> {
    let mut waiting: Vec<(Row, Arc<StepInput>)> = Vec::with_capacity(shared.spec.batch);
    let mut sequence = 0;
    while let Ok(PreparedStep { since, context, input }) = shared.meters.batch.waiting(steps.recv()).await {
        shared.meters.batch.taken(since);
        for patch in context.step.patches() {
            shared.meters.batch.part(|| {
                waiting.push((Row { patch, context: Arc::clone(&context) }, Arc::clone(&input)));
            });
            if waiting.len() == shared.spec.batch {
                let full = std::mem::replace(&mut waiting, Vec::with_capacity(shared.spec.batch));
                if !send(&shared, &slots, (&out, &home), sequence, full).await? {
                    return Ok(());
                }
                sequence += 1;
            }
        }
    }
    if !waiting.is_empty() && !shared.faults.cancel().is_cancelled() {
        send(&shared, &slots, (&out, &home), sequence, waiting).await?;
    }
    Ok(())
}

/// Reserves a slot, fills it and hands the batch on; `false` if nobody takes batches any more.
async fn send(
    shared: &Arc<Shared>,
    slots: &Receiver<Slot>,
    (out, home): (&Sender<Batch>, &Home),
    sequence: u64,
    rows: Vec<(Row, Arc<StepInput>)>,
) -> Result<bool, Fault> {
    let Ok(slot) = shared.meters.batch.waiting(slots.recv()).await else { return Ok(false) };
    let holding = shared.board.hold(Stage::Prepare, format!("batch {sequence} of {} patches", rows.len()));
    let (filling, start) = (Arc::clone(shared), Instant::now());
    let work = move || filling.meters.prepare.work(|| fill(&filling, slot, rows));
    let (slot, rows) = shared.feed.run(work).await.map_err(|error| Fault::volume(Stage::Prepare, &error))?;
    shared.traced.worked("prepare", || of_rows(&shared.plan, &rows), start, (Some(sequence), None));
    // What waits for a device is held up, not held.
    drop(holding);
    let batch = Batch { since: Instant::now(), sequence, slot, rows, home: home.clone() };
    Ok(match shared.meters.batch.work(|| out.try_send(batch)) {
        Ok(()) => true,
        Err(TrySendError::Full(batch)) => shared.meters.batch.waiting(out.send(batch)).await.is_ok(),
        Err(TrySendError::Closed(_)) => false,
    })
}

/// Cuts every patch into its row. The inputs are let go as soon as nobody cuts from them.
fn fill(shared: &Shared, mut slot: Slot, rows: Vec<(Row, Arc<StepInput>)>) -> (Slot, Vec<Row>) {
    let row_bytes = shared.spec.input_row_bytes();
    let used = rows.len() * row_bytes;
    let (real, padding) = slot.input.bytes_mut().split_at_mut(used);
    real.par_chunks_mut(row_bytes).zip(&rows).for_each(|(out, (row, input))| {
        let patch = shared.plan.patch(row.patch);
        cut(&input.brick, &patch, &row.context.normalisers, &shared.cutting(), out);
    });
    if shared.spec.pad_short {
        padding.fill(0);
    }
    (slot, rows.into_iter().map(|(row, _)| row).collect())
}
