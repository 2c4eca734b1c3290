//! Data that turns out broken while it streams.

use haloflow_examples::s3::S3Server;
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
