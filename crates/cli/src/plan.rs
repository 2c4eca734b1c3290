//! `haloflow plan`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use haloflow_engine::EngineFactory;
use haloflow_engine_torch::TorchFactory;
use haloflow_pipeline::forecast::{Calibration, Forecast};
use haloflow_pipeline::{Progress, Run};
use haloflow_volume::Environment;
use indicatif::{HumanBytes, HumanCount, HumanDuration, MultiProgress};
use tokio_util::sync::CancellationToken;

use crate::args::RunCommand;
use crate::ready::{Stop, ready};
use crate::run::{fail, runtime};
use crate::{config, exit, logging, signals};

/// Batches of the short run, for each device.
const BATCHES: u64 = 12;

#[derive(Debug, Args)]
pub(crate) struct PlanCommand {
    /// Do not run a few blocks to predict the time
    #[arg(long)]
    pub(crate) no_calibration: bool,
    /// Tell it as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) run: RunCommand,
}

/// Runs the command to its end.
pub(crate) fn run(command: &PlanCommand) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let told = runtime.block_on(forecast(command));
    runtime.shutdown_background();
    let text = match told {
        Err((sentences, code)) => return fail(&sentences, code),
        Ok(forecast) if command.json => serde_json::to_string_pretty(&forecast).map(|text| text + "\n"),
        Ok(forecast) => Ok(told_text(&forecast)),
    };
    match text {
        // A closed pipe is no fault.
        Ok(text) => drop(std::io::stdout().lock().write_all(text.as_bytes())),
        Err(error) => return fail(&[error.to_string()], exit::SOFTWARE),
    }
    ExitCode::SUCCESS
}

async fn forecast(command: &PlanCommand) -> Result<Forecast, (Vec<String>, u8)> {
    let usage = |sentence: String| (vec![sentence], exit::USAGE);
    let args = config::effective(&command.run).map_err(usage)?;
    let bars = MultiProgress::new();
    logging::start(args.log_format.as_deref().unwrap_or("text"), args.log_level.as_deref().unwrap_or("warn"), &bars)
        .map_err(usage)?;
    let drain = CancellationToken::new();
    signals::watch(drain.clone())
        .map_err(|error| (vec![format!("signals cannot be watched: {error}")], exit::SOFTWARE))?;
    let stopped = |stop| match stop {
        Stop::Refused(sentences, code) => (sentences, code),
        Stop::Fault(fault) => (vec![fault.to_string()], exit::code(fault.kind)),
    };
    let (_, settings) = ready(args, &drain).await.map_err(stopped)?;
    let devices = settings.engines.len() as u64;
    let patches = (!command.no_calibration).then_some(BATCHES * devices * settings.run.resources.batch as u64);
    let factories =
        settings.engines.into_iter().map(|options| Box::new(TorchFactory::new(options)) as Box<dyn EngineFactory>);
    let run = Run {
        factories: factories.collect(),
        settings: settings.run,
        environment: Environment::with_network(std::env::vars(), settings.network),
        drain,
        cancel: CancellationToken::new(),
        progress: Arc::new(Progress::default()),
        timeline: None,
        blocks: None,
    };
    run.forecast(patches).await.map_err(|fault| stopped(Stop::Fault(fault)))
}

fn told_text(forecast: &Forecast) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = write_plan(&mut text, forecast);
    if let Some(calibration) = &forecast.calibration {
        let _ = write_calibration(&mut text, forecast, calibration);
    }
    text
}

fn write_plan(text: &mut String, forecast: &Forecast) -> std::fmt::Result {
    let Forecast { input, output, work, traffic, memory, .. } = forecast;
    let [z, y, x] = input.shape;
    writeln!(text, "input       {}  {z} x {y} x {x} {}", input.url, input.element)?;
    for url in &output.urls {
        let [z, y, x] = output.unit;
        writeln!(text, "output      {url}  {}, objects of {z} x {y} x {x}, levels: {}", output.element, output.levels)?;
    }
    let [z, y, x] = work.block;
    writeln!(
        text,
        "work        {} blocks of {z} x {y} x {x}, {} patches: {:.2} x the volume; {} lattice",
        HumanCount(work.blocks_total),
        HumanCount(work.patches_total),
        work.redundancy,
        work.lattice
    )?;
    if work.blocks_before > 0 {
        writeln!(text, "            {} more blocks are recorded and stay", HumanCount(work.blocks_before))?;
    }
    let skipped = work.skipped;
    if skipped.empty + skipped.masked > 0 {
        writeln!(text, "            {} blocks would be skipped as empty, {} as masked", skipped.empty, skipped.masked)?;
    }
    if let Some([least, most]) = forecast.blocks_per_part {
        writeln!(text, "            every part has {least} to {most} blocks")?;
    }
    writeln!(
        text,
        "reading     {} of voxels in {} chunks, {}",
        HumanBytes(traffic.raw_bytes_read),
        HumanCount(traffic.chunks),
        if traffic.reads_once { "each once" } else { "some more than once: more `--memory` would keep them" }
    )?;
    writeln!(
        text,
        "writing     {} of voxels in {} objects, each once",
        HumanBytes(traffic.raw_bytes_written),
        HumanCount(traffic.objects)
    )?;
    writeln!(
        text,
        "memory      {} allowed: {} batches, {} cache, {} transfers, {} blocks; libtorch's own comes to it",
        HumanBytes(memory.total),
        HumanBytes(memory.slots),
        HumanBytes(memory.cache),
        HumanBytes(memory.transfer),
        HumanBytes(memory.leases)
    )
}

fn write_calibration(text: &mut String, forecast: &Forecast, measured: &Calibration) -> std::fmt::Result {
    for device in &measured.devices {
        writeln!(text, "device      {}: {}", device.name, device.description)?;
    }
    writeln!(
        text,
        "measured    {} blocks, {} patches in {:.1} s, {:.1} patches/s once it flows; the result stayed in memory",
        measured.blocks, measured.patches, measured.seconds, measured.patches_per_second
    )?;
    let bytes = |raw: u64, over: f64| HumanBytes((raw as f64 * over) as u64);
    writeln!(
        text,
        "stored      about {} to fetch and {} to put, as those blocks are packed",
        bytes(forecast.traffic.raw_bytes_read, measured.stored_over_raw_read),
        bytes(forecast.traffic.raw_bytes_written, measured.stored_over_raw_written)
    )?;
    let time = std::time::Duration::from_secs_f64(measured.predicted_seconds.min(1e12));
    writeln!(text, "time        about {}, if the output's store keeps up (it is not tried)", HumanDuration(time))?;
    writeln!(text, "limit       {}", measured.limit.advice())
}
