//! `haloflow verify`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use haloflow_engine_torch::TorchFactory;
use haloflow_pipeline::recompute::{Recomputed, Windows, recompute};
use haloflow_pipeline::verify::{Verification, verify};
use haloflow_pipeline::{Fault, Stage};
use haloflow_volume::{CpuPool, Environment, Network};
use indicatif::{HumanBytes, HumanCount, MultiProgress};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::args::{RunArgs, RunCommand};
use crate::ready::{Stop, ready};
use crate::run::{fail, runtime};
use crate::{config, exit, logging};

/// Sentences and an exit code.
type Refused = (Vec<String>, u8);

#[derive(Debug, Args)]
pub(crate) struct VerifyCommand {
    /// The output of a run: URL or path; unset is the first one that `--config` or `--out` names
    #[arg(value_name = "URL")]
    pub(crate) place: Option<String>,
    /// Run so many random windows anew, each as one patch by itself, and compare; needs the keys of the run
    #[arg(long, value_name = "WINDOWS", default_value_t = 0)]
    pub(crate) recompute: usize,
    /// The mean difference of recomputed windows that is good, in standard deviations of the output [default: 0.05]
    #[arg(long, value_name = "DEVIATIONS")]
    pub(crate) tolerance: Option<f64>,
    /// Other windows
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Tell it as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) run: RunCommand,
}

/// Runs the command to its end.
pub(crate) fn run(command: &VerifyCommand) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let ended = runtime.block_on(execute(command));
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err((sentences, code)) => fail(&sentences, code),
    }
}

async fn execute(command: &VerifyCommand) -> Result<(), Refused> {
    let usage = |sentence: String| (vec![sentence], exit::USAGE);
    let args = config::effective(&command.run).map_err(usage)?;
    logging::start(
        args.log_format.as_deref().unwrap_or("text"),
        args.log_level.as_deref().unwrap_or("warn"),
        &MultiProgress::new(),
    )
    .map_err(usage)?;
    let place = command.place.clone().or_else(|| args.output.as_ref()?.first().cloned());
    let place = place.ok_or_else(|| usage("there is no output: name it, or give the `--config` of its run".into()))?;
    if command.recompute == 0 && command.tolerance.is_some() {
        return Err(usage("`tolerance` is for recomputed windows: give `--recompute` how many".into()));
    }
    let tolerance = command.tolerance.unwrap_or(0.05);
    if tolerance.is_nan() || tolerance < 0.0 {
        return Err(usage(format!("`tolerance` is {tolerance}; it must be 0 or more")));
    }
    let network = Network { anonymous: args.anonymous == Some(true), ..Network::default() };
    let environment = Environment::with_network(std::env::vars(), network);
    let faulty = |fault: Fault| (vec![fault.to_string()], exit::code(fault.kind));
    let cpu = CpuPool::new(std::thread::available_parallelism().unwrap_or(std::num::NonZeroUsize::MIN))
        .map_err(|error| faulty(Fault::volume(Stage::Open, &error)))?;
    let found = verify(&place, &environment, &cpu).await.map_err(faulty)?;
    let mut faults: Vec<Fault> = found.iter().filter_map(Verification::fault).collect();
    let again =
        if command.recompute > 0 && faults.is_empty() { Some(windows(args, &place, command).await?) } else { None };
    tell(command.json, &found, again.as_ref());
    if let Some(again) = again.filter(|again| again.relative() > tolerance) {
        let message = format!(
            "recomputed windows differ from {place} by {:.3} of its standard deviation in the mean, and `tolerance` is {tolerance}",
            again.relative()
        );
        faults.push(Fault::new(haloflow_pipeline::FaultKind::Data, Stage::Open, message));
    }
    match faults.first() {
        None => Ok(()),
        Some(first) => Err((faults.iter().map(ToString::to_string).collect(), exit::code(first.kind))),
    }
}

/// Runs windows of the output anew, by the keys of the run that made it.
async fn windows(args: RunArgs, place: &str, command: &VerifyCommand) -> Result<Recomputed, Refused> {
    // The output exists, and a run would refuse it. Nothing is written here.
    let args = RunArgs { output: Some(vec![place.to_owned()]), overwrite: Some(true), resume: None, ..args };
    let stopped = |stop| match stop {
        Stop::Refused(sentences, code) => (sentences, code),
        Stop::Fault(fault) => (vec![fault.to_string()], exit::code(fault.kind)),
    };
    let (_, settings) = ready(args, &CancellationToken::new()).await.map_err(stopped)?;
    let environment = Environment::with_network(std::env::vars(), settings.network);
    let engine = settings.engines.into_iter().next();
    let engine = engine.ok_or_else(|| (vec!["`devices` is empty; name one".to_owned()], exit::USAGE))?;
    let asked = Windows { count: command.recompute, seed: command.seed };
    let factory = Box::new(TorchFactory::new(engine));
    recompute(place, &settings.run, factory, &environment, asked).await.map_err(|fault| stopped(Stop::Fault(fault)))
}

fn tell(as_json: bool, found: &[Verification], again: Option<&Recomputed>) {
    let mut text = String::new();
    if as_json {
        let again = again.map(|again| json!({ "figures": again, "relative": again.relative() }));
        let _ = writeln!(text, "{:#}", json!({ "outputs": found, "recomputed": again }));
    } else {
        for verification in found {
            // Writing into a string cannot fail.
            let _ = write_one(&mut text, verification);
        }
        if let Some(again) = again {
            let _ = writeln!(
                text,
                "recomputed  {} windows, {} voxels: the mean difference is {:.4} ({:.4} of the standard deviation), the greatest {:.4}",
                again.windows,
                HumanCount(again.voxels),
                again.mean_difference,
                again.relative(),
                again.greatest_difference
            );
        }
    }
    // A closed pipe is no fault.
    drop(std::io::stdout().lock().write_all(text.as_bytes()));
}

fn write_one(text: &mut String, found: &Verification) -> std::fmt::Result {
    let Verification { outputs, blocks_total, blocks_recorded, bytes, complete, damaged, flawed, seams } = found;
    writeln!(text, "output      {}", outputs.join(", "))?;
    writeln!(
        text,
        "blocks      {} of {} recorded, {} of them as they were stored, {} compared; {}",
        HumanCount(*blocks_recorded),
        HumanCount(*blocks_total),
        HumanCount(blocks_recorded - flawed.len() as u64),
        HumanBytes(*bytes),
        if *complete { "complete" } else { "not complete" }
    )?;
    for name in damaged {
        writeln!(text, "torn        {name}")?;
    }
    for block in flawed {
        let [z, y, x] = block.start;
        writeln!(text, "flawed      the block at z {z}, y {y}, x {x}: {}", block.what)?;
    }
    let figure = |seam: &Option<f64>| seam.map_or_else(|| "-".to_owned(), |seam| format!("{seam:.3}"));
    let [z, y, x] = seams.each_ref().map(figure);
    writeln!(text, "seams       steps across faces of blocks over steps inside: z {z}, y {y}, x {x}")
}
