//! Every golden case through the binary, with the real modules, typed the way the predecessor's users type.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytemuck::Pod;
use haloflow_tests::binary::{Haloflow, path};
use haloflow_tests::golden::{Input, file, input, json};
use haloflow_tests::zarr::Array;
use haloflow_tests::{npy, readback};
use haloflow_volume::{Element, Environment};
use serde_json::{Value, json};

/// Child processes at one time.
const AT_ONCE: usize = 2;

#[test]
fn every_case_is_within_its_tolerance() {
    let names: Vec<String> = serde_json::from_value(json("cases/index.json")).unwrap();
    assert_eq!(names.len(), 36);
    let _ = path();
    let next = AtomicUsize::new(0);
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let work = || {
            let mine = std::iter::from_fn(|| names.get(next.fetch_add(1, Ordering::Relaxed)));
            mine.filter_map(|name| wrong_in(name).map(|what| format!("{name}: {what}"))).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs a case; tells what is wrong with its result.
fn wrong_in(name: &str) -> Option<String> {
    let case = json(&format!("cases/{name}.json"));
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("in.zarr");
    let named = Path::new(case["input"].as_str().unwrap()).file_stem().unwrap();
    store(&input(named.to_str().unwrap()), &source);
    let outputs: Vec<_> = case["expected"].as_array().unwrap().iter().collect();
    let places: Vec<_> = outputs.iter().map(|row| folder.path().join(format!("out{}.zarr", row["channel"]))).collect();
    let specs: Vec<String> = places.iter().map(|place| output_spec(&case, place)).collect();
    let ended = command(&case, &source).values("--out-spec", specs).end();
    if ended.code != Some(0) {
        return Some(ended.stderr);
    }
    outputs.iter().zip(&places).find_map(|(expected, place)| differs(&case, expected, place))
}

/// Writes an input as an array with the axes t, c, z, y, x.
fn store(input: &Input, folder: &Path) {
    let shape = [&[1, 1][..], &input.shape].concat();
    let array = |element| Array { format: 2, ..Array::new(&shape, &[1, 1, 16, 16, 16], element) };
    match input.element.as_str() {
        "uint8" => array("uint8").write(folder, input.voxels.as_slice::<u8>()),
        "uint16" => array("uint16").write(folder, input.voxels.as_slice::<u16>()),
        "int16" => array("int16").write(folder, input.voxels.as_slice::<i16>()),
        "float32" => array("float32").write(folder, input.voxels.as_slice::<f32>()),
        other => panic!("no input is {other}"),
    }
}

fn kvstore(folder: &Path) -> Value {
    json!({"driver": "file", "path": folder})
}

fn output_spec(case: &Value, folder: &Path) -> String {
    let (shape, block) = (&case["shape"], &case["config"]["block"]);
    let dtype = match case["output_dtype"].as_str().unwrap() {
        "uint8" => "|u1",
        "uint16" => "<u2",
        "int16" => "<i2",
        "float32" => "<f4",
        other => panic!("no output is {other}"),
    };
    let metadata = json!({
        "shape": [1, 1, shape[0], shape[1], shape[2]],
        "chunks": [1, 1, block[0], block[1], block[2]],
        "dtype": dtype,
        "compressor": {"id": "blosc", "cname": "zstd", "clevel": 1, "shuffle": 1},
        "dimension_separator": "/",
        "fill_value": 0,
    });
    json!({"driver": "zarr", "kvstore": kvstore(folder), "metadata": metadata, "create": true, "delete_existing": true})
        .to_string()
}

fn command(case: &Value, source: &Path) -> Haloflow {
    let config = &case["config"];
    let spec = json!({"driver": "zarr", "kvstore": kvstore(source)}).to_string();
    let mut job = Haloflow::run()
        .key("--in-spec", spec)
        .key("--weights", file(case["model_file"].as_str().unwrap()))
        .keys("--devices cpu --lattice block --rounding truncate --pad zero --t 0 --c 0");
    for (key, name) in [
        ("--patch", "patch"),
        ("--block", "block"),
        ("--overlap", "overlap"),
        ("--batch", "batch_size"),
        ("--seam-mode", "seam_mode"),
        ("--trim-voxels", "trim_voxels"),
        ("--halo", "halo"),
        ("--min-blend-weight", "min_blend_weight"),
        ("--eps", "eps"),
        ("--norm-lower", "norm_lower"),
        ("--norm-upper", "norm_upper"),
        ("--normalize", "normalize"),
    ] {
        if !config[name].is_null() {
            job = job.values(key, words(&config[name]));
        }
    }
    match &config["clip_norm"] {
        Value::Bool(true) => job = job.keys("--clip-norm"),
        Value::Array(_) => job = job.values("--clip-norm", words(&config["clip_norm"])),
        _ => {}
    }
    let switches = [
        ("output_denormalize", false, "--no-output-denormalize"),
        ("amp", true, "--kind f16"),
        ("use_compile", true, "--compile"),
    ];
    switches.iter().filter(|(name, on, _)| config[name] == *on).fold(job, |job, (.., keys)| job.keys(keys))
}

fn words(value: &Value) -> Vec<String> {
    let one = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    value.as_array().map_or_else(|| vec![one(value)], |values| values.iter().map(one).collect())
}

/// Compares a result with what is expected.
fn differs(case: &Value, expected: &Value, place: &Path) -> Option<String> {
    let wanted = npy::values(&file(expected["file"].as_str().unwrap()));
    let got = match case["output_dtype"].as_str().unwrap() {
        "uint8" => read::<u8>(place, Element::U8),
        "uint16" => read::<u16>(place, Element::U16),
        "int16" => read::<i16>(place, Element::I16),
        _ => read::<f32>(place, Element::F32),
    };
    let loose = loose(case, expected, &wanted);
    let pairs = || got.iter().zip(&wanted).zip(&loose);
    let first = pairs().position(|((got, wanted), loose)| (got - wanted).abs() > *loose)?;
    let count = pairs().filter(|((got, wanted), loose)| (*got - *wanted).abs() > **loose).count();
    Some(format!(
        "channel {}: {count} voxels differ, the first is {first}: {} instead of {}, {} allowed",
        expected["channel"], got[first], wanted[first], loose[first]
    ))
}

fn read<T: Pod + Into<f64>>(place: &Path, element: Element) -> Vec<f64> {
    let volume = readback::read::<T>(place.to_str().unwrap(), &Environment::empty(), element, [0, 0]);
    volume.voxels.into_iter().map(Into::into).collect()
}

/// How far each voxel may be from what is expected, as the README of the vectors says.
fn loose(case: &Value, expected: &Value, wanted: &[f64]) -> Vec<f64> {
    let count = wanted.len();
    if case["output_dtype"] == "float32" {
        let largest = wanted.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        let share = if case["config"]["amp"] == true { 5e-4 } else { 1e-5 };
        return vec![share * largest; count];
    }
    let near = match expected["near_integer_mask"].as_str() {
        Some(mask) => npy::bits(&file(mask), count),
        None => vec![expected["near_integer_count"] != 0; count],
    };
    near.into_iter().map(|near| if near { 1.0 } else { 0.0 }).collect()
}
