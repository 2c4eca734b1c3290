//! A runner that runs nothing: a job does what its key `does` says.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use haloflow_service::job::JobFault;
use haloflow_service::runner::{
    DeviceState, LoadedModel, NotShown, Outcome, Prepared, Runner, RunningJob, Side, SideInfo, Slice,
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
}

impl Default for FakeRunner {
    fn default() -> Self {
        Self { ends: Arc::new(Semaphore::new(0)), begun: Arc::default(), cold: None, forgotten: Mutex::default() }
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
        async move { Ok(Slice { width: 4, height: 2, values: (0..8).map(|i| (i + z) as f32).collect() }) }.boxed()
    }

    fn object<'a>(
        &'a self,
        _: &'a Value,
        side: Side,
        key: &'a str,
        range: Option<(u64, u64)>,
    ) -> BoxFuture<'a, Result<Option<Bytes>, NotShown>> {
        async move {
            let whole = Bytes::from(format!("{side:?} {key}"));
            let there = key != "missing";
            Ok(there.then(|| match range {
                Some((from, to)) => whole.slice(from as usize..(to as usize).min(whole.len())),
                None => whole,
            }))
        }
        .boxed()
    }
}
