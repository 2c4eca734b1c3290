//! What a person types for the commands that talk to a daemon.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::args::RunCommand;

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Submits a job to a daemon; the keys are those of `run`
    Submit(Box<SubmitCommand>),
    /// Lists the jobs of a daemon
    Jobs(JobsCommand),
    /// Shows how a job goes on, until its end, and ends with its exit code
    Watch(JobCommand),
    /// Stops a job for good
    Cancel(JobCommand),
    /// Stops a job until it is resumed
    Pause(JobCommand),
    /// Lets a paused job go on
    Resume(JobCommand),
    /// Ends well if a daemon is ready
    Health(HealthCommand),
    /// Prints the log of a job
    Logs(LogsCommand),
}

/// Which daemon.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// The daemon [default: http://127.0.0.1:8470]
    #[arg(long, value_name = "URL", help_heading = "Daemon")]
    pub(crate) server: Option<String>,

    /// A file with the daemon's token; HALOFLOW_TOKEN has it itself
    #[arg(long, value_name = "FILE", help_heading = "Daemon")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SubmitCommand {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// Jobs of a higher priority run first, from -1000 to 1000
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, help_heading = "Daemon")]
    pub(crate) priority: i32,

    /// A name for this submission: sent again it gives the same job, so that it is safe to try again
    #[arg(long, value_name = "KEY", help_heading = "Daemon")]
    pub(crate) idempotency_key: Option<String>,

    /// Watch the job to its end, and end with its exit code
    #[arg(long, help_heading = "Daemon")]
    pub(crate) watch: bool,

    #[command(flatten)]
    pub(crate) run: RunCommand,
}

#[derive(Debug, Args)]
pub(crate) struct JobsCommand {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// Only those that are queued, running, paused, succeeded, failed or cancelled
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,

    /// How many at most, the newest first
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: u32,

    /// Tell them as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HealthCommand {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct JobCommand {
    /// The number of the job
    #[arg(value_name = "JOB")]
    pub(crate) id: i64,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LogsCommand {
    /// The number of the job
    #[arg(value_name = "JOB")]
    pub(crate) id: i64,

    /// Go on until the job has ended
    #[arg(long, short)]
    pub(crate) follow: bool,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}
