//! Models in the forms that their users have: exported, compiled and run, all by the binary.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use haloflow_tests::binary::Haloflow;
use haloflow_tests::ended::json;
use haloflow_tests::golden_model;
use haloflow_tests::readback::{read, read_u16};
use haloflow_tests::scene::{Scene, noisy};
use haloflow_tests::zarr::Array;
use haloflow_volume::{Element, Environment};
use serde_json::json;

/// A program that somebody exported with torch alone: a smoothing of two patches of 16 x 16 x 16.
const FOREIGN_PROGRAM: &str = "
import sys, torch
torch.manual_seed(0)
net = torch.nn.Conv3d(1, 1, 3, padding=1).eval()
torch.export.save(torch.export.export(net, (torch.zeros(2, 1, 16, 16, 16),)), sys.argv[1])
";

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Runs Python of the set-up.
fn python(code: &str, argument: &Path) {
    let xdg = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = xdg.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"));
    let interpreter = cache.join("haloflow/torch-2.11.0/bin/python");
    assert!(Command::new(interpreter).args(["-c", code]).arg(argument).status().unwrap().success());
}

/// What the first device of a run says of itself.
fn description(metrics: &Path) -> String {
    json(metrics)["devices"][0]["description"].as_str().unwrap().to_owned()
}

#[test]
fn the_denoiser_is_exported_compiled_and_run_by_the_predecessors_script() {
    let scene = Scene::empty();
    let size = [40, 40, 40];
    let shape = [&[1, 1][..], &size].concat();
    Array { format: 2, ..Array::new(&shape, &[1, 1, 32, 32, 32], "uint16") }
        .write(&scene.path("in.zarr"), &noisy(size));
    let bundle = text(&scene.path("denoiser"));
    let export = "export --model-type denoise-net --args {\"widths\":[8,8,16,16,16]} --patch 32 32 32 --compile cpu -o";
    let _ = Haloflow::model(export.split(' ').chain([bundle.as_str()])).end().well();
    let bench = Haloflow::model(["bench", &bundle, "--batches", "3"]).end().well();
    let ratio = bench.stdout.lines().find_map(|line| line.strip_prefix("ratio ")).unwrap();
    assert!(ratio.parse::<f64>().unwrap() > 0.0, "{}", bench.stdout);
    // Past the harness, which keeps to itself what a test prints that goes well.
    std::io::stderr().write_all(bench.stdout.as_bytes()).unwrap();

    let metadata = json!({"shape": shape, "chunks": [1, 1, 64, 64, 64], "dtype": "<f4", "dimension_separator": "/"});
    let run = |name: &str, compile: &str| {
        let kvstore = |name: &str| json!({"driver": "file", "path": scene.path(name)});
        let source = json!({"driver": "zarr", "kvstore": kvstore("in.zarr")});
        let target = json!({"driver": "zarr", "kvstore": kvstore(name), "metadata": metadata, "create": true});
        let script = Haloflow::run()
            .key("--in-spec", source.to_string())
            .key("--out-spec", target.to_string())
            .keys("--model-type denoise-net")
            .key("--weights", &bundle)
            .keys("--t 0 --c 0 --patch 32 32 32 --overlap 10 --block 64 64 64 --devices cpu --no-amp --max-inflight-batches 64")
            .keys("--seam-mode trim --trim-voxels 5 --halo 5 --norm-lower 0.5 --norm-upper 99.9 --normalize percentile")
            .keys(compile)
            .key("--metrics-json", scene.path("metrics.json"));
        let ended = script.end().well();
        let result = read::<f32>(&text(&scene.path(name)), &Environment::empty(), Element::F32, [0, 0]).voxels;
        (description(&scene.path("metrics.json")), result, ended)
    };
    let (script, expected, _) = run("script.zarr", "--batch 4");
    assert!(script.starts_with("TorchScript, f32"), "{script}");
    let (compiled, given, ended) =
        run("compiled.zarr", "--batch auto --compile required --compile-mode reduce-overhead");
    assert!(compiled.starts_with("AOTInductor package, f32"), "{compiled}");
    assert!(ended.stdout.contains("AOTInductor package"), "{}", ended.stdout);
    let largest = expected.iter().fold(0.0_f32, |largest, y| largest.max(y.abs()));
    let apart = expected.iter().zip(&given).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest > 0.0 && apart <= 1e-4 * largest, "{apart} of {largest}");
}

#[test]
fn an_exported_program_runs_and_two_runs_at_once_compile_it_once() {
    let scene = Scene::new();
    let (program, cache) = (scene.path("net.pt2"), scene.path("cache"));
    python(FOREIGN_PROGRAM, &program);
    let job = |out: &str| {
        let job = scene.job().key("--model", &program).key("--cache", &cache).key("--out", scene.path(out));
        job.keys("--batch 2 --seam-mode blend").without("--trim-voxels").with_python()
    };
    // Whatever is wrong is told before anything is compiled.
    job("out.zarr").key("--in", scene.path("none.zarr")).end().refused(65, &["no Zarr array or group"]);
    job("out.zarr")
        .keys("--compile=false")
        .end()
        .refused(64, &["net.pt2 holds no TorchScript module", "`compile` is false"]);
    job("out.zarr").keys("--batch auto").end().refused(64, &["`batch` is auto", "name the batch"]);
    assert!(!cache.join("compiled").exists());

    let running = ["one.zarr", "other.zarr"].map(|out| job(out).start());
    let ended = running.map(|running| running.end().well());
    let from = |word: &str| ended.iter().filter(|ended| ended.stderr.contains(&format!("is from the {word}"))).count();
    assert_eq!((from("compiled"), from("cache")), (1, 1), "{ended:?}");
    let [one, other] = ["one.zarr", "other.zarr"].map(|out| read_u16(&scene.path(out)));
    assert!(one == other && one.iter().any(|voxel| *voxel > 0));

    // The program is for two rows.
    let job = job("out.zarr").keys("--batch 3");
    job.end().refused(65, &["batch 3 of patch [16, 16, 16]", "it was exported with [2, 1, 16, 16, 16]"]);
    a_package_alone_runs(&scene, &one);
}

/// The package that was just made, as a file of its own: with its facts beside it, and without.
fn a_package_alone_runs(scene: &Scene, expected: &[u16]) {
    let entries = std::fs::read_dir(scene.path("cache/compiled")).unwrap().map(|entry| entry.unwrap().path());
    let entry = entries.filter(|path| path.is_dir()).collect::<Vec<_>>();
    let [entry] = &entry[..] else { panic!("{entry:?}") };
    let job = |name: &str| {
        scene.job().key("--model", scene.path(name)).keys("--seam-mode blend --overwrite").without("--trim-voxels")
    };
    std::fs::copy(entry.join("package.pt2"), scene.path("bare.pt2")).unwrap();
    let _ = job("bare.pt2").keys("--batch 2").end().well();
    assert!(read_u16(&scene.path("out.zarr")) == expected);
    let ended = job("bare.pt2").keys("--batch 3").end();
    assert_eq!(ended.code, Some(65));
    assert!(
        ended.stderr.contains("another shape or kind") && ended.stderr.contains("[3, 1, 16, 16, 16]"),
        "{}",
        ended.stderr
    );
    for extension in ["pt2", "toml"] {
        let package = entry.join("package").with_extension(extension);
        std::fs::copy(package, scene.path("told").with_extension(extension)).unwrap();
    }
    // Its facts are the defaults.
    let _ = job("told.pt2").end().well();
    assert!(read_u16(&scene.path("out.zarr")) == expected);
    for (keys, parts) in [
        ("--batch 3", "was made for batch 2 and 3 is needed"),
        ("--patch 24", "was made for patch 16 x 16 x 16 and 24 x 24 x 24 is needed"),
        ("--kind f16", "was made for kind f32 and f16 is needed"),
    ] {
        job("told.pt2").keys(keys).end().refused(65, &["told.pt2", parts]);
    }
}

#[test]
fn what_cannot_be_compiled_runs_as_a_module_and_says_so_unless_it_is_required() {
    let scene = Scene::new();
    let metrics = scene.path("metrics.json");
    let job = || scene.job().key("--model", golden_model("box3")).key("--metrics-json", &metrics).keys("--overwrite");
    let ended = job().keys("--compile --batch auto").end().well();
    let reason = "a TorchScript module cannot be compiled";
    let warnings = ended.stderr.lines().filter(|line| line.contains("WARN") && line.contains(reason)).count();
    assert_eq!(warnings, 1, "{}", ended.stderr);
    let description = description(&metrics);
    assert!(description.starts_with("TorchScript (not compiled: ") && description.contains(reason), "{description}");
    assert!(ended.stdout.contains("cpu") && ended.stdout.contains("not compiled"), "{}", ended.stdout);
    job().keys("--compile required").end().refused(65, &["box3.pt", reason]);
}
