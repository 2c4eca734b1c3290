//! `POST /v1/jobs`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::take::Body;
use crate::daemon::{Asked, Daemon};
use crate::job::JobStatus;
use crate::problem::Problem;

/// A job to submit.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Submission {
    /// The keys of `haloflow run`, as in its configuration file; `docs/SERVICE.md` says which ones a job may not have.
    #[schema(value_type = Object)]
    config: serde_json::Map<String, Value>,
    /// Jobs of a higher priority run first, from -1000 to 1000.
    #[serde(default)]
    #[schema(minimum = -1000, maximum = 1000)]
    priority: i32,
}

/// Submits a job.
#[utoipa::path(
    post, path = "/v1/jobs", tag = "jobs", request_body = Submission,
    params(("Idempotency-Key" = Option<String>, Header, description = "A name for this submission: sent again it gives the same job")),
    responses(
        (status = 201, description = "The job", body = JobStatus, headers(("Location", description = "Its address"))),
        (status = 200, description = "The job that was submitted before under this key", body = JobStatus),
        (status = 400, description = "Not JSON, or of another shape", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The key was used for something else", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "Not declared as JSON", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Keys that cannot work or are not allowed, all of them", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Not now", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn submit(
    State(daemon): State<Daemon>,
    headers: HeaderMap,
    Body(submission): Body<Submission>,
) -> Result<Response, Problem> {
    let idempotency_key = match headers.get("idempotency-key") {
        None => None,
        Some(key) => Some(key.to_str().map(str::to_owned).map_err(|_| {
            Problem::invalid(vec!["the header Idempotency-Key must have visible ASCII characters only".into()])
        })?),
    };
    let asked = Asked { config: Value::Object(submission.config), priority: submission.priority, idempotency_key };
    let (status, new) = daemon.submit(asked).await?;
    let code = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((code, [(header::LOCATION, format!("/v1/jobs/{}", status.id))], axum::Json(status)).into_response())
}
