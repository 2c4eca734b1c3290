//! The objects of a job's volumes as they are stored, for viewers that run on other sites. What lets a viewer in is the key in the
//! address, which nobody can guess: no token is sent, and no page that does not know the key gets anything.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::take::DataPart;
use crate::daemon::Daemon;
use crate::guard::shared_with_other_sites;
use crate::problem::Problem;
use crate::runner::{MOST_BYTES, Piece, Wanted};

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
    if !is_key(&key) || !path.split('/').all(is_part) {
        return Err(nothing());
    }
    let job = daemon.shared.store.with_data_key(key).await?.ok_or_else(nothing)?;
    let wanted = headers.get(header::RANGE).and_then(|range| wanted(range.to_str().ok()?)).unwrap_or(Wanted::All);
    let piece = daemon.shared.runner.object(&job.config, side, &path, wanted).await;
    let Piece { bytes, start, stop, size } = piece
        .map_err(|why| Problem::new(StatusCode::BAD_GATEWAY, "store-failed", why.to_string()))?
        .ok_or_else(nothing)?;
    if stop.saturating_sub(start) > MOST_BYTES {
        let detail = format!("that is {} bytes; ask for ranges of {MOST_BYTES} at most", stop - start);
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "object-too-large", detail));
    }
    if wanted == Wanted::All {
        return Ok(with_ranges(bytes.into_response()));
    }
    if bytes.is_empty() {
        let detail = format!("the object has {size} bytes, and none there");
        return Err(Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "no-such-range", detail));
    }
    let content = format!("bytes {start}-{}/{size}", start + bytes.len() as u64 - 1);
    let mut response = with_ranges((StatusCode::PARTIAL_CONTENT, bytes).into_response());
    if let Ok(content) = HeaderValue::from_str(&content) {
        response.headers_mut().insert(header::CONTENT_RANGE, content);
    }
    Ok(response)
}

/// Whether this can be the key of a job: nothing is served under one that could be guessed.
fn is_key(key: &str) -> bool {
    key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether this may be a part of an object's name. What haloflow keeps for itself is not for viewers.
fn is_part(part: &str) -> bool {
    let own = part.get(..9).is_some_and(|start| start.eq_ignore_ascii_case(".haloflow"));
    !part.is_empty() && part != "." && part != ".." && !own && !part.contains(char::is_control)
}

fn with_ranges(mut response: Response) -> Response {
    response.headers_mut().insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    response
}

/// What of an object is wanted. Several ranges at a time are not understood, and give all of it, as the standard allows.
fn wanted(range: &str) -> Option<Wanted> {
    let (start, end) = range.strip_prefix("bytes=")?.split_once('-')?;
    match (start.parse().ok(), end.parse::<u64>().ok()) {
        (Some(start), Some(end)) => (end >= start).then_some(Wanted::Between(start, end.checked_add(1)?)),
        (Some(start), None) if end.is_empty() => Some(Wanted::From(start)),
        (None, Some(count)) if start.is_empty() => Some(Wanted::Last(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        for (text, range) in [
            ("bytes=0-9", Some(Wanted::Between(0, 10))),
            ("bytes=5-", Some(Wanted::From(5))),
            ("bytes=-7", Some(Wanted::Last(7))),
            ("bytes=9-5", None),
            ("bytes=0-1,3-4", None),
            ("bytes=-", None),
            ("lines=1-2", None),
            ("bytes=0-18446744073709551615", None),
        ] {
            assert_eq!(wanted(text), range, "{text}");
        }
    }

    #[test]
    fn names_that_lead_elsewhere_or_to_what_is_ours_are_none() {
        for part in ["0", "zarr.json", ".zattrs", "c", "..a", "a..", ".halo"] {
            assert!(is_part(part), "{part}");
        }
        for part in ["", ".", "..", ".haloflow", ".HaloFlow", ".haloflow-x", "a\0", "a\nb"] {
            assert!(!is_part(part), "{part:?}");
        }
        assert!(is_key(&"0a".repeat(16)) && !is_key("none-1-2") && !is_key(""));
    }
}
