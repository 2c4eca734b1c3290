//! Log lines on standard error: plain or JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Starts logging. Progress bars and log lines share standard error through `writer`.
///
/// # Errors
/// A sentence about a format or level that does not exist.
pub(crate) fn start(format: &str, level: &str, bars: &indicatif::MultiProgress) -> Result<(), String> {
    let levels = ["error", "warn", "info", "debug", "trace"];
    if !levels.contains(&level) {
        return Err(format!("`log-level` is {level}; allowed are {}", levels.join(", ")));
    }
    let filter = EnvFilter::new(format!(
        "warn,haloflow={level},haloflow_pipeline={level},haloflow_volume={level},haloflow_engine_torch={level},\
         haloflow_model={level}"
    ));
    let bars = bars.clone();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::NONE)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(move || Above { bars: bars.clone() });
    match format {
        "text" => builder.with_target(false).init(),
        "json" => builder.json().init(),
        other => return Err(format!("`log-format` is {other}; allowed are text, json")),
    }
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
