//! `haloflow plan`.

use haloflow_tests::binary::Haloflow;
use haloflow_tests::ended::json;
use haloflow_tests::scene::Scene;

fn plan(scene: &Scene) -> Haloflow {
    scene.job().instead("plan")
}

#[test]
fn a_plan_tells_what_the_run_then_does_and_touches_nothing() {
    let scene = Scene::new();
    let told = plan(&scene).keys("--json").end().well();
    assert!(!scene.path("out.zarr").exists());
    let planned: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    let metrics = scene.path("metrics.json");
    let _ = scene.job().key("--metrics-json", &metrics).end().well();
    let report = json(&metrics);
    assert_eq!(planned["work"]["blocks_total"], report["work"]["blocks"]);
    assert_eq!(planned["work"]["patches_total"], report["work"]["patches"]);
    assert_eq!(planned["traffic"]["chunks"], report["storage_read"]["chunks_decoded"]);
    assert_eq!(planned["memory"], report["memory"]);
    assert!(planned["calibration"]["predicted_seconds"].as_f64().unwrap() > 0.0, "{planned}");
}

#[test]
fn a_plan_is_told_in_words_and_refuses_what_the_run_would() {
    let scene = Scene::new();
    let told = plan(&scene).end().well().stdout;
    for part in
        ["18 blocks of 16 x 16 x 16", "in 18 chunks, each once", "measured", "time        about", "limit       "]
    {
        assert!(told.contains(part), "there is no {part:?} in {told}");
    }
    let told = plan(&scene).keys("--no-calibration --part 1/4").end().well().stdout;
    assert!(told.contains("every part has 4 to 5 blocks") && !told.contains("measured"), "{told}");
    plan(&scene).keys("--overlap 16").end().refused(64, &["`overlap`"]);
    plan(&scene).keys("--memory 1KiB").end().refused(64, &["`memory`"]);
    let _ = scene.job().end().well();
    plan(&scene).end().refused(65, &["exists already"]);
}
