//! The command `bench`. What it measures is in the binary `bench` of `examples`.

use std::process::Command;

use anyhow::Result;

use crate::{process, setup};

/// The network of `bench gpu`: convolution blocks with batch norm and leaky ReLU, 32 to 256 channels, random weights.
const NETWORK: [&str; 4] = ["--model-type", "denoise-net", "--args", r#"{"norm": "batch"}"#];
const PATCH: [&str; 4] = ["--patch", "64", "64", "64"];

/// Measures the host's stages, or a network on GPUs; further arguments go to the benchmark.
pub(crate) fn run(_: &setup::Installed, rest: &[String]) -> Result<()> {
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    match rest.split_first() {
        None => measure(&["host"]),
        Some((&"gpu", more)) if !more.contains(&"--bundle") => gpu(more),
        Some(_) => measure(&rest),
    }
}

/// Exports and compiles the network, once, and measures it.
fn gpu(rest: &[&str]) -> Result<()> {
    let program = process::build("release")?.join("haloflow");
    let bundle = process::root().join("target/bench/unet");
    let model = |command: &str| {
        let mut haloflow = Command::new(&program);
        haloflow.args(["model", command]);
        haloflow
    };
    if !bundle.join("model.toml").exists() {
        process::run(model("export").args(NETWORK).args(PATCH).args(["--channels-in", "1", "-o"]).arg(&bundle))?;
    }
    if !bundle.join("compiled").exists() {
        let made_for = ["--device", "cuda:0", "--batch", "64", "--kind", "f16", "--mode", "default"];
        process::run(model("compile").arg(&bundle).args(made_for).args(PATCH))?;
    }
    let (program, bundle) = (program.display().to_string(), bundle.display().to_string());
    measure(&[&["gpu", "--haloflow", &program, "--bundle", &bundle], rest].concat())
}

fn measure(arguments: &[&str]) -> Result<()> {
    process::run(Command::new(process::build("release")?.join("bench")).args(arguments))
}
