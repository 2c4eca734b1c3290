//! Volumes in a store in memory, and runs over them.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use haloflow_engine::fake::Fake;
use haloflow_engine::{ElementKind, EngineFactory, EngineSpec};
use haloflow_geometry::{Box3, Seam, Zyx};
use haloflow_pipeline::cast::{NonFinite, Rounding};
use haloflow_pipeline::cut::Padding;
use haloflow_pipeline::normalise::Normalisation;
use haloflow_pipeline::pyramid::Pyramid;
use haloflow_pipeline::recipe::Recipe;
use haloflow_pipeline::skip::Skip;
use haloflow_pipeline::{Fault, Layout, Part, Report, Resources, Run, RunSettings, Values};
use haloflow_volume::{
    AlignedBytes, AxisInfo, AxisKind, CpuPool, Element, Environment, InputDescription, InputOptions, OutputPlan,
    OutputRequest, VolumeReader, ZarrFormat,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::engines::{Late, Shuffle};

/// A volume with all its voxels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) shape: Zyx,
    pub(crate) element: Element,
    pub(crate) channels: Vec<AlignedBytes>,
}

impl Volume {
    pub(crate) fn new(shape: Zyx, element: Element, voxels: AlignedBytes) -> Self {
        assert_eq!(voxels.len(), shape.iter().product::<usize>() * element.size());
        Self { shape, element, channels: vec![voxels] }
    }

    /// A volume of f32 numbers made from the place of each voxel.
    pub(crate) fn of_f32(shape: Zyx, value: impl Fn(usize, Zyx) -> f32) -> Self {
        let values: Vec<f32> = Box3::of_shape(shape).indices().enumerate().map(|(i, at)| value(i, at)).collect();
        Self::new(shape, Element::F32, AlignedBytes::from_slice(&values))
    }

    pub(crate) fn f32(&self, channel: usize) -> &[f32] {
        self.channels[channel].as_slice()
    }
}

/// After this long a run hangs. It is no part of any test: it turns a hang into a failure.
const LIMIT: Duration = Duration::from_secs(40);

/// Runs `work` to its end on a runtime of its own.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let runtime = Background(Some(runtime));
    let ended = runtime.0.as_ref().unwrap().block_on(async { tokio::time::timeout(2 * LIMIT, work).await });
    ended.expect("the run hangs")
}

/// A runtime that does not wait for its threads when it goes, so that a test that fails while an engine hangs can fail.
struct Background(Option<tokio::runtime::Runtime>);

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn cpu() -> CpuPool {
    CpuPool::new(NonZeroUsize::MIN).unwrap()
}

/// Stores `volume` as an OME-Zarr group at `url`.
pub(crate) async fn store(environment: &Environment, url: &str, volume: &Volume, chunk: Zyx) {
    let mut request = request(url);
    request.stack_channels = true;
    request.element = Some(volume.element);
    request.chunk = Some(chunk);
    request.compressor = Some("none".into());
    let plan = OutputPlan::check(request, &described(volume.shape), environment, &cpu()).await.unwrap();
    let unit = plan.unit();
    let writer = plan.create(volume.channels.len(), Value::Null).await.unwrap();
    let whole = Box3::of_shape(volume.shape);
    // One tile that holds the whole volume: it starts and ends with the volume.
    writer.write(whole, volume.channels.clone()).await.unwrap();
    assert_eq!(unit, chunk);
}

/// Stores `volume` in chunks of which none that is zero everywhere is stored. The volume is a whole number of units.
pub(crate) async fn store_sparse(
    environment: &Environment,
    url: &str,
    volume: &Volume,
    chunk: Zyx,
    shard: Option<Zyx>,
) {
    let mut request = request(url);
    (request.element, request.chunk, request.shard) = (Some(volume.element), Some(chunk), shard);
    let plan = OutputPlan::check(request, &described(volume.shape), environment, &cpu()).await.unwrap();
    let unit = plan.unit();
    let writer = plan.create(1, Value::Null).await.unwrap();
    let whole = Box3::of_shape(volume.shape);
    let size = volume.element.size();
    for cell in whole.cells(unit).indices() {
        let tile = Box3::of_cell(cell, unit).intersect(&whole);
        let [_, height, width] = volume.shape;
        let bytes: Vec<u8> = tile
            .indices()
            .flat_map(|[z, y, x]| volume.channels[0][((z * height + y) * width + x) * size..][..size].to_vec())
            .collect();
        if bytes.iter().any(|byte| *byte != 0) {
            writer.write(tile, vec![AlignedBytes::from_slice(&bytes)]).await.unwrap();
        }
    }
}

/// Loads all channels of the volume at `url`.
pub(crate) async fn load(environment: &Environment, url: &str, channels: usize) -> Volume {
    let options = InputOptions { source: url.into(), c: (0..channels).collect(), ..input_options() };
    let reader = VolumeReader::open(&options, environment, &cpu()).await.unwrap();
    let brick = reader.read(Box3::of_shape(reader.shape())).await.unwrap();
    Volume { shape: reader.shape(), element: reader.element(), channels: brick.channels }
}

/// An input elsewhere whose axes a stored volume copies.
fn described(shape: Zyx) -> InputDescription {
    let axis = |(name, kind, size): (&str, AxisKind, usize)| AxisInfo {
        name: name.into(),
        kind,
        unit: None,
        size,
        scale: 1.0,
        translation: 0.0,
    };
    let [z, y, x] = shape;
    let axes = [
        ("t", AxisKind::Time, 1),
        ("c", AxisKind::Channel, 1),
        ("z", AxisKind::Space, z),
        ("y", AxisKind::Space, y),
        ("x", AxisKind::Space, x),
    ];
    InputDescription {
        url: "memory://elsewhere".into(),
        zarr_format: ZarrFormat::V3,
        axes: axes.map(axis).into(),
        levels: 1,
        level: 0,
        chunk: vec![1; 5],
        shard: None,
        is_group: true,
        element: Element::F32,
        compressor: "none".into(),
        omero: None,
    }
}

pub(crate) fn input_options() -> InputOptions {
    InputOptions {
        source: "memory://in".into(),
        level: 0,
        level_given: false,
        t: 0,
        c: vec![0],
        cache_bytes: 1 << 16,
        requests: 4,
    }
}

fn request(url: &str) -> OutputRequest {
    OutputRequest {
        targets: vec![url.into()],
        stack_channels: false,
        element: None,
        default_element: Element::F32,
        chunk: None,
        shard: None,
        format: None,
        compressor: Some("none".into()),
        t: None,
        c: None,
        input_t: 0,
        input_c: 0,
        overwrite: false,
        resume: true,
        shared: false,
        block: None,
        provenance: Value::Null,
    }
}

/// A layout of the volume lattice.
pub(crate) fn layout(patch: Zyx, overlap: Zyx, seam: Seam) -> Layout {
    Layout { patch, overlap, block: None, lattice: None, halo: None, align: [1; 3], seam }
}

pub(crate) fn trim(voxels: usize) -> Seam {
    Seam::Trim { voxels: [voxels; 3] }
}

/// Voxels as they are.
pub(crate) fn plain() -> Values {
    Values {
        normalisation: Normalisation::None,
        statistics_level: None,
        eps: 1e-6,
        clip: None,
        denormalise: true,
        padding: Padding::Reflect,
        rounding: Rounding::NearestEven,
        nonfinite: NonFinite::Fail,
        after: Vec::new(),
    }
}

/// From `memory://in` to `memory://out`, in 64 MiB, in the input's kind of number.
pub(crate) fn settings(layout: Layout, values: Values, batch: usize) -> RunSettings {
    let resources = Resources {
        memory: 64 << 20,
        batch,
        max_inflight_batches: 6,
        prep_workers: 2,
        writer_workers: 2,
        threads: NonZeroUsize::new(2).unwrap(),
        watchdog: None,
        drain_timeout: LIMIT,
        quarantine: 100,
    };
    RunSettings {
        input: input_options(),
        output: request("memory://out"),
        layout,
        values,
        resources,
        pyramid: Pyramid::default(),
        skip: Skip::default(),
        part: Part::Whole,
        network: Recipe::new(),
    }
}

/// The spec of an engine for these settings: f32, as many output channels as asked for.
pub(crate) fn spec(settings: &RunSettings, channels_out: usize) -> EngineSpec {
    EngineSpec {
        batch: settings.resources.batch,
        patch: settings.layout.patch,
        channels_in: settings.input.c.len(),
        channels_out,
        input: ElementKind::F32,
        output: ElementKind::F32,
        pad_short: false,
    }
}

pub(crate) type Factories = Vec<Box<dyn EngineFactory>>;

/// Factories of engines that are all alike but for the device's name.
pub(crate) fn devices<F: EngineFactory + 'static>(count: usize, make: impl Fn(&str) -> F) -> Factories {
    (0..count).map(|device| Box::new(make(&format!("fake:{device}"))) as Box<dyn EngineFactory>).collect()
}

pub(crate) fn prepare(settings: &RunSettings, environment: &Environment, factories: Factories) -> Run {
    Run {
        settings: settings.clone(),
        environment: environment.clone(),
        factories,
        cancel: CancellationToken::new(),
        drain: CancellationToken::new(),
        progress: Arc::default(),
        timeline: None,
        blocks: None,
    }
}

pub(crate) async fn execute(
    settings: &RunSettings,
    environment: &Environment,
    factories: Factories,
) -> (Report, Result<(), Fault>) {
    prepare(settings, environment, factories).execute().await
}

/// Runs to an end that must be good, and checks what must hold of every report.
pub(crate) async fn complete(settings: &RunSettings, environment: &Environment, factories: Factories) -> Report {
    finish(prepare(settings, environment, factories)).await
}

/// As [`complete`], on `count` devices that are done with their batches in a random order of this seed and window.
pub(crate) async fn complete_shuffled(
    settings: &RunSettings,
    environment: &Environment,
    (count, seed, window): (usize, u64, usize),
    fake: impl Fn(&str) -> Fake,
) -> Report {
    let mut run = prepare(settings, environment, Vec::new());
    let shuffle = Shuffle::new(&run, count, seed, window);
    run.factories = devices(count, |device| Late::new(fake(device), &shuffle));
    finish(run).await
}

async fn finish(run: Run) -> Report {
    let (settings, count, progress) = (run.settings.clone(), run.factories.len(), Arc::clone(&run.progress));
    let running = tokio::time::timeout(LIMIT, run.execute()).await;
    let (report, ended) = running.unwrap_or_else(|_| panic!("{} hangs: {:?}", progress.doing(), progress.snapshot()));
    assert_eq!(ended, Ok(()), "{settings:?}");
    assert!(report.complete && report.fault.is_none() && report.devices.len() == count);
    let work = &report.work;
    assert_eq!((work.blocks, work.patches), (work.blocks_total, work.patches_total));
    assert_eq!(
        work.batches,
        work.patches.div_ceil(settings.resources.batch as u64),
        "only the last batch may be short"
    );
    assert_eq!(work.short_batches, u64::from(!work.patches.is_multiple_of(settings.resources.batch as u64)));
    let memory = report.memory;
    assert!(memory.need <= memory.leases && report.peak_leased_bytes <= memory.leases, "{report:?}");
    assert!(memory.slots + memory.cache + memory.transfer + memory.leases <= memory.total, "{memory:?}");
    report
}

/// Runs over `volume` in a store of its own and gives the result.
pub(crate) async fn result(settings: &RunSettings, volume: &Volume, chunk: Zyx, factories: Factories) -> Volume {
    let environment = Environment::empty();
    store(&environment, "memory://in", volume, chunk).await;
    complete(settings, &environment, factories).await;
    load(&environment, "memory://out", 1).await
}
