//! A job, as it is kept and as it is told.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Jobs are numbered from 1 in the order in which they were submitted.
pub type JobId = i64;

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Waits for its turn.
    Queued,
    /// Runs.
    Running,
    /// Waits until somebody resumes it; goes on where it was.
    Paused,
    /// Every block was written.
    Succeeded,
    /// Ended early by a fault.
    Failed,
    /// Ended early because somebody asked for it.
    Cancelled,
}

impl JobState {
    /// All states, in the order of a job's life.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Running, Self::Paused, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// The state as it is written everywhere.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether nothing will change any more.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// What is to become of a job that runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Wish {
    /// It is to run to its end.
    #[default]
    Run,
    /// It is to stop, and to go on when it is resumed.
    Pause,
    /// It is to stop for good.
    Cancel,
}

impl Wish {
    /// The wish as it is kept.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Pause => "pause",
            Self::Cancel => "cancel",
        }
    }

    /// The wish of this name; to run if there is none.
    #[must_use]
    pub fn named(name: &str) -> Self {
        [Self::Pause, Self::Cancel].into_iter().find(|wish| wish.name() == name).unwrap_or_default()
    }
}

/// Why a job ended early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobFault {
    /// `usage`, `data`, `unavailable`, `engine`, `interrupted` or `internal`.
    pub kind: String,
    /// What happened, as a sentence.
    pub message: String,
}

/// How far a job is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobProgress {
    /// What it is doing, in a few words.
    pub doing: String,
    /// Blocks stored since it was last started.
    pub blocks: u64,
    /// Blocks to store since it was last started.
    pub blocks_total: u64,
    /// Patches merged.
    pub patches: u64,
    /// Patches to merge.
    pub patches_total: u64,
    /// Voxels stored.
    pub voxels: u64,
    /// Voxels to store.
    pub voxels_total: u64,
    /// Bytes of raw input per voxel.
    pub bytes_per_voxel: u64,
    /// Voxels stored per second, the mean since the first block.
    pub voxels_per_second: f64,
    /// Seconds until the end at that rate; absent while there is no rate.
    pub eta_seconds: Option<f64>,
}

/// A job as the API tells of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobStatus {
    /// Its number.
    pub id: JobId,
    /// Where it is in its life.
    pub state: JobState,
    /// What is to become of it, where it runs.
    pub wish: Wish,
    /// Jobs of a higher priority run first.
    pub priority: i32,
    /// Where the volume is.
    pub input: String,
    /// Where the result goes.
    pub outputs: Vec<String>,
    /// The model.
    pub model: String,
    /// Bytes that it takes of the daemon's memory budget while it runs.
    pub memory_bytes: u64,
    /// When it was submitted, milliseconds since 1970.
    pub submitted_ms: u64,
    /// When it was last started.
    pub started_ms: Option<u64>,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// How far it is, or was at its end.
    pub progress: Option<JobProgress>,
    /// The exit code that `haloflow run` would have ended with.
    pub exit_code: Option<u8>,
    /// Why it ended early.
    pub fault: Option<JobFault>,
}

/// A job as it is kept.
#[derive(Clone, Debug)]
pub struct Job {
    /// What is told of it.
    pub status: JobStatus,
    /// The keys of the run, checked.
    pub config: Value,
    /// What its data is served under, in place of a token: unguessable.
    pub data_key: String,
    /// How often the process ended, not by its own will, while this job ran.
    pub crashes: u32,
}

/// A job that is to be kept.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Jobs of a higher priority run first.
    pub priority: i32,
    /// A client's name for the submission: the same name gives the same job.
    pub idempotency_key: Option<String>,
    /// The sum of what was submitted under that name.
    pub fingerprint: String,
    /// The keys of the run, checked.
    pub config: Value,
    /// Where the volume is.
    pub input: String,
    /// Where the result goes.
    pub outputs: Vec<String>,
    /// The model.
    pub model: String,
    /// Bytes that it takes of the daemon's memory budget.
    pub memory_bytes: u64,
    /// What its data is served under.
    pub data_key: String,
}

/// How a job ended, or stopped for a while.
#[derive(Clone, Debug)]
pub struct Ending {
    /// The state that it is in now.
    pub state: JobState,
    /// The exit code of a run that ends so; none if it only stopped.
    pub exit_code: Option<u8>,
    /// Why, if early.
    pub fault: Option<JobFault>,
    /// How far it came.
    pub progress: JobProgress,
    /// The run's report.
    pub report: Option<Value>,
}

/// Milliseconds since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
