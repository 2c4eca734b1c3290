//! What a contributor types: `cargo xtask <command>`.
#![expect(clippy::print_stdout, reason = "telling the person at the terminal is the job")]
#![expect(clippy::print_stderr, reason = "telling the person at the terminal is the job")]

mod arrows;
mod bench;
mod browser;
mod demo;
mod licences;
mod lint;
mod process;
mod python;
mod setup;
mod spdx;
mod tidy;

use std::process::ExitCode;

use anyhow::{Result, bail};

const HELP: &str = "\
Usage: cargo xtask <command> [arguments]

  setup   installs libtorch into the user's cache folder, once, and links this clone to it
  lint    format, clippy, arrows between crates, licences, tidiness
  test    every test; arguments go to `cargo test`
  demo    a real volume through a real network, from S3 to S3; writes a picture
  bench   `host`: voxels per second through the stages; `gpu`: a real network on GPUs; arguments go to the benchmark

Every command does the set-up first. After it, plain `cargo build`, `cargo test` and `cargo run` work.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    match run(command, rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &str, rest: &[String]) -> Result<()> {
    let task: fn(&setup::Installed, &[String]) -> Result<()> = match command {
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            return Ok(());
        }
        "setup" => setup::report,
        "lint" => lint::run,
        "test" => test,
        "demo" => demo::run,
        "bench" => bench::run,
        other => bail!("`{other}` is no command; allowed are setup, lint, test, demo and bench"),
    };
    let installed = setup::ensure()?;
    task(&installed, rest)
}

fn test(_: &setup::Installed, rest: &[String]) -> Result<()> {
    browser::ensure()?;
    process::run(process::cargo().args(["test", "--workspace"]).args(rest))
}
