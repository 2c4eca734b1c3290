//! What users bring along: the predecessor's command line, unchanged but for the program's name.

use haloflow_tests::binary::{Haloflow, path};
use haloflow_tests::ended::json;
use haloflow_tests::folder::contents;
use haloflow_tests::golden_model;
use haloflow_tests::readback::read;
use haloflow_tests::scene::{Scene, noisy};
use haloflow_tests::zarr::{Array, put_json};
use haloflow_volume::{Element, Environment};
use serde_json::json;

/// Every key of the predecessor.
const KEYS: &str = "--in-spec --out-spec --model-type --weights --t --c --patch --overlap --block --batch --devices --no-amp --tf32 \
    --cudnn-benchmark --compile --compile-mode --compile-dynamic --max-inflight-batches --seam-mode --trim-voxels --halo \
    --min-blend-weight --eps --norm-lower --norm-upper --normalize --clip-norm --no-output-denormalize --metrics-json \
    --metrics-interval --prep-workers --writer-workers";

/// A larger volume than one patch, smaller than one block, with a time and a channel axis.
const SIZE: [usize; 3] = [70, 80, 75];

#[test]
fn the_predecessors_script_works_unchanged() {
    let scene = Scene::empty();
    let shape = [&[1, 1][..], &SIZE].concat();
    Array { format: 2, ..Array::new(&shape, &[1, 1, 64, 64, 64], "uint16") }
        .write(&scene.path("in.zarr"), &noisy(SIZE));
    let source = json!({"driver": "zarr", "kvstore": {"driver": "file", "path": scene.path("in.zarr")}});
    put_json(&scene.path("."), "in.json", &source);
    let metadata = json!({"shape": shape, "chunks": [1, 1, 128, 128, 128], "dtype": "<f4", "dimension_separator": "/",
        "compressor": {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 1}, "fill_value": 0});
    let target = |name: &str| {
        json!({"driver": "zarr", "kvstore": {"driver": "file", "path": scene.path(name)}, "metadata": metadata, "create": true,
            "delete_existing": true})
    };
    put_json(&scene.path("."), "out.json", &target("a.zarr"));
    let script = Haloflow::run()
        .key("--in-spec", scene.path("in.json"))
        .values("--out-spec", [scene.path("out.json").to_str().unwrap(), &target("b.zarr").to_string()])
        .keys("--model-type denoise-net")
        .key("--weights", golden_model("two"))
        .keys("--t 0 --c 0 --patch 64 64 64 --overlap 10 --block 256 256 256 --batch 64 --devices cpu --no-amp --tf32 --cudnn-benchmark")
        .keys("--compile --compile-mode reduce-overhead --compile-dynamic auto --max-inflight-batches 64 --seam-mode trim --trim-voxels 5")
        .keys("--halo 5 --min-blend-weight 0.05 --eps 1e-6 --norm-lower 0 --norm-upper 4000 --normalize global --clip-norm 0 1")
        .keys("--no-output-denormalize --metrics-interval 0.5 --prep-workers 4 --writer-workers 4")
        .key("--metrics-json", scene.path("metrics.json"));
    let _ = script.end().well();
    let result = |name: &str| {
        let path = scene.path(name);
        read::<f32>(path.to_str().unwrap(), &Environment::empty(), Element::F32, [0, 0]).voxels
    };
    let (same, inverse) = (result("a.zarr"), result("b.zarr"));
    let wanted: Vec<f32> = noisy(SIZE).into_iter().map(|value| f32::from(value) / 4000.0).collect();
    assert_eq!(same, wanted);
    assert_eq!(inverse, wanted.iter().map(|value| 1.0 - value).collect::<Vec<_>>());
    assert_eq!(json(&scene.path("metrics.json"))["complete"], true);
}

#[test]
fn help_tells_of_every_key() {
    let help = std::process::Command::new(path()).args(["run", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for key in KEYS.split_whitespace() {
        let told = help.split(|mark: char| mark.is_whitespace() || "[],=".contains(mark)).any(|word| word == key);
        assert!(told, "{key} is not in {help}");
    }
}

#[test]
fn a_file_of_keys_is_the_same_as_flags_and_flags_win() {
    let scene = Scene::new();
    let text = format!(
        "in-spec = {:?}\nout = {:?}\nweights = {:?}\npatch = 16\noverlap = [4, 4, 4]\ntrim-voxels = 2\nnormalize = false\ndevices = 'cpu'\n",
        scene.path("in.zarr"),
        scene.path("file.zarr"),
        golden_model("edge")
    );
    std::fs::write(scene.path("run.toml"), text).unwrap();
    let _ = Haloflow::run().key("--config", scene.path("run.toml")).end().well();
    let _ = Haloflow::run().key("--config", scene.path("run.toml")).key("--out", scene.path("flag.zarr")).end().well();
    let _ = scene.job().key("--model", golden_model("edge")).end().well();
    let chunks = |name: &str| {
        let folder = scene.path(name).join("0");
        let found = contents(&folder)
            .into_iter()
            .map(|(path, (bytes, _))| (path.strip_prefix(&folder).unwrap().to_owned(), bytes));
        found.collect::<Vec<_>>()
    };
    let by_flags = chunks("out.zarr");
    assert!(by_flags.len() > 1);
    assert!(chunks("file.zarr") == by_flags && chunks("flag.zarr") == by_flags);
}

#[test]
fn a_removed_key_names_its_replacement() {
    Scene::new().job().keys("--no-compile-dynamic").end().refused(64, &["no-compile-dynamic", "--compile-dynamic"]);
}
