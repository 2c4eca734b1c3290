//! `haloflow run`.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haloflow_engine::{EngineFactory, Timeline};
use haloflow_engine_torch::TorchFactory;
use haloflow_pipeline::blocks::BlockTrace;
use haloflow_pipeline::{Fault, Progress, Report, Run, resume};
use haloflow_volume::Environment;
use indicatif::MultiProgress;
use tokio_util::sync::CancellationToken;

use crate::args::{RunArgs, RunCommand};
use crate::metrics::{self, Sample};
use crate::otlp::{self, Traces};
use crate::ready::{Stop, ready};
use crate::settings::Settings;
use crate::show::{self, Shown};
use crate::{config, exit, logging, notice, report_files, signals};

/// Runs the command to its end.
pub(crate) fn run(command: &RunCommand) -> ExitCode {
    let bars = MultiProgress::new();
    let args = match prepare(command, &bars) {
        Ok(args) => args,
        Err(sentence) => return fail(&[sentence], exit::USAGE),
    };
    if let Err(sentence) = report_files::check(&args, command.config.as_deref()) {
        return fail(&[sentence], exit::USAGE);
    }
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let code = runtime.block_on(execute(args, &bars));
    // Whatever hangs on a device has been named by now, and ends with the process.
    runtime.shutdown_background();
    code
}

/// The runtime of a command that streams.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, ExitCode> {
    // Told, or tokio reads a variable of the environment and panics if that is no number.
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime
        .worker_threads(workers)
        .enable_all()
        .thread_name("tokio")
        .build()
        .map_err(|error| fail(&[format!("the async runtime cannot start: {error}")], exit::SOFTWARE))
}

fn prepare(command: &RunCommand, bars: &MultiProgress) -> Result<RunArgs, String> {
    let args = config::effective(command)?;
    logging::start(args.log_format.as_deref().unwrap_or("text"), args.log_level.as_deref().unwrap_or("info"), bars)?;
    Ok(args)
}

async fn execute(args: RunArgs, bars: &MultiProgress) -> ExitCode {
    let drain = CancellationToken::new();
    if let Err(error) = signals::watch(drain.clone()) {
        return fail(&[format!("signals cannot be watched: {error}")], exit::SOFTWARE);
    }
    if let Some(place) = &args.interruption_notice {
        notice::watch(place.clone(), Environment::new(std::env::vars()), drain.clone());
    }
    let (args, settings) = match ready(args.clone(), &drain).await {
        Ok(ready) => ready,
        Err(Stop::Refused(sentences, code)) => return fail(&sentences, code),
        Err(Stop::Fault(fault)) => return tell(&args, &Report::failed(&fault), &Err(fault), (&[], Ok(()))),
    };
    // The environment is read here and nowhere else.
    let environment = Environment::with_network(std::env::vars(), settings.network);
    if settings.explain {
        return explain(&settings, &environment).await;
    }
    let traces = match traces(&args) {
        Ok(traces) => traces,
        Err(sentence) => return fail(&[sentence], exit::USAGE),
    };
    let spans = traces.as_ref().map(|traces| traces.begin("run", Vec::new()));
    let (args, mut settings, progress) = (&args, settings, Arc::new(Progress::default()));
    let timeline = args.trace.as_ref().map(|_| Arc::new(Timeline::default()));
    settings.engines.iter_mut().for_each(|options| options.timeline = timeline.clone());
    let factories =
        settings.engines.into_iter().map(|options| Box::new(TorchFactory::new(options)) as Box<dyn EngineFactory>);
    let run = Run {
        settings: settings.run,
        environment,
        factories: factories.collect(),
        drain,
        cancel: CancellationToken::new(),
        progress: Arc::clone(&progress),
        timeline: timeline.clone(),
        blocks: spans.clone().map(|spans| spans as Arc<dyn BlockTrace>),
    };
    let interval = settings.metrics_interval.max(Duration::from_millis(50));
    let (report, ended, samples) = watched(run, &progress, interval, bars).await;
    let traced = timeline.map_or(Ok(()), |timeline| write_trace(args, &timeline));
    if let (Some(spans), Some(traces)) = (spans, traces) {
        spans.end(&report, ended.as_ref().map(drop));
        // It may wait for the collector, for as long as the last spans are worth.
        drop(tokio::task::spawn_blocking(move || traces.close()).await);
    }
    tell(args, &report, &ended, (&samples, traced))
}

/// What sends traces, if anything is to.
///
/// # Errors
/// A sentence about where they are to go.
pub(crate) fn traces(args: &RunArgs) -> Result<Option<Traces>, String> {
    // The environment is read here and nowhere else.
    let target = otlp::target(args.otlp_endpoint.as_deref(), |name| std::env::var(name).ok())?;
    target.map(Traces::open).transpose()
}

/// Prints what a run would do.
async fn explain(settings: &Settings, environment: &Environment) -> ExitCode {
    match resume::explain(&settings.run, environment).await {
        Err(fault) => fail(&[fault.to_string()], exit::code(fault.kind)),
        Ok(told) => {
            drop(write!(std::io::stdout().lock(), "{told}"));
            if told.is_refused() { ExitCode::from(exit::DATA) } else { ExitCode::SUCCESS }
        }
    }
}

fn write_trace(args: &RunArgs, timeline: &Timeline) -> Result<(), String> {
    let Some(path) = &args.trace else { return Ok(()) };
    std::fs::write(path, haloflow_pipeline::trace::chrome(&timeline.spans()))
        .map_err(|error| format!("`--trace {}` cannot be written: {error}", path.display()))
}

/// Runs while showing the progress and sampling it.
async fn watched(
    run: Run,
    progress: &Progress,
    interval: Duration,
    bars: &MultiProgress,
) -> (Report, Result<(), Fault>, Vec<Sample>) {
    let began = Instant::now();
    let mut samples = Vec::new();
    let mut shown = Shown::new(bars);
    let mut ticks = tokio::time::interval(interval);
    let mut looks = tokio::time::interval(show::EVERY);
    for interval in [&mut ticks, &mut looks] {
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    }
    let mut running = std::pin::pin!(run.execute());
    loop {
        tokio::select! {
            (report, ended) = &mut running => {
                samples.push(Sample::of(began.elapsed().as_secs_f64(), &progress.snapshot()));
                shown.finish();
                return (report, ended, samples);
            }
            _ = ticks.tick() => {
                samples.push(Sample::of(began.elapsed().as_secs_f64(), &progress.snapshot()));
            }
            _ = looks.tick() => shown.update(&progress.snapshot(), &progress.doing()),
        }
    }
}

/// Prints the report, writes the metrics and chooses the exit code.
fn tell(
    args: &RunArgs,
    report: &Report,
    ended: &Result<(), Fault>,
    (samples, traced): (&[Sample], Result<(), String>),
) -> ExitCode {
    let mut sentences: Vec<String> = traced.err().into_iter().collect();
    if let Some(path) = &args.metrics_json
        && let Err(sentence) = metrics::write(path, report, samples)
    {
        sentences.push(sentence);
    }
    if report.work.blocks_total + report.work.blocks_before > 0 {
        // A closed pipe is no reason to fail a run that is done.
        drop(std::io::stdout().lock().write_all(show::report(report).as_bytes()));
    }
    match ended {
        Err(fault) => {
            sentences.insert(0, fault.to_string());
            fail(&sentences, exit::code(fault.kind))
        }
        Ok(()) if !sentences.is_empty() => fail(&sentences, exit::UNAVAILABLE),
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// Tells what is wrong, a line each.
pub(crate) fn fail(sentences: &[String], code: u8) -> ExitCode {
    let mut errors = std::io::stderr().lock();
    for sentence in sentences {
        // Nobody is left to tell if standard error is closed.
        drop(writeln!(errors, "error: {sentence}"));
    }
    ExitCode::from(code)
}
