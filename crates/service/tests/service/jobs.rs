//! Jobs from their submission to their end.

use reqwest::Method;
use serde_json::{Value, json};

use crate::fake::job;
use crate::scene::{Scene, answer};

#[tokio::test]
async fn a_job_is_submitted_runs_and_ends() {
    let scene = Scene::new().await;
    let submitted = scene.submit(job("end")).await;
    assert_eq!(submitted.status, 201, "{}", submitted.text);
    assert_eq!(submitted.headers["location"], "/v1/jobs/1");
    let status = scene.wait_for(1, "succeeded").await;
    assert_eq!((&status["exit_code"], &status["fault"]), (&json!(0), &Value::Null));
    assert_eq!(scene.get("/v1/jobs/1").await.json(), status);
    assert_eq!(scene.get("/v1/jobs/1/report").await.json(), json!({ "complete": true }));
    let config = scene.get("/v1/jobs/1/config").await.json();
    assert_eq!(config["model"], "/models/net.ts");
    let log = scene.get("/v1/jobs/1/logs").await;
    assert_eq!((log.text.as_str(), &log.headers["x-last-line"]), ("job 1 begins\n", &"1".parse().unwrap()));
    assert_eq!(scene.get("/v1/jobs/1/logs?after=1").await.text, "");
}

#[tokio::test]
async fn a_job_that_fails_or_panics_tells_why_and_the_next_one_runs() {
    let scene = Scene::new().await;
    for (does, code, part) in [("fail", 65, "no volume"), ("panic", 70, "defect"), ("end", 0, "")] {
        let id = scene.submitted(job(does)).await;
        let status = scene.wait_for(id, if code == 0 { "succeeded" } else { "failed" }).await;
        assert_eq!(status["exit_code"], code);
        assert!(status["fault"]["message"].as_str().unwrap_or_default().contains(part), "{status}");
    }
}

#[tokio::test]
async fn everything_that_is_wrong_is_told_at_once() {
    let scene = Scene::new().await;
    let told = scene.submit(json!({ "does": "end" })).await.problem(422, "invalid-job");
    assert_eq!(told["errors"].as_array().unwrap().len(), 3, "{told}");
    let mut wrong = job("end");
    wrong["in"] = json!("/etc/passwd");
    wrong["out"] = json!("s3://other/x");
    wrong["model"] = json!("/tmp/evil.ts");
    wrong["memory"] = json!(101);
    let told = scene.submit_body(json!({ "config": wrong, "priority": 1001 })).await.problem(422, "invalid-job");
    let errors: Vec<&str> = told["errors"].as_array().unwrap().iter().map(|error| error.as_str().unwrap()).collect();
    for part in [
        "`priority` is 1001; it must be -1000 to 1000",
        "/etc/passwd may not be read: jobs may read /data, s3://lab/raw",
        "s3://other/x may not be written: jobs may write /results",
        "/tmp/evil.ts may not be used: a model is code, and is taken from /models only",
        "`memory` is 101 bytes, more than the 100 bytes that all jobs share",
    ] {
        assert!(errors.contains(&part), "{part} is not in {errors:?}");
    }
    assert_eq!(scene.get("/v1/jobs").await.json()["jobs"], json!([]));
}

#[tokio::test]
async fn what_cannot_be_understood_is_a_problem() {
    let scene = Scene::new().await;
    let raw = |kind: &'static str, body: &'static str| {
        answer(scene.request(Method::POST, "/v1/jobs").header("content-type", kind).body(body))
    };
    raw("text/plain", "{}").await.problem(415, "not-json");
    raw("application/json", "{").await.problem(400, "bad-body");
    raw("application/json", "{\"config\": {}, \"prio\": 1}").await.problem(400, "bad-body");
    for (path, status, kind) in [
        ("/v1/jobs/7", 404, "no-such-job"),
        ("/v1/jobs/x", 404, "no-such-job"),
        ("/v1/jobs/-1/report", 404, "no-such-job"),
        ("/v1/jobs/99999999999999999999", 404, "no-such-job"),
        ("/v1/jobs/%FF", 404, "no-such-job"),
        ("/v1/jobs?limit=0", 400, "bad-query"),
        ("/v1/jobs?state=lost", 400, "bad-query"),
        ("/v1/jobs?other=1", 400, "bad-query"),
        ("/v1/nothing", 404, "no-such-address"),
        ("/v1/jobs/1/cancel", 405, "wrong-method"),
    ] {
        scene.get(path).await.problem(status, kind);
    }
}

#[tokio::test]
async fn the_same_submission_is_one_job() {
    let scene = Scene::new().await;
    let body = json!({ "config": job("end"), "priority": 3 });
    let send = |body: Value, key: &'static str| answer(scene.submission(body).header("idempotency-key", key));
    let (first, second) = (send(body.clone(), "abc").await, send(body.clone(), "abc").await);
    assert_eq!((first.status, second.status), (201, 200));
    assert_eq!(first.json()["id"], second.json()["id"]);
    send(json!({ "config": job("end") }), "abc").await.problem(409, "idempotency-key-used");
    assert_eq!(send(body.clone(), "abd").await.status, 201);
    send(body, "").await.problem(422, "invalid-job");
}

#[tokio::test]
async fn jobs_wait_for_their_turn_by_priority_and_age_within_the_memory() {
    let scene = Scene::with(|settings| settings.capacity.jobs = 2).await;
    let with = |memory: u64, priority: i32| {
        let mut config = job("wait");
        config["memory"] = json!(memory);
        json!({ "config": config, "priority": priority })
    };
    // The first two fill the memory; the third is small, and waits for the large one before it.
    for (id, memory) in [(1, 60), (2, 40)] {
        assert_eq!(scene.submit_body(with(memory, 0)).await.status, 201);
        scene.wait_for(id, "running").await;
    }
    for (memory, priority) in [(90, 1), (10, 1), (1, 2)] {
        assert_eq!(scene.submit_body(with(memory, priority)).await.status, 201);
    }
    let waiting = scene.get("/v1/jobs?state=queued").await.json();
    assert_eq!(waiting["counts"]["queued"], 3);
    scene.runner.ends.add_permits(5);
    let mut ended = Vec::new();
    for id in [5, 3, 4] {
        let status = scene.wait_for(id, "succeeded").await;
        ended.push((id, status["started_ms"].as_u64().unwrap()));
    }
    // Several may start in one millisecond.
    assert!(ended.is_sorted_by_key(|(_, started)| *started), "the highest priority first, then the oldest: {ended:?}");
}

#[tokio::test]
async fn a_job_is_cancelled_while_it_waits_and_while_it_runs() {
    let scene = Scene::new().await;
    let (running, waiting) = (scene.submitted(job("wait")).await, scene.submitted(job("wait")).await);
    scene.wait_for(running, "running").await;
    assert_eq!(scene.post(&format!("/v1/jobs/{waiting}/cancel")).await.json()["state"], "cancelled");
    assert_eq!(scene.post(&format!("/v1/jobs/{running}/cancel")).await.json()["wish"], "cancel");
    assert_eq!(scene.wait_for(running, "cancelled").await["exit_code"], 75);
    assert_eq!(scene.post(&format!("/v1/jobs/{running}/cancel")).await.json()["state"], "cancelled");
    assert_eq!(scene.begun(), 1);
    scene.post(&format!("/v1/jobs/{running}/pause")).await.problem(409, "job-has-ended");
    scene.post(&format!("/v1/jobs/{running}/resume")).await.problem(409, "job-has-ended");
}

#[tokio::test]
async fn a_job_is_paused_and_resumed() {
    let scene = Scene::new().await;
    let (first, second) = (scene.submitted(job("wait")).await, scene.submitted(job("wait")).await);
    scene.wait_for(first, "running").await;
    scene.post(&format!("/v1/jobs/{first}/pause")).await;
    scene.wait_for(first, "paused").await;
    scene.wait_for(second, "running").await;
    assert_eq!(scene.post(&format!("/v1/jobs/{first}/resume")).await.json()["state"], "queued");
    scene.runner.ends.add_permits(2);
    scene.wait_for(first, "succeeded").await;
    assert_eq!(scene.begun(), 3);
    assert_eq!(scene.post(&format!("/v1/jobs/{second}/pause")).await.status, 409);
}

#[tokio::test]
async fn jobs_are_listed_page_by_page() {
    let scene = Scene::new().await;
    for _ in 0..5 {
        scene.submitted(job("end")).await;
    }
    let (mut path, mut seen) = ("/v1/jobs?limit=2".to_owned(), Vec::new());
    loop {
        let page = scene.get(&path).await.json();
        seen.extend(page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_i64().unwrap()));
        match page["next"].as_i64() {
            Some(next) => path = format!("/v1/jobs?limit=2&before={next}"),
            None => break,
        }
    }
    assert_eq!(seen, [5, 4, 3, 2, 1]);
}

#[tokio::test]
async fn what_the_machine_has_is_told() {
    let scene = Scene::new().await;
    assert_eq!(scene.get("/v1/models").await.json()[0]["device"], "fake:0");
    assert_eq!(scene.get("/v1/devices").await.json()[0]["memory_used_bytes"], 40);
    let document = scene.get("/openapi.json").await.json();
    assert_eq!(document["openapi"].as_str().unwrap().split('.').next(), Some("3"));
    for path in ["/v1/jobs", "/v1/jobs/{id}/events", "/health/ready"] {
        assert!(document["paths"][path].is_object(), "{path}");
    }
}
