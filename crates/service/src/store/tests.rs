use serde_json::json;

use super::*;
use crate::job::{JobFault, JobProgress};

fn new_job(priority: i32, key: Option<&str>) -> NewJob {
    NewJob {
        priority,
        idempotency_key: key.map(str::to_owned),
        fingerprint: format!("{priority}"),
        config: json!({ "in": "a" }),
        input: "a".into(),
        outputs: vec!["b".into()],
        model: "m".into(),
        memory_bytes: 7,
        data_key: format!("{}", fastrand::u64(..)),
    }
}

async fn submitted(store: &Store, priority: i32) -> JobId {
    match store.submit(new_job(priority, None), 1000).await.unwrap() {
        Submission::New(job) => job.status.id,
        other => panic!("{other:?}"),
    }
}

async fn states(store: &Store) -> Vec<JobState> {
    let page = Page { state: None, before: None, limit: 100 };
    store.list(page).await.unwrap().into_iter().rev().map(|job| job.status.state).collect()
}

#[tokio::test]
async fn the_next_job_is_of_the_highest_priority_and_the_oldest_of_these() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _thread) = Store::open(&folder.path().join("jobs.sqlite")).unwrap();
    for priority in [0, 5, 5, -1] {
        submitted(&store, priority).await;
    }
    let mut order = Vec::new();
    while let Some(job) = store.next().await.unwrap() {
        assert!(store.begin(job.status.id, 1).await.unwrap());
        order.push(job.status.id);
    }
    assert_eq!(order, [2, 3, 1, 4]);
    assert!(!store.begin(2, 1).await.unwrap(), "a job begins once");
}

#[tokio::test]
async fn a_submission_sent_again_is_the_same_job() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _thread) = Store::open(&folder.path().join("jobs.sqlite")).unwrap();
    let once = store.submit(new_job(0, Some("k")), 1).await.unwrap();
    assert!(matches!(once, Submission::New(job) if job.status.id == 1));
    // Also where no further job could be taken.
    let again = store.submit(new_job(0, Some("k")), 1).await.unwrap();
    assert!(matches!(again, Submission::Known(job) if job.status.id == 1));
    assert!(matches!(store.submit(new_job(1, Some("k")), 1).await.unwrap(), Submission::Differs(1)));
    assert!(matches!(store.submit(new_job(0, None), 1).await.unwrap(), Submission::Full(1)));
}

#[tokio::test]
async fn what_ran_when_the_process_ended_goes_on_or_ends_as_was_wished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.sqlite");
    let reopened = |open: Option<(Store, StoreThread)>| {
        open.into_iter().for_each(|(store, thread)| {
            drop(store);
            thread.join();
        });
        Store::open(&path).unwrap()
    };
    let mut open = reopened(None);
    for id in 1..=4 {
        submitted(&open.0, 0).await;
        assert!(id == 4 || open.0.begin(id, 1).await.unwrap());
    }
    assert!(open.0.wish(2, Wish::Pause).await.unwrap() && open.0.wish(3, Wish::Cancel).await.unwrap());
    assert!(open.0.wish(3, Wish::Pause).await.unwrap(), "it runs, and stays to be cancelled");
    assert!(!open.0.wish(4, Wish::Cancel).await.unwrap(), "it does not run");
    open = reopened(Some(open));
    use JobState::{Cancelled, Failed, Paused, Queued};
    assert_eq!(states(&open.0).await, [Queued, Paused, Cancelled, Queued]);
    for crash in 1..3 {
        assert!(open.0.begin(1, 1).await.unwrap());
        open = reopened(Some(open));
        let state = states(&open.0).await[0];
        assert_eq!(state, if crash < 2 { Queued } else { Failed });
    }
    let failed = open.0.get(1).await.unwrap().unwrap().status;
    assert_eq!(failed.exit_code, Some(70));
    assert!(failed.fault.unwrap().message.contains("3 times"));
}

#[tokio::test]
async fn a_job_keeps_its_end_and_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _thread) = Store::open(&folder.path().join("jobs.sqlite")).unwrap();
    let id = submitted(&store, 0).await;
    let listed = store.list(Page { state: None, before: None, limit: 1 }).await.unwrap();
    assert_eq!((&listed[0].config, listed[0].status.id), (&serde_json::Value::Null, id));
    assert_eq!(store.get(id).await.unwrap().unwrap().config, json!({ "in": "a" }));
    assert!(store.begin(id, 5).await.unwrap());
    store.log(id, vec!["one".into(), "two".into()]).await.unwrap();
    store.log(id, vec!["three".into()]).await.unwrap();
    let fault = JobFault { kind: "data".into(), message: "why".into() };
    let progress = JobProgress { blocks: 3, ..JobProgress::default() };
    let ending = Ending {
        state: JobState::Failed,
        exit_code: Some(65),
        fault: Some(fault.clone()),
        progress: progress.clone(),
        report: Some(json!({ "complete": false })),
    };
    store.end(id, ending, 9).await.unwrap();
    let status = store.get(id).await.unwrap().unwrap().status;
    assert_eq!((status.state, status.exit_code, status.fault), (JobState::Failed, Some(65), Some(fault)));
    assert_eq!((status.started_ms, status.ended_ms, status.progress), (Some(5), Some(9), Some(progress)));
    assert_eq!(store.report(id).await.unwrap(), Some(json!({ "complete": false })));
    assert_eq!(store.logs(id, 1, 1).await.unwrap(), [(2, "two".into())]);
    assert_eq!(store.logs(id, 1, 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_table_is_used_by_one_process_and_a_newer_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.sqlite");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(connection);
    let told = Store::open(&path).unwrap_err().to_string();
    assert!(told.contains("version 99"), "{told}");
}

/// Ends jobs at the times of the clock that are given, and gives their numbers.
async fn ended(store: &Store, times: impl IntoIterator<Item = u64>) -> Vec<JobId> {
    let mut ids = Vec::new();
    for time in times {
        let id = submitted(store, 0).await;
        assert!(store.begin(id, 1).await.unwrap());
        store.log(id, vec!["a line".into()]).await.unwrap();
        let (state, progress, report) = (JobState::Succeeded, JobProgress::default(), Some(json!({})));
        store.end(id, Ending { state, exit_code: Some(0), fault: None, progress, report }, time).await.unwrap();
        ids.push(id);
    }
    ids
}

#[tokio::test]
async fn jobs_that_ended_long_ago_go_with_their_logs_and_all_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _thread) = Store::open(&folder.path().join("jobs.sqlite")).unwrap();
    let [waiting, running, paused] =
        [submitted(&store, 0).await, submitted(&store, 0).await, submitted(&store, 0).await];
    assert!(store.begin(running, 0).await.unwrap());
    assert!(store.change(paused, &[JobState::Queued], JobState::Paused, 0).await.unwrap());
    let cancelled = submitted(&store, 0).await;
    assert!(store.change(cancelled, &[JobState::Queued], JobState::Cancelled, 40).await.unwrap());
    let done = ended(&store, [10, 99, 100, 500]).await;
    let keep = Keep { age: Some(std::time::Duration::from_millis(900)), jobs: None };
    assert_eq!(store.prune(keep, 1000).await.unwrap(), [cancelled, done[0], done[1]]);
    assert!(store.prune(keep, 1000).await.unwrap().is_empty());
    for (id, there) in
        [(waiting, true), (running, true), (paused, true), (cancelled, false), (done[1], false), (done[2], true)]
    {
        assert_eq!(store.get(id).await.unwrap().is_some(), there, "{id}");
    }
    assert!(store.logs(done[0], 0, 10).await.unwrap().is_empty() && store.report(done[0]).await.unwrap().is_none());
    assert_eq!(store.logs(done[2], 0, 10).await.unwrap().len(), 1);
    // A number is never given again.
    assert!(submitted(&store, 0).await > done[3]);
}

#[tokio::test]
async fn of_the_jobs_that_have_ended_the_last_ones_stay_and_waiting_ones_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _thread) = Store::open(&folder.path().join("jobs.sqlite")).unwrap();
    let waiting: Vec<JobId> = [submitted(&store, 0).await, submitted(&store, -1).await].into();
    let done = ended(&store, [30, 10, 20, 40]).await;
    let keep = Keep { age: None, jobs: Some(2) };
    assert_eq!(store.prune(keep, u64::MAX).await.unwrap(), [done[1], done[2]]);
    assert!(store.prune(keep, u64::MAX).await.unwrap().is_empty());
    assert!(store.prune(Keep { age: None, jobs: None }, u64::MAX).await.unwrap().is_empty());
    let page = Page { state: Some(JobState::Queued), before: None, limit: 100 };
    assert_eq!(store.list(page).await.unwrap().len(), waiting.len());
}

#[tokio::test]
async fn many_jobs_go_in_several_goes() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _thread) = Store::open(&folder.path().join("jobs.sqlite")).unwrap();
    let done = ended(&store, 0..u64::from(PRUNED_AT_ONCE) + 5).await;
    let keep = Keep { age: Some(std::time::Duration::from_millis(1)), jobs: Some(1) };
    let mut removed = Vec::new();
    for most in [PRUNED_AT_ONCE as usize, 5, 0] {
        let gone = store.prune(keep, 10_000).await.unwrap();
        assert_eq!(gone.len(), most);
        removed.extend(gone);
    }
    removed.sort_unstable();
    assert_eq!(removed, done);
}
