//! Odd uses that must end soon and clearly.

use std::fs::OpenOptions;
use std::os::unix::fs::PermissionsExt;

use haloflow_tests::readback::read_u16;
use haloflow_tests::scene::{SHAPE, Scene, noisy};

#[test]
fn an_empty_file_of_keys_changes_nothing() {
    let scene = Scene::new();
    std::fs::write(scene.path("run.toml"), "").unwrap();
    let _ = scene.job().key("--config", scene.path("run.toml")).end().well();
    assert_eq!(read_u16(&scene.path("out.zarr")), noisy(SHAPE));
}

#[test]
fn a_file_of_keys_that_cannot_be_read_is_named() {
    let scene = Scene::new();
    scene.job().key("--config", scene.path("no.toml")).end().refused(64, &["no.toml", "cannot be read"]);
    scene.job().key("--config", scene.path("in.zarr")).end().refused(64, &["in.zarr", "cannot be read"]);
    std::fs::write(scene.path("bad.toml"), "patch = = 3").unwrap();
    scene.job().key("--config", scene.path("bad.toml")).end().refused(64, &["bad.toml"]);
    assert!(!scene.path("out.zarr").exists());
}

#[test]
fn a_reader_of_standard_output_that_went_away_does_not_fail_the_run() {
    let scene = Scene::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = scene.job().standard_output(writer).end().well();
    assert_eq!(ended.stderr, "");
    assert_eq!(read_u16(&scene.path("out.zarr")), noisy(SHAPE));
}

#[test]
fn metrics_that_find_no_room_fail_a_run_whose_result_is_whole() {
    let scene = Scene::new();
    let ended = scene.job().keys("--metrics-json /dev/full").end();
    ended.refused(74, &["`metrics-json`", "/dev/full", "No space left"]);
    assert_eq!(read_u16(&scene.path("out.zarr")), noisy(SHAPE));
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let _ = scene.job().keys("--overwrite").standard_output(full).end().well();
}

#[test]
fn a_place_where_nothing_can_be_written_is_named() {
    let scene = Scene::new();
    for place in ["/proc/haloflow/out.zarr", "/dev/null/out.zarr"] {
        scene.job().key("--out", place).end().refused(74, &[place]);
    }
}

#[test]
fn a_folder_without_permission_is_named() {
    let scene = Scene::new();
    let closed = scene.path("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o000)).unwrap();
    if std::fs::read_dir(&closed).is_ok() {
        return eprintln!("skipped: root may read everything");
    }
    scene.job().key("--out", closed.join("out.zarr")).end().refused(74, &["closed/out.zarr"]);
    scene.job().key("--in", closed.join("in.zarr")).end().refused(74, &["closed/in.zarr"]);
}

#[test]
fn a_volume_smaller_than_a_patch_is_padded() {
    let scene = Scene::of([3, 1, 5], &noisy([3, 1, 5]));
    let _ = scene.job().keys("--patch 64 --overlap 10 --trim-voxels 5").end().well();
    assert_eq!(read_u16(&scene.path("out.zarr")), noisy([3, 1, 5]));
}
