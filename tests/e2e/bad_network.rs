//! Whole jobs over a network and a store that fail in every way.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use haloflow_examples::faults::{Asked, Fault};
use haloflow_examples::s3::S3Server;
use haloflow_tests::binary::Haloflow;
use haloflow_tests::ended::json;
use haloflow_tests::image::Image;
use haloflow_tests::readback::read_u16;
use haloflow_tests::scene::{SHAPE, Scene, noisy, volume};
use haloflow_tests::zarr::Array;
use hyper::Method;

/// Puts a volume of many small chunks where the server finds it.
fn stored(root: &Path) {
    let array = Array::new(&SHAPE, &[5, 5, 7], "uint16");
    Image { array, ..volume(SHAPE) }.write(&root.join("lab/in.zarr"), &noisy(SHAPE));
}

fn job(scene: &Scene, server: &S3Server) -> Haloflow {
    scene
        .job()
        .keys("--in s3://lab/in.zarr --out s3://lab/out.zarr --chunk 4 --stall-timeout 0.4")
        .variables(server.variables())
}

const FAULTS: [Fault; 11] = [
    Fault::SlowDown,
    Fault::SlowDown,
    Fault::SlowDown,
    Fault::TooMany(0),
    Fault::Internal,
    Fault::Denied,
    Fault::Reset,
    Fault::LostReply,
    Fault::Stall,
    Fault::Truncate,
    Fault::Shorten,
];

/// A number that looks as if it were drawn, and is the same for every run.
fn drawn(asked: &Asked<'_>) -> usize {
    let text = format!("{} {}", asked.method, asked.path);
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (hash >> 20) as usize
}

/// Whether it is a chunk that is asked for: what is in one is checked, so that half of it is found out.
fn is_chunk(asked: &Asked<'_>) -> bool {
    asked.path.contains("/0/c/")
}

/// A fault or two for every other request, and one store-wide pause.
fn script(asked: Asked<'_>) -> Option<Fault> {
    if asked.path.ends_with("in.zarr/0/c/2/2/2") && asked.before == 0 {
        return Some(Fault::TooMany(1));
    }
    let drawn = drawn(&asked);
    let fault = FAULTS[drawn % FAULTS.len()];
    let times = match fault {
        _ if !is_chunk(&asked) && fault == Fault::Shorten => 0,
        Fault::Denied | Fault::Shorten => 1,
        _ => drawn / FAULTS.len() % 3,
    };
    (asked.before < times).then_some(fault)
}

#[test]
fn a_job_over_hundreds_of_faults_gives_what_a_job_without_gives() {
    let scene = Scene::empty();
    stored(&scene.path("store"));
    let server = S3Server::start_faulty(scene.path("store"), "lab", Box::new(script)).unwrap();
    let metrics = scene.path("metrics.json");
    let ended = job(&scene, &server).key("--metrics-json", &metrics).end().well();
    assert_eq!(read_u16(&scene.path("store/lab/out.zarr")), noisy(SHAPE));
    assert!(server.injected() >= 500, "{} faults", server.injected());
    let report = json(&metrics);
    let count =
        |key: &str| ["storage_read", "storage_written"].iter().map(|of| report[of][key].as_u64().unwrap()).sum::<u64>();
    assert!(count("retries") >= 400 && count("throttled") >= 100, "{report}");
    assert!(ended.stdout.contains("requests repeated"), "{}", ended.stdout);
    assert_eq!(ended.stderr.matches(" throttles (").count(), 1, "{}", ended.stderr);
}

#[test]
fn a_fault_for_ever_is_a_clean_error_in_bounded_time() {
    let scene = Scene::empty();
    stored(&scene.path("store"));
    for (fault, method, parts) in [
        (Fault::SlowDown, Method::GET, ["503", "SlowDown", "throttled", "given up after"]),
        (Fault::TooMany(3600), Method::GET, ["429", "TooManyRequests", "in.zarr", "stage read"]),
        (Fault::Reset, Method::GET, ["in.zarr", "given up after", "tries", "stage read"]),
        (Fault::Truncate, Method::GET, ["in.zarr", "given up after", "tries", "stage read"]),
        (Fault::Stall, Method::GET, ["no byte came", "given up after", "tries", "stage read"]),
        (Fault::Denied, Method::PUT, ["403", "AccessDenied", "check the credentials", "out.zarr"]),
        (Fault::LostReply, Method::PUT, ["out.zarr", "given up after", "tries", "stage write"]),
    ] {
        let script = move |asked: Asked<'_>| (*asked.method == method && is_chunk(&asked)).then_some(fault);
        let server = S3Server::start_faulty(scene.path("store"), "lab", Box::new(script)).unwrap();
        let ended = job(&scene, &server).keys("--overwrite --request-deadline 1.5").end();
        ended.refused(74, &parts);
        assert!(ended.lasted < Duration::from_secs(20), "{fault:?}: {:?}", ended.lasted);
        assert!(!ended.stderr.contains("haloflow-test-secret"), "{}", ended.stderr);
    }
}

#[test]
fn blocks_that_a_store_refuses_for_ever_are_set_aside_and_stored_later() {
    for (method, place) in [(Method::PUT, "out.zarr/0/c/2/3/4"), (Method::GET, "in.zarr/0/c/1/1/1")] {
        let scene = Scene::empty();
        stored(&scene.path("store"));
        let healed = Arc::new(AtomicBool::new(false));
        let (seen, asked_for) = (Arc::clone(&healed), method.clone());
        let script = move |asked: Asked<'_>| {
            let refused = *asked.method == asked_for && asked.path.ends_with(place) && !seen.load(Ordering::SeqCst);
            refused.then_some(Fault::Internal)
        };
        let server = S3Server::start_faulty(scene.path("store"), "lab", Box::new(script)).unwrap();
        let make = || job(&scene, &server).keys("--request-deadline 0.5");
        let ended = make().end();
        ended.refused(75, &["blocks failed 3 times and were set aside, all others are stored", "500", place]);
        healed.store(true, Ordering::SeqCst);
        let ended = make().end().well();
        assert!(ended.stdout.contains("more blocks were stored by an earlier run"), "{}", ended.stdout);
        assert_eq!(read_u16(&scene.path("store/lab/out.zarr")), noisy(SHAPE), "{method}");
    }
}

#[test]
fn permission_that_is_lost_in_mid_run_ends_it_with_the_object_and_the_same_command_goes_on() {
    let scene = Scene::empty();
    stored(&scene.path("store"));
    let (puts, lost) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(true)));
    let seen = Arc::clone(&lost);
    let script = move |asked: Asked<'_>| {
        let late = *asked.method == Method::PUT && is_chunk(&asked) && puts.fetch_add(1, Ordering::SeqCst) >= 200;
        (late && seen.load(Ordering::SeqCst)).then_some(Fault::Denied)
    };
    let server = S3Server::start_faulty(scene.path("store"), "lab", Box::new(script)).unwrap();
    let ended = job(&scene, &server).keys("--writer-workers 1").end();
    ended.refused(74, &["s3://lab/out.zarr/0/c/", "permission was denied, check the credentials", "stage write"]);
    lost.store(false, Ordering::SeqCst);
    let ended = job(&scene, &server).end().well();
    assert!(ended.stdout.contains("more blocks were stored by an earlier run"), "{}", ended.stdout);
    assert_eq!(read_u16(&scene.path("store/lab/out.zarr")), noisy(SHAPE));
}
