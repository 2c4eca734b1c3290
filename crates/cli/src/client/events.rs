//! The events of a job, one after the other, over a connection that may break.

use std::time::Duration;

use haloflow_service::job::{JobId, JobState, JobStatus};
use reqwest::{Method, Response};

use super::Refused;
use super::server::{Server, causes};

/// Tries to connect again before it is given up, while the daemon does not answer.
const TRIES: u32 = 60;

/// Between two of them.
const PAUSE: Duration = Duration::from_secs(1);

/// A job that is followed.
pub(super) struct Events<'server> {
    server: &'server Server,
    id: JobId,
    stream: Option<Response>,
    text: String,
    connected: bool,
}

impl<'server> Events<'server> {
    pub(super) const fn new(server: &'server Server, id: JobId) -> Self {
        Self { server, id, stream: None, text: String::new(), connected: false }
    }

    /// How the job is, when it has changed. Connects again where the daemon was started anew.
    pub(super) async fn next(&mut self) -> Result<JobStatus, Refused> {
        loop {
            if let Some(status) = self.told()? {
                return Ok(status);
            }
            let Some(stream) = &mut self.stream else {
                self.connect().await?;
                continue;
            };
            match stream.chunk().await {
                Ok(Some(piece)) => self.text.push_str(&String::from_utf8_lossy(&piece)),
                Ok(None) => self.stream = None,
                Err(error) => {
                    tracing::debug!("the events broke off: {}", causes(&error));
                    self.stream = None;
                }
            }
        }
    }

    async fn connect(&mut self) -> Result<(), Refused> {
        self.text.clear();
        let mut tries = 0;
        loop {
            let request = self.server.request(Method::GET, &format!("/v1/jobs/{}/events", self.id));
            match self.server.send(request).await {
                Ok(stream) => {
                    (self.stream, self.connected) = (Some(stream), true);
                    return Ok(());
                }
                // Only a daemon that was there before is waited for.
                Err(refused) if !self.connected || refused.1 != crate::exit::UNAVAILABLE || tries == TRIES => {
                    return Err(refused);
                }
                Err(_) => tries += 1,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The next event of what has come.
    fn told(&mut self) -> Result<Option<JobStatus>, Refused> {
        while let Some((event, rest)) = self.text.split_once("\n\n") {
            let data = event.lines().find_map(|line| line.strip_prefix("data: ")).map(str::to_owned);
            self.text = rest.to_owned();
            if let Some(data) = data {
                let status = serde_json::from_str(&data);
                return status.map(Some).map_err(|error| self.server.garbled(&error.to_string()));
            }
        }
        Ok(None)
    }
}

/// Whether a job goes no further by itself.
pub(super) fn is_at_rest(status: &JobStatus) -> bool {
    status.state.has_ended() || status.state == JobState::Paused
}
