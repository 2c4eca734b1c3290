//! The way that CUDA devices are run, taken by the CPU: the same code over streams that are nothing and events that have always
//! happened. On a machine with CUDA devices `device --check` runs the same checks there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use haloflow_engine::{ElementKind, EngineErrorKind, EngineFactory, Timeline, fill_fixed};
use haloflow_engine_torch::{DeviceBench, TorchDevice, TorchFactory, TorchOptions, check_devices};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models").join(format!("{name}.pt"))
}

fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.pt"))
}

fn options(model: PathBuf) -> TorchOptions {
    TorchOptions {
        channels_out: Some(1),
        intra_op_threads: 2,
        through_ring: true,
        ..TorchOptions::new(model, TorchDevice::Cpu, 4, [6, 7, 8])
    }
}

#[test]
fn the_laws_of_the_seam_hold() {
    for kind in [ElementKind::F32, ElementKind::F16, ElementKind::Bf16] {
        for pad_short in [false, true] {
            let factory = || -> Box<dyn EngineFactory> {
                Box::new(TorchFactory::new(TorchOptions { kind, pad_short, ..options(golden("identity")) }))
            };
            assert_eq!(haloflow_engine::conformance::check(factory), Ok(()), "{kind}, padded: {pad_short}");
        }
    }
}

#[test]
fn two_hundred_batches_on_two_devices_are_the_bare_models() {
    for (model, channels) in [("box3", 1), ("two", 2)] {
        for graph in [false, true] {
            let options = TorchOptions { graph, channels_out: Some(channels), ..options(golden(model)) };
            let told = check_devices(&[options.clone(), options], 200).unwrap();
            assert!(told.iter().all(|told| told.starts_with("TorchScript, f32")), "{told:?}");
        }
    }
}

#[test]
fn a_difference_is_told() {
    let different = [options(golden("box3")), options(golden("affine"))];
    let told = check_devices(&different, 8).unwrap_err();
    assert!(told.starts_with("cpu: batch 0 differs from the bare model's output in "), "{told}");
}

#[test]
fn a_graph_that_cannot_be_had_is_done_without() {
    let graph = TorchOptions { graph: true, ..options(golden("box3")) };
    let mut engine = Box::new(TorchFactory::new(graph)).make().unwrap();
    assert!(engine.spec().pad_short);
    assert!(!engine.describe().contains("graph"), "{}", engine.describe());
    let slot = engine.allocate().unwrap();
    engine.fingerprint(slot).unwrap();
}

#[test]
fn a_module_that_throws_gives_the_slot_back_and_stays_usable() {
    let mut engine = Box::new(TorchFactory::new(options(own("throws")))).make().unwrap();
    let mut slot = engine.allocate().unwrap();
    slot.input.bytes_mut()[..4].copy_from_slice(&101.0_f32.to_ne_bytes());
    let submitted = slot.input.bytes().to_vec();
    let rejected = engine.submit(slot, 2).err().expect("the module throws");
    assert_eq!(rejected.error.kind, EngineErrorKind::Run);
    assert_eq!(rejected.slot.input.bytes(), submitted);
    engine.fingerprint(rejected.slot).unwrap();
}

#[test]
fn freed_slots_are_poisoned() {
    let mut engine = Box::new(TorchFactory::new(options(golden("identity")))).make().unwrap();
    let mut slot = engine.allocate().unwrap();
    fill_fixed(ElementKind::F32, 0, slot.input.bytes_mut());
    let slot = engine.submit(slot, 2).unwrap().wait().unwrap();
    if cfg!(debug_assertions) {
        assert!(slot.input.bytes().iter().all(|byte| *byte == 0xFF));
        let used = 2 * engine.spec().output_row_bytes();
        assert!(slot.output.bytes()[used..].iter().all(|byte| *byte == 0xFF));
    }
}

#[test]
fn every_step_of_every_batch_is_on_the_time_line() {
    let timeline = Arc::new(Timeline::default());
    let options = TorchOptions { timeline: Some(Arc::clone(&timeline)), ..options(golden("identity")) };
    let mut bench = DeviceBench::new(&options).unwrap();
    bench.stream(3, 5, |_, _| 4, |_, _| Ok(())).unwrap();
    let tracks: Vec<String> = timeline.spans().into_iter().map(|span| span.track).collect();
    for track in ["cpu upload", "cpu compute", "cpu download"] {
        assert_eq!(tracks.iter().filter(|told| *told == track).count(), 5, "{tracks:?}");
    }
}

#[test]
fn bare_runs_and_copies_are_timed_one_by_one() {
    let mut bench = DeviceBench::new(&options(golden("identity"))).unwrap();
    assert_eq!(bench.bare(&vec![0; bench.spec().batch * bench.spec().input_row_bytes()], 3).unwrap().len(), 3);
    let mut slot = bench.engine().allocate().unwrap();
    let [up, down] = bench.copies(&mut slot, 4).unwrap();
    assert_eq!((up.len(), down.len()), (4, 4));
}
