//! The way of every block through the stages, told to whoever traces it. Without anybody nothing is measured, counted or kept.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use haloflow_geometry::{Box3, Plan, Step, Zyx};
use haloflow_volume::carried::{Notes, Taken};

use crate::fault::Fault;
use crate::messages::Row;

/// A block of the output: what is written at a time.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its place among the blocks, z y x.
    pub place: Zyx,
    /// Its voxels.
    pub region: Box3,
}

/// A piece of work that a stage has done.
#[derive(Debug)]
pub struct Work<'a> {
    /// `read`, `prepare`, `device`, `merge` or `write`.
    pub name: &'static str,
    /// The blocks that it was done for, at least one: what is read, or computed in one batch, often serves several.
    pub blocks: &'a [Block],
    /// When it began.
    pub start: Instant,
    /// When it was done.
    pub end: Instant,
    /// What storage did for it.
    pub storage: Taken,
    /// The batch that it was done on.
    pub batch: Option<u64>,
    /// The device that did it.
    pub device: Option<&'a str>,
}

/// Whoever traces blocks. It is told on the threads that work, so it must not wait for anything.
pub trait BlockTrace: fmt::Debug + Send + Sync {
    /// Something is about to be read for a block; told again for each of its steps. Nothing is done for a block before.
    fn begun(&self, block: &Block, at: Instant);

    /// A stage has worked on some blocks.
    fn worked(&self, work: Work<'_>);

    /// A block is stored, or will not be in this run.
    fn ended(&self, block: &Block, outcome: Result<(), &Fault>);
}

/// Whoever traces the blocks of a run, if anybody does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traced(Option<Arc<dyn BlockTrace>>);

impl Traced {
    pub(crate) fn by(trace: Option<Arc<dyn BlockTrace>>) -> Self {
        Self(trace)
    }

    /// Tells that something is about to be read for `blocks`. Called in plan order, so that a block begins with the first that is.
    pub(crate) fn begun(&self, blocks: impl FnOnce() -> Vec<Block>) {
        if let Some(trace) = &self.0 {
            let at = Instant::now();
            blocks().iter().for_each(|block| trace.begun(block, at));
        }
    }

    /// Awaits work on `blocks`.
    pub(crate) async fn working<T>(
        &self,
        name: &'static str,
        blocks: impl FnOnce() -> Vec<Block>,
        work: impl Future<Output = T>,
    ) -> T {
        let Some(trace) = &self.0 else { return work.await };
        let (notes, start) = (Notes::default(), Instant::now());
        let done = notes.of(work).await;
        let (end, blocks, storage) = (Instant::now(), blocks(), notes.take());
        tell(trace, Work { name, blocks: &blocks, start, end, storage, batch: None, device: None });
        done
    }

    /// Tells of work that ends now, on a batch if there is one, and on a device.
    pub(crate) fn worked(
        &self,
        name: &'static str,
        blocks: impl FnOnce() -> Vec<Block>,
        start: Instant,
        (batch, device): (Option<u64>, Option<&str>),
    ) {
        if let Some(trace) = &self.0 {
            let (end, blocks, storage) = (Instant::now(), blocks(), Taken::default());
            tell(trace, Work { name, blocks: &blocks, start, end, storage, batch, device });
        }
    }

    /// Tells that a block has come to its end.
    pub(crate) fn ended(&self, plan: &Plan, tile: Zyx, outcome: Result<(), &Fault>) {
        if let Some(trace) = &self.0 {
            trace.ended(&block(plan, tile), outcome);
        }
    }
}

fn tell(trace: &Arc<dyn BlockTrace>, work: Work<'_>) {
    if !work.blocks.is_empty() {
        trace.worked(work);
    }
}

/// The block of a tile.
pub(crate) fn block(plan: &Plan, tile: Zyx) -> Block {
    Block { place: tile, region: plan.tile(tile) }
}

/// The blocks that a step gives to.
pub(crate) fn of_step(plan: &Plan, step: &Step) -> Vec<Block> {
    of_patches(plan, step.patches().map(|patch| (patch, step)))
}

/// The blocks that the rows of a batch give to.
pub(crate) fn of_rows(plan: &Plan, rows: &[Row]) -> Vec<Block> {
    of_patches(plan, rows.iter().map(|row| (row.patch, &row.context.step)))
}

fn of_patches<'a>(plan: &Plan, patches: impl Iterator<Item = (Zyx, &'a Step)>) -> Vec<Block> {
    let tiles: BTreeSet<Zyx> = patches.flat_map(|(patch, step)| plan.tiles_of(patch, &step.tiles)).collect();
    tiles.into_iter().map(|tile| block(plan, tile)).collect()
}
