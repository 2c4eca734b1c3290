//! What only a CUDA device can show. Without one every test is skipped, and says so: this file has a `main` of its own because the
//! usual one keeps quiet about that.
//!
//! `cargo test --package haloflow-engine-torch --test cuda`
#![expect(clippy::print_stdout, reason = "the outcome of a test goes to the terminal")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop on what it did not expect")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use haloflow_engine::{ElementKind, Engine, EngineErrorKind, EngineFactory, Timeline, fill_fixed};
use haloflow_engine_torch::{
    DeviceBench, TorchDevice, TorchFactory, TorchOptions, check_devices, cuda_devices, fitting_batch, versions,
};

type Test = (&'static str, fn());

const TESTS: [Test; 7] = [
    ("the_laws_of_the_seam_hold", the_laws_of_the_seam_hold),
    ("two_hundred_batches_are_the_bare_models_with_and_without_a_graph", two_hundred_batches),
    ("a_module_that_throws_gives_the_slot_back_and_stays_usable", a_module_that_throws),
    ("freed_slots_are_poisoned_and_never_reused_too_early", freed_slots_are_poisoned),
    ("upload_compute_and_download_of_every_batch_are_on_the_time_line_in_order", the_time_line),
    ("without_tf32_a_convolution_is_ieee_f32", without_tf32_a_convolution_is_ieee_f32),
    ("too_large_a_batch_is_told_with_what_would_fit", too_large_a_batch),
];

fn main() -> ExitCode {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let mut failed = false;
    for (name, test) in TESTS.iter().filter(|(name, _)| name.contains(&wanted)) {
        if cuda_devices() == 0 {
            println!("test {name} ... skipped: no CUDA device ({})", versions());
            continue;
        }
        let passed = catch_unwind(AssertUnwindSafe(test)).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed |= !passed;
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models").join(format!("{name}.pt"))
}

fn options(model: PathBuf) -> TorchOptions {
    TorchOptions {
        channels_out: Some(1),
        kind: ElementKind::F16,
        ..TorchOptions::new(model, TorchDevice::Cuda(0), 4, [24, 25, 26])
    }
}

fn engine(options: TorchOptions) -> Box<dyn Engine> {
    Box::new(TorchFactory::new(options)).make().unwrap()
}

fn the_laws_of_the_seam_hold() {
    for kind in [ElementKind::F32, ElementKind::F16, ElementKind::Bf16] {
        for (pad_short, graph) in [(false, false), (true, false), (true, true)] {
            let factory = || -> Box<dyn EngineFactory> {
                Box::new(TorchFactory::new(TorchOptions { kind, pad_short, graph, ..options(golden("identity")) }))
            };
            assert_eq!(
                haloflow_engine::conformance::check(factory),
                Ok(()),
                "{kind}, padded {pad_short}, graph {graph}"
            );
        }
    }
}

/// On every device there is, and on two rings of the first if there is only one.
fn two_hundred_batches() {
    let count = cuda_devices().max(2);
    for (model, channels) in [("box3", 1), ("two", 2)] {
        for graph in [false, true] {
            let device = |index| TorchDevice::Cuda(index % cuda_devices());
            let of = |index| TorchOptions {
                graph,
                device: device(index),
                channels_out: Some(channels),
                ..options(golden(model))
            };
            let told = check_devices(&(0..count).map(of).collect::<Vec<_>>(), 200).unwrap();
            assert!(told.iter().all(|told| told.contains("CUDA graph") == graph), "{told:?}");
        }
    }
}

fn a_module_that_throws() {
    let throws = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/throws.pt");
    let mut engine = engine(TorchOptions { kind: ElementKind::F32, ..options(throws) });
    let mut slot = engine.allocate().unwrap();
    slot.input.bytes_mut().fill(0);
    slot.input.bytes_mut()[..4].copy_from_slice(&101.0_f32.to_ne_bytes());
    let submitted = slot.input.bytes().to_vec();
    let rejected = engine.submit(slot, 2).err().expect("the module throws");
    assert_eq!(rejected.error.kind, EngineErrorKind::Run);
    assert_eq!(rejected.slot.input.bytes(), submitted);
    engine.fingerprint(rejected.slot).unwrap();
}

/// In debug builds the ring asserts of every slot that both its events have happened before it is used again.
fn freed_slots_are_poisoned() {
    let mut engine = engine(options(golden("identity")));
    let mut slot = engine.allocate().unwrap();
    fill_fixed(ElementKind::F16, 0, slot.input.bytes_mut());
    let input = slot.input.bytes().to_vec();
    let slot = engine.submit(slot, 2).unwrap().wait().unwrap();
    let used = 2 * engine.spec().output_row_bytes();
    assert_eq!(slot.output.bytes()[..used], input[..used]);
    if cfg!(debug_assertions) {
        assert!(slot.input.bytes().iter().all(|byte| *byte == 0xFF));
        assert!(slot.output.bytes()[used..].iter().all(|byte| *byte == 0xFF));
    }
}

fn the_time_line() {
    let timeline = Arc::new(Timeline::default());
    let options =
        TorchOptions { timeline: Some(Arc::clone(&timeline)), batch: 64, patch: [64; 3], ..options(golden("box3")) };
    let mut bench = DeviceBench::new(&options).unwrap();
    bench.stream(3, 12, |_, _| 64, |_, _| Ok(())).unwrap();
    let spans = timeline.spans();
    let of = |name: &str| {
        let track = format!("cuda:0 {name}");
        let mut found: Vec<_> = spans.iter().filter(|span| span.track == track).collect();
        found.sort_by_key(|span| span.start);
        found
    };
    let [uploads, computes, downloads] = ["upload", "compute", "download"].map(of);
    // How far batches overlap is a figure: `device` of the examples measures it.
    assert_eq!([uploads.len(), computes.len(), downloads.len()], [12; 3]);
    for ((upload, compute), download) in uploads.iter().zip(&computes).zip(&downloads) {
        assert!(upload.end <= compute.start && compute.end <= download.start, "{upload:?} {compute:?} {download:?}");
    }
}

fn without_tf32_a_convolution_is_ieee_f32() {
    let on = |device| {
        let mut engine = engine(TorchOptions { kind: ElementKind::F32, device, ..options(golden("box3")) });
        let mut slot = engine.allocate().unwrap();
        fill_fixed(ElementKind::F32, 3, slot.input.bytes_mut());
        let rows = engine.spec().batch;
        let slot = engine.submit(slot, rows).unwrap().wait().unwrap();
        let values = slot.output.bytes().chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap()));
        values.collect::<Vec<f32>>()
    };
    let (cuda, cpu) = (on(TorchDevice::Cuda(0)), on(TorchDevice::Cpu));
    let scale = cpu.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    let difference = cuda.iter().zip(&cpu).fold(0.0_f32, |most, (a, b)| most.max((a - b).abs())) / scale;
    // TF32 keeps ten bits of each factor, which shows as 1e-4 and more.
    assert!(difference < 2e-6, "{difference:e}");
}

fn too_large_a_batch() {
    let large = TorchOptions { batch: 1 << 16, patch: [128; 3], ..options(golden("box3")) };
    let error = Box::new(TorchFactory::new(large.clone())).make().err().expect("no card has so much memory");
    assert_eq!(error.kind, EngineErrorKind::OutOfMemory);
    for part in ["GiB", "free", "`--batch auto`"] {
        assert!(error.message.contains(part), "{part} is not in: {}", error.message);
    }
    let (_, told) = error.message.rsplit_once("a batch of ").expect("it is told what would fit");
    let fits: usize = told.split_whitespace().next().unwrap().parse().unwrap();
    assert!((256..large.batch).contains(&fits), "{}", error.message);
    let found = std::thread::spawn(move || fitting_batch(&large)).join().unwrap().unwrap();
    assert!((1..=256).contains(&found), "{found}");
}
