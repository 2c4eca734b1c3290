//! What a run tells of itself.

use haloflow_tests::ended::json;
use haloflow_tests::scene::{SHAPE, Scene};
use serde_json::Value;

/// Voxels of the volume.
const VOXELS: u64 = (SHAPE[0] * SHAPE[1] * SHAPE[2]) as u64;

#[test]
fn the_metrics_of_a_run_that_went_well() {
    let scene = Scene::new();
    let metrics = scene.path("metrics.json");
    let _ = scene.job().key("--metrics-json", &metrics).keys("--block 16 --metrics-interval 0.05").end().well();
    let report = json(&metrics);
    assert_eq!(report["complete"], true);
    assert_eq!(report["fault"], Value::Null);
    assert_eq!(report["input"]["shape"], serde_json::json!(SHAPE));
    assert_eq!((&report["input"]["element"], &report["input"]["raw_bytes"]), (&"uint16".into(), &(2 * VOXELS).into()));
    let work = &report["work"];
    assert_eq!((&work["blocks"], &work["blocks_total"]), (&18.into(), &18.into()));
    assert_eq!(work["patches"], work["patches_total"]);
    assert!(work["short_batches"].as_u64().unwrap() <= 1, "{work}");
    for stage in ["read", "prepare", "batch", "device", "merge", "write"] {
        let reading = &report["stages"][stage];
        assert!(reading["items"].as_u64().unwrap() > 0, "{stage}: {reading}");
        assert!(reading["working_seconds"].as_f64().unwrap() > 0.0, "{stage}: {reading}");
        assert!(reading["waiting_seconds"].as_f64().is_some(), "{stage}: {reading}");
    }
    for (group, key) in [
        ("seconds", "total"),
        ("seconds", "stream"),
        ("storage_read", "bytes_read"),
        ("storage_read", "requests"),
        ("storage_written", "bytes_written"),
        ("storage_written", "objects_written"),
        ("memory", "total"),
        ("cpu_seconds", "user"),
    ] {
        assert!(report[group][key].as_f64().unwrap() > 0.0, "{group}.{key}");
    }
    for key in ["megabytes_per_second", "voxels_per_second", "peak_resident_bytes", "peak_leased_bytes"] {
        assert!(report[key].as_f64().unwrap() > 0.0, "{key}");
    }
    for key in ["clipped_low", "clipped_high", "nonfinite"] {
        assert_eq!(report["voxels"][key], 0, "{key}");
    }
    let last = report["samples"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["blocks"], &last["voxels"]), (&18.into(), &VOXELS.into()));
}

#[test]
fn a_trace_shows_what_was_done_where() {
    let scene = Scene::new();
    let trace = scene.path("trace.json");
    let _ = scene.job().key("--trace", &trace).end().well();
    let told = json(&trace);
    let events = told["traceEvents"].as_array().unwrap();
    let line = |event: &Value| {
        let names = |other: &&Value| other["ph"] == "M" && other["tid"] == event["tid"];
        events.iter().find(names).unwrap()["args"]["name"].as_str().unwrap().to_owned()
    };
    for (name, track) in [
        ("fetch", "fetch"),
        ("decode", "cpu"),
        ("read", "read"),
        ("prepare", "feed"),
        ("submit", "device-cpu"),
        ("merge", "feed"),
        ("encode", "cpu"),
        ("put", "put"),
        ("write", "write"),
    ] {
        let of_name: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X" && event["name"] == name).collect();
        assert!(!of_name.is_empty(), "{name}");
        for event in of_name {
            assert!(line(event).contains(track), "{name} on {}", line(event));
            assert!(event["ts"].as_f64().unwrap() >= 0.0 && event["dur"].as_f64().unwrap() >= 0.0, "{event}");
        }
    }
}

#[test]
fn clipped_voxels_are_counted() {
    let scene = Scene::new();
    let metrics = scene.path("metrics.json");
    let _ = scene.job().keys("--out-dtype uint8").key("--metrics-json", &metrics).end().well();
    let above = haloflow_tests::scene::noisy(SHAPE).into_iter().filter(|value| *value > 255).count();
    assert_eq!(json(&metrics)["voxels"]["clipped_high"], above);
}

#[test]
fn the_metrics_of_a_run_that_failed() {
    let scene = Scene::new();
    std::fs::write(scene.path("in.zarr/0/c/0/1/0"), "").unwrap();
    let metrics = scene.path("metrics.json");
    let ended = scene.job().key("--metrics-json", &metrics).end();
    ended.refused(65, &[]);
    let report = json(&metrics);
    assert_eq!(report["complete"], false);
    let fault = &report["fault"];
    assert_eq!((&fault["kind"], &fault["stage"]), (&"data".into(), &"read".into()));
    assert!(ended.told().contains(fault["message"].as_str().unwrap()), "{fault}");
    assert!(report["work"]["blocks"].as_u64().unwrap() < report["work"]["blocks_total"].as_u64().unwrap());
}

#[test]
fn the_metrics_of_a_run_that_never_streamed() {
    let scene = Scene::empty();
    let metrics = scene.path("metrics.json");
    scene.job().key("--metrics-json", &metrics).end().refused(65, &["no Zarr array or group"]);
    let report = json(&metrics);
    assert_eq!((&report["complete"], &report["fault"]["kind"]), (&false.into(), &"data".into()));
}

#[test]
fn log_lines_are_json_where_asked() {
    let scene = Scene::new();
    let ended =
        scene.job().keys("--normalize percentile --log-format json --log-level debug --block 16 --halo 0").end().well();
    let log = ended.log();
    let warned = |word: &str| {
        let told =
            |line: &&Value| line["level"] == "WARN" && line["fields"]["message"].as_str().unwrap().contains(word);
        log.iter().any(|line| told(&line))
    };
    assert!(warned("block faces") && warned("halo"), "{}", ended.stderr);
    assert!(log.iter().all(|line| line["timestamp"].is_string()));
}

#[test]
fn a_run_that_goes_well_says_nothing_on_standard_error_and_reports_on_standard_output() {
    let ended = Scene::new().job().end().well();
    assert_eq!(ended.stderr, "");
    for word in
        ["input", "output", "device", "time", "MB/s of raw input", "patches", "read", "write", "clipped", "memory"]
    {
        assert!(ended.stdout.contains(word), "{word} is not in {}", ended.stdout);
    }
}
