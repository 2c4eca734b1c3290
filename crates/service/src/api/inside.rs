//! What goes on inside a job: its stages over time, and what limits it; and the numbers of the whole daemon.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::header;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::take::Id;
use crate::daemon::Daemon;
use crate::history::Sample;
use crate::limit::{Limit, limit};
use crate::metrics::{self, Told};
use crate::problem::Problem;

/// The stages of a job over time.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Stages {
    /// Since it was last started, the oldest first; none if this process has not run it.
    samples: Vec<Sample>,
    /// What limits it, if it shows.
    limit: Option<Limit>,
}

/// Shows the stages of a job over time, and what limits it.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/stages", tag = "jobs", params(("id" = i64, Path, minimum = 1)),
    responses(
        (status = 200, body = Stages),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn stages(State(daemon): State<Daemon>, Id(id): Id) -> Result<Json<Stages>, Problem> {
    daemon.status(id).await?;
    let samples = daemon.samples(id);
    let limit = limit(&samples);
    Ok(Json(Stages { samples, limit }))
}

/// The numbers of the daemon, for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "machine",
    responses((status = 200, description = "Prometheus' text format", body = String, content_type = "text/plain"))
)]
pub(super) async fn numbers(State(daemon): State<Daemon>) -> Result<impl IntoResponse, Problem> {
    let shared = &daemon.shared;
    let jobs = shared.store.counts().await?;
    let (totals, held, leased) = daemon.totals();
    let text = metrics::text(&Told {
        totals: &totals,
        jobs: &jobs,
        devices: &daemon.devices().await,
        budget: [held, shared.settings.capacity.memory_bytes],
        leased,
        ready: shared.readiness.borrow().is_ok() && !shared.stopping.is_cancelled(),
    });
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}
