//! The demo: a real volume through a real network, from S3 to S3, and a picture of what came out.
//!
//! The volume is written as OME-Zarr into an S3 server in this process; `haloflow run` works on it as it would on any other;
//! what it wrote is read back, measured and drawn beside the input.
#![expect(clippy::print_stdout, reason = "telling the person at the terminal is the job")]

mod measure;
mod picture;
mod tomogram;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use haloflow_examples::s3::S3Server;
use haloflow_examples::volume::{NewVolume, read};
use haloflow_volume::{AlignedBytes, CpuPool, Element, Environment};

use crate::measure::{percentiles, slice_noise};
use crate::tomogram::Tomogram;

const BUCKET: &str = "haloflow-demo";
const CHUNK: [usize; 3] = [64; 3];

/// How the network is run. It pools five times by two: patches that start on multiples of 32 see what the whole volume would show
/// them. Two patches along each axis, which share at least 32 voxels, make eight of them.
const RUN: &[&str] = &[
    "--patch",
    "96",
    "96",
    "96",
    "--overlap",
    "32",
    "--align",
    "32",
    "--seam-mode",
    "blend",
    "--margin",
    "8",
    "--normalize",
    "zscore",
    "--batch",
    "1",
    "--devices",
    "cpu",
];

/// The share of the input's voxels that are darker than black and, as many, brighter than white, per cent.
const SATURATED: f64 = 2.0;

/// Runs a denoiser over a tomogram, from S3 to S3, and draws both.
#[derive(Parser)]
struct Arguments {
    /// The tomogram: a TIFF of f32 slices.
    #[arg(long)]
    volume: PathBuf,
    /// The network: a TorchScript module.
    #[arg(long)]
    model: PathBuf,
    /// Where the picture and the report go.
    #[arg(long)]
    out_dir: PathBuf,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let began = Instant::now();
    let out = &arguments.out_dir;
    std::fs::create_dir_all(out).with_context(|| format!("the folder {} cannot be made", out.display()))?;
    let cpu = CpuPool::new(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))?;
    let storage = tempfile::tempdir().context("there is no room for the demo's bucket")?;
    let server = S3Server::start(storage.path(), BUCKET)?;
    let environment = Environment::new(server.variables());
    let [noisy, clean] = ["tomogram", "denoised"].map(|name| format!("s3://{BUCKET}/{name}.ome.zarr"));

    let volume = Tomogram::read(&arguments.volume)?;
    let [depth, height, width] = volume.shape;
    println!("{depth} x {height} x {width} voxels go to {noisy} on {}", server.endpoint());
    let new = NewVolume { url: noisy.clone(), shape: volume.shape, element: Element::F32, chunk: CHUNK };
    new.write(AlignedBytes::from_slice(&volume.voxels), &environment, &cpu).await?;

    run(&server, &arguments, [&noisy, &clean])?;

    let before = fetched(&noisy, &environment, &cpu).await?;
    let after = fetched(&clean, &environment, &cpu).await?;
    compare(&before, &after, &out.join("demo.png"))?;
    println!("in all {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Runs the program that is built beside this one, as a person would from a shell.
fn run(server: &S3Server, arguments: &Arguments, [from, to]: [&str; 2]) -> Result<()> {
    let here = std::env::current_exe().context("the demo does not know where it is")?;
    let program = here.with_file_name("haloflow");
    ensure!(
        program.exists(),
        "there is no {}: build it first, with `cargo build --package haloflow`",
        program.display()
    );
    let mut command = Command::new(&program);
    command.args(["run", "--in", from, "--out", to]).args(RUN);
    command.arg("--model").arg(&arguments.model).arg("--metrics-json").arg(arguments.out_dir.join("report.json"));
    command.envs(server.variables());
    println!("$ {}", typed(&command));
    let status = command.status().with_context(|| format!("{} cannot be started", program.display()))?;
    if !status.success() {
        bail!("`haloflow run` did not end well ({status})");
    }
    Ok(())
}

/// The command as one would type it.
fn typed(command: &Command) -> String {
    let words = command.get_args().map(|word| word.to_string_lossy());
    std::iter::once("haloflow".into()).chain(words).collect::<Vec<_>>().join(" ")
}

async fn fetched(url: &str, environment: &Environment, cpu: &CpuPool) -> Result<Tomogram> {
    let (shape, voxels) = read(url, environment, cpu).await?;
    let voxels = voxels.as_slice::<f32>().to_vec();
    ensure!(voxels.len() == shape.iter().product::<usize>(), "{url} holds another kind of number than f32");
    Ok(Tomogram { shape, voxels })
}

/// Says how much noise went, and draws the middle slices side by side in one grey window.
fn compare(before: &Tomogram, after: &Tomogram, path: &Path) -> Result<()> {
    ensure!(before.shape == after.shape, "the output's size is {:?}, the input's {:?}", after.shape, before.shape);
    let [noise_before, noise_after] = [before, after].map(slice_noise);
    println!(
        "noise (standard deviation of the difference of neighbouring slices): {noise_before:.4} before, {noise_after:.4} after, \
         {:.1} times less",
        noise_before / noise_after
    );
    let window = percentiles(&before.voxels, [SATURATED, 100.0 - SATURATED]);
    picture::draw([before, after].map(Tomogram::middle), window, path)?;
    println!("input and output: {}", path.display());
    Ok(())
}
