//! Signals in the middle of a run.

use std::path::Path;

use haloflow_tests::ended::{Ended, json};
use haloflow_tests::held_web::HeldWeb;
use haloflow_tests::own_model;
use haloflow_tests::scene::{Scene, volume, with_bright_voxel};

const SHAPE: [usize; 3] = [64, 64, 64];

#[track_caller]
fn assert_interrupted(ended: &Ended, metrics: &Path) {
    ended.refused(75, &["interrupted", "not complete"]);
    let report = json(metrics);
    assert_eq!(report["complete"], false);
    assert_eq!(report["fault"]["kind"], "interrupted");
    let [blocks, total] = ["blocks", "blocks_total"].map(|key| report["work"][key].as_u64().unwrap());
    assert!(blocks < total, "{blocks} of {total}");
}

#[test]
fn sigterm_ends_a_run_whose_storage_gives_no_answer() {
    let scene = Scene::of(SHAPE, &with_bright_voxel(SHAPE, [0, 0, 0]));
    let metrics = scene.path("metrics.json");
    let web = HeldWeb::serve(scene.path("in.zarr"), "0/c/3/3/3");
    let job = scene.job().key("--in", web.url()).key("--metrics-json", &metrics).keys("--drain-timeout 1s");
    let running = job.start();
    let _held = web.wait_until_held();
    running.signal("TERM");
    assert_interrupted(&running.end(), &metrics);
}

#[test]
fn sigint_ends_a_run_while_the_network_computes() {
    let shape = [128; 3];
    let scene = Scene::empty();
    // Chunks that are missing are zero: there is much to compute and nothing to fetch.
    volume(shape).write_metadata(&scene.path("in.zarr"));
    let metrics = scene.path("metrics.json");
    let mut running = scene.job().key("--model", own_model("speaks")).key("--metrics-json", &metrics).start();
    // The first batch is the warm-up.
    (0..4).for_each(|_| running.wait_for_output("batch"));
    running.signal("INT");
    assert_interrupted(&running.end(), &metrics);
    assert!(json(&metrics)["work"]["patches_total"].as_u64().unwrap() > 1000);
}

#[test]
fn a_second_signal_ends_a_run_that_cannot_stop() {
    let scene = Scene::of(SHAPE, &with_bright_voxel(SHAPE, [40, 40, 40]));
    let mut running = scene.job().key("--model", own_model("sticks")).start();
    running.wait_for_output("stuck");
    running.signal("TERM");
    running.wait_for_error("a second signal ends at once");
    running.signal("TERM");
    assert_eq!(running.end().code, Some(75));
}

#[test]
fn a_signal_before_the_first_block_leaves_no_output() {
    let scene = Scene::of(SHAPE, &with_bright_voxel(SHAPE, [0, 0, 0]));
    let web = HeldWeb::serve(scene.path("in.zarr"), "0/zarr.json");
    let running = scene.job().key("--in", web.url()).start();
    let _held = web.wait_until_held();
    running.signal("TERM");
    running.end().refused(75, &["interrupted"]);
    assert!(!scene.path("out.zarr").exists());
}

#[test]
fn a_notice_that_the_machine_is_taken_away_stops_a_run_and_the_same_command_goes_on() {
    let shape = [128; 3];
    let scene = Scene::of(shape, &with_bright_voxel(shape, [0, 0, 0]));
    let (notice, metrics) = (scene.path("notice"), scene.path("metrics.json"));
    let job = || scene.job().key("--model", own_model("slow")).key("--metrics-json", &metrics).keys("--batch 1");
    let mut running = job().key("--interruption-notice", &notice).start();
    // The first batches of all are the warm-up; hundreds are to come.
    (0..40).for_each(|_| running.wait_for_output("batch"));
    std::fs::write(&notice, "").unwrap();
    running.wait_for_error("there is an interruption notice at ");
    assert_interrupted(&running.end(), &metrics);
    let before = json(&metrics)["work"]["blocks"].clone();
    assert!(before.as_u64().unwrap() > 0, "what was begun was finished");
    let _ = job().end().well();
    assert_eq!(json(&metrics)["work"]["blocks_before"], before, "all that was stored was recorded");
}
