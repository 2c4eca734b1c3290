//! Runs jobs: what `haloflow run` does, with engines that stay ready between jobs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use haloflow_engine::EngineFactory;
use haloflow_engine::warm::{Identity, Pool};
use haloflow_engine_torch::{TorchFactory, TorchOptions};
use haloflow_pipeline::blocks::BlockTrace;
use haloflow_pipeline::{Fault, Report, Run, resume};
use haloflow_service::ServiceSettings;
use haloflow_service::job::{JobFault, JobId};
use haloflow_service::runner::{
    DeviceState, LoadedModel, NotShown, Outcome, Piece, Prepared, Runner, RunningJob, Side, SideInfo, Slice, Wanted,
};
use haloflow_volume::Environment;
use opentelemetry::KeyValue;
use serde_json::Value;
use tracing::Instrument;

use super::check::{self, Rules};
use super::gpus::Gpus;
use super::job_log::JobLogs;
use super::volumes::Volumes;
use crate::args::RunArgs;
use crate::exit;
use crate::otlp::Traces;
use crate::ready::{Stop, ready};
use crate::settings::Settings;

/// What runs the daemon's jobs.
pub(crate) struct JobRunner {
    rules: Rules,
    shared: Arc<Shared>,
    gpus: Gpus,
    volumes: Volumes,
}

/// What a job that runs needs of it.
struct Shared {
    variables: Vec<(String, String)>,
    /// The folders that jobs may read, and those that they may write.
    folders: [Vec<PathBuf>; 2],
    engines: Pool,
    logs: JobLogs,
    state: PathBuf,
    traces: Option<Traces>,
}

impl JobRunner {
    /// A runner that lays jobs over `defaults` and keeps so many idle engines per device. Reads the environment, once.
    pub(crate) fn new(
        defaults: RunArgs,
        settings: &ServiceSettings,
        idle_engines: usize,
        state: PathBuf,
        (logs, traces): (JobLogs, Option<Traces>),
    ) -> Self {
        let variables: Vec<(String, String)> = std::env::vars().collect();
        let folders = [settings.read_roots.folders(), settings.write_roots.folders()];
        let memory = settings.capacity.memory_bytes / settings.capacity.jobs.max(1) as u64;
        Self {
            rules: Rules { defaults, models: settings.models.clone(), memory },
            volumes: Volumes::new(confined(Environment::new(variables.clone()), &folders)),
            shared: Arc::new(Shared { variables, folders, engines: Pool::new(idle_engines), logs, state, traces }),
            gpus: Gpus::find(),
        }
    }

    /// The engines that stay ready.
    pub(crate) fn engines(&self) -> Pool {
        self.shared.engines.clone()
    }
}

impl Runner for JobRunner {
    fn check(&self, config: Value) -> BoxFuture<'_, Result<Prepared, Vec<String>>> {
        async move { check::check(self.rules.clone(), config, &Environment::new(self.shared.variables.clone())).await }
            .boxed()
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), String>> {
        async {
            // libtorch sets up its devices when it is first asked about them, which takes seconds.
            let seen = tokio::task::spawn_blocking(|| {
                (haloflow_engine_torch::versions(), haloflow_engine_torch::cuda_devices())
            });
            let (versions, devices) = seen.await.map_err(|error| format!("libtorch cannot be used: {error}"))?;
            tracing::info!("{versions}, {devices} CUDA devices");
            Ok(())
        }
        .boxed()
    }

    fn run(&self, job: RunningJob) -> BoxFuture<'static, Outcome> {
        let shared = Arc::clone(&self.shared);
        // Of the highest level, so that no `log-level` takes it away.
        let span = tracing::error_span!("job", job = job.id);
        async move {
            let _taken = shared.logs.take(job.id, Arc::clone(&job.log));
            let outcome = Box::pin(run(&shared, job)).await;
            if let Some(fault) = &outcome.fault {
                tracing::error!("{}", fault.message);
            }
            outcome
        }
        .instrument(span)
        .boxed()
    }

    fn forget(&self, jobs: Vec<JobId>) -> BoxFuture<'_, ()> {
        async move {
            for id in jobs {
                // Few jobs leave one.
                drop(tokio::fs::remove_file(diagnosis(&self.shared.state, id)).await);
            }
        }
        .boxed()
    }

    fn models(&self) -> Vec<LoadedModel> {
        let kept = self.shared.engines.kept().into_iter();
        let models = kept.map(|kept| LoadedModel {
            model: kept.identity.label,
            device: kept.device,
            description: kept.description,
            busy: kept.busy,
        });
        models.collect()
    }

    fn devices(&self) -> Vec<DeviceState> {
        self.gpus.states()
    }

    fn side<'a>(&'a self, config: &'a Value, side: Side) -> BoxFuture<'a, Result<SideInfo, NotShown>> {
        self.volumes.side(config, side).boxed()
    }

    fn slice<'a>(
        &'a self,
        config: &'a Value,
        side: Side,
        z: usize,
        pixels: usize,
    ) -> BoxFuture<'a, Result<Slice, NotShown>> {
        self.volumes.slice(config, side, z, pixels).boxed()
    }

    fn object<'a>(
        &'a self,
        config: &'a Value,
        side: Side,
        key: &'a str,
        wanted: Wanted,
    ) -> BoxFuture<'a, Result<Option<Piece>, NotShown>> {
        self.volumes.object(config, side, key, wanted).boxed()
    }
}

async fn run(shared: &Shared, job: RunningJob) -> Outcome {
    let args: RunArgs = match serde_json::from_value(job.config) {
        Ok(args) => args,
        Err(error) => return refused(&[format!("the job's keys cannot be read: {error}")], exit::USAGE),
    };
    let mut args = args;
    args.diagnosis = Some(diagnosis(&shared.state, job.id));
    if job.again && args.overwrite == Some(true) {
        args = gone_on_with(shared, args, &job.drain).await;
    }
    let settings = match ready(args, &job.drain).await {
        Ok((_, settings)) => settings,
        Err(Stop::Refused(sentences, code)) => return refused(&sentences, code),
        Err(Stop::Fault(fault)) => return outcome(&Report::failed(&fault), Err(&fault)),
    };
    let about = || vec![KeyValue::new("haloflow.job", job.id)];
    let spans = shared.traces.as_ref().map(|traces| traces.begin("job", about()));
    let factories = settings.engines.into_iter().map(|options| warm(&shared.engines, options)).collect();
    let run = Run {
        environment: confined(Environment::with_network(shared.variables.clone(), settings.network), &shared.folders),
        settings: settings.run,
        factories,
        drain: job.drain,
        cancel: job.cancel,
        progress: job.progress,
        timeline: None,
        blocks: spans.clone().map(|spans| spans as Arc<dyn BlockTrace>),
    };
    let (report, ended) = Box::pin(run.execute()).await;
    if let Some(spans) = spans {
        spans.end(&report, ended.as_ref().map(drop));
    }
    outcome(&report, ended.as_ref().map(drop))
}

/// What storage may look at: wherever links lead, no file outside of these folders.
fn confined(environment: Environment, [read, write]: &[Vec<PathBuf>; 2]) -> Environment {
    environment.confined(read.clone(), write.clone())
}

/// Where a job that hangs tells what its stages held.
fn diagnosis(state: &Path, id: JobId) -> PathBuf {
    state.join(format!("job-{id}-diagnosis.json"))
}

/// A job that overwrites does so at its first start only: after that it goes on with what it began, if it came so far.
async fn gone_on_with(shared: &Shared, args: RunArgs, drain: &tokio_util::sync::CancellationToken) -> RunArgs {
    let kept = RunArgs { overwrite: None, resume: None, ..args.clone() };
    let Ok((_, Settings { run, network, .. })) = ready(kept.clone(), drain).await else { return args };
    let environment = confined(Environment::with_network(shared.variables.clone(), network), &shared.folders);
    match resume::explain(&run, &environment).await {
        Ok(told) if !told.is_refused() => kept,
        _ => args,
    }
}

/// A factory for an engine that stays ready.
fn warm(engines: &Pool, options: TorchOptions) -> Box<dyn EngineFactory> {
    let identity = Identity {
        key: format!("{options:?} {}", file_of(&options.model)),
        process: format!("{} {} {}", options.intra_op_threads, options.tf32, options.cudnn_benchmark),
        label: options.model.display().to_string(),
    };
    engines.factory(identity, Box::new(move || Box::new(TorchFactory::new(options.clone()))))
}

/// What changes when a file is written over.
fn file_of(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let told = std::fs::metadata(path);
    told.map_or_else(
        |error| error.to_string(),
        |file| format!("{} {} {} {}", file.ino(), file.len(), file.mtime(), file.mtime_nsec()),
    )
}

fn outcome(report: &Report, ended: Result<(), &Fault>) -> Outcome {
    let fault = ended.err();
    Outcome {
        fault: fault.map(|fault| JobFault {
            kind: serde_json::to_value(fault.kind)
                .ok()
                .and_then(|kind| Some(kind.as_str()?.to_owned()))
                .unwrap_or_default(),
            message: fault.to_string(),
        }),
        exit_code: fault.map_or(0, |fault| exit::code(fault.kind)),
        report: serde_json::to_value(report).ok(),
    }
}

fn refused(sentences: &[String], code: u8) -> Outcome {
    let kind = if code == exit::USAGE { "usage" } else { "data" };
    let fault = JobFault { kind: kind.into(), message: sentences.join("; ") };
    Outcome { fault: Some(fault), exit_code: code, report: None }
}
