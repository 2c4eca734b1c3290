//! The command `demo`: a real volume through a real network. Fetches both first, once.
//!
//! The network's package is under GPL-3: it is fetched by whoever runs the demo and never kept in this repository.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{process, setup};

/// Runs the demo; further arguments go to it.
pub(crate) fn run(installed: &setup::Installed, rest: &[String]) -> Result<()> {
    let data = installed.cache.join("demo-data");
    let (volume, model) = (data.join("tomo.tif"), data.join("topaz-denoise-3d.ts"));
    let there = || volume.exists() && model.exists();
    if !there() {
        fs::create_dir_all(&data).with_context(|| format!("the folder {} cannot be made", data.display()))?;
        let _lock = setup::lock(&data.join("lock"))?;
        if !there() {
            fetch(&installed.python, &data)?;
        }
    }
    let out = process::root().join("target/demo");
    // The demo runs the program that lies beside it as a user does.
    let mut demo = Command::new(process::build("debug")?.join("demo"));
    demo.arg("--volume").arg(volume).arg("--model").arg(model).arg("--out-dir").arg(out).args(rest);
    process::run(&mut demo)
}

/// Fetches the volume, and the network's weights and class, and exports the network to TorchScript.
fn fetch(python: &Path, data: &Path) -> Result<()> {
    let script = process::root().join("crates/xtask/python/fetch_demo.py");
    process::run(Command::new(python).arg(script).arg(data))
        .context("the demo's volume and network could not be fetched")
}
