//! The HTTP client of all remote stores: it passes the gate, sees to it that bytes keep moving, and tells what went wrong by kind.
//!
//! A request has no time limit as a whole: it fails when no byte has moved for a while, in the request's body or the answer's.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use reqwest::StatusCode;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use tokio::time::{Instant, Sleep};

use crate::VolumeError;
use crate::gate::{Gate, Pass};

const CONNECT: Duration = Duration::from_secs(5);

/// Pieces in which a body is handed to the connection: the client asks for the next one when it has sent the one before.
const PIECE: usize = 64 << 10;

/// What is read of an answer that tells of an error.
const LONGEST_COMPLAINT: usize = 64 << 10;

/// Why a request failed, for whoever decides whether to repeat it.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The store answered, but with an error.
    #[error("{0}")]
    Refused(Refusal),
    /// No byte moved for this long.
    #[error("no byte came or went for {} s", .0.as_secs_f64())]
    Stalled(Duration),
    /// The connection could not be made, or broke.
    #[error("{0}")]
    Broken(String),
}

/// An error that a store answered.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// The store's own word for it, such as `SlowDown`.
    pub(crate) code: String,
    message: String,
    pub(crate) after: Option<Duration>,
    /// Where the bucket is, if it is elsewhere.
    region: Option<String>,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it answered {}", self.status)?;
        let told: Vec<&str> = [&*self.code, &*self.message].into_iter().filter(|text| !text.is_empty()).collect();
        if !told.is_empty() {
            write!(f, " ({})", told.join(": "))?;
        }
        if let Some(region) = &self.region {
            write!(f, "; the bucket is in the region {region}: set AWS_REGION={region}")?;
        }
        Ok(())
    }
}

impl Refusal {
    /// Whether the store asks for fewer requests.
    pub(crate) fn is_throttling(&self) -> bool {
        let codes =
            ["SlowDown", "Throttl", "TooManyRequests", "RequestLimitExceeded", "ServerBusy", "rateLimitExceeded"];
        self.status == StatusCode::TOO_MANY_REQUESTS
            || self.status == StatusCode::SERVICE_UNAVAILABLE
            || codes.iter().any(|code| self.code.contains(code))
    }
}

/// Gives object stores their client.
#[derive(Clone, Debug)]
pub(crate) struct PatientClient {
    client: reqwest::Client,
    gate: Arc<Gate>,
}

impl PatientClient {
    pub(crate) fn new(gate: Arc<Gate>) -> Result<Self, VolumeError> {
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .user_agent(concat!("haloflow/", env!("CARGO_PKG_VERSION")))
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            // One connection per request in flight is faster than all of them in one.
            .http1_only()
            .build()
            .map_err(|error| VolumeError::internal(format!("the HTTP client cannot start: {error}")))?;
        Ok(Self { client, gate })
    }

    /// A header of the answer to a HEAD request without a signature, whatever the answer is otherwise.
    pub(crate) async fn header_of(&self, url: &str, header: &str) -> Option<String> {
        let _pass = self.gate.enter().await;
        let answer = tokio::time::timeout(self.gate.stall(), self.client.head(url).send()).await;
        Some(answer.ok()?.ok()?.headers().get(header)?.to_str().ok()?.to_owned())
    }

    async fn send(&self, request: HttpRequest, stall: Duration) -> Result<reqwest::Response, Failure> {
        let (parts, body) = request.into_parts();
        let broken = |text: String| Failure::Broken(text);
        let url = parts.uri.to_string().parse().map_err(|_| broken("its URL is not valid".to_owned()))?;
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        let moved = Arc::new(Mutex::new(Instant::now()));
        *request.body_mut() = Some(if body.content_length() == 0 {
            reqwest::Body::from(Bytes::new())
        } else {
            reqwest::Body::wrap(Upload { body, piece: Bytes::new(), moved: Arc::clone(&moved) })
        });
        tokio::select! {
            answer = self.client.execute(request) => answer.map_err(|error| broken(cause(error))),
            () = stalled(&moved, stall) => Err(Failure::Stalled(stall)),
        }
    }
}

impl HttpConnector for PatientClient {
    fn connect(&self, _options: &object_store::ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl HttpService for PatientClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let pass = self.gate.enter().await;
        let stall = self.gate.stall();
        let answer = self.send(request, stall).await.map_err(http_error)?;
        self.gate.answered(date(answer.headers()));
        if is_refusal(&answer) {
            let refusal = refusal(answer, stall).await;
            if refusal.is_throttling() {
                pass.throttled(refusal.after, &format!("{} {}", refusal.status.as_u16(), refusal.code));
            }
            return Err(http_error(Failure::Refused(refusal)));
        }
        let (parts, body) = http::Response::<reqwest::Body>::from(answer).into_parts();
        let timer = Box::pin(tokio::time::sleep(stall));
        let download = Download { body: Box::pin(body), stall, timer, pass: Some(pass) };
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(download)))
    }
}

/// Whether an answer is an error that the object store's own code need not see. The others mean something to it.
fn is_refusal(answer: &reqwest::Response) -> bool {
    const MEANT: [StatusCode; 3] = [StatusCode::NOT_FOUND, StatusCode::CONFLICT, StatusCode::PRECONDITION_FAILED];
    let status = answer.status();
    let elsewhere = status.is_redirection() && answer.headers().contains_key("x-amz-bucket-region");
    elsewhere || (status.as_u16() >= 400 && !MEANT.contains(&status))
}

/// Reads what the store has to say. Of the body only code and message are kept: the rest may repeat what was signed.
async fn refusal(answer: reqwest::Response, stall: Duration) -> Refusal {
    let (status, headers) = (answer.status(), answer.headers().clone());
    let short = answer.content_length().is_none_or(|length| length <= LONGEST_COMPLAINT as u64);
    let body = match short {
        true => tokio::time::timeout(stall, answer.text()).await.ok().and_then(Result::ok).unwrap_or_default(),
        false => String::new(),
    };
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let elsewhere = status.is_redirection() || status == StatusCode::BAD_REQUEST;
    Refusal {
        status,
        code: element(&body, "Code").to_owned(),
        message: element(&body, "Message").chars().take(200).collect(),
        after: retry_after(&headers, SystemTime::now()),
        region: header("x-amz-bucket-region").filter(|_| elsewhere),
    }
}

/// The text of an XML element without children.
fn element<'a>(xml: &'a str, name: &str) -> &'a str {
    let inside = xml.split_once(&format!("<{name}>")).and_then(|(_, rest)| rest.split_once(&format!("</{name}>")));
    inside.map_or("", |(text, _)| text.trim())
}

/// The time that the store says it is.
fn date(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()
}

/// When to come back: a number of seconds or a date (RFC 9110, 10.2.3).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default()),
    }
}

/// Ends when nothing has moved for `stall`.
async fn stalled(moved: &Mutex<Instant>, stall: Duration) {
    loop {
        let due = *moved.lock().unwrap_or_else(PoisonError::into_inner) + stall;
        if due <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(due).await;
    }
}

/// The innermost cause: the outer ones repeat the URL, which may hold a signature.
fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn http_error(failure: Failure) -> HttpError {
    let kind = match failure {
        Failure::Refused(_) => HttpErrorKind::Unknown,
        Failure::Stalled(_) => HttpErrorKind::Timeout,
        Failure::Broken(_) => HttpErrorKind::Interrupted,
    };
    HttpError::new(kind, failure)
}

/// A request's body that notes when a piece of it leaves.
struct Upload {
    body: HttpRequestBody,
    piece: Bytes,
    moved: Arc<Mutex<Instant>>,
}

impl Body for Upload {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        if self.piece.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => self.piece = frame.into_data().unwrap_or_default(),
                other => return other,
            }
        }
        let length = self.piece.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.piece.split_to(length)))))
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.size_hint().exact().unwrap_or_default();
        SizeHint::with_exact(rest + self.piece.len() as u64)
    }
}

/// An answer's body that fails when no byte comes for a while, and holds the pass until its end.
struct Download {
    body: Pin<Box<reqwest::Body>>,
    stall: Duration,
    timer: Pin<Box<Sleep>>,
    pass: Option<Pass>,
}

impl Body for Download {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        match this.body.as_mut().poll_frame(cx) {
            Poll::Ready(frame) => {
                this.timer.as_mut().reset(Instant::now() + this.stall);
                if frame.is_none()
                    && let Some(pass) = this.pass.take()
                {
                    pass.succeeded();
                }
                Poll::Ready(frame.map(|frame| frame.map_err(|error| http_error(Failure::Broken(cause(error))))))
            }
            Poll::Pending => {
                std::task::ready!(this.timer.as_mut().poll(cx));
                this.pass = None;
                Poll::Ready(Some(Err(http_error(Failure::Stalled(this.stall)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
