//! A daemon in this process, and a client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use haloflow_service::queue::Capacity;
use haloflow_service::roots::Roots;
use haloflow_service::settings::{Keep, Limits};
use haloflow_service::store::{Store, StoreThread};
use haloflow_service::{Daemon, ServiceSettings, serve};
use reqwest::Method;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fake::FakeRunner;

/// Whatever takes longer than this hangs.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// A daemon that serves.
pub(crate) struct Scene {
    pub(crate) folder: TempDir,
    pub(crate) address: SocketAddr,
    pub(crate) client: reqwest::Client,
    pub(crate) runner: Arc<FakeRunner>,
    stopping: CancellationToken,
    serving: JoinHandle<()>,
    thread: StoreThread,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Stops the test unless this is a problem of this status and kind.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, kind: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["type"], format!("/problems/{kind}"), "{problem}");
        assert_eq!(problem["status"], status);
        assert!(!problem["detail"].as_str().unwrap().is_empty());
        problem
    }
}

/// Settings that work, over a table in `folder`.
pub(crate) fn settings(folder: &TempDir) -> ServiceSettings {
    ServiceSettings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        token: None,
        hosts: Vec::new(),
        read_roots: Roots::new(["/data", "s3://lab/raw"]).unwrap(),
        write_roots: Roots::new(["/results"]).unwrap(),
        models: vec!["/models".into()],
        table: folder.path().join("jobs.sqlite"),
        capacity: Capacity { jobs: 1, memory_bytes: 100 },
        limits: Limits { rate: 0.0, ..Limits::default() },
        keep: Keep::default(),
        drain: Duration::from_secs(10),
    }
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut ServiceSettings)) -> Self {
        Self::within(tempfile::tempdir().unwrap(), FakeRunner::default(), change).await
    }

    /// A daemon over the table in `folder`, if there is one.
    pub(crate) async fn within(folder: TempDir, runner: FakeRunner, change: impl FnOnce(&mut ServiceSettings)) -> Self {
        let mut settings = settings(&folder);
        change(&mut settings);
        let (store, thread) = Store::open(&settings.table).unwrap();
        let listener = TcpListener::bind(settings.listen).await.unwrap();
        let (address, stopping, runner) = (listener.local_addr().unwrap(), CancellationToken::new(), Arc::new(runner));
        let daemon = Daemon::new(settings, store, Arc::clone(&runner) as _, stopping.clone());
        let serving = tokio::spawn(serve(daemon, listener));
        let client = reqwest::Client::builder().timeout(LONGEST).build().unwrap();
        Self { folder, address, client, runner, stopping, serving, thread }
    }

    /// Stops it, as a signal would, and gives the folder back.
    pub(crate) async fn stop(self) -> TempDir {
        self.stopping.cancel();
        tokio::time::timeout(LONGEST, self.serving).await.unwrap().unwrap();
        drop((self.client, self.runner));
        tokio::task::spawn_blocking(move || self.thread.join()).await.unwrap();
        self.folder
    }

    /// Stops it where a job will not.
    pub(crate) async fn halt(self) {
        self.stopping.cancel();
        self.serving.await.unwrap();
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        answer(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str) -> Answer {
        answer(self.request(Method::POST, path)).await
    }

    /// Submits a job with these keys.
    pub(crate) async fn submit(&self, config: Value) -> Answer {
        self.submit_body(serde_json::json!({ "config": config })).await
    }

    pub(crate) async fn submit_body(&self, body: Value) -> Answer {
        answer(self.submission(body)).await
    }

    pub(crate) fn submission(&self, body: Value) -> reqwest::RequestBuilder {
        self.request(Method::POST, "/v1/jobs").header("content-type", "application/json").body(body.to_string())
    }

    /// Submits a job and gives its number.
    pub(crate) async fn submitted(&self, config: Value) -> i64 {
        let answer = self.submit(config).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.json()["id"].as_i64().unwrap()
    }

    /// Waits until a job is in `state`, by its events.
    pub(crate) async fn wait_for(&self, id: i64, state: &str) -> Value {
        let waiting = async {
            let mut answer = self.request(Method::GET, &format!("/v1/jobs/{id}/events")).send().await.unwrap();
            let mut seen = String::new();
            while let Some(piece) = answer.chunk().await.unwrap() {
                seen.push_str(&String::from_utf8_lossy(&piece));
                while let Some((event, rest)) = seen.split_once("\n\n") {
                    let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                    let status: Option<Value> = data.map(|data| serde_json::from_str(data).unwrap());
                    if let Some(status) = status.filter(|status| status["state"] == state) {
                        return status;
                    }
                    seen = rest.to_owned();
                }
            }
            panic!("the events of job {id} ended before it was {state}");
        };
        tokio::time::timeout(LONGEST, waiting).await.unwrap()
    }

    /// How many jobs have been started.
    pub(crate) fn begun(&self) -> usize {
        self.runner.begun.load(Ordering::SeqCst)
    }
}

pub(crate) async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let answer = request.send().await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    Answer { status, headers, text: answer.text().await.unwrap() }
}
