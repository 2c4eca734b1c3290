//! The benchmark: `host` measures the stages of a run with a network that does nothing, `gpu` a real network on GPUs, bare and in
//! whole runs.
//!
//! The volumes are synthetic and local, so that the figures are the pipeline's own and not a network's or a store's.
#![expect(clippy::print_stdout, reason = "the table goes to the person at the terminal")]

mod bench;
mod cast;
mod clock;
mod figures;
mod gpu;
mod host;
mod kernels;
mod merge;
mod prepare;
mod read;
mod synthetic;
mod whole;
mod write;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Measures haloflow.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Voxels per second through the stages of a run, each alone and together, with a network that does nothing
    Host(host::Arguments),
    /// A real network on GPUs: the bare module on resident data, and whole runs from disk and from S3
    Gpu(gpu::Arguments),
}

#[tokio::main]
async fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Host(arguments) => host::run(arguments).await,
        Command::Gpu(arguments) => gpu::run(arguments).await,
    }
}
