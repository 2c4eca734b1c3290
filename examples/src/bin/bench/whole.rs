//! All stages together: a run as `haloflow run` makes it, with an identity in the network's place.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use haloflow_engine::fake::Fake;
use haloflow_engine::{ElementKind, EngineSpec};
use haloflow_examples::volume::input;
use haloflow_geometry::{Seam, Zyx};
use haloflow_pipeline::cast::{NonFinite, Rounding};
use haloflow_pipeline::cut::Padding;
use haloflow_pipeline::normalise::Normalisation;
use haloflow_pipeline::pyramid::Pyramid;
use haloflow_pipeline::skip::Skip;
use haloflow_pipeline::{LatticeChoice, Layout, Part, Progress, Report, Resources, Run, RunSettings, Values};
use haloflow_volume::{Element, Environment, OutputRequest};
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Taken};

const PATCH: Zyx = [64; 3];
const OVERLAP: Zyx = [10; 3];
const BATCH: usize = 8;

/// The percentiles of the volume that become 0 and 1.
pub(crate) const PERCENTILES: [f64; 2] = [0.5, 99.9];

/// Least span of a normalisation.
pub(crate) const EPS: f64 = 1e-6;

/// The settings of the run.
pub(crate) fn settings(source: &str, target: &str, threads: NonZeroUsize) -> RunSettings {
    RunSettings {
        input: input(source),
        output: output(target),
        layout: Layout {
            patch: PATCH,
            overlap: OVERLAP,
            block: None,
            lattice: Some(LatticeChoice::Volume),
            halo: None,
            align: [1; 3],
            seam: Seam::Blend { floor: 0.05, margin: [0; 3] },
        },
        values: Values {
            normalisation: Normalisation::Volume { percentiles: PERCENTILES },
            statistics_level: None,
            eps: EPS,
            clip: None,
            denormalise: true,
            padding: Padding::Reflect,
            rounding: Rounding::NearestEven,
            nonfinite: NonFinite::Fail,
            after: Vec::new(),
        },
        resources: Resources {
            memory: 4 << 30,
            batch: BATCH,
            max_inflight_batches: 64,
            prep_workers: 4,
            writer_workers: 4,
            watchdog: None,
            drain_timeout: std::time::Duration::ZERO,
            quarantine: 0,
            threads,
        },
        pyramid: Pyramid::default(),
        skip: Skip::default(),
        part: Part::Whole,
        network: Default::default(),
    }
}

fn output(target: &str) -> OutputRequest {
    OutputRequest {
        targets: vec![target.to_owned()],
        stack_channels: false,
        element: None,
        default_element: Element::U16,
        chunk: None,
        shard: None,
        format: None,
        compressor: None,
        t: None,
        c: None,
        input_t: 0,
        input_c: 0,
        overwrite: true,
        resume: false,
        shared: false,
        block: None,
        provenance: serde_json::Value::Null,
    }
}

/// The same with the numbers of the normalisation given, so that nothing but streaming is left to do: the bytes are the same.
pub(crate) fn without_statistics(settings: &RunSettings, [low, high]: [f64; 2]) -> RunSettings {
    let given = Some([low, high - low]);
    let values = Values { normalisation: Normalisation::ZScore { given }, ..settings.values.clone() };
    RunSettings { values, ..settings.clone() }
}

/// What the identity takes and gives.
pub(crate) const fn spec(settings: &RunSettings) -> EngineSpec {
    EngineSpec {
        batch: settings.resources.batch,
        patch: settings.layout.patch,
        channels_in: 1,
        channels_out: 1,
        input: ElementKind::F16,
        output: ElementKind::F16,
        pad_short: false,
    }
}

/// Moves outputs of earlier runs aside. They are deleted with the benchmark's folder: for some seconds after many files were deleted, ext4
/// looks long for a place for new ones, which is no run's work.
pub(crate) fn make_way(settings: &RunSettings) -> Result<()> {
    for target in settings.output.targets.iter().map(Path::new).filter(|target| target.exists()) {
        let mut places = (0..).map(|number: u32| target.with_extension(number.to_string()));
        let aside = places.find(|place| !place.exists()).context("there is no place for an earlier output")?;
        std::fs::rename(target, aside).with_context(|| format!("{} cannot be moved", target.display()))?;
    }
    Ok(())
}

/// Runs from beginning to end: the report, and what it took.
pub(crate) async fn run(settings: &RunSettings) -> Result<(Report, Taken)> {
    make_way(settings)?;
    let run = Run {
        settings: settings.clone(),
        environment: Environment::empty(),
        factories: vec![Box::new(Fake::identity("cpu", spec(settings)))],
        drain: CancellationToken::new(),
        cancel: CancellationToken::new(),
        progress: Arc::new(Progress::default()),
        timeline: None,
        blocks: None,
    };
    let clock = Clock::start();
    let (report, ended) = run.execute().await;
    let took = clock.taken();
    ended.context("the benchmark's run failed")?;
    Ok((report, took))
}
