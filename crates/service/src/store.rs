//! The table of jobs: SQLite on a thread of its own, so that nobody who awaits is blocked by a disk.
//!
//! Whatever waits when the thread comes to it goes into one transaction, and nobody is answered before it is on the disk: ten thousand
//! submissions cost as many syncs as the disk allows, not ten thousand.

mod table;

use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;

use rusqlite::Connection;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::job::{Ending, Job, JobId, JobState, NewJob, Wish};
use crate::settings::Keep;

pub use table::{Page, Submission};

/// What goes into one transaction at most.
const MOST_AT_ONCE: usize = 512;

/// Requests that wait for the thread at most; whoever comes then waits.
const WAITING: usize = 1024;

/// Jobs that are removed in one go, so that nobody waits long for the table meanwhile.
const PRUNED_AT_ONCE: u32 = 200;

/// Why the table could not be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite says no.
    #[error("the job table cannot be used: {0}")]
    Sql(#[from] rusqlite::Error),
    /// A row that this version did not write.
    #[error("the job table holds a row that cannot be read: {0}")]
    Row(#[from] serde_json::Error),
    /// It has been closed.
    #[error("the job table does not answer: it cannot be written, or the daemon is stopping")]
    Closed,
}

type Task = Box<dyn FnOnce(&Connection) -> Answer + Send>;
type Answer = Box<dyn FnOnce(Option<&rusqlite::Error>) + Send>;

/// A handle on the table. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Store {
    tasks: mpsc::SyncSender<Task>,
}

/// The thread, to be joined once every handle is gone.
#[derive(Debug)]
pub struct StoreThread(JoinHandle<()>);

impl StoreThread {
    /// Waits until everything is written. Blocks.
    pub fn join(self) {
        if self.0.join().is_err() {
            tracing::error!("the thread of the job table panicked");
        }
    }
}

impl Store {
    /// Opens the table at `path`, and makes it if there is none. Jobs that ran when the process ended are queued again, or end as their
    /// wish was; one that has taken the process with it three times fails.
    ///
    /// # Errors
    /// If the file cannot be used, or was made by a newer version.
    pub fn open(path: &Path) -> Result<(Self, StoreThread), StoreError> {
        let connection = table::open(path)?;
        let (tasks, queue) = mpsc::sync_channel::<Task>(WAITING);
        let thread = std::thread::Builder::new().name("jobs-table".into()).spawn(move || work(&connection, &queue));
        // Without a thread there is nobody who could answer.
        let thread = thread.map_err(|_| StoreError::Closed)?;
        Ok((Self { tasks }, StoreThread(thread)))
    }

    /// Keeps a job, or finds the one that was submitted under the same key.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub async fn submit(&self, job: NewJob, most_waiting: u64) -> Result<Submission, StoreError> {
        self.call(move |table| table::submit(table, &job, most_waiting)).await
    }

    /// A job.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub async fn get(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        self.call(move |table| table::get(table, id)).await
    }

    /// The job whose data is served under `key`.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub async fn with_data_key(&self, key: String) -> Result<Option<Job>, StoreError> {
        self.call(move |table| table::with_data_key(table, &key)).await
    }

    /// The report of a job's last run.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub async fn report(&self, id: JobId) -> Result<Option<Value>, StoreError> {
        self.call(move |table| table::report(table, id)).await
    }

    /// Jobs, the newest first, without their keys.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub async fn list(&self, page: Page) -> Result<Vec<Job>, StoreError> {
        self.call(move |table| table::list(table, page)).await
    }

    /// How many jobs are in each state.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub async fn counts(&self) -> Result<Vec<(JobState, u64)>, StoreError> {
        self.call(table::counts).await
    }

    /// The job whose turn is next.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub async fn next(&self) -> Result<Option<Job>, StoreError> {
        self.call(table::next).await
    }

    /// A job begins; false if it no longer waits.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub async fn begin(&self, id: JobId, now: u64) -> Result<bool, StoreError> {
        self.call(move |table| table::begin(table, id, now)).await
    }

    /// A job has stopped running.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub async fn end(&self, id: JobId, ending: Ending, now: u64) -> Result<(), StoreError> {
        self.call(move |table| table::end(table, id, &ending, now)).await
    }

    /// Moves a job that does not run from one of `from` to `to`; false if it is in none of them.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub async fn change(
        &self,
        id: JobId,
        from: &'static [JobState],
        to: JobState,
        now: u64,
    ) -> Result<bool, StoreError> {
        self.call(move |table| table::change(table, id, from, to, now)).await
    }

    /// Says what is to become of a job that runs; false if it does not run.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub async fn wish(&self, id: JobId, wish: Wish) -> Result<bool, StoreError> {
        self.call(move |table| table::wish(table, id, wish)).await
    }

    /// Adds lines to a job's log.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub async fn log(&self, id: JobId, lines: Vec<String>) -> Result<(), StoreError> {
        self.call(move |table| table::log(table, id, &lines)).await
    }

    /// Lines of a job's log after the line `after`, with their numbers.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub async fn logs(&self, id: JobId, after: i64, most: usize) -> Result<Vec<(i64, String)>, StoreError> {
        self.call(move |table| table::logs(table, id, after, most)).await
    }

    /// Removes some of the jobs that are not to be kept at `now`, with their logs and reports, and gives their numbers; none if there are no
    /// more. Only jobs that have ended are removed.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub async fn prune(&self, keep: Keep, now: u64) -> Result<Vec<JobId>, StoreError> {
        let before = keep.age.map(|age| now.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)));
        self.call(move |table| table::prune(table, before, keep.jobs, PRUNED_AT_ONCE)).await
    }

    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (tell, told) = oneshot::channel();
        let task: Task = Box::new(move |connection| {
            let done = work(connection);
            Box::new(move |failed| {
                let done = match failed {
                    Some(error) => Err(StoreError::Sql(copied(error))),
                    None => done,
                };
                // Nobody may be waiting any more.
                drop(tell.send(done));
            })
        });
        if let Err(mpsc::TrySendError::Full(task)) = self.tasks.try_send(task) {
            let tasks = self.tasks.clone();
            drop(tokio::task::spawn_blocking(move || tasks.send(task)).await);
        }
        told.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// The life of the thread: it ends when every handle is gone.
fn work(connection: &Connection, queue: &mpsc::Receiver<Task>) {
    while let Ok(first) = queue.recv() {
        let more = std::iter::from_fn(|| queue.try_recv().ok()).take(MOST_AT_ONCE - 1);
        let tasks: Vec<Task> = std::iter::once(first).chain(more).collect();
        if let Err(error) = connection.execute_batch("BEGIN IMMEDIATE") {
            tracing::error!("the job table cannot be written: {error}");
            // Whoever is dropped without an answer learns that it was not done.
            continue;
        }
        let answers: Vec<Answer> = tasks.into_iter().map(|task| task(connection)).collect();
        let committed = connection.execute_batch("COMMIT");
        if let Err(error) = &committed {
            tracing::error!("the job table cannot be written: {error}");
            // There may be nothing to roll back.
            drop(connection.execute_batch("ROLLBACK"));
        }
        answers.into_iter().for_each(|answer| answer(committed.as_ref().err()));
    }
}

/// The same error for everybody whose work it undid.
fn copied(error: &rusqlite::Error) -> rusqlite::Error {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => rusqlite::Error::SqliteFailure(*code, message.clone()),
        other => rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ERROR),
            Some(other.to_string()),
        ),
    }
}

#[cfg(test)]
mod tests;
