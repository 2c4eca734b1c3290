//! What a run would do, told before it is done.

use std::time::Duration;

use haloflow_engine::fake::Fake;
use haloflow_pipeline::normalise::Normalisation;
use haloflow_pipeline::pyramid::Pyramid;
use haloflow_pipeline::{FaultKind, Part, RunSettings};
use haloflow_volume::{CpuPool, Environment, Levels, VolumeReader};

use crate::support::{
    Factories, Volume, block_on, complete, devices, input_options, layout, plain, prepare, settings, spec, store, trim,
};

fn good() -> RunSettings {
    let mut settings = settings(layout([6; 3], [2; 3], trim(1)), plain(), 4);
    (settings.layout.block, settings.output.chunk) = (Some([8; 3]), Some([4; 3]));
    settings
}

fn numbers() -> Volume {
    Volume::of_f32([40; 3], |i, _| i as f32)
}

fn identities(settings: &RunSettings) -> Factories {
    let spec = spec(settings, 1);
    devices(2, |device| Fake::identity(device, spec.clone()))
}

/// Whether there is anything where the output goes.
async fn is_there(environment: &Environment) -> bool {
    let options = haloflow_volume::InputOptions { source: "memory://out".into(), ..input_options() };
    VolumeReader::open(&options, environment, &CpuPool::new(std::num::NonZeroUsize::MIN).unwrap()).await.is_ok()
}

#[test]
fn a_run_does_what_was_forecast_and_the_forecast_touches_nothing() {
    for (normalisation, levels) in [
        (Normalisation::None, Levels::One),
        (Normalisation::Volume { percentiles: [1.0, 99.0] }, Levels::Count(2)),
        (Normalisation::Percentile { percentiles: [1.0, 99.0] }, Levels::One),
    ] {
        let mut settings = good();
        settings.values.normalisation = normalisation;
        settings.pyramid = Pyramid { levels, ..Pyramid::default() };
        block_on(async {
            let environment = Environment::empty();
            store(&environment, "memory://in", &numbers(), [8; 3]).await;
            let run = prepare(&settings, &environment, identities(&settings));
            let forecast = run.forecast(Some(48)).await.unwrap();
            assert!(!is_there(&environment).await);
            let calibration = forecast.calibration.as_ref().unwrap();
            assert!(calibration.patches >= 24 && calibration.patches < forecast.work.patches_total, "{calibration:?}");
            assert!(calibration.blocks >= 1 && calibration.blocks < forecast.work.blocks_total, "{calibration:?}");
            // Nothing is compressed; metadata comes to it.
            assert!((1.0..1.6).contains(&calibration.stored_over_raw_written), "{calibration:?}");
            assert!(calibration.patches_per_second > 0.0 && calibration.predicted_seconds > 0.0, "{calibration:?}");
            let report = complete(&settings, &environment, identities(&settings)).await;
            let (planned, done) = (&forecast.work, &report.work);
            assert_eq!((planned.blocks_total, planned.patches_total), (done.blocks, done.patches));
            assert_eq!((planned.redundancy, planned.column), (done.redundancy, done.column));
            assert_eq!(forecast.memory, report.memory);
            assert_eq!((forecast.traffic.chunks, forecast.traffic.reads_once), (125, true));
            let passes = if matches!(normalisation, Normalisation::Volume { .. }) { 2..9 } else { 1..2 };
            assert!(passes.contains(&(report.storage_read.chunks_decoded / 125)), "{:?}", report.storage_read);
            // Metadata comes to it: an array for each level, and the group, at the beginning and at the end.
            let metadata = report.storage_written.objects_written - forecast.traffic.objects;
            assert!((1..=6).contains(&metadata), "{:?} and {:?}", report.storage_written, forecast.traffic);
        });
    }
}

#[test]
fn without_a_calibration_the_plan_alone_is_told() {
    let mut settings = good();
    settings.part = Part::Shard { index: 1, count: 4 };
    block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &numbers(), [8; 3]).await;
        let forecast = prepare(&settings, &environment, identities(&settings)).forecast(None).await.unwrap();
        assert!(forecast.calibration.is_none() && !is_there(&environment).await);
        assert_eq!((forecast.blocks_per_part, forecast.work.blocks_total), (Some([31, 32]), 31));
    });
}

#[test]
fn nothing_faster_than_the_device_is_forecast() {
    let settings = good();
    block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &numbers(), [8; 3]).await;
        let spec = spec(&settings, 1);
        let slow = devices(1, |device| {
            Fake::identity(device, spec.clone()).before(|_| {
                let began = std::time::Instant::now();
                while began.elapsed() < Duration::from_millis(10) {}
                Ok(())
            })
        });
        let forecast = prepare(&settings, &environment, slow).forecast(Some(200)).await.unwrap();
        let calibration = forecast.calibration.unwrap();
        // Four patches in ten milliseconds, and not faster; who looks at the progress may be late. Without the device it would be thousands.
        assert!(calibration.patches_per_second <= 800.0, "{calibration:?}");
        let predicted = forecast.work.patches_total as f64 / calibration.patches_per_second;
        assert!(calibration.predicted_seconds >= predicted, "{calibration:?}");
    });
}

#[test]
fn what_would_end_the_run_ends_the_forecast() {
    let mut settings = good();
    settings.resources.memory = 1 << 10;
    block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &numbers(), [8; 3]).await;
        let fault = prepare(&settings, &environment, identities(&settings)).forecast(Some(8)).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Usage);
        assert!(fault.message.contains("`memory`"), "{fault}");
    });
}
