//! The daemon, as a client sees it.

use std::time::Duration;

use haloflow_service::problem::Problem;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;

use super::{Refused, ServerArgs};
use crate::exit;

/// How long a daemon may take to let us in, and to begin an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon.
pub(crate) struct Server {
    url: String,
    token: Option<String>,
    client: reqwest::Client,
}

impl Server {
    pub(crate) fn new(args: &ServerArgs) -> Result<Self, Refused> {
        let usage = |sentence: String| Refused(vec![sentence], exit::USAGE);
        let url = args.server.clone().unwrap_or_else(|| "http://127.0.0.1:8470".into());
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(usage(format!("`server` is {url}; give a URL, such as http://127.0.0.1:8470")));
        }
        let token = match &args.token_file {
            Some(file) => Some(
                std::fs::read_to_string(file)
                    .map_err(|error| usage(format!("`token-file`: {} cannot be read: {error}", file.display())))?,
            ),
            None => std::env::var(crate::serve::TOKEN_VARIABLE).ok(),
        };
        let client = reqwest::Client::builder().connect_timeout(PATIENCE).build();
        let client =
            client.map_err(|error| Refused(vec![format!("no client can be made: {error}")], exit::SOFTWARE))?;
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        Ok(Self { url: url.trim_end_matches('/').to_owned(), token, client })
    }

    /// A request to one of the daemon's addresses.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Sends a request; an answer that is a problem becomes its sentences.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, Refused> {
        let sent = tokio::time::timeout(PATIENCE, request.send()).await;
        let unreachable = |why: String| Refused(vec![format!("the daemon at {} {why}", self.url)], exit::UNAVAILABLE);
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                return Err(unreachable(format!(
                    "cannot be reached: {}; is `haloflow serve` running there?",
                    causes(&error)
                )));
            }
            Err(_) => return Err(unreachable(format!("does not answer within {PATIENCE:?}"))),
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, text) = (response.status(), response.text().await.unwrap_or_default());
        let sentences = match serde_json::from_str::<Problem>(&text) {
            Ok(problem) if problem.errors.is_empty() => vec![problem.detail],
            Ok(problem) => problem.errors,
            Err(_) => vec![format!("the daemon at {} answered {status}", self.url)],
        };
        Err(Refused(sentences, code(status)))
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Refused> {
        let response = self.send(request).await?;
        let body = response.bytes().await.map_err(|error| self.garbled(&causes(&error)))?;
        serde_json::from_slice(&body).map_err(|error| self.garbled(&error.to_string()))
    }

    /// What is said where an answer cannot be understood.
    pub(crate) fn garbled(&self, why: &str) -> Refused {
        Refused(vec![format!("the answer of the daemon at {} cannot be read: {why}", self.url)], exit::UNAVAILABLE)
    }
}

/// What was sent is wrong, or the daemon does not let us in.
fn code(status: StatusCode) -> u8 {
    match status {
        StatusCode::BAD_REQUEST
        | StatusCode::NOT_FOUND
        | StatusCode::CONFLICT
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY => exit::USAGE,
        _ => exit::UNAVAILABLE,
    }
}

/// An error with its causes, each once.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut told = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !told.iter().any(|known| known.contains(&text)) {
            told.push(text);
        }
        cause = error.source();
    }
    told.join(": ")
}
