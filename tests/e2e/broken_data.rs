//! Data that turns out broken while it streams.

use haloflow_examples::s3::S3Server;
use haloflow_tests::ended::json;
use haloflow_tests::own_model;
use haloflow_tests::readback::{read, read_u16};
use haloflow_tests::scene::{SHAPE, Scene, noisy, volume, with_bright_voxel};
use haloflow_volume::{Element, Environment};

#[test]
fn a_truncated_chunk_is_named() {
    let scene = Scene::new();
    let chunk = scene.path("in.zarr/0/c/1/0/2");
    let whole = std::fs::read(&chunk).unwrap();
    for length in [whole.len() / 2, 1, 0] {
        std::fs::write(&chunk, &whole[..length]).unwrap();
        let ended = scene.job().keys("--overwrite").end();
        ended.refused(65, &["in.zarr/0/c/1/0/2", "stage read"]);
    }
}

#[test]
fn a_block_with_a_truncated_chunk_is_set_aside_and_computed_once_it_is_mended() {
    let scene = Scene::new();
    let (chunk, metrics) = (scene.path("in.zarr/0/c/1/0/2"), scene.path("metrics.json"));
    let whole = std::fs::read(&chunk).unwrap();
    std::fs::write(&chunk, &whole[..whole.len() / 2]).unwrap();
    let job = || scene.job().keys("--lattice block --block 16 --chunk 16").key("--metrics-json", &metrics);
    let ended = job().end();
    ended.refused(65, &["8 of 18 blocks failed 3 times and were set aside", "z 0, y 0, x 16", "in.zarr/0/c/1/0/2"]);
    assert!(ended.stdout.contains("set aside   the block at z 16, y 0, x 32: the chunk "), "{}", ended.stdout);
    let report = json(&metrics);
    assert_eq!((&report["work"]["blocks"], &report["complete"]), (&10.into(), &false.into()));
    let set_aside = report["quarantined"].as_array().unwrap();
    assert_eq!((set_aside.len(), &set_aside[7]["start"]), (8, &serde_json::json!([16, 16, 32])));
    assert_eq!(set_aside[7]["fault"]["stage"], "read");
    assert!(!scene.path("out.zarr/0/c/1/0/2").exists() && scene.path("out.zarr/0/c/1/2/2").exists());
    // Nobody may take it for whole, and it is not forgotten: with none allowed, the first one ends the run.
    let stopped = job().keys("--quarantine 0").end();
    stopped.refused(65, &["in.zarr/0/c/1/0/2", "stage read"]);
    assert!(json(&metrics)["quarantined"].as_array().unwrap().is_empty());
    std::fs::write(&chunk, &whole).unwrap();
    let ended = job().end().well();
    assert!(ended.stdout.contains("8 of 8 blocks"), "{}", ended.stdout);
    assert_eq!(read_u16(&scene.path("out.zarr")), noisy(SHAPE));
}

#[test]
fn a_truncated_chunk_in_a_bucket_is_named() {
    let root = tempfile::tempdir().unwrap();
    let server = S3Server::start(root.path(), "lab").unwrap();
    let source = root.path().join("lab/in.zarr");
    volume(SHAPE).write(&source, &noisy(SHAPE));
    std::fs::write(source.join("0/c/0/2/0"), [0; 100]).unwrap();
    let job = Scene::empty().job().key("--in", "s3://lab/in.zarr").key("--out", "s3://lab/out.zarr");
    job.variables(server.variables()).end().refused(65, &["s3://lab/in.zarr/0/c/0/2/0"]);
}

#[test]
fn a_missing_chunk_holds_the_fill_value() {
    let scene = Scene::new();
    std::fs::remove_file(scene.path("in.zarr/0/c/1/2/2")).unwrap();
    let _ = scene.job().end().well();
    let expected = noisy(SHAPE).into_iter().enumerate().map(|(i, value)| {
        let [z, y, x] = [i / (SHAPE[1] * SHAPE[2]), i / SHAPE[2] % SHAPE[1], i % SHAPE[2]];
        if z >= 16 && y >= 32 && x >= 32 { 0 } else { value }
    });
    assert!(read_u16(&scene.path("out.zarr")).into_iter().eq(expected));
}

#[test]
fn a_result_that_is_no_number_ends_the_run_or_is_replaced_and_counted() {
    let scene = Scene::of(SHAPE, &with_bright_voxel(SHAPE, [20, 5, 33]));
    let job = || scene.job().key("--model", own_model("gives_nan")).keys("--overwrite --out-dtype float32");
    job().end().refused(65, &["voxel z 20, y 5, x 33", "NaN", "--nonfinite", "block"]);
    let metrics = scene.path("metrics.json");
    let _ = job().keys("--nonfinite -7").key("--metrics-json", &metrics).end().well();
    let output = scene.path("out.zarr");
    let result = read::<f32>(output.to_str().unwrap(), &Environment::empty(), Element::F32, [0, 0]).voxels;
    assert!(result[(20 * SHAPE[1] + 5) * SHAPE[2] + 33].to_bits() == (-7.0_f32).to_bits());
    assert_eq!(haloflow_tests::ended::json(&metrics)["voxels"]["nonfinite"], 1);
}

#[test]
fn metadata_that_is_no_json_is_named() {
    let scene = Scene::new();
    std::fs::write(scene.path("in.zarr/zarr.json"), "{\"zarr_format\": 3,").unwrap();
    scene.job().end().refused(65, &["in.zarr/zarr.json", "JSON"]);
    assert!(!scene.path("out.zarr").exists());
}
