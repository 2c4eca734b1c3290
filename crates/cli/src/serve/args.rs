//! What a person types for `haloflow serve`: flags, or the table `serve` of the configuration file, by the same names.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

#[derive(Debug, Args)]
pub(crate) struct ServeCommand {
    /// A TOML file: its table `serve` has the keys below, and its other keys are what jobs get that do not say otherwise
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) args: ServeArgs,
}

/// The keys of the daemon. All are optional here: what is left out gets its default when the settings are made.
#[derive(Clone, Debug, Default, PartialEq, Args, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct ServeArgs {
    /// Where to listen; other addresses than loopback ones want a token [default: 127.0.0.1:8470]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Access")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) listen: Option<String>,

    /// A file with the token that clients have to send; HALOFLOW_TOKEN has it itself
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,

    /// Names under which clients reach the daemon, besides localhost and IP addresses
    #[arg(long, value_name = "NAME", num_args = 1.., help_heading = "Access")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hosts: Option<Vec<String>>,

    /// What jobs may read: beginnings of URLs, or absolute paths [default: nothing]
    #[arg(long, value_name = "ROOT", num_args = 1.., help_heading = "Access")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read: Option<Vec<String>>,

    /// What jobs may write, and read [default: nothing]
    #[arg(long, value_name = "ROOT", num_args = 1.., help_heading = "Access")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) write: Option<Vec<String>>,

    /// Folders that models may be taken from: a model is code [default: none]
    #[arg(long, value_name = "FOLDER", num_args = 1.., help_heading = "Access")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) models: Option<Vec<PathBuf>>,

    /// The folder of the job table [default: ~/.local/state/haloflow]
    #[arg(long, value_name = "FOLDER", help_heading = "Jobs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<PathBuf>,

    /// Jobs that run at one time [default: 1]
    #[arg(long, value_name = "N", help_heading = "Jobs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jobs_at_once: Option<usize>,

    /// Memory that all jobs share; one that does not name its memory gets an equal part [default: 60 % of what the machine or container has]
    #[arg(long, value_name = "SIZE", help_heading = "Jobs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) budget: Option<String>,

    /// Idle models that stay ready on each device [default: 1]
    #[arg(long, value_name = "N", help_heading = "Jobs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warm_models: Option<usize>,

    /// Send traces of jobs to this OpenTelemetry collector, over OTLP/HTTP; OTEL_EXPORTER_OTLP_ENDPOINT does so too
    #[arg(long, value_name = "URL", help_heading = "Jobs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) otlp_endpoint: Option<String>,

    /// Days for which jobs that have ended are kept; 0 is for ever [default: 30]
    #[arg(long, value_name = "DAYS", help_heading = "Jobs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keep_days: Option<u64>,

    /// Jobs that have ended that are kept, the last ones; 0 is any number [default: 10000]
    #[arg(long, value_name = "N", help_heading = "Jobs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keep_jobs: Option<u64>,

    /// Jobs that may wait [default: 100000]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue_limit: Option<u64>,

    /// Size of a request's body [default: 1MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) body_limit: Option<String>,

    /// Requests per second of one client, over a while; 0 is any number [default: 500]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<f64>,

    /// Requests that are worked on at one time [default: 256]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requests_at_once: Option<usize>,

    /// Open connections [default: 4096]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connections: Option<usize>,
}
