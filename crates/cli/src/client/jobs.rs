//! `haloflow jobs`, `cancel`, `pause`, `resume` and `logs`.

use std::io::Write;
use std::process::ExitCode;

use haloflow_service::job::{JobId, JobStatus};
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;

use super::events::{Events, is_at_rest};
use super::server::{Server, causes};
use super::{JobsCommand, LogsCommand, Refused};

/// A page of jobs.
#[derive(Deserialize)]
struct Listed {
    jobs: Vec<JobStatus>,
}

/// Lists jobs, a line each.
pub(super) async fn list(server: &Server, command: &JobsCommand) -> Result<ExitCode, Refused> {
    let state = command.state.as_ref().map(|state| format!("&state={state}")).unwrap_or_default();
    let path = format!("/v1/jobs?limit={}{state}", command.limit);
    let answer: Value = server.ask(server.request(Method::GET, &path)).await?;
    let text = if command.json {
        format!("{answer:#}\n")
    } else {
        let listed: Listed = serde_json::from_value(answer).map_err(|error| server.garbled(&error.to_string()))?;
        listed.jobs.iter().map(line).collect()
    };
    drop(std::io::stdout().lock().write_all(text.as_bytes()));
    Ok(ExitCode::SUCCESS)
}

fn line(job: &JobStatus) -> String {
    let progress = job.progress.as_ref().filter(|progress| progress.blocks_total > 0);
    let blocks = progress.map(|progress| format!("{}/{}", progress.blocks, progress.blocks_total)).unwrap_or_default();
    let outputs = job.outputs.join(", ");
    format!("{:>6}  {:<9}  {:>4}  {blocks:>11}  {} -> {outputs}\n", job.id, job.state.name(), job.priority, job.input)
}

/// Cancels, pauses or resumes a job, and tells how it is then.
pub(super) async fn change(server: &Server, id: JobId, what: &str) -> Result<ExitCode, Refused> {
    let status: JobStatus = server.ask(server.request(Method::POST, &format!("/v1/jobs/{id}/{what}"))).await?;
    drop(std::io::stdout().lock().write_all(line(&status).as_bytes()));
    Ok(ExitCode::SUCCESS)
}

/// Ends well if the daemon is ready.
pub(super) async fn health(server: &Server) -> Result<ExitCode, Refused> {
    server.send(server.request(Method::GET, "/health/ready")).await.map(|_| ExitCode::SUCCESS)
}

/// Prints the log of a job; with `--follow` until its end.
pub(super) async fn logs(server: &Server, command: &LogsCommand) -> Result<ExitCode, Refused> {
    let mut after = print(server, command.id, 0).await?;
    let mut events = Events::new(server, command.id);
    if !command.follow {
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        let status = events.next().await?;
        after = print(server, command.id, after).await?;
        if is_at_rest(&status) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Prints the lines after `after`, and gives the number of the last.
async fn print(server: &Server, id: JobId, mut after: i64) -> Result<i64, Refused> {
    loop {
        let request = server.request(Method::GET, &format!("/v1/jobs/{id}/logs?after={after}&limit=10000"));
        let response = server.send(request).await?;
        let last = response.headers().get("x-last-line").and_then(|line| line.to_str().ok()?.parse().ok());
        let text = response.bytes().await.map_err(|error| server.garbled(&causes(&error)))?;
        drop(std::io::stdout().lock().write_all(&text));
        match last {
            Some(last) if last > after => after = last,
            _ => return Ok(after),
        }
    }
}
