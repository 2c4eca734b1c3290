//! Memory: a run holds what its plan says and no more, and what its plan says is enough.

use std::sync::Arc;

use haloflow_engine::fake::Fake;
use haloflow_pipeline::{FaultKind, Report, RunSettings};
use haloflow_volume::{Element, Environment};
use proptest::prelude::*;

use crate::models::edge;
use crate::shapes::{FREE, Rules, Shape, cases, shape};
use crate::support::{
    Factories, Volume, block_on, complete, devices, layout, plain, prepare, settings, spec, store, trim,
};

/// The report of a run that is stopped as soon as its memory has been split.
async fn planned(settings: &RunSettings, environment: &Environment, factories: Factories) -> Report {
    let mut settings = settings.clone();
    settings.output.overwrite = true;
    let run = prepare(&settings, environment, factories);
    let (cancel, progress) = (run.cancel.clone(), Arc::clone(&run.progress));
    let running = tokio::spawn(run.execute());
    while !["taking statistics", "streaming", "done"].contains(&progress.doing().as_str()) {
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    let (report, ended) = running.await.unwrap();
    // All may be through before the run sees the wish.
    assert!(ended.is_ok() || ended.is_err_and(|fault| fault.kind == FaultKind::Interrupted));
    report
}

/// The least memory that a run is admitted with: no byte is left beyond its need.
pub(crate) async fn least_memory(
    settings: &RunSettings,
    volume: &Volume,
    chunk: [usize; 3],
    factories: impl Fn() -> Factories,
) -> u64 {
    let environment = Environment::empty();
    store(&environment, "memory://in", volume, chunk).await;
    let mut settings = settings.clone();
    // Every plan is one of a run from the beginning.
    (settings.output.overwrite, settings.output.resume) = (true, false);
    loop {
        let memory = planned(&settings, &environment, factories()).await.memory;
        if memory.leases + memory.cache == memory.need {
            return memory.total;
        }
        settings.resources.memory = memory.slots + memory.transfer + memory.need;
    }
}

/// Runs with the least memory that is admitted.
fn runs_in_the_least_memory(shape: &Shape, mut settings: RunSettings, channels_out: usize, count: usize) {
    let spec = spec(&settings, channels_out);
    settings.output.stack_channels = true;
    let factories = || devices(count, |device| Fake::identity(device, spec.clone()));
    let volume = shape.volume(Element::U16);
    block_on(async {
        settings.resources.memory = least_memory(&settings, &volume, shape.chunk, factories).await;
        let environment = Environment::empty();
        store(&environment, "memory://in", &volume, shape.chunk).await;
        let report = complete(&settings, &environment, factories()).await;
        assert_eq!(report.memory.leases, report.memory.need);
        assert_eq!(report.memory.cache, 0);
        if settings.resources.batch == 1 {
            // No patch waits for a batch to fill, so the need is not only enough: it is what is held at the tightest step.
            assert_eq!(report.peak_leased_bytes, report.memory.need);
        }
    });
}

proptest! {
    #![proptest_config(cases(160))]

    #[test]
    fn the_least_memory_is_enough(
        shape in shape(Rules { longest: 22, ..FREE }),
        batch in prop_oneof![1..4_usize, 4..40_usize, Just(5000)],
        channels_out in 1..3_usize,
        slots in 1..4_usize,
    ) {
        let mut settings = shape.settings();
        settings.resources.batch = batch;
        settings.resources.max_inflight_batches = slots;
        settings.resources.memory = 1 << 34;
        runs_in_the_least_memory(&shape, settings, channels_out, shape.devices());
    }
}

#[test]
fn one_slot_for_a_batch_larger_than_all_patches_is_enough() {
    let shape =
        Shape { volume: [9, 30, 31], chunk: [3, 5, 7], layout: layout([4, 4, 4], [2; 3], trim(1)), free: [0; 8] };
    for batch in [1, 7, 64, 100_000] {
        let mut settings = shape.settings();
        settings.layout.block = Some([4, 5, 6]);
        settings.resources.batch = batch;
        settings.resources.max_inflight_batches = 1;
        settings.resources.memory = 1 << 40;
        runs_in_the_least_memory(&shape, settings, 1, 1);
    }
}

/// Takes the same memory for a volume eight times as large.
#[test]
fn memory_does_not_grow_with_the_volume() {
    let mut settings = settings(layout([8; 3], [4; 3], trim(2)), plain(), 4);
    settings.layout.block = Some([8; 3]);
    let spec = spec(&settings, 1);
    let mut reports = Vec::new();
    let small = Volume::of_f32([24; 3], |i, _| i as f32);
    block_on(async {
        settings.resources.memory =
            least_memory(&settings, &small, [8; 3], || devices(1, |device| edge(device, spec.clone()))).await;
        for side in [24, 48] {
            let environment = Environment::empty();
            store(&environment, "memory://in", &Volume::of_f32([side; 3], |i, _| i as f32), [8; 3]).await;
            reports.push(complete(&settings, &environment, devices(1, |device| edge(device, spec.clone()))).await);
        }
    });
    let [small, large] = &reports[..] else { panic!("two runs have two reports") };
    assert_eq!(large.work.blocks, 8 * small.work.blocks);
    assert!(large.peak_leased_bytes <= small.memory.need && small.peak_leased_bytes > 0, "{small:?} {large:?}");
}
