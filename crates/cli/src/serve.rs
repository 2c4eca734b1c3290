//! `haloflow serve`: the daemon of `haloflow-service`, with real runs behind it.

mod args;
mod check;
mod gpus;
mod job_log;
mod runner;
mod settings;
mod volumes;

use std::process::ExitCode;
use std::sync::Arc;

use haloflow_service::store::{Store, StoreThread};
use haloflow_service::{Daemon, serve};
use indicatif::MultiProgress;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub(crate) use args::{ServeArgs, ServeCommand};
pub(crate) use job_log::JobLogs;
pub(crate) use settings::TOKEN_VARIABLE;
#[cfg(test)]
pub(crate) use settings::serving;

use crate::args::RunArgs;
use crate::machine::Machine;
use crate::otlp::Traces;
use crate::run::{fail, runtime};
use crate::{config, exit, logging, signals};
use runner::JobRunner;
use settings::Serving;

/// Runs the command until a signal ends it.
pub(crate) fn run(command: &ServeCommand) -> ExitCode {
    let (args, mut defaults) = match config::serving(command) {
        Ok(read) => read,
        Err(sentence) => return fail(&[sentence], exit::USAGE),
    };
    defaults.otlp_endpoint = args.otlp_endpoint.clone().or(defaults.otlp_endpoint);
    let logs = JobLogs::default();
    let format = defaults.log_format.as_deref().unwrap_or("text");
    let level = defaults.log_level.as_deref().unwrap_or("info");
    if let Err(sentence) = logging::start_with(format, level, &MultiProgress::new(), Some(logs.clone())) {
        return fail(&[sentence], exit::USAGE);
    }
    let serving = match settings::serving(&args, &defaults, &Machine::here()) {
        Ok(serving) => serving,
        Err(sentences) => return fail(&sentences, exit::USAGE),
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let code = runtime.block_on(execute(serving, defaults, logs));
    runtime.shutdown_background();
    code
}

async fn execute(serving: Serving, defaults: RunArgs, logs: JobLogs) -> ExitCode {
    let stopping = CancellationToken::new();
    if let Err(error) = signals::watch(stopping.clone()) {
        return fail(&[format!("signals cannot be watched: {error}")], exit::SOFTWARE);
    }
    let traces = match crate::run::traces(&defaults) {
        Ok(traces) => traces,
        Err(sentence) => return fail(&[sentence], exit::USAGE),
    };
    let Serving { settings, idle_engines, state } = serving;
    let listener = match TcpListener::bind(settings.listen).await {
        Ok(listener) => listener,
        Err(error) => {
            let sentence = format!("`listen` is {}, which cannot be listened on: {error}", settings.listen);
            return fail(&[sentence], exit::UNAVAILABLE);
        }
    };
    let (store, thread) = match open(&settings.table) {
        Ok(open) => open,
        Err(sentence) => return fail(&[sentence], exit::UNAVAILABLE),
    };
    // Where they go is nothing to a job.
    let defaults = RunArgs { otlp_endpoint: None, ..defaults };
    let runner = JobRunner::new(defaults, &settings, idle_engines, state, (logs, traces.clone()));
    let engines = runner.engines();
    match listener.local_addr() {
        Ok(address) => tracing::info!("listening on http://{address}"),
        Err(error) => tracing::warn!("the address cannot be told: {error}"),
    }
    serve(Daemon::new(settings, store, Arc::new(runner), stopping), listener).await;
    let ended = tokio::task::spawn_blocking(move || {
        engines.clear();
        thread.join();
        traces.into_iter().for_each(Traces::close);
    });
    if tokio::time::timeout(std::time::Duration::from_secs(5), ended).await.is_err() {
        tracing::warn!("a job still holds the job table; it is queued again at the next start");
    }
    tracing::info!("stopped");
    ExitCode::SUCCESS
}

fn open(path: &std::path::Path) -> Result<(Store, StoreThread), String> {
    let told = |error: &dyn std::fmt::Display| {
        format!("`state`: {} cannot be used: {error}; does another daemon use it?", path.display())
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| told(&error))?;
    }
    Store::open(path).map_err(|error| told(&error))
}
