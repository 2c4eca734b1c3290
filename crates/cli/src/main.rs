//! The binary `haloflow`: arguments, configuration, commands, signals, exit codes. The one place that names both libtorch and
//! the pipeline.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod args;
mod client;
mod compile;
mod config;
mod doctor;
mod doctor_args;
mod environment;
mod exit;
mod inspect;
mod logging;
mod machine;
mod metrics;
mod model_args;
mod model_bench;
mod model_command;
mod model_defaults;
mod model_trial;
mod models;
mod network;
mod notice;
mod otlp;
mod part;
mod plan;
mod ready;
mod report_files;
mod run;
mod serve;
mod settings;
mod show;
mod signals;
mod typed;
mod verify;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    // A negative number is a wrong value, not an unknown flag, so that the error can name the key.
    let numbers = |command: clap::Command| {
        command.mut_args(|arg| {
            let takes_values = arg.get_num_args().is_none_or(|count| count.takes_values());
            if arg.get_action().takes_values() && takes_values { arg.allow_negative_numbers(true) } else { arg }
        })
    };
    let cli = ["run", "plan", "verify", "submit"]
        .into_iter()
        .fold(Cli::command(), |cli, name| cli.mut_subcommand(name, numbers));
    let line = environment::with_variables(&cli, std::env::args_os().collect(), |name| std::env::var(name).ok());
    match cli.try_get_matches_from(line).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(Cli { command: Command::Run(command) }) => run::run(&command),
        Ok(Cli { command: Command::Plan(command) }) => plan::run(&command),
        Ok(Cli { command: Command::Verify(command) }) => verify::run(&command),
        Ok(Cli { command: Command::Inspect(command) }) => inspect::run(&command),
        Ok(Cli { command: Command::Serve(command) }) => serve::run(&command),
        Ok(Cli { command: Command::Client(command) }) => client::run(&command),
        Ok(Cli { command: Command::Model(command) }) => model_command::run(&command),
        Ok(Cli { command: Command::Doctor(command) }) => doctor::run(&command),
        // Help and version are printed to standard output and end well.
        Err(error) if !error.use_stderr() => {
            drop(error.print());
            ExitCode::SUCCESS
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            drop(error.print());
            ExitCode::from(exit::USAGE)
        }
        Err(error) => run::fail(&[sentence(&error.to_string())], exit::USAGE),
    }
}

/// What the parser of the command line has to say, as one sentence: without its prefix and its paragraphs about usage and help.
fn sentence(text: &str) -> String {
    let text = text.trim_start_matches("error: ");
    let end = ["\nUsage:", "\nFor more information"].iter().filter_map(|mark| text.find(mark)).min();
    let lines = text[..end.unwrap_or(text.len())].lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_parser_says_becomes_one_sentence() {
        let error = Cli::command().try_get_matches_from(["haloflow", "run", "--overlop", "4"]).unwrap_err();
        let told = sentence(&error.to_string());
        assert_eq!(told, "unexpected argument '--overlop' found; tip: a similar argument exists: '--overlap'");
    }
}
