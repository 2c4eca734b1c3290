//! The table in SQL. Everything here runs on the table's thread, inside a transaction.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;

use super::StoreError;
use crate::job::{Ending, Job, JobFault, JobId, JobProgress, JobState, JobStatus, NewJob, Wish, now_ms};

/// The version of the tables, in the file's own header.
const VERSION: i64 = 1;

/// How often a job may take the process with it.
const MOST_CRASHES: u32 = 3;

/// Lines of a job's log that are kept; the oldest go first.
const MOST_LINES: i64 = 10_000;

const TABLES: &str = "
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL, wish TEXT NOT NULL DEFAULT 'run', priority INTEGER NOT NULL,
    key TEXT UNIQUE, fingerprint TEXT NOT NULL, data_key TEXT NOT NULL UNIQUE, config TEXT NOT NULL, input TEXT NOT NULL,
    outputs TEXT NOT NULL, model TEXT NOT NULL, memory INTEGER NOT NULL, submitted INTEGER NOT NULL, started INTEGER, ended INTEGER,
    progress TEXT, exit_code INTEGER, fault TEXT, report TEXT, crashes INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX by_turn ON jobs (state, priority DESC, id);
CREATE TABLE lines (
    job INTEGER NOT NULL, number INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;
PRAGMA user_version = 1;
";

const COLUMNS: &str = "id, state, wish, priority, input, outputs, model, memory, submitted, started, ended, progress, exit_code, fault, \
                       config, data_key, crashes";

/// What became of a submission.
#[derive(Debug)]
pub enum Submission {
    /// A new job.
    New(Box<Job>),
    /// The same was submitted before.
    Known(Box<Job>),
    /// Something else was submitted under this key, as this job.
    Differs(JobId),
    /// Too many jobs wait.
    Full(u64),
}

/// Which jobs to list.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Only those in this state.
    pub state: Option<JobState>,
    /// Only those submitted before this one.
    pub before: Option<JobId>,
    /// How many at most.
    pub limit: u32,
}

pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    // One process at a time: a second one that opens the same table would run the same jobs.
    connection
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    match version {
        0 => connection.execute_batch(&format!("BEGIN; {TABLES} COMMIT;"))?,
        VERSION => {}
        newer => {
            let message = format!("it has version {newer}, and this haloflow knows {VERSION}");
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_MISMATCH);
            return Err(rusqlite::Error::SqliteFailure(code, Some(message)).into());
        }
    }
    // Not part of the tables: an older version that opens the file does without.
    connection.execute_batch("CREATE INDEX IF NOT EXISTS by_end ON jobs (ended, id) WHERE ended IS NOT NULL")?;
    recover(&connection)?;
    Ok(connection)
}

/// What ran when the process ended.
fn recover(table: &Connection) -> Result<(), StoreError> {
    let fault = JobFault {
        kind: "internal".into(),
        message: format!("the daemon ended {MOST_CRASHES} times while this job ran, so that it is not tried again"),
    };
    let now = signed(now_ms());
    table.execute_batch(
        "BEGIN IMMEDIATE; UPDATE jobs SET crashes = crashes + 1 WHERE state = 'running' AND wish = 'run';",
    )?;
    table.execute(
        "UPDATE jobs SET state = 'failed', exit_code = 70, fault = ?1, ended = ?2 WHERE state = 'running' AND wish = 'run' AND crashes >= ?3",
        params![serde_json::to_string(&fault)?, now, MOST_CRASHES],
    )?;
    table.execute(
        "UPDATE jobs SET state = CASE wish WHEN 'pause' THEN 'paused' WHEN 'cancel' THEN 'cancelled' ELSE 'queued' END,
             exit_code = CASE wish WHEN 'cancel' THEN 75 END, ended = CASE wish WHEN 'cancel' THEN ?1 END, wish = 'run'
         WHERE state = 'running'",
        params![now],
    )?;
    table.execute_batch("COMMIT")?;
    Ok(())
}

pub(super) fn submit(table: &Connection, job: &NewJob, most_waiting: u64) -> Result<Submission, StoreError> {
    if let Some(key) = &job.idempotency_key {
        let known = "SELECT id, fingerprint FROM jobs WHERE key = ?1";
        let known = table.prepare_cached(known)?.query_row([key], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        if let Some((id, fingerprint)) = known {
            let fingerprint: String = fingerprint;
            let same = fingerprint == job.fingerprint;
            return Ok(match get(table, id)?.filter(|_| same) {
                Some(known) => Submission::Known(Box::new(known)),
                None => Submission::Differs(id),
            });
        }
    }
    let waiting = "SELECT count(*) FROM jobs WHERE state = 'queued'";
    let waiting: i64 = table.prepare_cached(waiting)?.query_row([], |row| row.get(0))?;
    if waiting.unsigned_abs() >= most_waiting {
        return Ok(Submission::Full(most_waiting));
    }
    let insert = "INSERT INTO jobs (state, priority, key, fingerprint, data_key, config, input, outputs, model, memory, submitted)
                  VALUES ('queued', ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    table.prepare_cached(insert)?.execute(params![
        job.priority,
        job.idempotency_key,
        job.fingerprint,
        job.data_key,
        job.config.to_string(),
        job.input,
        serde_json::to_string(&job.outputs)?,
        job.model,
        signed(job.memory_bytes),
        signed(now_ms()),
    ])?;
    match get(table, table.last_insert_rowid())? {
        Some(job) => Ok(Submission::New(Box::new(job))),
        None => Err(rusqlite::Error::QueryReturnedNoRows.into()),
    }
}

pub(super) fn get(table: &Connection, id: JobId) -> Result<Option<Job>, StoreError> {
    one(table, "WHERE id = ?1", [id])
}

pub(super) fn with_data_key(table: &Connection, key: &str) -> Result<Option<Job>, StoreError> {
    one(table, "WHERE data_key = ?1", [key])
}

pub(super) fn next(table: &Connection) -> Result<Option<Job>, StoreError> {
    one(table, "WHERE state = 'queued' ORDER BY priority DESC, id LIMIT 1", [])
}

pub(super) fn report(table: &Connection, id: JobId) -> Result<Option<Value>, StoreError> {
    let text = "SELECT report FROM jobs WHERE id = ?1";
    let text: Option<Option<String>> = table.prepare_cached(text)?.query_row([id], |row| row.get(0)).optional()?;
    Ok(text.flatten().map(|text| serde_json::from_str(&text)).transpose()?)
}

pub(super) fn list(table: &Connection, page: Page) -> Result<Vec<Job>, StoreError> {
    let before = page.before.unwrap_or(JobId::MAX);
    let (state, values) = match page.state {
        Some(state) => ("AND state = ?3", vec![state.name()]),
        None => ("", Vec::new()),
    };
    // A thousand jobs may have long keys, and nobody lists them for these.
    let columns = COLUMNS.replace("config,", "'null' AS config,");
    let select = format!("SELECT {columns} FROM jobs WHERE id < ?1 {state} ORDER BY id DESC LIMIT ?2");
    let mut select = table.prepare_cached(&select)?;
    select.raw_bind_parameter(1, before)?;
    select.raw_bind_parameter(2, page.limit)?;
    for value in values {
        select.raw_bind_parameter(3, value)?;
    }
    let (mut rows, mut jobs) = (select.raw_query(), Vec::new());
    while let Some(row) = rows.next()? {
        jobs.push(job(row)?);
    }
    Ok(jobs)
}

pub(super) fn counts(table: &Connection) -> Result<Vec<(JobState, u64)>, StoreError> {
    let mut count = table.prepare_cached("SELECT count(*) FROM jobs WHERE state = ?1")?;
    let mut counts = Vec::new();
    for state in JobState::ALL {
        let found: i64 = count.query_row([state.name()], |row| row.get(0))?;
        counts.push((state, found.unsigned_abs()));
    }
    Ok(counts)
}

pub(super) fn begin(table: &Connection, id: JobId, now: u64) -> Result<bool, StoreError> {
    let update = "UPDATE jobs SET state = 'running', wish = 'run', started = ?2 WHERE id = ?1 AND state = 'queued'";
    Ok(table.prepare_cached(update)?.execute(params![id, signed(now)])? > 0)
}

pub(super) fn end(table: &Connection, id: JobId, ending: &Ending, now: u64) -> Result<(), StoreError> {
    let update = "UPDATE jobs SET state = ?2, wish = 'run', ended = ?3, progress = ?4, exit_code = ?5, fault = ?6, report = ?7, crashes = 0
                  WHERE id = ?1";
    table.prepare_cached(update)?.execute(params![
        id,
        ending.state.name(),
        ending.state.has_ended().then_some(signed(now)),
        serde_json::to_string(&ending.progress)?,
        ending.exit_code,
        ending.fault.as_ref().map(serde_json::to_string).transpose()?,
        ending.report.as_ref().map(Value::to_string),
    ])?;
    Ok(())
}

pub(super) fn change(
    table: &Connection,
    id: JobId,
    from: &[JobState],
    to: JobState,
    now: u64,
) -> Result<bool, StoreError> {
    let ended = to.has_ended().then_some(signed(now));
    let exit_code = (to == JobState::Cancelled).then_some(75);
    let update = "UPDATE jobs SET state = ?2, ended = ?3, exit_code = ?4 WHERE id = ?1 AND state = ?5";
    let mut update = table.prepare_cached(update)?;
    for state in from {
        if update.execute(params![id, to.name(), ended, exit_code, state.name()])? > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn wish(table: &Connection, id: JobId, wish: Wish) -> Result<bool, StoreError> {
    // Who wants it to stop for good wins over who wants a pause, also after a restart.
    let update =
        "UPDATE jobs SET wish = CASE wish WHEN 'cancel' THEN wish ELSE ?2 END WHERE id = ?1 AND state = 'running'";
    Ok(table.prepare_cached(update)?.execute(params![id, wish.name()])? > 0)
}

/// Removes jobs that have ended, with everything that belongs to them: those that ended before `before`, and the oldest beyond `most`, up to
/// `at_once` of them.
pub(super) fn prune(
    table: &Connection,
    before: Option<u64>,
    most: Option<u64>,
    at_once: u32,
) -> Result<Vec<JobId>, StoreError> {
    let old = "AND ended < ?1 ORDER BY ended, id LIMIT ?2";
    let beyond = "ORDER BY ended DESC, id DESC LIMIT ?2 OFFSET ?1";
    let mut found = Vec::new();
    for (which, bound) in [(old, before), (beyond, most)] {
        let Some(bound) = bound else { continue };
        let ended = "ended IS NOT NULL AND state IN ('succeeded', 'failed', 'cancelled')";
        let mut select = table.prepare_cached(&format!("SELECT id FROM jobs WHERE {ended} {which}"))?;
        let ids = select.query_map(params![signed(bound), at_once], |row| row.get(0))?;
        found.extend(ids.collect::<Result<Vec<JobId>, _>>()?);
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(at_once as usize);
    for id in &found {
        table.prepare_cached("DELETE FROM lines WHERE job = ?1")?.execute([id])?;
        table.prepare_cached("DELETE FROM jobs WHERE id = ?1")?.execute([id])?;
    }
    Ok(found)
}

pub(super) fn log(table: &Connection, id: JobId, lines: &[String]) -> Result<(), StoreError> {
    let last = "SELECT coalesce(max(number), 0) FROM lines WHERE job = ?1";
    let last: i64 = table.prepare_cached(last)?.query_row([id], |row| row.get(0))?;
    let mut insert = table.prepare_cached("INSERT INTO lines (job, number, text) VALUES (?1, ?2, ?3)")?;
    let mut number = last;
    for line in lines {
        number += 1;
        insert.execute(params![id, number, line])?;
    }
    table.prepare_cached("DELETE FROM lines WHERE job = ?1 AND number <= ?2")?.execute([id, number - MOST_LINES])?;
    Ok(())
}

pub(super) fn logs(table: &Connection, id: JobId, after: i64, most: usize) -> Result<Vec<(i64, String)>, StoreError> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let select = "SELECT number, text FROM lines WHERE job = ?1 AND number > ?2 ORDER BY number LIMIT ?3";
    let mut select = table.prepare_cached(select)?;
    let rows = select.query_map(params![id, after, most], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn one(table: &Connection, condition: &str, values: impl rusqlite::Params) -> Result<Option<Job>, StoreError> {
    let mut select = table.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs {condition}"))?;
    let mut rows = select.query(values)?;
    rows.next()?.map(job).transpose()
}

fn job(row: &Row<'_>) -> Result<Job, StoreError> {
    let text = |column: &str| row.get::<_, String>(column);
    let time = |column: &str| row.get::<_, Option<i64>>(column).map(|time| time.map(i64::unsigned_abs));
    let progress: Option<String> = row.get("progress")?;
    let fault: Option<String> = row.get("fault")?;
    let status = JobStatus {
        id: row.get("id")?,
        state: JobState::named(&text("state")?).unwrap_or(JobState::Failed),
        wish: Wish::named(&text("wish")?),
        priority: row.get("priority")?,
        input: text("input")?,
        outputs: serde_json::from_str(&text("outputs")?)?,
        model: text("model")?,
        memory_bytes: row.get::<_, i64>("memory")?.unsigned_abs(),
        submitted_ms: row.get::<_, i64>("submitted")?.unsigned_abs(),
        started_ms: time("started")?,
        ended_ms: time("ended")?,
        progress: progress.map(|text| serde_json::from_str::<JobProgress>(&text)).transpose()?,
        exit_code: row.get("exit_code")?,
        fault: fault.map(|text| serde_json::from_str::<JobFault>(&text)).transpose()?,
    };
    Ok(Job {
        status,
        config: serde_json::from_str(&text("config")?)?,
        data_key: text("data_key")?,
        crashes: row.get("crashes")?,
    })
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
