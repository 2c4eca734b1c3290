//! Every golden case, from input to output through the whole pipeline.

use haloflow_engine::ElementKind;
use haloflow_geometry::{Seam, Zyx};
use haloflow_pipeline::cast::Rounding;
use haloflow_pipeline::cut::Padding;
use haloflow_pipeline::normalise::Normalisation;
use haloflow_pipeline::{LatticeChoice, Layout, Report, RunSettings, Values};
use haloflow_volume::{Element, Environment};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::inputs::{golden, golden_json, input};
use crate::models::golden_model;
use crate::support::{Volume, block_on, complete_shuffled, load, plain, settings, spec, store};

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

/// The settings of a case; its outputs are `memory://out0` and so on.
fn case_settings(case: &Value) -> RunSettings {
    let config = &case["config"];
    let pair = || [read(&config["norm_lower"]), read(&config["norm_upper"])];
    let seam = match config["seam_mode"].as_str() {
        Some("trim") => Seam::Trim { voxels: [read(&config["trim_voxels"]); 3] },
        _ => Seam::Blend { floor: read(&config["min_blend_weight"]), margin: [0; 3] },
    };
    let layout = Layout {
        patch: read(&config["patch"]),
        overlap: [read(&config["overlap"]); 3],
        block: Some(read(&config["block"])),
        lattice: Some(LatticeChoice::Block),
        halo: read::<Option<usize>>(&config["halo"]).map(|halo| [halo; 3]),
        align: [1; 3],
        seam,
    };
    assert_eq!(layout.effective_halo(), [read::<usize>(&case["halo_effective"]); 3]);
    let values = Values {
        normalisation: match config["normalize"].as_str() {
            Some("percentile") => Normalisation::Percentile { percentiles: pair() },
            Some("global") => Normalisation::Global { bounds: pair() },
            _ => Normalisation::None,
        },
        eps: read(&config["eps"]),
        clip: match &config["clip_norm"] {
            Value::Bool(clips) => clips.then_some([0.0, 1.0]),
            bounds => Some(read(bounds)),
        },
        denormalise: read(&config["output_denormalize"]),
        padding: Padding::Zero,
        rounding: Rounding::Truncate,
        ..plain()
    };
    let mut settings = settings(layout, values, read(&config["batch_size"]));
    let channels: usize = read(&case["out_channels"]);
    settings.output.targets = (0..channels).map(|channel| format!("memory://out{channel}")).collect();
    settings.output.element = Some(case["output_dtype"].as_str().unwrap().parse().unwrap());
    settings
}

/// Runs a case on `count` devices that are done with their batches in any order, and gives its outputs.
async fn run(case: &Value, settings: &RunSettings, count: usize) -> (Report, Vec<Volume>) {
    let environment = Environment::empty();
    let input = input(case["input"].as_str().unwrap().trim_start_matches("inputs/").trim_end_matches(".npy"));
    let volume = Volume::new(input.shape, input.element, input.voxels);
    store(&environment, "memory://in", &volume, [8, 16, 12]).await;
    let mut spec = spec(settings, settings.output.targets.len());
    spec.pad_short = read(&case["config"]["use_compile"]);
    if read(&case["config"]["amp"]) {
        (spec.input, spec.output) = (ElementKind::F16, ElementKind::F16);
    }
    let model = |device: &str| golden_model(case["model"].as_str().unwrap(), device, spec.clone());
    let report = complete_shuffled(settings, &environment, (count, count as u64, 2 * count - 1), model).await;
    let mut outputs = Vec::new();
    for url in &settings.output.targets {
        outputs.push(load(&environment, url, 1).await);
    }
    (report, outputs)
}

/// The data of a `.npy` file.
fn npy(name: &str) -> Vec<u8> {
    let file = std::fs::read(golden(name)).unwrap();
    assert_eq!(file[..8], *b"\x93NUMPY\x01\0");
    file[10 + usize::from(u16::from_le_bytes([file[8], file[9]]))..].to_vec()
}

fn as_f64(element: Element, bytes: &[u8]) -> Vec<f64> {
    match element {
        Element::U8 => bytes.iter().map(|&value| value.into()).collect(),
        Element::U16 => bytes.as_chunks().0.iter().map(|&value| u16::from_le_bytes(value).into()).collect(),
        Element::I16 => bytes.as_chunks().0.iter().map(|&value| i16::from_le_bytes(value).into()).collect(),
        Element::F32 => bytes.as_chunks().0.iter().map(|&value| f32::from_le_bytes(value).into()).collect(),
        other => panic!("no output is {other}"),
    }
}

fn assert_expected(case: &Value, expected: &Value, output: &Volume) {
    let what = format!("{} channel {}", case["name"], expected["channel"]);
    let theirs = as_f64(output.element, &npy(expected["file"].as_str().unwrap()));
    let ours = as_f64(output.element, &output.channels[0]);
    assert_eq!((output.shape, ours.len()), (read::<Zyx>(&case["shape"]), theirs.len()), "{what}");
    let greatest = theirs.iter().fold(0.0, |greatest: f64, value| greatest.max(value.abs()));
    let near: Option<usize> = read(&expected["near_integer_count"]);
    let mask = expected["near_integer_mask"].as_str().map(npy);
    for (i, (our, their)) in ours.iter().zip(&theirs).enumerate() {
        let allowed = match (&mask, near) {
            (Some(mask), _) => f64::from(mask[i / 8] >> (i % 8) & 1),
            (None, Some(near)) => f64::from(u8::from(near == ours.len())),
            (None, None) if case["config"]["amp"] == true => 5e-4 * greatest,
            (None, None) => 1e-5 * greatest,
        };
        assert!((our - their).abs() <= allowed, "{what}: voxel {i} is {our}, not {their} (within {allowed})");
    }
}

/// Voxels within reach of a bound may be counted or not.
fn assert_clipped(case: &Value, report: &Report) {
    let sum = |key: &str| -> u64 {
        case["expected"].as_array().unwrap().iter().map(|expected| expected[key].as_u64().unwrap_or(0)).sum()
    };
    let slack = sum("near_integer_count");
    for (ours, key) in [(report.voxels.clipped_low, "clipped_low"), (report.voxels.clipped_high, "clipped_high")] {
        assert!(ours.abs_diff(sum(key)) <= slack, "{}: {ours} {key}, not {}", case["name"], sum(key));
    }
}

fn check(model: &str) -> usize {
    let names: Vec<String> = read(&golden_json("cases/index.json"));
    assert_eq!(names.len(), 36);
    let cases = names.iter().map(|name| golden_json(&format!("cases/{name}.json")));
    let cases: Vec<Value> = cases.filter(|case| case["model"] == model).collect();
    for case in &cases {
        block_on(async {
            let settings = case_settings(case);
            let (report, outputs) = run(case, &settings, 1).await;
            assert_eq!(report.work.blocks, case["blocks"].as_array().unwrap().len() as u64);
            let patches = case["blocks"].as_array().unwrap().iter().map(|block| block["patches"].as_u64().unwrap());
            // The predecessor also runs patches that give nothing to the core.
            assert!(report.work.patches <= patches.sum(), "{}", case["name"]);
            for (expected, output) in case["expected"].as_array().unwrap().iter().zip(&outputs) {
                assert_expected(case, expected, output);
            }
            assert_clipped(case, &report);
            for (batch, count) in [(1, 2), (5, 3)] {
                let mut other = settings.clone();
                other.resources.batch = batch;
                assert!(
                    run(case, &other, count).await.1 == outputs,
                    "{}: batch {batch}, {count} devices",
                    case["name"]
                );
            }
        });
    }
    cases.len()
}

#[test]
fn identity_affine_and_two() {
    assert_eq!(check("identity") + check("affine") + check("two"), 18);
}

#[test]
fn box3() {
    assert_eq!(check("box3"), 6);
}

#[test]
fn edge() {
    assert_eq!(check("edge"), 12);
}
