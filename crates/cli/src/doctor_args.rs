//! What a person types after `haloflow doctor`.

use std::path::PathBuf;

use clap::Args;

use crate::args::RunArgs;

#[derive(Debug, Args)]
pub(crate) struct DoctorCommand {
    /// Places for outputs: they are listed and written to, with one small object that is deleted again
    #[arg(value_name = "URL|SPEC")]
    pub(crate) places: Vec<String>,
    /// Look at these places as inputs: nothing is written
    #[arg(long)]
    pub(crate) read_only: bool,
    /// The TOML file of a run: its input, mask, outputs, model, devices and limits are looked at too
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The network, as for `haloflow run`
    #[arg(long, visible_alias = "weights", value_name = "PATH")]
    model: Option<PathBuf>,
    /// Where it is to run: cpu, cuda:N, or cuda for all [default: cuda if there is one, else cpu]
    #[arg(long, value_name = "DEVICE", num_args = 1..)]
    devices: Option<Vec<String>>,
    /// Memory for everything but libtorch's own, such as 16GiB [default: 60 % of what the machine or container has]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Do not look for credentials and do not sign requests
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    anonymous: Option<bool>,
    /// Tell it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl DoctorCommand {
    /// What was typed, as keys of a run.
    pub(crate) fn keys(&self) -> RunArgs {
        RunArgs {
            model: self.model.clone(),
            devices: self.devices.clone(),
            memory: self.memory.clone(),
            anonymous: self.anonymous,
            ..RunArgs::default()
        }
    }
}
