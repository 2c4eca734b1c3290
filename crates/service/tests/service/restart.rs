//! The daemon ends and begins again over the same table.

use reqwest::Method;

use crate::fake::{FakeRunner, job};
use crate::scene::Scene;

#[tokio::test]
async fn jobs_survive_and_what_ran_goes_on() {
    let scene = Scene::new().await;
    let [done, ran, waited, paused] = [job("end"), job("wait"), job("wait"), job("wait")];
    let done = scene.submitted(done).await;
    scene.wait_for(done, "succeeded").await;
    let (ran, waited, paused) =
        (scene.submitted(ran).await, scene.submitted(waited).await, scene.submitted(paused).await);
    scene.wait_for(ran, "running").await;
    assert_eq!(scene.post(&format!("/v1/jobs/{paused}/pause")).await.status, 200);
    let mut watching = scene.request(Method::GET, &format!("/v1/jobs/{ran}/events")).send().await.unwrap();
    assert!(watching.chunk().await.unwrap().is_some());
    let folder = scene.stop().await;
    // Whoever watches sees the stream end rather than hang.
    while watching.chunk().await.is_ok_and(|piece| piece.is_some()) {}

    let scene = Scene::within(folder, FakeRunner::default(), |_| {}).await;
    scene.wait_for(ran, "running").await;
    scene.runner.ends.add_permits(2);
    for id in [ran, waited] {
        assert_eq!(scene.wait_for(id, "succeeded").await["exit_code"], 0);
    }
    assert_eq!(scene.get(&format!("/v1/jobs/{done}")).await.json()["state"], "succeeded");
    assert_eq!(scene.get(&format!("/v1/jobs/{paused}")).await.json()["state"], "paused");
    // Its log has both lives.
    let log = scene.get(&format!("/v1/jobs/{ran}/logs")).await.text;
    assert_eq!(log.lines().count(), 2, "{log}");
}

#[tokio::test]
async fn a_job_that_does_not_stop_holds_the_end_up_no_longer_than_allowed() {
    let drain = std::time::Duration::from_millis(200);
    let scene = Scene::with(|settings| settings.drain = drain).await;
    let id = scene.submitted(job("stick")).await;
    scene.wait_for(id, "running").await;
    let began = std::time::Instant::now();
    // The stuck job still holds the table, as it would until the process is gone.
    let stopping = tokio::time::timeout(std::time::Duration::from_secs(20), scene.halt());
    stopping.await.unwrap();
    assert!(began.elapsed() >= drain);
}

#[tokio::test]
async fn jobs_that_are_not_kept_are_gone_after_a_start_and_the_runner_forgets_them() {
    let scene = Scene::new().await;
    for _ in 0..3 {
        let id = scene.submitted(job("end")).await;
        scene.wait_for(id, "succeeded").await;
    }
    let paused = scene.submitted(job("wait")).await;
    assert_eq!(scene.post(&format!("/v1/jobs/{paused}/pause")).await.status, 200);
    let folder = scene.stop().await;
    let scene = Scene::within(folder, FakeRunner::default(), |settings| settings.keep.jobs = Some(1)).await;
    // Jobs begin only after that.
    let running = scene.submitted(job("wait")).await;
    scene.wait_for(running, "running").await;
    for gone in [1, 2] {
        scene.get(&format!("/v1/jobs/{gone}/logs")).await.problem(404, "no-such-job");
    }
    assert_eq!(scene.get("/v1/jobs/3").await.json()["state"], "succeeded");
    assert_eq!(scene.get(&format!("/v1/jobs/{paused}")).await.json()["state"], "paused");
    assert_eq!(*scene.runner.forgotten.lock().unwrap(), [1, 2]);
}
