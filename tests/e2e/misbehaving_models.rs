//! Networks that fail in the middle of a run.

use std::time::{Duration, Instant};

use haloflow_tests::ended::json;
use haloflow_tests::own_model;
use haloflow_tests::scene::{Scene, with_bright_voxel};

/// Large enough that there are many batches before the one with the bright voxel, and many after it.
const SHAPE: [usize; 3] = [64, 64, 64];

#[test]
fn a_network_that_throws_in_a_later_batch_stops_the_run_within_a_second() {
    let scene = Scene::of(SHAPE, &with_bright_voxel(SHAPE, [40, 40, 40]));
    let metrics = scene.path("metrics.json");
    let job = scene.job().key("--model", own_model("throws")).key("--metrics-json", &metrics).keys("--block 16");
    let mut running = job.start();
    running.wait_for_output("throwing");
    let thrown = Instant::now();
    let ended = running.end();
    assert!(thrown.elapsed() < Duration::from_secs(1), "{:?}", thrown.elapsed());
    ended.refused(70, &["a voxel is too bright for this network", "cpu", "stage device", "batch of 4 patches", "z"]);
    let report = json(&metrics);
    assert_eq!(report["complete"], false);
    assert_eq!(report["fault"]["kind"], "engine");
    assert!(report["fault"]["block"].as_str().unwrap().contains(".."), "{}", report["fault"]);
    let [patches, total] = ["patches", "patches_total"].map(|key| report["work"][key].as_u64().unwrap());
    assert!(0 < patches && patches < total, "{patches} of {total}");
}
