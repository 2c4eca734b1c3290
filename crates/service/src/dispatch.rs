//! Starts jobs when it is their turn, follows them while they run, and keeps how they ended.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use haloflow_pipeline::Progress;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::daemon::Daemon;
use crate::history::{History, Sample};
use crate::job::{Ending, Job, JobFault, JobId, JobProgress, JobState, JobStatus, Wish, now_ms};
use crate::lines::Lines;
use crate::queue::Holding;
use crate::runner::{Outcome, RunningJob};
use crate::store::StoreError;

/// Between two looks at a job that runs.
const EVERY: Duration = Duration::from_millis(500);

/// Before the table is tried again that could not be read.
const PAUSE: Duration = Duration::from_secs(5);

/// A job that runs.
pub(crate) struct Live {
    status: Mutex<JobStatus>,
    drain: CancellationToken,
    cancel: CancellationToken,
    wish: Mutex<Wish>,
    pub(crate) progress: Arc<Progress>,
    /// When the first voxels were stored, and how many had been by then.
    since: Mutex<Option<(Instant, u64)>>,
    lines: Lines,
    history: Mutex<History>,
    started: Instant,
}

impl Live {
    fn new(job: &Job, stopping: &CancellationToken) -> Self {
        let mut status = job.status.clone();
        status.state = JobState::Running;
        Self {
            status: Mutex::new(status),
            drain: stopping.child_token(),
            cancel: CancellationToken::new(),
            wish: Mutex::default(),
            progress: Arc::default(),
            since: Mutex::default(),
            lines: Lines::default(),
            history: Mutex::default(),
            started: Instant::now(),
        }
    }

    /// Asks the job to stop. Who wants it to stop for good wins over who wants a pause.
    pub(crate) fn stop(&self, wish: Wish) {
        let mut known = lock(&self.wish);
        if *known != Wish::Cancel {
            *known = wish;
        }
        let at_once = *known == Wish::Cancel;
        drop(known);
        self.drain.cancel();
        if at_once {
            self.cancel.cancel();
        }
    }

    /// `status` with the progress of now.
    pub(crate) fn told(&self, status: JobStatus) -> JobStatus {
        JobStatus { progress: Some(self.progress()), wish: *lock(&self.wish), ..status }
    }

    fn progress(&self) -> JobProgress {
        let seen = self.progress.snapshot();
        let now = Instant::now();
        let mut since = lock(&self.since);
        if seen.voxels > 0 && since.is_none() {
            *since = Some((now, seen.voxels));
        }
        let rate = since.map_or(0.0, |(began, before)| {
            (seen.voxels - before) as f64 / now.duration_since(began).as_secs_f64().max(1e-9)
        });
        let left = (seen.voxels_total - seen.voxels.min(seen.voxels_total)) as f64;
        JobProgress {
            doing: self.progress.doing(),
            blocks: seen.tiles,
            blocks_total: seen.tiles_total,
            patches: seen.patches,
            patches_total: seen.patches_total,
            voxels: seen.voxels,
            voxels_total: seen.voxels_total,
            bytes_per_voxel: seen.bytes_per_voxel,
            voxels_per_second: rate,
            eta_seconds: (rate > 0.0).then(|| left / rate),
        }
    }

    /// What its stages did over time.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        lock(&self.history).samples()
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        lock(&self.status).memory_bytes
    }
}

/// Starts jobs until the daemon stops, and then waits until none runs, but no longer than the settings say.
pub async fn dispatch(daemon: Daemon) {
    let holding = Arc::new(Mutex::new(Holding::default()));
    let (tasks, stopping) = (TaskTracker::new(), daemon.shared.stopping.clone());
    loop {
        if let Err(error) = start_all(&daemon, &holding, &tasks).await {
            tracing::error!("{error}");
            stopping.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
        } else {
            stopping.run_until_cancelled(daemon.shared.wake.notified()).await;
        }
        if stopping.is_cancelled() {
            break;
        }
    }
    tasks.close();
    if tokio::time::timeout(daemon.shared.settings.drain, tasks.wait()).await.is_err() {
        tracing::error!(
            "jobs still run {:?} after they were asked to stop; they go on after the next start",
            daemon.shared.settings.drain
        );
    }
}

/// Starts whatever may start.
async fn start_all(daemon: &Daemon, holding: &Arc<Mutex<Holding>>, tasks: &TaskTracker) -> Result<(), StoreError> {
    let shared = &daemon.shared;
    while let Some(job) = shared.store.next().await?.filter(|_| !shared.stopping.is_cancelled()) {
        let (id, bytes) = (job.status.id, job.status.memory_bytes.min(shared.settings.capacity.memory_bytes));
        if !lock(holding).admits(bytes, shared.settings.capacity) {
            return Ok(());
        }
        let live = Arc::new(Live::new(&job, &shared.stopping));
        lock(&shared.running).insert(id, Arc::clone(&live));
        match shared.store.begin(id, now_ms()).await {
            Ok(true) => {}
            // It was cancelled or paused in between.
            Ok(false) => {
                lock(&shared.running).remove(&id);
                continue;
            }
            Err(error) => {
                lock(&shared.running).remove(&id);
                return Err(error);
            }
        }
        lock(holding).begin(id, bytes);
        let (daemon, holding) = (daemon.clone(), Arc::clone(holding));
        tasks.spawn(async move {
            follow(&daemon, &job, &live).await;
            lock(&holding).end(id);
            daemon.shared.wake.notify_one();
        });
    }
    Ok(())
}

/// The life of a job from its start to its end.
async fn follow(daemon: &Daemon, job: &Job, live: &Arc<Live>) {
    let id = job.status.id;
    tracing::info!(job = id, "the job begins");
    drop(daemon.news(id).await);
    let lines = Arc::clone(live);
    let run = RunningJob {
        id,
        config: job.config.clone(),
        again: job.status.started_ms.is_some(),
        drain: live.drain.clone(),
        cancel: live.cancel.clone(),
        progress: Arc::clone(&live.progress),
        log: Arc::new(move |line| lines.lines.add(line)),
    };
    // A task of its own, so that a panic is the job's fault and not the daemon's end.
    let mut running = tokio::spawn(daemon.shared.runner.run(run));
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let outcome = loop {
        tokio::select! {
            ended = &mut running => break ended.unwrap_or_else(|error| panicked(&error)),
            _ = ticks.tick() => look(daemon, id, live).await,
        }
    };
    let ending = ending(outcome, *lock(&live.wish), daemon.shared.stopping.is_cancelled(), live.progress());
    tracing::info!(job = id, state = ending.state.name(), "the job has stopped");
    keep_lines(daemon, id, live).await;
    let mut kept = daemon.shared.store.end(id, ending.clone(), now_ms()).await;
    while let Err(error) = kept {
        tracing::error!(job = id, "its end cannot be kept: {error}");
        if daemon.shared.stopping.is_cancelled() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        kept = daemon.shared.store.end(id, ending.clone(), now_ms()).await;
    }
    daemon.keep(id, live);
    drop(daemon.news(id).await);
}

async fn look(daemon: &Daemon, id: JobId, live: &Live) {
    keep_lines(daemon, id, live).await;
    let seconds = live.started.elapsed().as_secs_f64();
    let (inside, devices) = (live.progress.live(), daemon.devices().await);
    lock(&live.history).look(seconds, &inside, || devices);
    let status = lock(&live.status).clone();
    daemon.shared.events.tell(live.told(status));
}

async fn keep_lines(daemon: &Daemon, id: JobId, live: &Live) {
    let lines = live.lines.take();
    if !lines.is_empty()
        && let Err(error) = daemon.shared.store.log(id, lines).await
    {
        tracing::error!(job = id, "lines of its log are lost: {error}");
    }
}

/// What a job's end means, given what was wished.
fn ending(outcome: Outcome, wish: Wish, stopping: bool, progress: JobProgress) -> Ending {
    let interrupted = outcome.fault.as_ref().is_some_and(|fault| fault.kind == "interrupted");
    let state = match (&outcome.fault, wish) {
        (None, _) => JobState::Succeeded,
        (Some(_), Wish::Cancel) if interrupted => JobState::Cancelled,
        (Some(_), Wish::Pause) if interrupted => JobState::Paused,
        (Some(_), Wish::Run) if interrupted && stopping => JobState::Queued,
        (Some(_), _) => JobState::Failed,
    };
    let ended = state.has_ended();
    Ending {
        state,
        exit_code: ended.then_some(outcome.exit_code),
        fault: outcome.fault.filter(|_| ended),
        progress,
        report: outcome.report,
    }
}

fn panicked(error: &tokio::task::JoinError) -> Outcome {
    let message = format!("the job ended unexpectedly: {error}; this is a defect of haloflow");
    Outcome { fault: Some(JobFault { kind: "internal".into(), message }), exit_code: 70, report: None }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
