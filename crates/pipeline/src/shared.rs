//! What all stages of a run look at and none changes, but for counting.

use std::sync::Arc;

use haloflow_engine::EngineSpec;
use haloflow_geometry::{Column, Plan, Selection, Zyx};
use haloflow_volume::{CpuPool, Ledger, Leftovers, VolumeReader, VolumeWriter};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::after::VoxelStep;
use crate::blocks::Traced;
use crate::board::Board;
use crate::budget::Budget;
use crate::cast::Cast;
use crate::cut::{Cutting, Padding};
use crate::fault::Faults;
use crate::meter::Meters;
use crate::normalise::{Normalisation, Normaliser};
use crate::progress::Progress;
use crate::pyramid::Downsampling;
use crate::quarantine::Quarantine;

/// The run as its stages see it.
pub(crate) struct Shared {
    pub(crate) plan: Arc<Plan>,
    /// Tiles that need not be computed: they are recorded as if they were stored.
    pub(crate) skipped: Selection,
    pub(crate) column: Column,
    pub(crate) spec: EngineSpec,
    pub(crate) reader: VolumeReader,
    /// What steps want of chunks that were there before.
    pub(crate) leftovers: Leftovers,
    pub(crate) writer: VolumeWriter,
    pub(crate) ledger: Ledger,
    /// For work that takes long: decoding, statistics, casting, encoding.
    pub(crate) cpu: CpuPool,
    /// For what devices wait for: filling batches and emptying them. A pool of its own, since a thread of a pool that waits for its part of a
    /// batch takes up other work meanwhile, and may be long about it.
    pub(crate) feed: CpuPool,
    pub(crate) budget: Budget,
    /// Bytes per voxel of a step's input, all channels.
    pub(crate) input_bytes: u64,
    /// Bytes per voxel of an open tile.
    pub(crate) tile_bytes: u64,
    pub(crate) normalisation: Normalisation,
    /// The normalisers of the whole volume; empty if they differ from block to block.
    pub(crate) normalisers: Vec<Normaliser>,
    pub(crate) eps: f64,
    pub(crate) clip: Option<[f32; 2]>,
    pub(crate) denormalise: bool,
    pub(crate) after: Vec<VoxelStep>,
    pub(crate) padding: Padding,
    pub(crate) cast: Cast,
    /// For each coarser level of the output, the voxels of the finest that one of its voxels stands for.
    pub(crate) factors: Vec<Zyx>,
    pub(crate) downsampling: Downsampling,
    /// Steps in reading at one time.
    pub(crate) read_ahead: usize,
    pub(crate) writers: usize,
    pub(crate) meters: Arc<Meters>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) faults: Faults,
    pub(crate) quarantine: Arc<Quarantine>,
    /// What the stages hold.
    pub(crate) board: Board,
    /// Whoever traces blocks.
    pub(crate) traced: Traced,
    /// Cancelled when no more steps are to be admitted.
    pub(crate) drain: CancellationToken,
    /// Every task that a stage starts, so that none outlives the run.
    pub(crate) tasks: TaskTracker,
}

impl Shared {
    /// How patches are cut.
    pub(crate) const fn cutting(&self) -> Cutting {
        Cutting { size: self.spec.patch, padding: self.padding, kind: self.spec.input }
    }
}
