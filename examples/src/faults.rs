//! Faults of a network and of a store, for an S3 server that shall show how a client takes them.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, DATE, IF_NONE_MATCH, RANGE, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 503 `SlowDown`.
    SlowDown,
    /// 429 with a number of seconds to wait.
    TooMany(u32),
    /// 500 `InternalError`.
    Internal,
    /// 403 `AccessDenied`.
    Denied,
    /// 501 `NotImplemented`.
    NotImplemented,
    /// It is done, and the answer's clock is ahead by so many seconds.
    Clock(i64),
    /// The connection ends without an answer, and nothing was done.
    Reset,
    /// It was done, and the connection ends without an answer.
    LostReply,
    /// Half of the answer's body comes, then nothing more, for ever.
    Stall,
    /// Half of the answer's body comes, then the connection ends.
    Truncate,
    /// Half of the body comes in an answer that says it were the whole.
    Shorten,
    /// It is done, but not before so many milliseconds have passed.
    Late(u32),
}

/// A request, as a script sees it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its path, with the bucket.
    pub path: &'a str,
    /// Whether an object is to be stored only where none is.
    pub conditional: bool,
    /// How often the same was asked before.
    pub before: usize,
}

/// Says which request meets which fault; none for most.
pub type Script = dyn Fn(Asked<'_>) -> Option<Fault> + Send + Sync;

/// A script, and what it has done.
pub(crate) struct Faults {
    script: Box<Script>,
    asked: Mutex<HashMap<String, usize>>,
    injected: Mutex<usize>,
}

impl Faults {
    pub(crate) fn new(script: Box<Script>) -> Self {
        let (asked, injected) = Default::default();
        Self { script, asked, injected }
    }

    /// How many requests met a fault.
    pub(crate) fn injected(&self) -> usize {
        *self.injected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault that a request meets.
    pub(crate) fn of(&self, request: &Request<Incoming>) -> Option<Fault> {
        let (method, path) = (request.method(), request.uri().path());
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let (range, conditional) = (header(RANGE).unwrap_or_default(), header(IF_NONE_MATCH) == Some("*"));
        let before = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let count = asked.entry(format!("{method} {path} {range}")).or_default();
            *count += 1;
            *count - 1
        };
        let fault = (self.script)(Asked { method, path, conditional, before });
        *self.injected.lock().unwrap_or_else(PoisonError::into_inner) += usize::from(fault.is_some());
        fault
    }
}

impl Fault {
    /// The answer, for a fault that is one.
    pub(crate) fn answer(self) -> Option<Response<Full<Bytes>>> {
        let (status, code) = match self {
            Self::SlowDown => (StatusCode::SERVICE_UNAVAILABLE, "SlowDown"),
            Self::TooMany(_) => (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
            Self::Denied => (StatusCode::FORBIDDEN, "AccessDenied"),
            Self::NotImplemented => (StatusCode::NOT_IMPLEMENTED, "NotImplemented"),
            _ => return None,
        };
        let body = format!("<Error><Code>{code}</Code><Message>as the script wants it</Message></Error>");
        let mut answer = Response::new(Full::new(Bytes::from(body)));
        *answer.status_mut() = status;
        if let Self::TooMany(seconds) = self {
            answer.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        Some(answer)
    }
}

/// The error that ends a connection.
#[derive(Debug, thiserror::Error)]
#[error("the connection ends here, as the script wants it")]
pub(crate) struct Ended;

/// Half of a body, and what comes then.
struct Half {
    rest: Bytes,
    /// Length that was announced.
    length: u64,
    fault: Fault,
}

impl Body for Half {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.rest)))));
        }
        match self.fault {
            Fault::Stall => Poll::Pending,
            _ => Poll::Ready(Some(Err(Box::new(Ended)))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}

/// Does to an answer's body what a fault does to it.
pub(crate) async fn maim(answer: Response<crate::s3::AnswerBody>, fault: Fault) -> Response<crate::s3::AnswerBody> {
    let (mut parts, body) = answer.into_parts();
    let whole = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let half = whole.slice(..whole.len() / 2);
    let body = match fault {
        Fault::Stall | Fault::Truncate if whole.len() > 1 => {
            Half { rest: half, length: whole.len() as u64, fault }.boxed_unsync()
        }
        Fault::Shorten => {
            parts.headers.insert(CONTENT_LENGTH, (half.len() as u64).into());
            Full::new(half).map_err(|never| match never {}).boxed_unsync()
        }
        _ => Full::new(whole).map_err(|never| match never {}).boxed_unsync(),
    };
    Response::from_parts(parts, body)
}

/// Has an answer tell a time that many seconds from now.
pub(crate) fn shift(answer: &mut Response<crate::s3::AnswerBody>, seconds: i64) {
    let (now, apart) = (SystemTime::now(), Duration::from_secs(seconds.unsigned_abs()));
    let date = httpdate::fmt_http_date(if seconds < 0 { now - apart } else { now + apart });
    // A date is always a valid header.
    answer.headers_mut().extend(date.parse().ok().map(|date| (DATE, date)));
}

/// Whether a fault is done to the answer's body.
pub(crate) const fn is_of_body(fault: Fault) -> bool {
    matches!(fault, Fault::Stall | Fault::Truncate | Fault::Shorten)
}

/// A script shared by all connections.
pub(crate) type SharedFaults = Option<Arc<Faults>>;
