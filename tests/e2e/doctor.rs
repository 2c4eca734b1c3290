//! `haloflow doctor`: what it finds right and wrong, and that it leaves nothing behind.

use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use haloflow_examples::faults::{Asked, Fault, Script};
use haloflow_examples::s3::S3Server;
use haloflow_tests::binary::Haloflow;
use haloflow_tests::ended::Ended;
use haloflow_tests::golden_model;
use haloflow_tests::scene::{Scene, noisy, volume};
use hyper::Method;
use serde_json::Value;

const OUT: &str = "s3://lab/results/out.zarr";

/// A server with an empty bucket, and requests that fail as `script` wants it.
fn server(scene: &Scene, script: Box<Script>) -> S3Server {
    S3Server::start_faulty(scene.path("store"), "lab", script).unwrap()
}

fn always(fault: Fault, which: impl Fn(&Asked<'_>) -> bool + Send + Sync + 'static) -> Box<Script> {
    Box::new(move |asked| which(&asked).then_some(fault))
}

/// The checks, each with its verdict and all that was told of it.
struct Told {
    code: Option<i32>,
    checks: Vec<Value>,
}

impl Told {
    fn of(ended: &Ended) -> Self {
        // What the test server knows as secret is in no line.
        assert!(!ended.stdout.contains("haloflow-test-") && !ended.stderr.contains("haloflow-test-"), "{ended:?}");
        let told: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
        assert_eq!(told["exit_code"].as_i64(), ended.code.map(i64::from));
        Self { code: ended.code, checks: told["checks"].as_array().unwrap().clone() }
    }

    /// `check verdict`, of all that is about storage.
    fn storage(&self) -> Vec<String> {
        let names = ["place", "region", "credentials", "clock", "list", "write", "read", "create", "delete"];
        let checks = self.checks.iter().filter(|check| names.contains(&check["check"].as_str().unwrap()));
        checks
            .map(|check| format!("{} {}", check["check"].as_str().unwrap(), check["verdict"].as_str().unwrap()))
            .collect()
    }

    /// Stops the test unless this check failed, first of all, with these parts in what was found and in the fix.
    #[track_caller]
    fn failed(&self, code: i32, check: &str, found: &str, fix: &str) {
        assert_eq!(self.code, Some(code), "{:#?}", self.checks);
        self.is(check, "failed", found, fix);
        let first = self.checks.iter().find(|check| check["verdict"] == "failed").unwrap();
        assert_eq!((&first["check"], &first["code"]), (&Value::from(check), &Value::from(code)), "{:#?}", self.checks);
    }

    #[track_caller]
    fn is(&self, check: &str, verdict: &str, found: &str, fix: &str) {
        let is = |told: &&Value| {
            let text = |key: &str| told[key].as_str().unwrap_or_default();
            text("check") == check
                && text("verdict") == verdict
                && text("found").contains(found)
                && text("fix").contains(fix)
        };
        assert!(self.checks.iter().any(|told| is(&told)), "{check} {verdict} {found:?} {fix:?}: {:#?}", self.checks);
    }
}

fn doctor(server: &S3Server) -> Told {
    Told::of(&Haloflow::doctor([OUT, "--devices", "cpu", "--json"]).variables(server.variables()).end())
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    found.sort();
    found
}

#[track_caller]
fn assert_nothing_is_left(scene: &Scene) {
    let left = files(&scene.path("store/lab"));
    assert!(left.is_empty(), "{left:?}");
}

const ALL_OK: [&str; 8] =
    ["region ok", "credentials ok", "clock ok", "list ok", "write ok", "read ok", "create ok", "delete ok"];

#[test]
fn a_store_that_works_is_well_and_is_left_as_it_was() {
    let scene = Scene::empty();
    let server = server(&scene, Box::new(|_| None));
    let told = doctor(&server);
    assert_eq!((told.storage(), told.code), (ALL_OK.map(str::to_owned).to_vec(), Some(0)), "{:#?}", told.checks);
    told.is("region", "ok", "us-east-1, as AWS_REGION says", "");
    told.is("credentials", "ok", "the environment (AWS_ACCESS_KEY_ID); they do not expire", "");
    for check in ["libtorch", "driver", "memory", "disk", "open files"] {
        assert!(told.checks.iter().any(|told| told["check"] == check), "{check}: {:#?}", told.checks);
    }
    assert_nothing_is_left(&scene);
    let lines = Haloflow::doctor([OUT, "--devices", "cpu"]).variables(server.variables()).end().well().stdout;
    assert_eq!(lines.lines().count(), told.checks.len(), "{lines}");
    assert!(
        lines.contains("ok       write        s3://lab/results/out.zarr: 25 bytes were written and replaced"),
        "{lines}"
    );
}

#[test]
fn everything_in_the_file_of_a_run_is_looked_at() {
    let scene = Scene::empty();
    volume([8; 3]).write(&scene.path("store/lab/in.zarr"), &noisy([8; 3]));
    let before = files(&scene.path("store/lab"));
    let server = server(&scene, Box::new(|_| None));
    let config = scene.path("run.toml");
    let model = golden_model("identity");
    let keys = format!("in = 's3://lab/in.zarr'\nout = ['{OUT}']\nmodel = '{}'\ndevices = 'cpu'\n", model.display());
    std::fs::write(&config, &keys).unwrap();
    let run = || Haloflow::doctor(["--json"]).key("--config", &config).variables(server.variables());
    let told = Told::of(&run().end());
    assert_eq!(told.code, Some(0), "{:#?}", told.checks);
    told.is("config", "ok", "", "");
    told.is("model", "ok", "TorchScript module", "");
    told.is("read", "ok", "the metadata of a Zarr group", "");
    told.is("write", "ok", "", "");
    // One store is told of once, and the input is not written to.
    assert_eq!(told.storage().iter().filter(|told| *told == "region ok").count(), 1);
    assert_eq!(files(&scene.path("store/lab")), before);
    std::fs::write(&config, keys.replace("in.zarr", "none.zarr")).unwrap();
    Told::of(&run().end()).failed(65, "read", "no Zarr array or group", "zarr.json");
    std::fs::write(&config, keys + "overlop = 3\n").unwrap();
    Told::of(&run().end()).failed(64, "config", "did you mean `overlap`?", "mend the file");
}

#[test]
fn a_store_that_does_not_let_us_write_names_the_permission() {
    let scene = Scene::empty();
    let told = doctor(&server(&scene, always(Fault::Denied, |asked| *asked.method == Method::PUT)));
    told.failed(74, "write", "AccessDenied", "allow these credentials s3:PutObject there");
    assert_eq!(told.storage()[3..], ["list ok", "write failed"]);
    let told = doctor(&server(&scene, always(Fault::Denied, |asked| *asked.method == Method::GET)));
    told.failed(74, "list", "AccessDenied", "s3:ListBucket");
    told.is("read", "failed", "AccessDenied", "s3:GetObject");
    assert_nothing_is_left(&scene);
}

#[test]
fn a_store_that_does_not_delete_names_what_is_left() {
    let scene = Scene::empty();
    let server = server(&scene, always(Fault::Denied, |asked| *asked.method == Method::POST));
    let told = doctor(&server);
    told.failed(74, "delete", "AccessDenied", "delete s3://lab/results/out.zarr/.haloflow-probe-");
    let left = files(&scene.path("store/lab"));
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn a_store_without_conditional_puts_cannot_take_an_output() {
    let scene = Scene::empty();
    let told = doctor(&server(&scene, always(Fault::NotImplemented, |asked| asked.conditional)));
    told.failed(74, "create", "an output cannot be begun there", "use a store with conditional puts");
    told.is("write", "ok", "", "");
    assert_nothing_is_left(&scene);
}

#[test]
fn a_clock_that_is_wrong_is_told_before_what_it_causes() {
    for (seconds, verdict, way) in
        [(100, "warning", "behind"), (-100, "warning", "ahead of"), (1000, "failed", "behind")]
    {
        let scene = Scene::empty();
        let told = doctor(&server(&scene, always(Fault::Clock(seconds), |_| true)));
        told.is("clock", verdict, &format!("{way} the store's"), "set this machine's clock");
        assert_eq!(told.code, Some(if verdict == "failed" { 74 } else { 0 }), "{:#?}", told.checks);
        assert_nothing_is_left(&scene);
    }
}

#[test]
fn what_cannot_be_reached_or_does_not_exist_is_told_apart() {
    let scene = Scene::empty();
    let server = server(&scene, Box::new(|_| None));
    let of = |place: &str, name: &str, value: &str| {
        let change = |(key, old): (String, String)| if key == name { (key, value.to_owned()) } else { (key, old) };
        let variables: Vec<_> = server.variables().into_iter().map(change).collect();
        let ended = Haloflow::doctor([place, "--devices", "cpu", "--json"]).variables(variables).end();
        assert!(ended.lasted < Duration::from_secs(40), "{:?}", ended.lasted);
        Told::of(&ended)
    };
    let told = of(OUT, "AWS_ENDPOINT", "http://127.0.0.1:1");
    told.failed(74, "list", "Connection refused", "look at the address (AWS_ENDPOINT_URL");
    assert_eq!(told.storage(), ["region ok", "credentials ok", "list failed"]);
    let told = of("s3://nowhere/out.zarr", "", "");
    told.failed(74, "list", "s3://nowhere/out.zarr", "make the bucket: it does not exist");
    assert_eq!(told.storage(), ["region ok", "credentials ok", "clock ok", "list failed"]);
    of(OUT, "AWS_SECRET_ACCESS_KEY", "wrong").failed(74, "list", "SignatureDoesNotMatch", "give the right access key");
    of("s3://lab/x?y", "", "").failed(64, "place", "query", "name a place");
    assert_nothing_is_left(&scene);
}

#[test]
fn a_doctor_that_is_interrupted_deletes_its_object() {
    let scene = Scene::empty();
    let (sender, asked_for) = channel();
    let sender = Mutex::new(sender);
    let script = move |asked: Asked<'_>| {
        let reads_back = *asked.method == Method::GET && asked.path.ends_with("/object");
        if reads_back {
            let _ = sender.lock().unwrap().send(());
        }
        reads_back.then_some(Fault::Stall)
    };
    let server = server(&scene, Box::new(script));
    let running = Haloflow::doctor([OUT, "--devices", "cpu"]).variables(server.variables()).start();
    asked_for.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(files(&scene.path("store/lab")).len(), 1);
    running.signal("INT");
    running.end().refused(75, &["interrupted"]);
    assert_nothing_is_left(&scene);
}

#[test]
fn local_folders_are_written_to_and_left_as_they_were() {
    let scene = Scene::empty();
    let of = |place: &Path| {
        let place = place.to_str().unwrap();
        Told::of(&Haloflow::doctor([place, "--devices", "cpu", "--json"]).end())
    };
    let told = of(&scene.path("new/out.zarr"));
    assert_eq!(told.storage(), ["list ok", "write ok", "read ok", "create ok", "delete ok"]);
    told.is("disk", "ok", "an output's folder has", "");
    assert_eq!(std::fs::read_dir(scene.path("")).unwrap().count(), 0);
    of(Path::new("/proc/haloflow/out.zarr")).failed(74, "write", "/proc/", "let this user write there");
    std::fs::write(scene.path("file"), "").unwrap();
    of(&scene.path("file")).failed(65, "list", "is a file", "name another place");
    of(&scene.path("file/out.zarr")).failed(74, "list", "file", "");
}

#[test]
fn devices_budgets_and_models_that_cannot_work_are_told() {
    let scene = Scene::empty();
    let of = |words: &str| Told::of(&Haloflow::doctor(["--json"]).keys(words).end());
    let told = of("--devices cpu cuda:999");
    told.is("devices", "failed", "`devices` names cuda:999", "change that key");
    assert_eq!(told.code, Some(64));
    of("--devices cpu --memory 900TiB").failed(64, "memory", "the run would be killed", "set `memory` to");
    of("--devices cpu --memory lots").failed(64, "memory", "`memory` is lots", "");
    let missing = scene.path("none.ts");
    of(&format!("--devices cpu --model {}", missing.display())).failed(65, "model", "does not exist", "name a file");
}
