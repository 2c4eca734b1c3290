//! What the stages hand to each other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use haloflow_engine::{Completion, Slot};
use haloflow_geometry::{Box3, Step, Zyx};
use haloflow_volume::{AlignedBytes, Brick, Record, Window};

use crate::board::Holding;
use crate::budget::Lease;
use crate::fault::Fault;
use crate::home::Home;
use crate::normalise::{Affine, Normaliser};

/// A step whose input has been read: from the read stage to the batch stage.
pub(crate) struct PreparedStep {
    /// When it was ready to be taken; so in every message.
    pub(crate) since: Instant,
    pub(crate) context: Arc<StepContext>,
    pub(crate) input: Arc<StepInput>,
}

/// What stays of a step until its last patch is merged.
pub(crate) struct StepContext {
    pub(crate) step: Step,
    /// One per input channel.
    pub(crate) normalisers: Vec<Normaliser>,
    /// Why its voxels could not be read, if they could not: no tile that they give to can be stored.
    pub(crate) failed: Option<Fault>,
    /// The leases of the tiles that this step opens, until the merge stage takes them.
    leases: Mutex<HashMap<Zyx, Lease>>,
}

impl StepContext {
    pub(crate) fn new(step: Step, normalisers: Vec<Normaliser>, leases: HashMap<Zyx, Lease>) -> Self {
        Self { step, normalisers, failed: None, leases: Mutex::new(leases) }
    }

    /// The same, of a step whose voxels could not be read for this cause, if there is one.
    pub(crate) fn but(self, failed: Option<Fault>) -> Self {
        Self { failed, ..self }
    }

    /// Takes the lease of a tile that this step opens.
    pub(crate) fn take_lease(&self, tile: Zyx) -> Option<Lease> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).remove(&tile)
    }
}

/// The voxels of a step, until its last patch is cut.
pub(crate) struct StepInput {
    pub(crate) brick: Brick,
    pub(crate) _lease: Lease,
}

/// One row of a batch.
pub(crate) struct Row {
    pub(crate) patch: Zyx,
    pub(crate) context: Arc<StepContext>,
}

/// A filled batch: from the batch stage to whichever device is free.
pub(crate) struct Batch {
    pub(crate) since: Instant,
    /// Batches are numbered in plan order, from zero.
    pub(crate) sequence: u64,
    pub(crate) slot: Slot,
    pub(crate) rows: Vec<Row>,
    pub(crate) home: Home,
}

/// A batch that a device has started: from the device stage to the merge stage, in any order.
pub(crate) struct Flight {
    /// When the device was given it.
    pub(crate) submitted: Instant,
    pub(crate) sequence: u64,
    pub(crate) rows: Vec<Row>,
    pub(crate) completion: Box<dyn Completion>,
    /// The name of the device that it is on.
    pub(crate) device: Arc<str>,
    pub(crate) home: Home,
    /// Held by the device until the batch has landed.
    pub(crate) holding: Holding,
}

/// A tile with all its contributions: from the merge stage to the write stage.
pub(crate) struct FinishedTile {
    pub(crate) since: Instant,
    pub(crate) tile: Zyx,
    pub(crate) region: Box3,
    /// `[channel, z, y, x]`.
    pub(crate) values: AlignedBytes,
    /// One per output channel.
    pub(crate) inverses: Vec<Affine>,
    pub(crate) lease: Option<Lease>,
}

/// A tile of which everything is stored: from the write stage to the record stage.
pub(crate) struct StoredTile {
    pub(crate) record: Record,
    /// The range of its values, one per output channel.
    pub(crate) windows: Vec<Window>,
}
