//! Runs that stall, and runs that are asked to stop: they end in order, and what is stored is recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use haloflow_engine::fake::Fake;
use haloflow_pipeline::watchdog::Watchdog;
use haloflow_pipeline::{FaultKind, RunSettings, Stage};
use haloflow_volume::Environment;

use crate::engines::{Director, Gate, Late, Wait};
use crate::models::edge;
use crate::support::{
    Factories, Volume, block_on, complete, devices, layout, load, plain, prepare, result, settings, spec, store, trim,
};

fn good() -> RunSettings {
    let mut settings = settings(layout([6; 3], [2; 3], trim(1)), plain(), 4);
    settings.layout.block = Some([8; 3]);
    settings
}

fn numbers() -> Volume {
    Volume::of_f32([24; 3], |i, _| i as f32)
}

/// Runs with a watchdog until it has told of a stall, then lets the engines go. Gives the fault and the diagnosis.
fn stalled(gate: &Arc<Gate>, factories: impl FnOnce(&RunSettings) -> Factories) -> (haloflow_pipeline::Fault, String) {
    let folder = tempfile::tempdir().unwrap();
    let diagnosis = folder.path().join("diagnosis.json");
    let mut settings = good();
    settings.resources.watchdog = Some(Watchdog { limit: Duration::from_millis(400), diagnosis: diagnosis.clone() });
    block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &numbers(), [8; 3]).await;
        let run = prepare(&settings, &environment, factories(&settings));
        let running = tokio::spawn(run.execute());
        while !diagnosis.exists() {
            tokio::task::yield_now().await;
        }
        gate.open();
        let (report, ended) = running.await.unwrap();
        let fault = ended.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Interrupted, "{fault}");
        assert!(fault.message.contains("nothing has moved for 400ms (`watchdog`)"), "{fault}");
        assert!(fault.message.contains(diagnosis.to_str().unwrap()) && !report.complete, "{fault}");
        (fault, std::fs::read_to_string(&diagnosis).unwrap())
    })
}

#[test]
fn a_device_that_hangs_is_told_with_the_batch_it_holds() {
    let gate = Arc::new(Gate::default());
    let (fault, diagnosis) = stalled(&gate, |settings| {
        let spec = spec(settings, 1);
        devices(1, |device| {
            let gate = Arc::clone(&gate);
            Fake::identity(device, spec.clone()).before(move |batch| {
                if batch == 3 {
                    gate.pass();
                }
                Ok(())
            })
        })
    });
    assert_eq!(fault.stage, Stage::Device);
    let block = fault.block.unwrap();
    assert!(block.starts_with("fake:0 has batch 3, batch of 4 patches, the first in z "), "{block}");
    let told: serde_json::Value = serde_json::from_str(&diagnosis).unwrap();
    assert_eq!(told["stalled"], "device");
    let stages = told["stages"].as_array().unwrap();
    let device = stages.iter().find(|state| state["stage"] == "device").unwrap();
    assert!(device["holds"][0]["what"].as_str().unwrap().starts_with("fake:0 has batch 3"), "{diagnosis}");
    assert!(device["holds"][0]["for_seconds"].as_f64().unwrap() >= 0.4, "{diagnosis}");
    assert!(told["clocks"]["device"]["items"].as_u64().unwrap() >= 3, "{diagnosis}");
}

/// Holds up whoever waits for the third batch.
struct HangsThird(Arc<Gate>, AtomicUsize);

impl Director for HangsThird {
    fn submitted(&self) -> Wait {
        let (gate, third) = (Arc::clone(&self.0), self.1.fetch_add(1, Ordering::SeqCst) == 2);
        Box::new(move || {
            if third {
                gate.pass();
            }
            Ok(())
        })
    }
}

#[test]
fn a_batch_that_never_lands_is_told_with_its_device() {
    let gate = Arc::new(Gate::default());
    let director = Arc::new(HangsThird(Arc::clone(&gate), AtomicUsize::new(0)));
    let (fault, diagnosis) = stalled(&gate, |settings| {
        let spec = spec(settings, 1);
        devices(1, |device| Late::new(Fake::identity(device, spec.clone()), &director))
    });
    assert_eq!(fault.stage, Stage::Device);
    assert!(diagnosis.contains("fake:0 has batch 2, batch of 4 patches"), "{diagnosis}");
}

#[test]
fn a_run_that_is_asked_to_stop_finishes_what_is_on_the_devices() {
    let settings = good();
    block_on(async {
        let expected = {
            let spec = spec(&settings, 1);
            result(&settings, &numbers(), [8; 3], devices(1, |device| edge(device, spec.clone()))).await
        };
        let environment = Environment::empty();
        store(&environment, "memory://in", &numbers(), [8; 3]).await;
        let mut before = 0;
        for batches in [3, 5, 7] {
            let mut run = prepare(&settings, &environment, Vec::new());
            let (drain, spec) = (run.drain.clone(), spec(&settings, 1));
            run.factories = devices(2, |device| {
                let drain = drain.clone();
                edge(device, spec.clone()).before(move |batch| {
                    if batch == batches {
                        drain.cancel();
                    }
                    Ok(())
                })
            });
            let (report, ended) = run.execute().await;
            assert_eq!(ended.unwrap_err().kind, FaultKind::Interrupted);
            assert_eq!(report.stages.device.items, report.work.batches, "every batch that was begun is merged");
            assert!(report.work.blocks < report.work.blocks_total && report.work.blocks_before >= before);
            before = report.work.blocks_before + report.work.blocks;
        }
        let spec = spec(&settings, 1);
        let last = complete(&settings, &environment, devices(2, |device| edge(device, spec.clone()))).await;
        assert_eq!(last.work.blocks_before, before, "every block that was stored is recorded");
        assert!(load(&environment, "memory://out", 1).await == expected);
    });
}

#[test]
fn a_run_that_cannot_finish_what_it_has_begun_is_cancelled_after_its_time() {
    let mut settings = good();
    settings.resources.drain_timeout = Duration::from_millis(50);
    let (gate, spec) = (Arc::new(Gate::default()), spec(&settings, 1));
    block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &numbers(), [8; 3]).await;
        let mut run = prepare(&settings, &environment, Vec::new());
        let cancel = run.cancel.clone();
        run.factories = devices(1, |device| {
            let (gate, cancel) = (Arc::clone(&gate), cancel.clone());
            Fake::identity(device, spec.clone()).before(move |_| {
                assert!(!cancel.is_cancelled(), "nobody has cancelled it from outside");
                gate.pass();
                Ok(())
            })
        });
        let drain = run.drain.clone();
        let running = tokio::spawn(run.execute());
        let somebody = Arc::clone(&gate);
        tokio::task::spawn_blocking(move || somebody.wait_for_somebody()).await.unwrap();
        drain.cancel();
        // It gives up although the engine still hangs; the engine is left behind once the run's grace is over.
        let (report, ended) = running.await.unwrap();
        assert_eq!(ended.unwrap_err().kind, FaultKind::Interrupted);
        assert!(report.work.blocks < report.work.blocks_total);
        gate.open();
    });
}
