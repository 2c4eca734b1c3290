//! The notice that the machine is about to be taken away: a file or an object that appears, or what a cloud's metadata server says.

use std::time::Duration;

use haloflow_volume::Environment;
use reqwest::{Client, Response, StatusCode, Url};
use serde_json::Value;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// How often it is looked whether a notice has appeared. Machines are taken away half a minute after it, or later.
const LOOKS: Duration = Duration::from_secs(1);

/// How long a metadata server, which is on the same machine, may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the run to stop once there is a notice at `place`, a file or a URL. A place that cannot be asked is told once and asked again.
pub(crate) fn watch(place: String, environment: Environment, drain: CancellationToken) {
    tokio::spawn(async move {
        let mut looks = tokio::time::interval(LOOKS);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = false;
        let mut web = Web::default();
        loop {
            looks.tick().await;
            let found = match Url::parse(&place) {
                Ok(url) if matches!(url.scheme(), "http" | "https") => web.notice(url).await,
                _ => haloflow_volume::exists(&place, &environment).await.map_err(|error| error.to_string()),
            };
            match found {
                Ok(true) => {
                    tracing::warn!("stopping: there is an interruption notice at {place}");
                    return drain.cancel();
                }
                Ok(false) => {}
                Err(error) if told => tracing::debug!("`interruption-notice`: {error}"),
                Err(error) => {
                    told = true;
                    tracing::warn!(
                        "`interruption-notice`: {error}; the run goes on, and it is looked there every second"
                    );
                }
            }
        }
    });
}

/// A metadata server.
#[derive(Default)]
struct Web {
    client: Option<Client>,
    /// What Amazon's server wants to see.
    token: Option<String>,
}

impl Web {
    /// Whether the server has a notice. Errors are sentences.
    async fn notice(&mut self, url: Url) -> Result<bool, String> {
        let failed = |error: reqwest::Error| format!("{} cannot be asked: {}", url, error.without_url());
        let client = match &self.client {
            Some(client) => client.clone(),
            // A proxy stands between machines, and this server is on the same one.
            None => Client::builder().no_proxy().timeout(PATIENCE).build().map_err(failed)?,
        };
        self.client = Some(client.clone());
        let mut answer = self.ask(&client, &url).await.map_err(failed)?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            self.token = amazon_token(&client, &url).await.map_err(failed)?;
            answer = self.ask(&client, &url).await.map_err(failed)?;
        }
        match answer.status() {
            StatusCode::NOT_FOUND => Ok(false),
            status if status.is_success() => Ok(is_notice(&answer.text().await.map_err(failed)?)),
            status => Err(format!("{url} answered {status}")),
        }
    }

    async fn ask(&self, client: &Client, url: &Url) -> reqwest::Result<Response> {
        // The second and the third are wanted by Google's and Microsoft's servers, so that no browser can be made to ask them.
        let ask = client.get(url.clone()).header("Metadata-Flavor", "Google").header("Metadata", "true");
        match &self.token {
            Some(token) => ask.header("X-aws-ec2-metadata-token", token).send().await,
            None => ask.send().await,
        }
    }
}

/// A token of version 2 of Amazon's metadata service; none if the server gives none.
async fn amazon_token(client: &Client, url: &Url) -> reqwest::Result<Option<String>> {
    let mut tokens = url.clone();
    tokens.set_path("/latest/api/token");
    tokens.set_query(None);
    let answer = client.put(tokens).header("X-aws-ec2-metadata-token-ttl-seconds", "21600").send().await?;
    if answer.status().is_success() { answer.text().await.map(Some) } else { Ok(None) }
}

/// Whether an answer says that the machine will be taken away. Google's server says FALSE until then, Microsoft's lists events, of which some
/// only announce maintenance; anything else, as Amazon's, is there only then.
fn is_notice(answer: &str) -> bool {
    if answer.trim().eq_ignore_ascii_case("false") {
        return false;
    }
    let Ok(Value::Object(told)) = serde_json::from_str(answer) else { return true };
    let Some(Value::Array(events)) = told.get("Events") else { return true };
    events.iter().any(|event| matches!(event["EventType"].as_str(), Some("Preempt" | "Terminate")))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;

    /// Serves what `answer` makes of a request's first line and headers, one request a connection; gives its address.
    async fn serve(mut answer: impl FnMut(&str, &str) -> (u16, String) + Send + 'static) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (reading, mut writing) = socket.split();
                let mut lines = BufReader::new(reading.take(1 << 16)).lines();
                let mut head = Vec::new();
                while let Ok(Some(line)) = lines.next_line().await {
                    if line.is_empty() {
                        break;
                    }
                    head.push(line);
                }
                let (first, rest) = head.split_first().unwrap();
                let (status, body) = answer(first, &rest.join("\n").to_ascii_lowercase());
                let length = body.len();
                let text =
                    format!("HTTP/1.1 {status} Told\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
                writing.write_all(text.as_bytes()).await.unwrap();
            }
        });
        format!("http://{address}")
    }

    async fn noticed(web: &mut Web, url: &str) -> Result<bool, String> {
        web.notice(url.parse().unwrap()).await
    }

    #[tokio::test]
    async fn amazon_wants_a_token_and_has_nothing_until_there_is_a_notice() {
        // The first token is no longer good after two questions.
        let state = Arc::new(Mutex::new((0, 0)));
        let seen = Arc::clone(&state);
        let url = serve(move |first, headers| {
            let mut state = seen.lock().unwrap();
            if first == "PUT /latest/api/token HTTP/1.1" {
                assert!(headers.contains("x-aws-ec2-metadata-token-ttl-seconds: 21600"), "{headers}");
                state.0 += 1;
                return (200, format!("token-{}", state.0));
            }
            assert_eq!(first, "GET /latest/meta-data/spot/instance-action HTTP/1.1");
            state.1 += 1;
            let good = if state.1 < 4 { "token-1" } else { "token-2" };
            match headers.contains(&format!("x-aws-ec2-metadata-token: {good}")) {
                false => (401, String::new()),
                true if state.1 < 6 => (404, String::new()),
                true => (200, r#"{"action": "terminate", "time": "2026-11-30T08:22:00Z"}"#.to_owned()),
            }
        });
        let url = format!("{}/latest/meta-data/spot/instance-action", url.await);
        let mut web = Web::default();
        for expected in [false, false, false, true] {
            assert_eq!(noticed(&mut web, &url).await, Ok(expected));
        }
        assert_eq!(state.lock().unwrap().0, 2, "a token is kept as long as it is good");
    }

    #[tokio::test]
    async fn google_says_true_or_false_and_microsoft_lists_events() {
        for (body, expected) in [
            ("FALSE", false),
            ("TRUE", true),
            (r#"{"DocumentIncarnation": 1, "Events": []}"#, false),
            (r#"{"Events": [{"EventType": "Freeze"}]}"#, false),
            (r#"{"Events": [{"EventType": "Freeze"}, {"EventType": "Preempt"}]}"#, true),
        ] {
            let url = serve(move |_, headers| match headers {
                headers if headers.contains("metadata-flavor: google") && headers.contains("metadata: true") => {
                    (200, body.to_owned())
                }
                _ => (403, String::new()),
            });
            let url = format!("{}/instance?api-version=2020-07-01", url.await);
            assert_eq!(noticed(&mut Web::default(), &url).await, Ok(expected), "{body}");
        }
    }

    #[tokio::test]
    async fn a_server_that_refuses_is_named() {
        let url = serve(|first, _| (if first.starts_with("PUT") { 403 } else { 401 }, String::new())).await;
        let told = noticed(&mut Web::default(), &url).await.unwrap_err();
        assert_eq!(told, format!("{url}/ answered 401 Unauthorized"));
        let told = noticed(&mut Web::default(), "http://127.0.0.1:9/x").await.unwrap_err();
        assert!(told.starts_with("http://127.0.0.1:9/x cannot be asked: "), "{told}");
    }
}
