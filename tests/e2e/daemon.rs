//! The daemon: jobs from their submission to their end, through the real binary.

use haloflow_tests::binary::Haloflow;
use haloflow_tests::daemon::{self, Daemon};
use haloflow_tests::golden_model;
use haloflow_tests::readback::read_u16;
use haloflow_tests::scene::{SHAPE, Scene, noisy, volume};
use serde_json::json;

/// The keys of a job over a scene.
fn keys<'a>(scene: &'a Scene, model: &'a str, out: &'a str) -> impl Fn(Haloflow) -> Haloflow + 'a {
    move |line| {
        line.key("--in", scene.path("in.zarr"))
            .key("--out", scene.path(out))
            .key("--model", golden_model(model))
            .keys("--devices cpu --patch 16 --overlap 8 --trim-voxels 2 --normalize false --block 32 --memory 1GiB")
    }
}

/// A scene with so much to compute, and nothing to fetch, that a job over it takes seconds.
fn large() -> Scene {
    let scene = Scene::empty();
    volume([256; 3]).write_metadata(&scene.path("in.zarr"));
    scene
}

#[test]
fn a_job_gives_what_a_run_gives_and_is_told_of() {
    let scene = Scene::new();
    let daemon = Daemon::start(&scene.path(""));
    let id = daemon.submit(&keys(&scene, "identity", "out.zarr"));
    let ended = daemon.watch(id).well();
    assert!(ended.stdout.contains("job 1 succeeded"), "{}", ended.stdout);
    assert_eq!(read_u16(&scene.path("out.zarr")), noisy(SHAPE));
    let report = daemon.get("/v1/jobs/1/report").json();
    assert_eq!((&report["complete"], &report["work"]["blocks"]), (&json!(true), &report["work"]["blocks_total"]));
    let listed = daemon.client("jobs").end().well().stdout;
    assert!(listed.contains("succeeded") && listed.contains("out.zarr"), "{listed}");
    assert_eq!(daemon.client("jobs --json --state failed").end().well().stdout.matches("\"id\"").count(), 0);
    let _ = daemon.client("logs 1").end().well();
    // The same as an object that is sent by hand, with all that is wrong with it.
    let body = json!({ "config": { "in": scene.path("in.zarr"), "patch": "many", "overlop": 3 } }).to_string();
    let told = daemon.ask("POST", "/v1/jobs", "Content-Type: application/json\r\n", body.as_bytes());
    assert_eq!(told.status, 422);
    let told = told.json()["errors"].to_string();
    assert!(told.contains("`patch` is") && told.contains("did you mean `overlap`?"), "{told}");
}

#[test]
fn a_second_job_with_the_same_model_starts_at_once() {
    let scene = Scene::new();
    let daemon = Daemon::start(&scene.path(""));
    let mut seconds = Vec::new();
    for out in ["a.zarr", "b.zarr"] {
        let id = daemon.submit(&keys(&scene, "box3", out));
        let _ = daemon.watch(id).well();
        let report = daemon.get(&format!("/v1/jobs/{id}/report")).json();
        seconds.push(report["seconds"]["devices"].as_f64().unwrap());
        let models = daemon.get("/v1/models").json();
        assert_eq!((models.as_array().unwrap().len(), &models[0]["busy"]), (1, &json!(false)), "{models}");
    }
    println!("devices ready after {seconds:?} s");
    assert!(seconds[1] < 1.0 && seconds[1] < seconds[0] / 2.0, "{seconds:?}");
    assert_eq!(read_u16(&scene.path("a.zarr")), read_u16(&scene.path("b.zarr")));
}

#[test]
fn a_job_that_fails_ends_the_watch_as_it_would_end_a_run() {
    let scene = Scene::new();
    std::fs::write(scene.path("in.zarr/0/c/0/1/0"), "").unwrap();
    let daemon = Daemon::start(&scene.path(""));
    let id = daemon.submit(&|line| keys(&scene, "identity", "out.zarr")(line).keys("--quarantine 0"));
    let ended = daemon.watch(id);
    ended.refused(65, &["in.zarr/0/c/0/1/0"]);
    let log = daemon.client(&format!("logs {id}")).end().well().stdout;
    assert!(log.contains(" ERROR ") && log.contains("in.zarr/0/c/0/1/0"), "{log}");
}

#[test]
fn the_log_of_a_job_holds_what_its_own_stages_say_and_nothing_of_another() {
    let (scene, other) = (Scene::new(), large());
    std::fs::write(scene.path("in.zarr/0/c/0/1/0"), "").unwrap();
    let command = daemon::command(&scene.path("")).keys("--jobs-at-once 2").values("--read", [other.path("")]);
    let daemon = Daemon::of(command);
    let long = daemon.submit(&|line| {
        keys(&scene, "box3", "long.zarr")(line).key("--in", other.path("in.zarr")).keys("--memory 512MiB")
    });
    let _ = daemon.wait_for(long, |status| status["progress"]["patches"].as_u64() > Some(0));
    let broken = daemon.submit(&|line| keys(&scene, "identity", "out.zarr")(line).keys("--memory 512MiB"));
    assert_eq!(daemon.watch(broken).code, Some(65));
    // Only what is running can get what is said.
    assert_eq!(daemon.get(&format!("/v1/jobs/{long}")).json()["state"], "running");
    let _ = daemon.client(&format!("cancel {long}")).end().well();
    let _ = daemon.watch(long);
    let [long, broken] = [long, broken].map(|id| daemon.client(&format!("logs {id}")).end().well().stdout);
    assert!(broken.contains("is set aside") && broken.contains("in.zarr/0/c/0/1/0"), "{broken}");
    assert!(!long.contains("set aside") && !long.contains("in.zarr/0/c/0/1/0"), "{long}");
    assert!(
        long.contains(" ERROR ") && long.contains("interrupted") && !broken.contains("interrupted"),
        "{long}{broken}"
    );
}

#[test]
fn a_job_is_cancelled_while_it_runs() {
    let scene = large();
    let daemon = Daemon::start(&scene.path(""));
    let id = daemon.submit(&keys(&scene, "box3", "out.zarr"));
    let watching = daemon.client(&format!("watch {id}")).start();
    let _ = daemon.wait_for(id, |status| status["progress"]["patches"].as_u64() > Some(0));
    let told = daemon.client(&format!("cancel {id}")).end().well().stdout;
    assert!(told.contains("running") || told.contains("cancelled"), "{told}");
    watching.end().refused(75, &["job 1 is cancelled"]);
    daemon.client(&format!("resume {id}")).end().refused(64, &["job 1 is cancelled"]);
}

#[test]
fn a_job_goes_on_after_a_pause_a_kill_and_a_stop_of_the_daemon() {
    let scene = large();
    let stored = |status: &serde_json::Value| status["progress"]["blocks"].as_u64() > Some(0);
    let daemon = Daemon::start(&scene.path(""));
    let id = daemon.submit(&|line| keys(&scene, "box3", "out.zarr")(line).keys("--overwrite=true"));
    let _ = daemon.wait_for(id, stored);
    let _ = daemon.client(&format!("pause {id}")).end().well();
    let _ = daemon.wait_for(id, |status| status["state"] == "paused");
    let _ = daemon.client(&format!("resume {id}")).end().well();
    let _ = daemon.wait_for(id, stored);
    daemon.running.kill();

    let daemon = Daemon::start(&scene.path(""));
    let _ = daemon.wait_for(id, stored);
    daemon.running.signal("TERM");
    let _ = daemon.running.end().well();

    let daemon = Daemon::start(&scene.path(""));
    let _ = daemon.watch(id).well();
    let work = daemon.get(&format!("/v1/jobs/{id}/report")).json()["work"].clone();
    let [before, blocks, total] = ["blocks_before", "blocks", "blocks_total"].map(|key| work[key].as_u64().unwrap());
    assert!(before >= 3 && blocks == total && before + blocks == 512, "{work}");
}

#[test]
fn a_daemon_is_configured_by_variables_alone_as_in_a_container() {
    let scene = Scene::new();
    let text = |name: &str| scene.path(name).display().to_string();
    let variables = [
        ("HALOFLOW_LISTEN", "127.0.0.1:0".to_owned()),
        ("HALOFLOW_STATE", text("state")),
        ("HALOFLOW_READ", format!("[\"{}\"]", text("in.zarr"))),
        ("HALOFLOW_WRITE", text("")),
        ("HALOFLOW_MODELS", golden_model("identity").parent().unwrap().display().to_string()),
        ("HALOFLOW_TOKEN", "0123456789abcdef".to_owned()),
    ];
    let variables = || variables.clone().map(|(name, value)| (name.to_owned(), value));
    let daemon = Daemon::of(Haloflow::of(["serve"]).variables(variables()));
    assert_eq!(daemon.get("/v1/jobs").status, 401);
    // The client takes its token, and the keys of the job, from the same place.
    let job = [
        ("HALOFLOW_SERVER", format!("http://{}", daemon.address)),
        ("HALOFLOW_IN", text("in.zarr")),
        ("HALOFLOW_OUT", text("out.zarr")),
        ("HALOFLOW_MODEL", golden_model("identity").display().to_string()),
        ("HALOFLOW_PATCH", "16 16 16".to_owned()),
        ("HALOFLOW_OVERLAP", "4".to_owned()),
        ("HALOFLOW_TRIM_VOXELS", "2".to_owned()),
        ("HALOFLOW_NORMALIZE", "false".to_owned()),
        ("HALOFLOW_WATCH", "true".to_owned()),
    ];
    let job = job.map(|(name, value)| (name.to_owned(), value));
    let submit = Haloflow::of(["submit"]).variables(variables()).variables(job);
    assert!(submit.end().well().stdout.contains("job 1 succeeded"));
    assert_eq!(read_u16(&scene.path("out.zarr")), noisy(SHAPE));
}

#[test]
fn two_daemons_do_not_share_a_table() {
    let scene = Scene::empty();
    let _daemon = Daemon::start(&scene.path(""));
    daemon::command(&scene.path("")).end().refused(74, &["`state`", "jobs.sqlite", "does another daemon use it?"]);
}
