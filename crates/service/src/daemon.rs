//! The daemon: what a request can do, whoever asks.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::dispatch::Live;
use crate::events::Events;
use crate::history::Sample;
use crate::job::{Job, JobId, JobState, JobStatus, NewJob, Wish, now_ms};
use crate::metrics::Totals;
use crate::problem::Problem;
use crate::runner::{DeviceState, Prepared, Runner};
use crate::settings::ServiceSettings;
use crate::store::{Store, Submission};

/// The longest idempotency key.
const LONGEST_KEY: usize = 200;

/// Jobs that have stopped whose samples are kept.
const MOST_PAST: usize = 50;

/// Slices that are drawn at one time; the next ones wait.
const MOST_LOOKING: usize = 4;

/// The range of priorities.
const PRIORITIES: std::ops::RangeInclusive<i32> = -1000..=1000;

/// Everything that requests and jobs share. Cloning shares it.
#[derive(Clone)]
pub struct Daemon {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) settings: ServiceSettings,
    pub(crate) store: Store,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) events: Events,
    pub(crate) running: Mutex<HashMap<JobId, Arc<Live>>>,
    /// Something may be startable.
    pub(crate) wake: Notify,
    /// What jobs that have stopped have done.
    pub(crate) totals: Mutex<Totals>,
    /// Samples of the last jobs that have stopped.
    pub(crate) past: Mutex<VecDeque<(JobId, Vec<Sample>)>>,
    /// Slices that are drawn at one time: each may take as much memory as a block of a job.
    pub(crate) looking: Semaphore,
    /// Why it is not ready, if it is not.
    pub(crate) readiness: watch::Sender<Result<(), String>>,
    pub(crate) stopping: CancellationToken,
}

/// What is submitted.
#[derive(Debug)]
pub struct Asked {
    /// The keys of a run.
    pub config: Value,
    /// Jobs of a higher priority run first.
    pub priority: i32,
    /// The client's name for this submission.
    pub idempotency_key: Option<String>,
}

impl Daemon {
    /// A daemon over an open table. `stopping` is cancelled when it is to end.
    pub fn new(settings: ServiceSettings, store: Store, runner: Arc<dyn Runner>, stopping: CancellationToken) -> Self {
        let readiness = watch::Sender::new(Err("it is warming up".to_owned()));
        let (events, running, wake, totals, past) = Default::default();
        let looking = Semaphore::new(MOST_LOOKING);
        let shared =
            Shared { settings, store, runner, events, running, wake, totals, past, looking, readiness, stopping };
        Self { shared: Arc::new(shared) }
    }

    /// Submits a job; whether it is new is told along.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub async fn submit(&self, asked: Asked) -> Result<(JobStatus, bool), Problem> {
        if self.shared.stopping.is_cancelled() {
            return Err(Problem::busy("the daemon is stopping and takes no jobs", 10));
        }
        let fingerprint = fingerprint(&asked);
        let job = self.checked(asked, fingerprint).await.map_err(Problem::invalid)?;
        let submitted = self.shared.store.submit(job, self.shared.settings.limits.waiting).await?;
        match submitted {
            Submission::New(job) => {
                self.shared.events.tell(job.status.clone());
                self.shared.wake.notify_one();
                Ok((job.status, true))
            }
            Submission::Known(job) => Ok((self.told(*job), false)),
            Submission::Differs(id) => Err(Problem::conflict(
                "idempotency-key-used",
                format!(
                    "the idempotency key was used for job {id}, which was submitted with another body; use a new key"
                ),
            )),
            Submission::Full(most) => {
                Err(Problem::busy(&format!("{most} jobs wait already, which is `queue-limit`"), 60))
            }
        }
    }

    async fn checked(&self, asked: Asked, fingerprint: String) -> Result<NewJob, Vec<String>> {
        let mut errors = Vec::new();
        if !PRIORITIES.contains(&asked.priority) {
            errors.push(format!("`priority` is {}; it must be -1000 to 1000", asked.priority));
        }
        let key = asked.idempotency_key;
        if key.as_ref().is_some_and(|key| key.is_empty() || key.len() > LONGEST_KEY) {
            errors.push(format!("the header Idempotency-Key must have 1 to {LONGEST_KEY} characters"));
        }
        let prepared = match self.shared.runner.check(asked.config).await {
            Ok(prepared) => prepared,
            Err(told) => {
                errors.extend(told);
                return Err(errors);
            }
        };
        errors.extend(self.forbidden(&prepared));
        if !errors.is_empty() {
            return Err(errors);
        }
        let Prepared { config, input, outputs, model, memory_bytes, .. } = prepared;
        let (priority, idempotency_key, data_key) = (asked.priority, key, unguessable());
        Ok(NewJob { priority, idempotency_key, fingerprint, config, input, outputs, model, memory_bytes, data_key })
    }

    /// What of a job is not allowed here, a sentence each.
    fn forbidden(&self, job: &Prepared) -> Vec<String> {
        let settings = &self.shared.settings;
        let mut told = Vec::new();
        for place in job.reads.iter().filter(|place| !settings.read_roots.allow(place)) {
            told.push(format!("{place} may not be read: jobs may read {}", settings.read_roots));
        }
        for place in job.writes.iter().filter(|place| !settings.write_roots.allow(place)) {
            told.push(format!("{place} may not be written: jobs may write {}", settings.write_roots));
        }
        let inside = |model: &std::path::Path| settings.models.iter().any(|folder| model.starts_with(folder));
        for model in job.models.iter().filter(|model| !inside(model)) {
            let folders: Vec<String> = settings.models.iter().map(|folder| folder.display().to_string()).collect();
            let folders = if folders.is_empty() { "no folder".into() } else { folders.join(", ") };
            told.push(format!(
                "{} may not be used: a model is code, and is taken from {folders} only",
                model.display()
            ));
        }
        let most = settings.capacity.memory_bytes;
        if job.memory_bytes > most {
            told.push(format!(
                "`memory` is {} bytes, more than the {most} bytes that all jobs share",
                job.memory_bytes
            ));
        }
        told
    }

    /// A job as it is now.
    ///
    /// # Errors
    /// If there is none.
    pub async fn status(&self, id: JobId) -> Result<JobStatus, Problem> {
        self.job(id).await.map(|job| self.told(job))
    }

    pub(crate) async fn job(&self, id: JobId) -> Result<Job, Problem> {
        self.shared.store.get(id).await?.ok_or_else(|| Problem::no_such_job(&id.to_string()))
    }

    /// A job with the progress that it has made since it was last kept.
    pub(crate) fn told(&self, job: Job) -> JobStatus {
        match self.live(job.status.id).filter(|_| job.status.state == JobState::Running) {
            Some(live) => live.told(job.status),
            None => job.status,
        }
    }

    pub(crate) fn live(&self, id: JobId) -> Option<Arc<Live>> {
        self.shared.running.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// The samples of a job's last run, if this process has them.
    pub(crate) fn samples(&self, id: JobId) -> Vec<Sample> {
        if let Some(live) = self.live(id) {
            return live.samples();
        }
        let past = self.shared.past.lock().unwrap_or_else(PoisonError::into_inner);
        past.iter().find(|(job, _)| *job == id).map(|(_, samples)| samples.clone()).unwrap_or_default()
    }

    /// The devices. A driver is asked, which may take its time.
    pub(crate) async fn devices(&self) -> Vec<DeviceState> {
        let runner = Arc::clone(&self.shared.runner);
        tokio::task::spawn_blocking(move || runner.devices()).await.unwrap_or_default()
    }

    /// What all jobs have done, the budget that those hold that run, and the bytes that their blocks lease.
    pub(crate) fn totals(&self) -> (Totals, u64, u64) {
        let mut totals = self.shared.totals.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let running = self.shared.running.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut held, mut leased) = (0, 0);
        for live in running.values() {
            let inside = live.progress.live();
            totals.add(&inside, &live.progress.snapshot());
            held += live.memory_bytes();
            leased += inside.held_bytes;
        }
        (totals, held, leased)
    }

    /// Keeps what a job that has stopped has done.
    pub(crate) fn keep(&self, id: JobId, live: &Live) {
        // Both at one time, so that nothing is counted twice, or not at all.
        let mut totals = self.shared.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.add(&live.progress.live(), &live.progress.snapshot());
        self.shared.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        drop(totals);
        let mut past = self.shared.past.lock().unwrap_or_else(PoisonError::into_inner);
        past.retain(|(job, _)| *job != id);
        past.push_back((id, live.samples()));
        if past.len() > MOST_PAST {
            past.pop_front();
        }
    }

    /// Stops a job for good, now or, where it runs, soon. A job that was cancelled before stays so.
    ///
    /// # Errors
    /// If it has ended otherwise.
    pub async fn cancel(&self, id: JobId) -> Result<JobStatus, Problem> {
        if self.shared.store.change(id, &[JobState::Queued, JobState::Paused], JobState::Cancelled, now_ms()).await? {
            return self.news(id).await;
        }
        self.stop(id, Wish::Cancel, JobState::Cancelled).await
    }

    /// Stops a job until it is resumed.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn pause(&self, id: JobId) -> Result<JobStatus, Problem> {
        if self.shared.store.change(id, &[JobState::Queued], JobState::Paused, now_ms()).await? {
            return self.news(id).await;
        }
        self.stop(id, Wish::Pause, JobState::Paused).await
    }

    /// Queues a paused job again.
    ///
    /// # Errors
    /// If it is not paused.
    pub async fn resume(&self, id: JobId) -> Result<JobStatus, Problem> {
        if self.shared.store.change(id, &[JobState::Paused], JobState::Queued, now_ms()).await? {
            self.shared.wake.notify_one();
            return self.news(id).await;
        }
        let status = self.status(id).await?;
        match (status.state, status.wish) {
            (JobState::Queued, _) | (JobState::Running, Wish::Run) => Ok(status),
            (JobState::Running, _) => Err(Problem::conflict(
                "job-is-stopping",
                format!("job {id} is about to stop; resume it when it is paused"),
            )),
            (state, _) => Err(ended(id, state)),
        }
    }

    async fn stop(&self, id: JobId, wish: Wish, stopped: JobState) -> Result<JobStatus, Problem> {
        if self.shared.store.wish(id, wish).await? {
            if let Some(live) = self.live(id) {
                live.stop(wish);
            }
            return self.news(id).await;
        }
        let status = self.status(id).await?;
        if status.state == stopped { Ok(status) } else { Err(ended(id, status.state)) }
    }

    /// Tells everybody how a job is now.
    pub(crate) async fn news(&self, id: JobId) -> Result<JobStatus, Problem> {
        let status = self.status(id).await?;
        self.shared.events.tell(status.clone());
        Ok(status)
    }
}

fn ended(id: JobId, state: JobState) -> Problem {
    Problem::conflict("job-has-ended", format!("job {id} is {}, and nothing more can be done with it", state.name()))
}

/// What tells one submission from another.
fn fingerprint(asked: &Asked) -> String {
    hex(&Sha256::digest(format!("{} {}", asked.priority, asked.config)))
}

/// 128 random bits.
fn unguessable() -> String {
    let mut bytes = [0_u8; 16];
    // The system's own source; where there is none nothing is served under the key.
    match std::fs::File::open("/dev/urandom").and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes)) {
        Ok(()) => hex(&bytes),
        Err(error) => {
            tracing::warn!("no random numbers from the system, so that no data is served for this job: {error}");
            format!("none-{}-{}", now_ms(), fastrand::u64(..))
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
