//! The binary `haloflow`: arguments, configuration, commands, signals, exit codes. The one place that names both libtorch and
//! the pipeline.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod args;
mod compile;
mod config;
mod exit;
mod logging;
mod machine;
mod metrics;
mod model_args;
mod model_command;
mod model_defaults;
mod models;
mod run;
mod settings;
mod show;
mod signals;
mod typed;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(Cli { command: Command::Run(command) }) => run::run(&command),
        Ok(Cli { command: Command::Model(command) }) => model_command::run(&command),
        Err(error) => {
            // Help and version are printed to standard output and end well; everything else is a wrong use.
            let code = if error.use_stderr() { exit::USAGE } else { 0 };
            drop(error.print());
            ExitCode::from(code)
        }
    }
}
