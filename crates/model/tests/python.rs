//! The tests of `haloflow_models` that are written in Python, run by the set-up's.
#![expect(clippy::unwrap_used, reason = "a test may stop on what it did not expect")]

use std::path::Path;
use std::process::Command;

use haloflow_model::Cache;

fn run(file: &str) {
    let user = Cache::new(None, |name| std::env::var_os(name)).unwrap();
    let mut python = Command::new(user.folder().join("torch-2.11.0/bin/python"));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models");
    let done = python.current_dir(folder).args(["-m", "unittest", file]).env("PYTHONDONTWRITEBYTECODE", "1").output();
    let done = done.unwrap();
    let told = String::from_utf8_lossy(&done.stderr);
    // "Ran 0 tests" ends well too.
    assert!(done.status.success() && !told.contains("Ran 0 tests"), "{told}");
}

#[test]
fn export() {
    run("test_models.py");
}

#[test]
fn compile() {
    run("test_compile.py");
}

#[test]
fn winograd() {
    run("test_winograd.py");
}
