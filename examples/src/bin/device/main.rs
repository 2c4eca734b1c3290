//! Devices without a volume: how close a loop of batches through the ring comes to the bare model on data that is on the device
//! already, and whether it computes right.
//!
//! `device --model net.pt2 --batch 64 --patch 64 --kind f16 --devices cuda:0 cuda:1` measures, and `--check` compares instead: every
//! batch of every device, with and without a graph, byte for byte with the bare model's output. Needs neither Rust nor Python.
#![expect(clippy::print_stdout, reason = "telling the person at the terminal is the job")]

mod measure;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Parser;
use haloflow_engine::{ElementKind, Timeline};
use haloflow_engine_torch::{
    CompiledForm, TorchDevice, TorchOptions, check_devices, cuda_devices, fitting_batch, versions,
};

use crate::measure::{Figures, measure};

/// Measures or checks devices without a volume.
#[derive(Parser)]
struct Arguments {
    /// The network: a TorchScript module, or an AOTInductor package (`.pt2`) made for this batch, patch and kind.
    #[arg(long)]
    model: PathBuf,
    /// Where to run it; `cuda` is all CUDA devices.
    #[arg(long, num_args = 1.., default_values_t = [String::from("cuda")])]
    devices: Vec<String>,
    /// Patches per batch; 0 finds the largest that fits.
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Patch in voxels, z y x or one for all.
    #[arg(long, num_args = 1..=3, default_values_t = [64])]
    patch: Vec<usize>,
    /// Input channels.
    #[arg(long, default_value_t = 1)]
    channels: usize,
    /// f32, f16 or bf16.
    #[arg(long, default_value = "f16")]
    kind: String,
    /// Batches that are measured, or checked on each device.
    #[arg(long, default_value_t = 100)]
    batches: usize,
    /// Slots per device.
    #[arg(long, default_value_t = 3)]
    slots: usize,
    /// Measure with a CUDA graph.
    #[arg(long)]
    graph: bool,
    /// Let CUDA round f32 products and convolutions to TF32.
    #[arg(long)]
    tf32: bool,
    /// Let cuDNN try its algorithms at warm-up.
    #[arg(long)]
    cudnn_benchmark: bool,
    /// Compare bytes instead of measuring.
    #[arg(long)]
    check: bool,
    /// Where the figures go as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Where a time line of the last measurement goes, in Chrome's trace format.
    #[arg(long)]
    trace: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    tracing_to_standard_error();
    let arguments = Arguments::parse();
    let devices = devices(&arguments.devices)?;
    if devices.is_empty() {
        println!("skipped: no CUDA device ({})", versions());
        return Ok(ExitCode::SUCCESS);
    }
    let timeline = arguments.trace.as_ref().map(|_| Arc::new(Timeline::default()));
    let mut options =
        devices.iter().map(|&device| options(&arguments, device)).collect::<Result<Vec<TorchOptions>>>()?;
    if arguments.batch == 0 {
        let first = options[0].clone();
        let fits = std::thread::spawn(move || fitting_batch(&first)).join().ok().context("the search panicked")??;
        println!("the largest batch that fits is {fits}");
        options.iter_mut().for_each(|options| options.batch = fits);
    }
    if arguments.check {
        return check(&options, arguments.batches);
    }
    let figures = measure(&options, arguments.batches, arguments.slots, timeline.as_ref())?;
    tell(&figures);
    if let Some(path) = &arguments.json {
        std::fs::write(path, serde_json::to_string_pretty(&figures)?).with_context(|| path.display().to_string())?;
    }
    if let (Some(path), Some(timeline)) = (&arguments.trace, &timeline) {
        let json = haloflow_pipeline::trace::chrome(&timeline.spans());
        std::fs::write(path, json).with_context(|| path.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Warnings are part of what a device has to say: that a graph could not be captured, for one.
fn tracing_to_standard_error() {
    let warnings = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr);
    warnings.init();
}

/// The devices by name. `cuda` is all there are, which may be none.
fn devices(names: &[String]) -> Result<Vec<TorchDevice>> {
    let mut devices = Vec::new();
    for name in names {
        if name == "cuda" {
            devices.extend((0..cuda_devices()).map(TorchDevice::Cuda));
        } else {
            devices.push(name.parse::<TorchDevice>().map_err(anyhow::Error::msg)?);
        }
    }
    Ok(devices)
}

fn options(arguments: &Arguments, device: TorchDevice) -> Result<TorchOptions> {
    let patch = match arguments.patch[..] {
        [all] => [all; 3],
        [z, y, x] => [z, y, x],
        _ => bail!("`--patch` takes one size or three"),
    };
    let kind = match arguments.kind.as_str() {
        "f32" => ElementKind::F32,
        "f16" => ElementKind::F16,
        "bf16" => ElementKind::Bf16,
        other => bail!("`--kind` is {other}; allowed are f32, f16 and bf16"),
    };
    let is_package = arguments.model.extension().is_some_and(|extension| extension == "pt2");
    Ok(TorchOptions {
        // A package runs or nothing does.
        compiled: is_package.then(|| CompiledForm { package: Ok(arguments.model.clone()), required: true }),
        channels_in: arguments.channels,
        kind,
        pad_short: true,
        tf32: arguments.tf32,
        cudnn_benchmark: arguments.cudnn_benchmark,
        graph: arguments.graph,
        through_ring: true,
        ..TorchOptions::new(arguments.model.clone(), device, arguments.batch, patch)
    })
}

/// Compares without and with a graph, each device alone and all together.
fn check(options: &[TorchOptions], batches: usize) -> Result<ExitCode> {
    let mut failed = false;
    for graph in [false, true] {
        let options: Vec<TorchOptions> =
            options.iter().map(|options| TorchOptions { graph, ..options.clone() }).collect();
        let names: Vec<String> = options.iter().map(|options| options.device.to_string()).collect();
        let with = if graph { "with a graph" } else { "without a graph" };
        let outcome = check_devices(&options, batches);
        let no_graph = |told: &String| graph && !told.contains("CUDA graph");
        match outcome {
            Ok(told) => {
                println!("ok: {batches} batches on {} {with} are the bare model's, byte for byte", names.join(", "));
                println!("    {}", told.join("; "));
                if told.iter().any(no_graph) {
                    println!("    no graph was captured, so the same was checked twice");
                    failed |= options.iter().any(|options| options.device != TorchDevice::Cpu);
                }
            }
            Err(told) => {
                println!("FAILED {with}: {told}");
                failed = true;
            }
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The lines of the figures to reach.
fn tell(figures: &Figures) {
    for device in &figures.devices {
        println!("{}: {}", device.name, device.description);
        println!(
            "  ring     {:.3} ms per batch, {:.1} Mvox/s: {:.4} of the bare model's rate (mean {:.3} ms, median {:.3} ms)",
            device.ring_ms, device.megavoxels_per_second, device.ring_over_bare, device.bare_ms, device.bare_median_ms
        );
        println!(
            "  overlap  {:.4} of compute alone per batch; upload alone {:.3} ms, download alone {:.3} ms, one after the other {:.4}",
            device.overlap, device.upload_ms, device.download_ms, device.serial
        );
    }
    if let Some(together) = &figures.together {
        println!(
            "{} devices together: {:.1} Mvox/s, {:.4} of {} alone (ms per batch: {:.3?})",
            figures.devices.len(),
            together.megavoxels_per_second,
            together.scaling,
            figures.devices[0].name,
            together.ring_ms
        );
    }
}
