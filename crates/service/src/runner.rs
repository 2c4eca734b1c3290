//! The seam to what runs jobs.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use haloflow_pipeline::Progress;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::job::{JobFault, JobId};

/// A job that could run, and what it would touch.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Its keys, by their first names, laid over the daemon's own.
    pub config: Value,
    /// The volume, for people.
    pub input: String,
    /// The results, for people.
    pub outputs: Vec<String>,
    /// The model, for people.
    pub model: String,
    /// Every place that it reads: URLs or absolute paths, links followed.
    pub reads: Vec<String>,
    /// Every place that it writes.
    pub writes: Vec<String>,
    /// Every file that is code, links followed.
    pub models: Vec<PathBuf>,
    /// Bytes for everything large.
    pub memory_bytes: u64,
}

/// A job that is to run now.
#[derive(Clone)]
pub struct RunningJob {
    /// Its number.
    pub id: JobId,
    /// Its keys, as [`Prepared`] had them.
    pub config: Value,
    /// Whether it was started before, and stopped.
    pub again: bool,
    /// Cancelled when it is to finish what it has begun, and to stop.
    pub drain: CancellationToken,
    /// Cancelled when it is to stop at once.
    pub cancel: CancellationToken,
    /// Moved as it goes on.
    pub progress: Arc<Progress>,
    /// Takes lines for its log.
    pub log: Arc<dyn Fn(String) + Send + Sync>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Nothing, if every block was written.
    pub fault: Option<JobFault>,
    /// The exit code that `haloflow run` would have ended with.
    pub exit_code: u8,
    /// The run's report, where it came so far.
    pub report: Option<Value>,
}

/// A model that is ready to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoadedModel {
    /// Where it came from.
    pub model: String,
    /// The device that it is on.
    pub device: String,
    /// What runs: its form and versions.
    pub description: String,
    /// Whether a job uses it at the moment.
    pub busy: bool,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeviceState {
    /// Its name, as jobs give it.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Bytes of its memory; absent where nobody tells.
    pub memory_total_bytes: Option<u64>,
    /// Bytes of it in use, by any process.
    pub memory_used_bytes: Option<u64>,
    /// Share of time in which it computed, 0 to 1.
    pub utilisation: Option<f64>,
}

/// A side of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The volume.
    Input,
    /// The first result.
    Output,
}

/// One slice of a volume across z, as shades.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// Pixels along x.
    pub width: u32,
    /// Pixels along y.
    pub height: u32,
    /// Values row by row, in the volume's own units.
    pub values: Vec<f32>,
}

/// Size of a side's volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SideInfo {
    /// Voxels along z, y, x of the finest level that is read.
    pub shape: [usize; 3],
    /// Kind of number.
    pub element: String,
}

/// Bytes of an object that are given at one time.
pub const MOST_BYTES: u64 = 256 << 20;

/// Which bytes of an object are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of them.
    All,
    /// Those from the first number on, up to the second.
    Between(u64, u64),
    /// Those from this one on.
    From(u64),
    /// So many at its end.
    Last(u64),
}

/// Bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The bytes. None if the object has none there, or if they are more than [`MOST_BYTES`].
    pub bytes: Bytes,
    /// Where they begin in the object.
    pub start: u64,
    /// Where they end, or would end.
    pub stop: u64,
    /// Size of the object.
    pub size: u64,
}

/// Why something of a volume cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotShown(pub String);

/// Whatever runs jobs. Its futures may be dropped at any time but for [`run`](Self::run), which is stopped by its tokens.
pub trait Runner: Send + Sync + 'static {
    /// Checks a job without touching any data.
    ///
    /// # Errors
    /// One sentence per key that cannot work.
    fn check(&self, config: Value) -> BoxFuture<'_, Result<Prepared, Vec<String>>>;

    /// Makes ready what every job needs.
    ///
    /// # Errors
    /// A sentence that tells why no job could run.
    fn warm_up(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Runs a job to its end. A job that was stopped before goes on where it was.
    fn run(&self, job: RunningJob) -> BoxFuture<'static, Outcome>;

    /// Removes what it has kept of jobs that are no longer in the table.
    fn forget(&self, jobs: Vec<JobId>) -> BoxFuture<'_, ()>;

    /// The models that are ready.
    fn models(&self) -> Vec<LoadedModel>;

    /// The devices that jobs can name. May block.
    fn devices(&self) -> Vec<DeviceState>;

    /// The size of a side of the job with these keys.
    ///
    /// # Errors
    /// A sentence, if there is nothing to see yet, or it cannot be read.
    fn side<'a>(&'a self, config: &'a Value, side: Side) -> BoxFuture<'a, Result<SideInfo, NotShown>>;

    /// A slice across z, of the coarsest level that has at least as many pixels as `pixels` along its longer side, or the finest.
    ///
    /// # Errors
    /// As [`side`](Self::side).
    fn slice<'a>(
        &'a self,
        config: &'a Value,
        side: Side,
        z: usize,
        pixels: usize,
    ) -> BoxFuture<'a, Result<Slice, NotShown>>;

    /// Bytes of an object of a side as it is stored; none if there is no such object, or it is no file. No more than [`MOST_BYTES`] are given.
    ///
    /// # Errors
    /// As [`side`](Self::side).
    fn object<'a>(
        &'a self,
        config: &'a Value,
        side: Side,
        key: &'a str,
        wanted: Wanted,
    ) -> BoxFuture<'a, Result<Option<Piece>, NotShown>>;
}
