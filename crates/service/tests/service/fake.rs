//! A runner that runs nothing: a job does what its key `does` says.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use haloflow_pipeline::Progress;
use haloflow_service::job::JobFault;
use haloflow_service::runner::{
    DeviceState, LoadedModel, MOST_BYTES, NotShown, Outcome, Piece, Prepared, Runner, RunningJob, Side, SideInfo,
    Slice, Wanted,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Jobs that wait end when they are given a permit.
#[derive(Debug)]
pub(crate) struct FakeRunner {
    pub(crate) ends: Arc<Semaphore>,
    pub(crate) begun: Arc<AtomicUsize>,
    pub(crate) cold: Option<String>,
    pub(crate) forgotten: Mutex<Vec<i64>>,
    /// The progress of the job that was started last.
    pub(crate) progress: Mutex<Arc<Progress>>,
    /// Slices that are read, now and at most; they wait for a permit of `slices`, if it is not closed.
    pub(crate) reading: [AtomicUsize; 2],
    pub(crate) slices: Semaphore,
}

impl Default for FakeRunner {
    fn default() -> Self {
        let slices = Semaphore::new(0);
        slices.close();
        Self {
            ends: Arc::new(Semaphore::new(0)),
            begun: Arc::default(),
            cold: None,
            forgotten: Mutex::default(),
            progress: Mutex::default(),
            reading: Default::default(),
            slices,
        }
    }
}

/// A job's keys that work; `does` is `wait`, `end`, `fail`, `panic` or `stick`.
pub(crate) fn job(does: &str) -> Value {
    json!({ "in": "/data/in.zarr", "out": "/results/out.zarr", "model": "/models/net.ts", "does": does, "memory": 10 })
}

fn interrupted() -> Outcome {
    let fault = JobFault { kind: "interrupted".into(), message: "it was interrupted".into() };
    Outcome { fault: Some(fault), exit_code: 75, report: None }
}

impl Runner for FakeRunner {
    fn check(&self, config: Value) -> BoxFuture<'_, Result<Prepared, Vec<String>>> {
        async move {
            let missing = ["in", "out", "model"].into_iter().filter(|key| config[key].as_str().is_none());
            let errors: Vec<String> = missing.map(|key| format!("`{key}` is missing; name one")).collect();
            if !errors.is_empty() {
                return Err(errors);
            }
            let text = |key: &str| config[key].as_str().unwrap_or_default().to_owned();
            Ok(Prepared {
                input: text("in"),
                outputs: vec![text("out")],
                model: text("model"),
                reads: vec![text("in")],
                writes: vec![text("out")],
                models: vec![PathBuf::from(text("model"))],
                memory_bytes: config["memory"].as_u64().unwrap_or(0),
                config,
            })
        }
        .boxed()
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), String>> {
        let cold = self.cold.clone();
        async move { cold.map_or(Ok(()), Err) }.boxed()
    }

    fn run(&self, job: RunningJob) -> BoxFuture<'static, Outcome> {
        let ends = Arc::clone(&self.ends);
        self.begun.fetch_add(1, Ordering::SeqCst);
        *self.progress.lock().unwrap() = Arc::clone(&job.progress);
        async move {
            (job.log)(format!("job {} begins", job.id));
            match job.config["does"].as_str().unwrap_or_default() {
                "panic" => panic!("as it was told to"),
                "fail" => Outcome {
                    fault: Some(JobFault { kind: "data".into(), message: "the volume is no volume".into() }),
                    exit_code: 65,
                    report: Some(json!({ "complete": false })),
                },
                "wait" => match job.drain.run_until_cancelled(ends.acquire()).await {
                    None => interrupted(),
                    Some(permit) => {
                        permit.unwrap().forget();
                        Outcome { fault: None, exit_code: 0, report: Some(json!({ "complete": true })) }
                    }
                },
                "stick" => std::future::pending().await,
                _ => Outcome { fault: None, exit_code: 0, report: Some(json!({ "complete": true })) },
            }
        }
        .boxed()
    }

    fn forget(&self, jobs: Vec<i64>) -> BoxFuture<'_, ()> {
        self.forgotten.lock().unwrap().extend(jobs);
        async {}.boxed()
    }

    fn models(&self) -> Vec<LoadedModel> {
        let (model, device, description) = ("/models/net.ts".into(), "fake:0".into(), "nothing".into());
        vec![LoadedModel { model, device, description, busy: false }]
    }

    fn devices(&self) -> Vec<DeviceState> {
        let (name, description) = ("fake:0".into(), "nothing".into());
        let (memory_total_bytes, memory_used_bytes, utilisation) = (Some(100), Some(40), Some(0.5));
        vec![DeviceState { name, description, memory_total_bytes, memory_used_bytes, utilisation }]
    }

    fn side<'a>(&'a self, _: &'a Value, side: Side) -> BoxFuture<'a, Result<SideInfo, NotShown>> {
        async move {
            match side {
                Side::Input => Ok(SideInfo { shape: [3, 2, 4], element: "uint16".into() }),
                Side::Output => Err(NotShown("there is no output yet".into())),
            }
        }
        .boxed()
    }

    fn slice<'a>(&'a self, _: &'a Value, _: Side, z: usize, _: usize) -> BoxFuture<'a, Result<Slice, NotShown>> {
        async move {
            let [now, most] = &self.reading;
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            if let Ok(permit) = self.slices.acquire().await {
                permit.forget();
            }
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(Slice { width: 4, height: 2, values: (0..8).map(|i| (i + z) as f32).collect() })
        }
        .boxed()
    }

    fn object<'a>(
        &'a self,
        _: &'a Value,
        side: Side,
        key: &'a str,
        wanted: Wanted,
    ) -> BoxFuture<'a, Result<Option<Piece>, NotShown>> {
        async move {
            let whole = Bytes::from(format!("{side:?} {key}"));
            // One that is too large to be given is there without its bytes.
            let size = if key == "huge" { MOST_BYTES + 100 } else { whole.len() as u64 };
            let (start, stop) = match wanted {
                Wanted::All => (0, size),
                Wanted::Between(start, stop) => (start.min(size), stop.min(size)),
                Wanted::From(start) => (start.min(size), size),
                Wanted::Last(count) => (size.saturating_sub(count), size),
            };
            let given = start as usize..(stop as usize).min(whole.len());
            let bytes = if key == "huge" { Bytes::new() } else { whole.slice(given) };
            Ok((key != "missing").then_some(Piece { bytes, start, stop, size }))
        }
        .boxed()
    }
}
