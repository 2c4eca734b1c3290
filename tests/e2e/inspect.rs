//! `haloflow inspect`: what is stored at a place.

use std::path::Path;
use std::process::{Command, Output};

use haloflow_tests::binary;
use haloflow_tests::scene::{SHAPE, Scene};
use haloflow_tests::zarr::put_json;
use serde_json::{Value, json};

fn inspect(place: &Path, more: &[&str]) -> Output {
    Command::new(binary::path()).arg("inspect").arg(place).args(more).output().unwrap()
}

#[test]
fn an_image_is_told_level_by_level() {
    let scene = Scene::new();
    let _ = scene.job().keys("--pyramid 2 --block 16 16 32 --chunk 8 --shard 16").end().well();
    let told: Value = serde_json::from_slice(&inspect(&scene.path("out.zarr"), &["--json"]).stdout).unwrap();
    let levels = told["levels"].as_array().unwrap();
    assert_eq!(levels.len(), 2);
    let raw = 2 * SHAPE.iter().product::<usize>();
    assert_eq!((&levels[0]["raw_bytes"], &levels[0]["element"]), (&json!(raw), &json!("uint16")));
    assert_eq!((&levels[0]["chunk"], &levels[0]["shard"]), (&json!([8, 8, 8]), &json!([16, 16, 16])));
    // 24 x 33 x 40 voxels are 2 x 3 x 3 shards.
    assert_eq!((&levels[0]["objects"], &levels[0]["objects_in_all"]), (&json!(18), &json!(18)));
    assert!(levels[0]["stored_bytes"].as_u64().unwrap() > levels[1]["stored_bytes"].as_u64().unwrap());
    // Voxels are 2 x 0.5 x 0.5 micrometers, so that y and x are halved first.
    assert_eq!((&levels[1]["axes"][1]["scale"], &levels[1]["axes"][1]["translation"]), (&json!(1.0), &json!(0.25)));
    assert_eq!(levels[0]["codecs"][0]["name"], "sharding_indexed");
    let text = String::from_utf8(inspect(&scene.path("out.zarr"), &[]).stdout).unwrap();
    for part in ["OME-Zarr image", "2 levels", "axis y", "micrometer", "shard 16", "blosc", "18 of 18 objects"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn a_collection_names_its_members_and_a_missing_place_its_code() {
    let scene = Scene::empty();
    let plate = json!({"plate": {"wells": [{"path": "A/1"}, {"path": "B/2"}]}});
    put_json(&scene.path("plate"), ".zattrs", &plate);
    let text = String::from_utf8(inspect(&scene.path("plate"), &[]).stdout).unwrap();
    assert!(text.starts_with("a plate of images") && text.contains("plate/B/2"), "{text}");
    let missing = inspect(&scene.path("nothing"), &[]);
    assert_eq!(missing.status.code(), Some(65));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no Zarr array or group"));
}
