//! Jobs as they are told.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::take::{Asked, Id};
use crate::daemon::Daemon;
use crate::job::{JobId, JobState, JobStatus};
use crate::problem::Problem;
use crate::store::Page;

/// Which jobs to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Only those in this state.
    state: Option<JobState>,
    /// Only those submitted before this one: what `next` of the page before says.
    #[param(minimum = 1)]
    before: Option<JobId>,
    /// How many at most.
    #[serde(default = "usual_limit")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: u32,
}

const fn usual_limit() -> u32 {
    100
}

/// Some jobs, the newest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Listed {
    /// The jobs.
    jobs: Vec<JobStatus>,
    /// What `before` has to be for those that follow; absent if these were the last.
    next: Option<JobId>,
    /// How many jobs there are, by state.
    #[schema(value_type = Object)]
    counts: std::collections::BTreeMap<String, u64>,
}

/// Lists jobs, the newest first.
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", params(Wanted),
    responses(
        (status = 200, body = Listed),
        (status = 400, description = "A question that cannot be answered", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(State(daemon): State<Daemon>, Asked(wanted): Asked<Wanted>) -> Result<Json<Listed>, Problem> {
    if !(1..=1000).contains(&wanted.limit) {
        let detail = format!("`limit` is {}; it must be 1 to 1000", wanted.limit);
        return Err(Problem::new(StatusCode::BAD_REQUEST, "bad-query", detail));
    }
    let page = Page { state: wanted.state, before: wanted.before, limit: wanted.limit };
    let store = &daemon.shared.store;
    let (jobs, counts) = (store.list(page).await?, store.counts().await?);
    let next = (jobs.len() == wanted.limit as usize).then(|| jobs.last().map(|job| job.status.id)).flatten();
    let counts = counts.into_iter().map(|(state, count)| (state.name().to_owned(), count)).collect();
    Ok(Json(Listed { jobs: jobs.into_iter().map(|job| daemon.told(job)).collect(), next, counts }))
}

/// Shows a job.
#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = i64, Path, minimum = 1)),
    responses(
        (status = 200, body = JobStatus),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn show(State(daemon): State<Daemon>, Id(id): Id) -> Result<Json<JobStatus>, Problem> {
    daemon.status(id).await.map(Json)
}

/// The keys of a job, as they hold.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/config", tag = "jobs", params(("id" = i64, Path, minimum = 1)),
    responses(
        (status = 200, body = Object),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn config(State(daemon): State<Daemon>, Id(id): Id) -> Result<Json<Value>, Problem> {
    daemon.job(id).await.map(|job| Json(job.config))
}

/// The report of a job's last run.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/report", tag = "jobs", params(("id" = i64, Path, minimum = 1)),
    responses(
        (status = 200, body = Object),
        (status = 404, description = "No such job, or no report yet", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn report(State(daemon): State<Daemon>, Id(id): Id) -> Result<Json<Value>, Problem> {
    let status = daemon.status(id).await?;
    match daemon.shared.store.report(id).await? {
        Some(report) => Ok(Json(report)),
        None => {
            let detail = format!("job {id} is {} and has no report yet", status.state.name());
            Err(Problem::new(StatusCode::NOT_FOUND, "no-report", detail))
        }
    }
}

/// Which lines of a log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Lines {
    /// Only lines after this one: what the header `x-last-line` of the answer before says.
    #[serde(default)]
    #[param(minimum = 0)]
    after: i64,
    /// How many at most.
    #[serde(default = "usual_lines")]
    #[param(minimum = 1, maximum = 10000, default = 1000)]
    limit: u32,
}

const fn usual_lines() -> u32 {
    1000
}

/// The log of a job, as plain text, a line each.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/logs", tag = "jobs", params(("id" = i64, Path, minimum = 1), Lines),
    responses(
        (status = 200, body = String, content_type = "text/plain", headers(("x-last-line", description = "The number of the last line"))),
        (status = 400, description = "A question that cannot be answered", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn logs(
    State(daemon): State<Daemon>,
    Id(id): Id,
    Asked(wanted): Asked<Lines>,
) -> Result<Response, Problem> {
    if !(1..=10_000).contains(&wanted.limit) || wanted.after < 0 {
        let detail = format!(
            "`limit` is {} and `after` is {}; the first must be 1 to 10000, the second 0 or more",
            wanted.limit, wanted.after
        );
        return Err(Problem::new(StatusCode::BAD_REQUEST, "bad-query", detail));
    }
    daemon.status(id).await?;
    let lines = daemon.shared.store.logs(id, wanted.after, wanted.limit as usize).await?;
    let last = lines.last().map_or(wanted.after, |(number, _)| *number);
    let text: String = lines.into_iter().map(|(_, line)| line + "\n").collect();
    let headers =
        [(header::CONTENT_TYPE.as_str(), "text/plain; charset=utf-8".to_owned()), ("x-last-line", last.to_string())];
    Ok((headers, text).into_response())
}
