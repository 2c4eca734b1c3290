//! Log lines on standard error: plain or JSON.

use std::io::IsTerminal;

use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::serve::JobLogs;

/// Starts logging. Progress bars and log lines share standard error through `writer`.
///
/// # Errors
/// A sentence about a format or level that does not exist.
pub(crate) fn start(format: &str, level: &str, bars: &indicatif::MultiProgress) -> Result<(), String> {
    start_with(format, level, bars, None)
}

/// As [`start`], with the logs of jobs.
///
/// # Errors
/// As [`start`].
pub(crate) fn start_with(
    format: &str,
    level: &str,
    bars: &indicatif::MultiProgress,
    jobs: Option<JobLogs>,
) -> Result<(), String> {
    let levels = ["error", "warn", "info", "debug", "trace"];
    if !levels.contains(&level) {
        return Err(format!("`log-level` is {level}; allowed are {}", levels.join(", ")));
    }
    let filter = EnvFilter::new(format!(
        "warn,haloflow={level},haloflow_pipeline={level},haloflow_volume={level},haloflow_engine_torch={level},\
         haloflow_model={level},haloflow_service={level}"
    ));
    let bars = bars.clone();
    let lines = tracing_subscriber::fmt::layer()
        .with_span_events(FmtSpan::NONE)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(move || Above { bars: bars.clone() });
    let lines = match format {
        "text" => lines.with_target(false).boxed(),
        "json" => lines.json().boxed(),
        other => return Err(format!("`log-format` is {other}; allowed are text, json")),
    };
    tracing_subscriber::registry().with(filter).with(lines).with(jobs).init();
    Ok(())
}

/// Standard error, above the progress bar if one is drawn.
struct Above {
    bars: indicatif::MultiProgress,
}

impl std::io::Write for Above {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bars.suspend(|| std::io::stderr().lock().write_all(bytes)).map(|()| bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().lock().flush()
    }
}
