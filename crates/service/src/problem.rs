//! Every error of the API: a problem details body (RFC 9457).

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::store::StoreError;

/// What is wrong with a request, or why it cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The kind of problem, a URI reference that stays the same.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem, in a few words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// A sentence for the person who can mend it.
    pub detail: String,
    /// Every error of what was sent, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// Seconds after which to try again.
    #[serde(skip)]
    pub retry_after: Option<u64>,
}

impl Problem {
    /// A problem with this status; `kind` is its last part, such as `no-such-job`.
    pub fn new(status: StatusCode, kind: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("/problems/{kind}"),
            title: kind.replace('-', " "),
            status: status.as_u16(),
            detail: detail.into(),
            errors: Vec::new(),
            retry_after: None,
        }
    }

    /// What was sent cannot work: all errors at once.
    #[must_use]
    pub fn invalid(errors: Vec<String>) -> Self {
        let detail = match errors.as_slice() {
            [one] => one.clone(),
            several => format!("{} keys cannot work; each is told in `errors`", several.len()),
        };
        Self { errors, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-job", detail) }
    }

    /// Nothing of this name.
    #[must_use]
    pub fn no_such_job(id: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "no-such-job", format!("there is no job {id}; GET /v1/jobs lists them"))
    }

    /// The request does not fit the state of things.
    #[must_use]
    pub fn conflict(kind: &str, detail: String) -> Self {
        Self::new(StatusCode::CONFLICT, kind, detail)
    }

    /// Not now.
    #[must_use]
    pub fn busy(detail: &str, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "not-now", detail) }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        tracing::error!("{error}");
        Self::busy("the job table cannot be used at the moment; the daemon's log tells why", 5)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
