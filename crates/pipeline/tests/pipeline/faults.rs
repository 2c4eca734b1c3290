//! Faults while a run streams: the first one is told, nothing is made up, everything ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use haloflow_engine::fake::Fake;
use haloflow_engine::{EngineError, EngineErrorKind};
use haloflow_pipeline::cast::NonFinite;
use haloflow_pipeline::{Fault, FaultKind, Report, RunSettings, Stage};
use haloflow_volume::{Element, Environment};
use proptest::prelude::*;

use crate::engines::{Director, Late, Wait};
use crate::memory::least_memory;
use crate::shapes::{FREE, cases, shape};
use crate::support::{
    Factories, Volume, block_on, complete, devices, execute, layout, load, plain, prepare, settings, spec, store, trim,
};

fn good() -> RunSettings {
    let mut settings = settings(layout([6; 3], [2; 3], trim(1)), plain(), 4);
    settings.layout.block = Some([8; 3]);
    settings
}

fn numbers() -> Volume {
    Volume::of_f32([24; 3], |i, _| i as f32)
}

/// Runs on three devices of the given kind; the run must fail, and must have let go of everything that engines hold.
fn failed(make: impl FnOnce(&RunSettings, &Arc<()>) -> Factories) -> (Report, Fault) {
    let settings = good();
    let alive = Arc::new(());
    let (report, ended) = block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &numbers(), [8; 3]).await;
        execute(&settings, &environment, make(&settings, &alive)).await
    });
    assert_eq!(Arc::strong_count(&alive), 1, "every device's thread has ended and its engine is gone");
    let fault = ended.unwrap_err();
    assert!(!report.complete && report.fault.as_ref() == Some(&fault), "{report:?}");
    assert!(report.work.blocks < report.work.blocks_total, "{report:?}");
    (report, fault)
}

/// Three identities that do something with the n-th batch of all.
fn on_batch(
    settings: &RunSettings,
    alive: &Arc<()>,
    nth: usize,
    event: impl Fn() -> Result<(), EngineError> + Clone + Send + Sync + 'static,
) -> Factories {
    let spec = spec(settings, 1);
    let seen = Arc::new(AtomicUsize::new(0));
    devices(3, |device| {
        let (seen, event, alive) = (Arc::clone(&seen), event.clone(), Arc::clone(alive));
        Fake::identity(device, spec.clone()).before(move |_| {
            let _alive = &alive;
            if seen.fetch_add(1, Ordering::SeqCst) == nth { event() } else { Ok(()) }
        })
    })
}

fn out_of_luck() -> EngineError {
    EngineError::new(EngineErrorKind::Run, "fake:x", "index 7 is out of luck")
}

fn assert_names_batch(fault: &Fault) {
    assert_eq!((fault.kind, fault.stage), (FaultKind::Engine, Stage::Device));
    assert_eq!(fault.message, "fake:x: index 7 is out of luck");
    let block = fault.block.as_ref().unwrap();
    assert!(block.starts_with("batch of 4 patches, the first in z "), "{block}");
    assert!(fault.to_string().contains(block) && fault.to_string().contains("stage device"), "{fault}");
}

#[test]
fn an_engine_that_fails_stops_the_run_with_its_message_and_the_block() {
    for nth in [0, 1, 7] {
        let (_, fault) = failed(|settings, alive| on_batch(settings, alive, nth, || Err(out_of_luck())));
        assert_names_batch(&fault);
    }
}

/// Fails, or panics, when the n-th batch is waited for.
struct FailsLate {
    nth: usize,
    seen: AtomicUsize,
    event: fn() -> EngineError,
    _alive: Arc<()>,
}

impl Director for FailsLate {
    fn submitted(&self) -> Wait {
        let (mine, event) = (self.seen.fetch_add(1, Ordering::SeqCst) == self.nth, self.event);
        Box::new(move || if mine { Err(event()) } else { Ok(()) })
    }
}

fn late(settings: &RunSettings, alive: &Arc<()>, nth: usize, event: fn() -> EngineError) -> Factories {
    let director = Arc::new(FailsLate { nth, seen: AtomicUsize::new(0), event, _alive: Arc::clone(alive) });
    let spec = spec(settings, 1);
    devices(3, |device| Late::new(Fake::identity(device, spec.clone()), &director))
}

#[test]
fn a_batch_that_fails_after_it_was_submitted_is_told_alike() {
    for nth in [0, 5] {
        let (_, fault) = failed(|settings, alive| late(settings, alive, nth, out_of_luck));
        assert_names_batch(&fault);
    }
}

#[test]
fn an_engine_that_panics_is_a_defect_and_ends_the_run() {
    let (_, fault) = failed(|settings, alive| on_batch(settings, alive, 2, || panic!("an engine that panics")));
    assert_eq!((fault.kind, fault.stage), (FaultKind::Internal, Stage::Device));
    assert!(fault.message.contains("fake:") && fault.message.contains("panicked"), "{fault}");
    let (_, fault) = failed(|settings, alive| late(settings, alive, 2, || panic!("a completion that panics")));
    assert_eq!((fault.kind, fault.stage), (FaultKind::Internal, Stage::Device));
}

#[test]
fn a_result_that_is_no_number_fails_and_names_its_voxel() {
    let volume = Volume::of_f32([24; 3], |i, at| if at == [13, 2, 19] { f32::NAN } else { i as f32 });
    let mut settings = good();
    let spec = spec(&settings, 1);
    block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &volume, [8; 3]).await;
        let identity = || devices(2, |device| Fake::identity(device, spec.clone()));
        let fault = execute(&settings, &environment, identity()).await.1.unwrap_err();
        assert_eq!((fault.kind, fault.stage), (FaultKind::Data, Stage::Write));
        assert!(fault.message.contains("voxel z 13, y 2, x 19 of channel 0 is NaN"), "{fault}");
        assert_eq!(fault.block.as_deref(), Some("block z 8..16, y 0..8, x 16..24"));
        settings.values.nonfinite = NonFinite::Replace(-7.0);
        settings.output.targets = vec!["memory://replaced".into()];
        let report = complete(&settings, &environment, identity()).await;
        assert_eq!(report.voxels.nonfinite, 1);
        let given = load(&environment, "memory://replaced", 1).await;
        let expected: Vec<f32> = volume.f32(0).iter().map(|&x| if x.is_nan() { -7.0 } else { x }).collect();
        assert!(given.f32(0) == expected);
    });
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Fails,
    Panics,
    Cancels,
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn whatever_happens_in_the_least_memory_the_run_ends(
        shape in shape(FREE),
        nth in any::<prop::sample::Index>(),
        event in prop::sample::select(vec![Event::Fails, Event::Panics, Event::Cancels]),
    ) {
        let mut settings = shape.settings();
        let (spec, volume, count) = (spec(&settings, 1), shape.volume(Element::U16), shape.devices());
        block_on(async {
            let identity = || devices(count, |device| Fake::identity(device, spec.clone()));
            settings.resources.memory = least_memory(&settings, &volume, shape.chunk, identity).await;
            let environment = Environment::empty();
            store(&environment, "memory://in", &volume, shape.chunk).await;
            let batches = complete(&settings, &environment, identity()).await.work.batches;
            settings.output.overwrite = true;
            let mut run = prepare(&settings, &environment, Vec::new());
            let (cancel, seen) = (run.cancel.clone(), Arc::new(AtomicUsize::new(0)));
            let nth = nth.index(batches as usize);
            run.factories = devices(count, |device| {
                let (cancel, seen) = (cancel.clone(), Arc::clone(&seen));
                Fake::identity(device, spec.clone()).before(move |_| match event {
                    _ if seen.fetch_add(1, Ordering::SeqCst) != nth => Ok(()),
                    Event::Fails => Err(out_of_luck()),
                    Event::Panics => panic!("an engine that panics"),
                    Event::Cancels => {
                        cancel.cancel();
                        Ok(())
                    }
                })
            });
            let (report, ended) = run.execute().await;
            match (event, ended) {
                // All may be through before anybody sees the wish.
                (Event::Cancels, Ok(())) => assert!(report.complete),
                (Event::Cancels, Err(fault)) => assert_eq!(fault.kind, FaultKind::Interrupted),
                (Event::Fails, Err(fault)) => assert_eq!(fault.kind, FaultKind::Engine),
                (Event::Panics, Err(fault)) => assert_eq!(fault.kind, FaultKind::Internal),
                (_, Ok(())) => panic!("{event:?} was not noticed"),
            }
        });
    }
}

/// Runs from one folder to another, with something done to a file before the run or with its second batch.
fn with_files(
    before: impl Fn(&std::path::Path),
    during: impl Fn(&std::path::Path) + Clone + Send + Sync + 'static,
) -> Fault {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = good();
    let [input, output] = ["in.zarr", "out.zarr"].map(|name| folder.path().join(name));
    settings.input.source = input.to_str().unwrap().into();
    settings.output.targets = vec![output.to_str().unwrap().into()];
    let fault = block_on(async {
        let environment = Environment::empty();
        store(&environment, &settings.input.source, &numbers(), [8; 3]).await;
        before(&input);
        let event = move || {
            during(&output);
            Ok(())
        };
        let factories = on_batch(&settings, &Arc::new(()), 0, event);
        execute(&settings, &environment, factories).await.1.unwrap_err()
    });
    assert!(fault.block.is_some(), "{fault}");
    fault
}

#[test]
fn a_truncated_chunk_names_its_key() {
    let truncate = |input: &std::path::Path| {
        let chunk = input.join("0/c/0/0/1/1/2");
        let whole = std::fs::read(&chunk).unwrap();
        std::fs::write(&chunk, &whole[..whole.len() / 2]).unwrap();
    };
    let fault = with_files(truncate, |_| {});
    assert_eq!((fault.kind, fault.stage), (FaultKind::Data, Stage::Read));
    assert!(fault.message.contains("in.zarr/0/c/0/0/1/1/2"), "{fault}");
}

#[test]
fn a_chunk_that_cannot_be_stored_names_its_key_and_block() {
    // A folder stands where the last chunk has to go.
    let occupy = |output: &std::path::Path| std::fs::create_dir_all(output.join("0/c/0/0/2/2/2/occupied")).unwrap();
    let fault = with_files(|_| {}, occupy);
    assert_eq!((fault.kind, fault.stage), (FaultKind::Unavailable, Stage::Write));
    assert!(fault.message.contains("out.zarr/0/c/0/0/2/2/2"), "{fault}");
    assert_eq!(fault.block.as_deref(), Some("block z 16..24, y 16..24, x 16..24"));
}
