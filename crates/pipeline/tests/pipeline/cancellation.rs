//! Runs that somebody stops.

use std::sync::Arc;

use haloflow_engine::fake::Fake;
use haloflow_pipeline::{Fault, FaultKind, Report, Run, RunSettings};
use haloflow_volume::Environment;

use crate::engines::{Director, Gate, Late, Wait};
use crate::support::{Volume, block_on, devices, layout, plain, prepare, settings, spec, store, trim};

fn good() -> RunSettings {
    let mut settings = settings(layout([6; 3], [2; 3], trim(1)), plain(), 2);
    settings.layout.block = Some([8; 3]);
    settings
}

async fn stored() -> Environment {
    let environment = Environment::empty();
    store(&environment, "memory://in", &Volume::of_f32([32; 3], |i, _| i as f32), [8; 3]).await;
    environment
}

fn assert_interrupted(report: &Report, ended: Result<(), Fault>) {
    let fault = ended.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Interrupted, "{fault}");
    assert!(!report.complete && report.fault == Some(fault), "{report:?}");
}

#[test]
fn a_run_that_is_stopped_before_it_begins_creates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = good();
    let out = folder.path().join("out.zarr");
    settings.output.targets = vec![out.to_str().unwrap().into()];
    let spec = spec(&settings, 1);
    block_on(async {
        let run = prepare(&settings, &stored().await, devices(2, |device| Fake::identity(device, spec.clone())));
        run.cancel.cancel();
        let (report, ended) = run.execute().await;
        assert_interrupted(&report, ended);
    });
    assert!(!out.exists());
}

#[test]
fn a_run_that_is_stopped_while_it_streams_ends() {
    let settings = good();
    let spec = spec(&settings, 1);
    for nth in [0, 3, 20] {
        let (report, ended) = block_on(async {
            let mut run = prepare(&settings, &stored().await, Vec::new());
            let cancel = run.cancel.clone();
            run.factories = devices(2, |device| {
                let cancel = cancel.clone();
                Fake::identity(device, spec.clone()).before(move |batch| {
                    if batch == nth {
                        cancel.cancel();
                    }
                    Ok(())
                })
            });
            run.execute().await
        });
        assert_interrupted(&report, ended);
        assert!(report.work.blocks < report.work.blocks_total);
        assert!(report.work.batches <= 2 * nth as u64 + 8, "little is done after the wish: {report:?}");
    }
}

/// Stops a run while an engine hangs, then lets the engine go: the run ends only then, and ends as interrupted.
async fn stopped_while_hanging(run: Run, gate: Arc<Gate>) {
    let cancel = run.cancel.clone();
    let running = tokio::spawn(run.execute());
    let somebody = Arc::clone(&gate);
    tokio::task::spawn_blocking(move || somebody.wait_for_somebody()).await.unwrap();
    cancel.cancel();
    for _ in 0..500_000 {
        // A run that left something hanging behind would be over long before this loop is.
        tokio::task::yield_now().await;
        assert!(!running.is_finished(), "the run ended while a device held one of its batches");
    }
    gate.open();
    let (report, ended) = running.await.unwrap();
    assert_interrupted(&report, ended);
}

#[test]
fn an_engine_that_hangs_in_a_batch_holds_a_stopped_run_no_longer_than_it_hangs() {
    let settings = good();
    let spec = spec(&settings, 1);
    let gate = Arc::new(Gate::default());
    block_on(async {
        let factories = devices(2, |device| {
            let gate = Arc::clone(&gate);
            Fake::identity(device, spec.clone()).before(move |batch| {
                if batch == 1 {
                    gate.pass();
                }
                Ok(())
            })
        });
        stopped_while_hanging(prepare(&settings, &stored().await, factories), Arc::clone(&gate)).await;
    });
    assert_eq!(Arc::strong_count(&gate), 1, "every engine is gone");
}

/// Holds up everybody who waits for a batch.
struct HangsLate(Arc<Gate>);

impl Director for HangsLate {
    fn submitted(&self) -> Wait {
        let gate = Arc::clone(&self.0);
        Box::new(move || {
            gate.pass();
            Ok(())
        })
    }
}

#[test]
fn a_batch_that_hangs_on_its_device_holds_a_stopped_run_no_longer_than_it_hangs() {
    let settings = good();
    let spec = spec(&settings, 1);
    let gate = Arc::new(Gate::default());
    let director = Arc::new(HangsLate(Arc::clone(&gate)));
    block_on(async {
        let late = |device: &str| Late::new(Fake::identity(device, spec.clone()), &director);
        stopped_while_hanging(prepare(&settings, &stored().await, devices(2, late)), Arc::clone(&gate)).await;
    });
    assert_eq!(
        Arc::strong_count(&gate),
        2,
        "nobody waits for a batch any more: the director's gate and this one are left"
    );
}
