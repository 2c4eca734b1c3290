//! What handlers take from a request. Whatever does not fit is a problem.

use std::collections::HashMap;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use http::request::Parts;
use http::{StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use crate::daemon::Daemon;
use crate::job::JobId;
use crate::problem::Problem;
use crate::runner::Side;

/// The number of a job, from the address.
pub(super) struct Id(pub(super) JobId);

impl FromRequestParts<Daemon> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Daemon) -> Result<Self, Problem> {
        let text = named_parts(parts, state).await.remove("id").unwrap_or_default();
        match text.parse() {
            Ok(id @ 1..) => Ok(Self(id)),
            _ => Err(Problem::no_such_job(&text)),
        }
    }
}

/// A side of a job, from the address.
pub(super) struct SidePart(pub(super) Side);

impl FromRequestParts<Daemon> for SidePart {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Daemon) -> Result<Self, Problem> {
        let named = named_parts(parts, state).await;
        let side = named.get("side").map(String::as_str).unwrap_or_default();
        self::side(side).map(Self).ok_or_else(|| {
            let detail = format!("{side:?} is no side of a job; there are input and output");
            Problem::new(StatusCode::NOT_FOUND, "nothing-to-see", detail)
        })
    }
}

/// An object of a side of the job with this key, from the address.
pub(super) struct DataPart {
    pub(super) key: String,
    pub(super) side: Side,
    pub(super) path: String,
}

impl FromRequestParts<Daemon> for DataPart {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Daemon) -> Result<Self, Problem> {
        let mut named = named_parts(parts, state).await;
        let side = named.get("side").and_then(|side| self::side(side));
        match (named.remove("key"), side, named.remove("path")) {
            (Some(key), Some(side), Some(path)) => Ok(Self { key, side, path }),
            _ => Err(Problem::new(StatusCode::NOT_FOUND, "no-such-object", "there is no such object")),
        }
    }
}

fn side(name: &str) -> Option<Side> {
    match name {
        "input" => Some(Side::Input),
        "output" => Some(Side::Output),
        _ => None,
    }
}

/// The parts of the address that have a name.
async fn named_parts(parts: &mut Parts, state: &Daemon) -> HashMap<String, String> {
    match Path::<HashMap<String, String>>::from_request_parts(parts, state).await {
        Ok(Path(named)) => named,
        // What is no text names nothing.
        Err(_) => HashMap::new(),
    }
}

/// What stands behind the question mark.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Daemon> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Daemon) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(error) => Err(Problem::new(StatusCode::BAD_REQUEST, "bad-query", error.body_text())),
        }
    }
}

/// A body of JSON.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Daemon> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, daemon: &Daemon) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        // A page of another site can send text without asking first, but not JSON.
        if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "not-json",
                "send JSON, with the header `Content-Type: application/json`",
            ));
        }
        let limits = daemon.shared.settings.limits;
        let too_large = || {
            let detail = format!("the body has more than the {} bytes of `body-limit`", limits.body_bytes);
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", detail)
        };
        let told = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if told.is_some_and(|length: u64| length > limits.body_bytes as u64) {
            return Err(too_large());
        }
        let body = Limited::new(request.into_body(), limits.body_bytes).collect();
        let body = match tokio::time::timeout(limits.patience, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
            Ok(Err(_)) => {
                return Err(Problem::new(StatusCode::BAD_REQUEST, "body-cut-short", "the body did not come whole"));
            }
            Err(_) => {
                let detail = format!("the body did not come within {:?}", limits.patience);
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", detail));
            }
        };
        serde_json::from_slice(&body).map(Self).map_err(|error| {
            Problem::new(StatusCode::BAD_REQUEST, "bad-body", format!("the body is not what is wanted here: {error}"))
        })
    }
}
