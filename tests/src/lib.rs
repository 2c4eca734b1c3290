//! What the end-to-end tests share: the binary, volumes to feed it with, and ways to look at what it left behind. Everything here
//! stops the test with a panic if it does not work.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop on what it did not expect"
)]

pub mod binary;
pub mod browser;
pub mod collector;
pub mod daemon;
pub mod ended;
pub mod folder;
pub mod golden;
pub mod held_web;
pub mod image;
pub mod npy;
pub mod readback;
pub mod scene;
pub mod zarr;

use std::path::{Path, PathBuf};

/// A golden model's file.
#[must_use]
pub fn golden_model(name: &str) -> PathBuf {
    golden::file(&format!("models/{name}.pt"))
}

/// The file of a module that was made for these tests; `e2e/models/make_models.py` says what each does.
#[must_use]
pub fn own_model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/models").join(format!("{name}.pt"))
}
