//! The objects of a job's volumes as they are stored, for viewers that run on other sites. What lets a viewer in is the key in the
//! address, which nobody can guess: no token is sent, and no page that does not know the key gets anything.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::take::DataPart;
use crate::daemon::Daemon;
use crate::guard::shared_with_other_sites;
use crate::problem::Problem;

/// Gives an object, or a range of it.
pub(super) async fn object(
    State(daemon): State<Daemon>,
    part: DataPart,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let found = if method == Method::OPTIONS {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        found(&daemon, part, &headers).await
    };
    let mut response = found.unwrap_or_else(IntoResponse::into_response);
    shared_with_other_sites(&method, response.headers_mut());
    response
}

async fn found(daemon: &Daemon, part: DataPart, headers: &HeaderMap) -> Result<Response, Problem> {
    let nothing = || Problem::new(StatusCode::NOT_FOUND, "no-such-object", "there is no such object");
    let DataPart { key, side, path } = part;
    if path.split('/').any(|part| part.is_empty() || part == "." || part == ".." || part.starts_with(".haloflow")) {
        return Err(nothing());
    }
    let job = daemon.shared.store.with_data_key(key).await?.ok_or_else(nothing)?;
    let range = headers.get(header::RANGE).and_then(|range| Range::read(range.to_str().ok()?));
    let bounds = match range {
        Some(Range::Bounded(start, end)) => Some((start, end)),
        _ => None,
    };
    let object = daemon.shared.runner.object(&job.config, side, &path, bounds).await;
    let bytes = object
        .map_err(|why| Problem::new(StatusCode::BAD_GATEWAY, "store-failed", why.to_string()))?
        .ok_or_else(nothing)?;
    let length = bytes.len() as u64;
    let (start, bytes) = match range {
        None => return Ok(with_ranges(bytes.into_response())),
        Some(Range::Bounded(start, _)) => (start, bytes),
        Some(Range::From(start)) => (start, bytes.slice(length.min(start) as usize..)),
        Some(Range::Last(count)) => {
            let start = length.saturating_sub(count);
            (start, bytes.slice(start as usize..))
        }
    };
    if bytes.is_empty() {
        let detail = format!("the object has no bytes from {start} on");
        return Err(Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "no-such-range", detail));
    }
    let content = format!("bytes {start}-{}/*", start + bytes.len() as u64 - 1);
    let mut response = with_ranges((StatusCode::PARTIAL_CONTENT, bytes).into_response());
    if let Ok(content) = HeaderValue::from_str(&content) {
        response.headers_mut().insert(header::CONTENT_RANGE, content);
    }
    Ok(response)
}

fn with_ranges(mut response: Response) -> Response {
    response.headers_mut().insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    response
}

/// What of an object is wanted. Several ranges at a time are not understood, and give all of it, as the standard allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    Bounded(u64, u64),
    From(u64),
    Last(u64),
}

impl Range {
    fn read(text: &str) -> Option<Self> {
        let (start, end) = text.strip_prefix("bytes=")?.split_once('-')?;
        match (start.parse().ok(), end.parse::<u64>().ok()) {
            (Some(start), Some(end)) => (end >= start).then_some(Self::Bounded(start, end.checked_add(1)?)),
            (Some(start), None) if end.is_empty() => Some(Self::From(start)),
            (None, Some(count)) if start.is_empty() => Some(Self::Last(count)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        for (text, range) in [
            ("bytes=0-9", Some(Range::Bounded(0, 10))),
            ("bytes=5-", Some(Range::From(5))),
            ("bytes=-7", Some(Range::Last(7))),
            ("bytes=9-5", None),
            ("bytes=0-1,3-4", None),
            ("bytes=-", None),
            ("lines=1-2", None),
            ("bytes=0-18446744073709551615", None),
        ] {
            assert_eq!(Range::read(text), range, "{text}");
        }
    }
}
