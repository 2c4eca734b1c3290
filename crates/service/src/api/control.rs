//! What can be done with a job.

use axum::Json;
use axum::extract::State;

use super::take::Id;
use crate::daemon::Daemon;
use crate::job::JobStatus;
use crate::problem::Problem;

/// Stops a job for good; one that runs stops soon, and `wish` tells.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/cancel", tag = "jobs", params(("id" = i64, Path, minimum = 1)),
    responses(
        (status = 200, body = JobStatus),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has ended otherwise", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn cancel(State(daemon): State<Daemon>, Id(id): Id) -> Result<Json<JobStatus>, Problem> {
    daemon.cancel(id).await.map(Json)
}

/// Stops a job until it is resumed.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/pause", tag = "jobs", params(("id" = i64, Path, minimum = 1)),
    responses(
        (status = 200, body = JobStatus),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has ended", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn pause(State(daemon): State<Daemon>, Id(id): Id) -> Result<Json<JobStatus>, Problem> {
    daemon.pause(id).await.map(Json)
}

/// Queues a paused job again; it goes on where it was.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/resume", tag = "jobs", params(("id" = i64, Path, minimum = 1)),
    responses(
        (status = 200, body = JobStatus),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has ended, or is about to stop", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn resume(State(daemon): State<Daemon>, Id(id): Id) -> Result<Json<JobStatus>, Problem> {
    daemon.resume(id).await.map(Json)
}
