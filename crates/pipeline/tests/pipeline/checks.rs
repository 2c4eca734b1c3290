//! What is refused before any output is created.

use std::path::PathBuf;
use std::sync::Arc;

use haloflow_engine::fake::Fake;
use haloflow_engine::{Engine, EngineError, EngineErrorKind, EngineFactory, EngineSpec};
use haloflow_geometry::Seam;
use haloflow_pipeline::normalise::Normalisation;
use haloflow_pipeline::{Fault, FaultKind, LatticeChoice, RunSettings, Stage};
use haloflow_volume::Environment;

use crate::support::{Factories, Volume, block_on, devices, execute, layout, plain, settings, spec, store, trim};

/// Settings that work, over a stored volume; the output is a folder that is not there.
fn good(folder: &tempfile::TempDir) -> (RunSettings, PathBuf) {
    let mut settings = settings(layout([8; 3], [2; 3], trim(1)), plain(), 4);
    let out = folder.path().join("out.zarr");
    settings.output.targets = vec![out.to_str().unwrap().to_owned()];
    (settings, out)
}

fn identity(spec: &EngineSpec) -> Factories {
    devices(1, |device| Fake::identity(device, spec.clone()))
}

/// Runs changed settings on changed engines; the run must be refused and leave nothing behind.
fn refused(change: impl FnOnce(&mut RunSettings), engine: impl FnOnce(&mut EngineSpec)) -> Fault {
    let folder = tempfile::tempdir().unwrap();
    let (mut settings, out) = good(&folder);
    change(&mut settings);
    let mut spec = spec(&settings, 1);
    engine(&mut spec);
    let (report, ended) = block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &Volume::of_f32([20; 3], |i, _| i as f32), [8; 3]).await;
        execute(&settings, &environment, identity(&spec)).await
    });
    let fault = ended.unwrap_err();
    assert!(!report.complete && report.fault.as_ref() == Some(&fault));
    assert!(!out.exists(), "{fault}");
    fault
}

fn assert_told(fault: &Fault, kind: FaultKind, words: &[&str]) {
    assert_eq!(fault.kind, kind, "{fault}");
    for word in words {
        assert!(fault.message.contains(word), "{word:?} is not in: {fault}");
    }
}

#[test]
fn layouts_that_cannot_work() {
    let told = |change: fn(&mut RunSettings), words: &[&str]| {
        let fault = refused(change, |_| {});
        assert_told(&fault, FaultKind::Usage, words);
        assert_eq!(fault.stage, Stage::Plan);
    };
    told(|settings| settings.layout.overlap[1] = 8, &["`overlap` is 8", "`patch` is 8", "axis y"]);
    told(|settings| settings.layout.block = Some([8, 8, 7]), &["`block` is 7", "`patch` is 8", "axis x"]);
    told(|settings| settings.layout.seam = trim(2), &["`trim-voxels` is 2", "`overlap` is 2"]);
    told(|settings| settings.layout.seam = Seam::Blend { floor: 0.0, margin: [0; 3] }, &["`min-blend-weight` is 0"]);
    told(|settings| settings.layout.align = [1, 1, 7], &["`align` is 7", "axis x"]);
    told(
        |settings| {
            settings.layout.lattice = Some(LatticeChoice::Volume);
            settings.values.normalisation = Normalisation::Percentile { percentiles: [1.0, 99.0] };
        },
        &["`lattice` is volume", "--normalize volume"],
    );
}

#[test]
fn values_that_cannot_work() {
    let told = |change: fn(&mut RunSettings), words: &[&str]| {
        assert_told(&refused(change, |_| {}), FaultKind::Usage, words);
    };
    told(
        |settings| settings.values.normalisation = Normalisation::Global { bounds: [3.0, 3.0] },
        &["`norm-lower`", "3"],
    );
    told(|settings| settings.values.normalisation = Normalisation::Global { bounds: [0.0, 1e300] }, &["finite"]);
    told(
        |settings| settings.values.normalisation = Normalisation::Volume { percentiles: [-1.0, 99.0] },
        &["`norm-upper`", "-1", "between 0 and 100"],
    );
    told(|settings| settings.values.clip = Some([1.0, 0.0]), &["`clip-norm`"]);
    told(|settings| settings.values.clip = Some([f32::NAN, 0.0]), &["`clip-norm`"]);
    told(|settings| settings.values.eps = 0.0, &["`eps` is 0"]);
    told(|settings| settings.resources.writer_workers = 0, &["`writer-workers` is 0"]);
    told(|settings| settings.resources.memory = 1000, &["`memory` is 1 KiB", "needs at least", "Give more memory"]);
    told(|settings| settings.resources.batch = 1 << 40, &["`batch` is 1099511627776", "`memory`"]);
    told(|settings| settings.resources.batch = usize::MAX, &["`batch` is", "`memory`"]);
    told(|settings| settings.input.t = 1, &["--t 1"]);
}

#[test]
fn models_that_do_not_fit() {
    let told = |engine: fn(&mut EngineSpec), words: &[&str]| {
        assert_told(&refused(|_| {}, engine), FaultKind::Data, words);
    };
    told(|spec| spec.channels_in = 2, &["takes 2 channels", "names 1"]);
    told(|spec| spec.channels_out = 3, &["gives 3 channels", "`out` names 1 output;"]);
    told(|spec| spec.patch = [8, 8, 9], &["[8, 8, 9]", "`patch` is [8, 8, 8]"]);
}

#[test]
fn an_output_that_exists_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, out) = good(&folder);
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("zarr.json"), "precious").unwrap();
    let ended = block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &Volume::of_f32([20; 3], |i, _| i as f32), [8; 3]).await;
        execute(&settings, &environment, identity(&spec(&settings, 1))).await.1
    });
    assert_told(&ended.unwrap_err(), FaultKind::Data, &["exists", "--overwrite"]);
    assert_eq!(std::fs::read_to_string(out.join("zarr.json")).unwrap(), "precious");
}

/// A factory of an engine that never becomes ready.
struct Broken(fn() -> EngineError);

impl EngineFactory for Broken {
    fn device(&self) -> String {
        "fake:broken".into()
    }

    fn make(self: Box<Self>) -> Result<Box<dyn Engine>, EngineError> {
        Err((self.0)())
    }
}

/// Starts two devices of which the second does not become ready or does not agree, and counts the engines that are left.
fn start_with(second: impl FnOnce(&EngineSpec) -> Box<dyn EngineFactory>) -> Fault {
    let folder = tempfile::tempdir().unwrap();
    let (settings, out) = good(&folder);
    let spec = spec(&settings, 1);
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let first = Fake::identity("fake:0", spec.clone()).before(move |_| {
        let _alive = &held;
        Ok(())
    });
    let (_, ended) = block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &Volume::of_f32([20; 3], |i, _| i as f32), [8; 3]).await;
        execute(&settings, &environment, vec![Box::new(first), second(&spec)]).await
    });
    assert_eq!(Arc::strong_count(&alive), 1, "the first device's thread has ended and its engine is gone");
    assert!(!out.exists());
    ended.unwrap_err()
}

#[test]
fn a_device_that_does_not_start_ends_the_others() {
    let lost = || EngineError::new(EngineErrorKind::NoSuchDevice, "fake:broken", "there is no such device");
    assert_told(&start_with(|_| Box::new(Broken(lost))), FaultKind::Usage, &["fake:broken: there is no such device"]);
    let panicking: fn() -> EngineError = || panic!("a loader that panics");
    let fault = start_with(|_| Box::new(Broken(panicking)));
    assert_told(&fault, FaultKind::Internal, &["fake:broken", "panicked"]);
    let other = |spec: &EngineSpec| EngineSpec { batch: spec.batch + 1, ..spec.clone() };
    let fault = start_with(|spec| Box::new(Fake::identity("fake:1", other(spec))));
    assert_told(&fault, FaultKind::Engine, &["fake:0", "fake:1", "disagree"]);
}

#[test]
fn no_device_at_all_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, out) = good(&folder);
    let (_, ended) = block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &Volume::of_f32([20; 3], |i, _| i as f32), [8; 3]).await;
        execute(&settings, &environment, Vec::new()).await
    });
    assert_told(&ended.unwrap_err(), FaultKind::Usage, &["`devices` is empty"]);
    assert!(!out.exists());
}
