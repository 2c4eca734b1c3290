//! A disk that is full, and a file that may not grow: the run stops with the path, and the same command goes on.

use std::process::{Command, Output};

use haloflow_tests::binary::path;
use haloflow_tests::golden_model;
use haloflow_tests::readback::read_u16;
use haloflow_tests::scene::{Scene, noisy};

const SHAPE: [usize; 3] = [64, 64, 64];

/// Runs a script of the shell in which `$RUN` is a command line that works but for its output, in `folder`.
fn shell(scene: &Scene, program: &[&str], script: &str) -> Output {
    let keys = "--devices cpu --patch 16 --overlap 4 --trim-voxels 2 --normalize false --compressor none";
    let (model, input) = (golden_model("identity"), scene.path("in.zarr"));
    let run = format!("{} run --in {} --model {} {keys}", path().display(), input.display(), model.display());
    let (first, rest) = program.split_first().unwrap();
    let mut command = Command::new(first);
    command.args(rest).arg(script).env("RUN", run).current_dir(scene.path("."));
    command.output().unwrap()
}

#[track_caller]
fn assert_told(output: &Output, parts: &[&str]) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(74), "{told}");
    for part in parts {
        assert!(told.contains(part), "there is no {part:?} in {told}");
    }
    assert_eq!(told.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{told}");
}

#[test]
fn a_file_that_may_not_grow_ends_the_run_and_the_same_command_goes_on() {
    let scene = Scene::of(SHAPE, &noisy(SHAPE));
    // Metadata fits into four blocks of 512 bytes, a chunk does not. The signal that comes with it is for programs that do not look.
    let limited = "trap '' XFSZ; ulimit -f 8; exec $RUN --out out.zarr";
    let ended = shell(&scene, &["sh", "-c"], limited);
    assert_told(&ended, &["out.zarr/0/c/", "File too large", "stage write"]);
    let ended = shell(&scene, &["sh", "-c"], "exec $RUN --out out.zarr");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(read_u16(&scene.path("out.zarr")), noisy(SHAPE));
}

#[test]
fn a_full_disk_ends_the_run_and_the_same_command_goes_on_when_there_is_room() {
    if !Command::new("unshare").args(["--mount", "true"]).output().is_ok_and(|tried| tried.status.success()) {
        return println!("skipped: this user may not mount a small disk");
    }
    let scene = Scene::of(SHAPE, &noisy(SHAPE));
    std::fs::create_dir(scene.path("small")).unwrap();
    // The volume has 512 KiB. The disk is gone with its namespace, so the result is copied.
    let script = "mount -t tmpfs -o size=300k none small; code=0; $RUN --out small/out.zarr || code=$?; \
                  mount -o remount,size=8m small; $RUN --out small/out.zarr; cp -r small/out.zarr out.zarr; exit $code";
    let ended = shell(&scene, &["unshare", "--mount", "sh", "-ec"], script);
    assert_told(&ended, &["small/out.zarr/0/c/", "No space left on device", "stage write"]);
    assert_eq!(read_u16(&scene.path("out.zarr")), noisy(SHAPE));
}
