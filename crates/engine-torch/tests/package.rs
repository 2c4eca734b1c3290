//! Real AOTInductor packages behind the seam. They are compiled by the set-up's Python the first time, and kept.
#![expect(clippy::unwrap_used, reason = "a test may stop on what it did not expect")]

use std::path::{Path, PathBuf};
use std::process::Command;

use haloflow_engine::fake::{read_elements, write_elements};
use haloflow_engine::{ElementKind, Engine, EngineError, EngineErrorKind, EngineFactory};
use haloflow_engine_torch::{CompiledForm, TorchDevice, TorchFactory, TorchOptions, architecture, libtorch_version};
use haloflow_model::{Cache, ModelError, Sha256};

const PATCH: [usize; 3] = [6, 7, 8];

/// The folder with the module and the packages.
fn made() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/make_packages.py");
    let user = Cache::new(None, |name| std::env::var_os(name)).unwrap();
    let text = std::fs::read_to_string(&script).unwrap();
    let key = Sha256::default().with(text).with(libtorch_version()).with(architecture(TorchDevice::Cpu)).finish();
    let entry = user.entry("tests", &key[..32], |folder| {
        let python = user.folder().join("torch-2.11.0/bin/python");
        let status = Command::new(python).arg(&script).arg(folder).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            other => Err(ModelError::python(format!("{other:?}"))),
        }
    });
    entry.unwrap()
}

fn options(package: Result<PathBuf, String>, required: bool) -> TorchOptions {
    TorchOptions {
        compiled: Some(CompiledForm { package, required }),
        channels_out: Some(2),
        pad_short: true,
        intra_op_threads: 2,
        ..TorchOptions::new(made().join("module.ts"), TorchDevice::Cpu, 2, PATCH)
    }
}

fn engine(options: TorchOptions) -> Result<Box<dyn Engine>, EngineError> {
    Box::new(TorchFactory::new(options)).make()
}

fn run(engine: &mut dyn Engine, rows: usize) -> Vec<f32> {
    let voxels: usize = PATCH.iter().product();
    let input: Vec<f32> = (0..rows * voxels).map(|i| ((i * 37) % 509) as f32 / 500.0 - 0.5).collect();
    let mut slot = engine.allocate().unwrap();
    write_elements(ElementKind::F32, &input, &mut slot.input.bytes_mut()[..rows * voxels * 4]);
    let slot = engine.submit(slot, rows).unwrap().wait().unwrap();
    read_elements(ElementKind::F32, &slot.output.bytes()[..rows * engine.spec().output_row_bytes()])
}

/// The largest difference over the largest value.
fn difference(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    let largest = other.iter().fold(0.0_f32, |largest, y| largest.max(y.abs()));
    one.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest
}

#[test]
fn a_package_gives_what_the_module_gives_in_as_many_channels() {
    let mut module = engine(TorchOptions { compiled: None, ..options(Err(String::new()), false) }).unwrap();
    let expected = run(module.as_mut(), 2);
    assert_eq!(expected.len(), 2 * 2 * PATCH.iter().product::<usize>());
    for (name, pad_short, rows) in [("static.pt2", true, 2), ("static.pt2", true, 1), ("dynamic.pt2", false, 1)] {
        let options = TorchOptions { pad_short, ..options(Ok(made().join(name)), true) };
        let mut compiled = engine(options).unwrap();
        let output = run(compiled.as_mut(), rows);
        let difference = difference(&output, &expected[..output.len()]);
        println!("{name}, {rows} rows: {difference:.1e} from TorchScript");
        assert!(difference < 1e-5, "{name}: {difference}");
        assert!(compiled.describe().starts_with("AOTInductor package, f32"), "{}", compiled.describe());
    }
}

#[test]
fn the_laws_of_the_seam_hold_for_a_package() {
    let options = TorchOptions {
        batch: 4,
        pad_short: false,
        channels_out: Some(1),
        ..options(Ok(made().join("identity.pt2")), true)
    };
    let factory = || -> Box<dyn EngineFactory> { Box::new(TorchFactory::new(options.clone())) };
    assert_eq!(haloflow_engine::conformance::check(factory), Ok(()));
}

#[test]
fn a_package_for_another_shape_or_kind_does_not_run_and_says_so() {
    let package = || Ok(made().join("static.pt2"));
    for options in [
        TorchOptions { batch: 3, ..options(package(), true) },
        TorchOptions { kind: ElementKind::F16, ..options(package(), true) },
    ] {
        let error = engine(options).err().unwrap();
        assert_eq!(error.kind, EngineErrorKind::Load);
        assert!(error.message.starts_with("the compiled model is required and cannot run"), "{error}");
        assert!(error.message.contains("another shape or kind than it was made for"), "{error}");
    }
}

#[test]
fn the_module_runs_where_the_package_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let torn = folder.path().join("torn.pt2");
    std::fs::write(&torn, "not a package").unwrap();
    for (package, cause) in [(Ok(torn), "torn.pt2"), (Err("no compiler here".to_owned()), "no compiler here")] {
        let mut fallen_back = engine(options(package.clone(), false)).unwrap();
        let description = fallen_back.describe();
        assert!(description.starts_with("TorchScript (not compiled: ") && description.contains(cause), "{description}");
        assert!(run(fallen_back.as_mut(), 2).iter().any(|y| *y != 0.0));
        let error = engine(options(package, true)).err().unwrap();
        assert_eq!(error.kind, EngineErrorKind::Load);
        assert!(error.message.contains(cause), "{error}");
    }
}

#[test]
fn packages_that_come_and_go_at_one_time_all_find_their_files() {
    std::thread::scope(|scope| {
        for name in ["static.pt2", "dynamic.pt2", "static.pt2", "dynamic.pt2"] {
            scope.spawn(move || {
                for _ in 0..50 {
                    let options =
                        TorchOptions { pad_short: name == "static.pt2", ..options(Ok(made().join(name)), true) };
                    engine(options).unwrap();
                }
            });
        }
    });
}
