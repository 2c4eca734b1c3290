//! Results opened as others open them: zarr-python, tensorstore and ome-zarr-py, and the official schemas.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use haloflow_tests::scene::{SHAPE, Scene, noisy};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("interop").join(name)
}

fn well(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn images_with_pyramids_are_valid_and_read_alike_by_others() {
    let told = well(Command::new("python3").arg(script("environment.py")));
    let python = String::from_utf8(told.stdout).unwrap();
    let scene = Scene::new();
    std::fs::write(scene.path("finest"), bytemuck::cast_slice(&noisy(SHAPE))).unwrap();
    for keys in [
        "--zarr-format 3 --chunk 8",
        "--zarr-format 2 --chunk 8",
        "--zarr-format 3 --chunk 8 --shard 16",
        "--zarr-format 2 --chunk 8 --compressor blosc-lz4:5",
        "--zarr-format 3 --chunk 8 --compressor blosc-zlib:1",
        "--zarr-format 3 --chunk 8 --compressor zstd",
        "--zarr-format 2 --chunk 8 --compressor gzip:6",
    ] {
        let _ = scene.job().keys("--pyramid 3 --block 16 16 32 --overwrite").keys(keys).end().well();
        let mut check = Command::new(python.trim());
        well(check.arg(script("check.py")).arg(scene.path("out.zarr")).arg(scene.path("finest")).arg("3"));
    }
}
