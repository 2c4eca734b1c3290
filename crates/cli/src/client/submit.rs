//! `haloflow submit`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use haloflow_service::job::JobStatus;
use reqwest::Method;

use super::server::Server;
use super::{Refused, SubmitCommand, watch};
use crate::args::RunArgs;
use crate::{config, exit};

/// Submits and prints the job's number.
pub(super) async fn submit(server: &Server, command: &SubmitCommand) -> Result<ExitCode, Refused> {
    let usage = |sentence: String| Refused(vec![sentence], exit::USAGE);
    let args = absolute(config::effective(&command.run).map_err(usage)?);
    let keys = serde_json::to_value(&args).map_err(|error| usage(error.to_string()))?;
    let body = serde_json::json!({ "config": keys, "priority": command.priority });
    let mut request = server.request(Method::POST, "/v1/jobs").header("content-type", "application/json");
    if let Some(key) = &command.idempotency_key {
        request = request.header("idempotency-key", key);
    }
    let status: JobStatus = server.ask(request.body(body.to_string())).await?;
    // A closed pipe is no reason to fail.
    drop(writeln!(std::io::stdout().lock(), "{}", status.id));
    if command.watch { watch::watch(server, status.id).await } else { Ok(ExitCode::SUCCESS) }
}

/// The same places, whatever folder the daemon runs in.
fn absolute(mut args: RunArgs) -> RunArgs {
    args.input = args.input.map(place);
    args.output = args.output.map(|outputs| outputs.into_iter().map(place).collect());
    args.mask = args.mask.map(place);
    args.model = args.model.map(|model| std::path::absolute(&model).unwrap_or(model));
    args
}

fn place(text: String) -> String {
    if text.contains("://") || text.trim_start().starts_with('{') {
        return text;
    }
    // A file that holds a spec: the daemon is given the spec.
    if text.ends_with(".json")
        && let Ok(spec) = std::fs::read_to_string(&text)
    {
        return spec;
    }
    std::path::absolute(Path::new(&text)).map_or(text, |path| path.display().to_string())
}
