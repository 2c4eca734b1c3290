//! Forecast: what a run would do, need and take, from its plan and from a short run whose result stays in memory.
//!
//! The short run is a real one, on warm devices, over a few neighbouring blocks of the volume. It begins with an empty pipe and ends with one
//! that runs dry, so the rate is that of its middle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haloflow_engine::EngineSpec;
use haloflow_geometry::{Column, Plan, Selection, Zyx};
use haloflow_volume::{Element, Environment};
use serde::Serialize;
use tokio_util::task::AbortOnDropHandle;

use crate::cast::NonFinite;
use crate::device::Device;
use crate::fault::{Fault, FaultKind, Stage};
use crate::memory::MemorySplit;
use crate::normalise::Normalisation;
use crate::open::Opened;
use crate::progress::Progress;
use crate::recipe::Head;
use crate::report::{DeviceReport, InputReport, OutputReport, Report, StagesReport, WorkReport, cpu_seconds};
use crate::resume::{Earlier, Recorded};
use crate::run::{Run, Running};
use crate::settings::{Part, RunSettings};

impl Run {
    /// Finds out what the run would do. With `patches`, a part of the volume with at least so many of them is computed, and its result is
    /// left in memory. No output is touched.
    ///
    /// Cancellation: as [`execute`](Self::execute).
    ///
    /// # Errors
    /// What would end the run.
    pub async fn forecast(self, patches: Option<u64>) -> Result<Forecast, Fault> {
        let (mut running, factories) = self.begin();
        let _stopping = running.stop_when_asked();
        let opened = running.open().await?;
        let (devices, channels) = running.start(factories).await?;
        let outlined = outline(&running, &opened, &devices);
        let (mut forecast, spec) = match (outlined, patches) {
            (Ok(outlined), Some(_)) => outlined,
            (outlined, _) => {
                let threads = devices.into_iter().map(|device| device.into_parts().1).collect();
                running.dismiss(threads, channels).await;
                return outlined.map(|(forecast, _)| forecast);
            }
        };
        let sample = sample(opened, &mut running.settings, patches.unwrap_or_default(), spec.channels_out);
        let before = cpu_total();
        let watch = Watch::start(Arc::clone(&running.progress));
        Box::pin(running.run_on(devices, sample, channels)).await?;
        running.ended()?;
        let host = (cpu_total() - before, running.settings.resources.threads.get());
        let mut report = Report { stages: StagesReport::of(&running.meters), ..running.report };
        report.work.blocks_total = running.progress.snapshot().tiles_total;
        forecast.calibration = Some(calibration(&report, &watch, &forecast, host));
        Ok(forecast)
    }
}

fn outline(running: &Running, opened: &Opened, devices: &[Device]) -> Result<(Forecast, EngineSpec), Fault> {
    let Some(spec) = devices.first().map(|device| device.spec.clone()) else {
        return Err(Fault::new(FaultKind::Usage, Stage::Plan, "`devices` is empty; name at least one"));
    };
    opened.check_model(&spec)?;
    let slots = devices.iter().map(|device| device.slots.len()).sum();
    let (column, memory, _) = opened.split(&running.settings, &spec, slots)?;
    let settled = (column, memory, spec.channels_out);
    Ok((Forecast::of(opened, &running.settings, &running.report, settled), spec))
}

/// Processor seconds of this process so far.
fn cpu_total() -> f64 {
    cpu_seconds().map_or(0.0, |cpu| cpu.user + cpu.system)
}

/// How often the progress is looked at.
const LOOKS: Duration = Duration::from_millis(10);

/// What a run would do.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Forecast {
    /// The input.
    pub input: InputReport,
    /// The outputs.
    pub output: OutputReport,
    /// Blocks and patches; nothing of it is done.
    pub work: WorkReport,
    /// The least and the most blocks that a part of the volume has, if it is to be computed in parts.
    pub blocks_per_part: Option<[u64; 2]>,
    /// What will be in memory at most, by use.
    pub memory: MemorySplit,
    /// What will go over the network or the disk.
    pub traffic: Traffic,
    /// What was measured; nothing if that was not asked for.
    pub calibration: Option<Calibration>,
}

/// What a run would move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Chunks of the input, each fetched once if what is wanted again can be kept.
    pub chunks: u64,
    /// Whether it can.
    pub reads_once: bool,
    /// Their voxels, decoded.
    pub raw_bytes_read: u64,
    /// Objects of the outputs, each put once.
    pub objects: u64,
    /// Their voxels, not encoded.
    pub raw_bytes_written: u64,
}

/// What a short run showed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Calibration {
    /// The devices that it ran on.
    pub devices: Vec<DeviceReport>,
    /// Blocks that it computed.
    pub blocks: u64,
    /// Patches that it computed.
    pub patches: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Patches per second in its middle.
    pub patches_per_second: f64,
    /// Bytes fetched over bytes decoded.
    pub stored_over_raw_read: f64,
    /// Bytes put over bytes not encoded.
    pub stored_over_raw_written: f64,
    /// Seconds that the whole run would take to start its devices and to stream, if storage takes the result as fast as memory does.
    pub predicted_seconds: f64,
    /// What will limit it.
    pub limit: Limit,
}

/// The part of a run that the others wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The devices are never idle.
    #[default]
    Device,
    /// The host's processors are never idle.
    Processor,
    /// Both wait for the input's store.
    Reading,
}

impl Limit {
    /// Which setting would help.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Device => {
                "the devices limit: `--compile`, a larger `--batch`, a smaller `--overlap` or more `--devices` make it faster"
            }
            Self::Processor => {
                "the host's processors limit: a larger `--block` or `--memory` (fewer patches are computed twice), a lighter `--compressor` or \
                 a machine with more cores make it faster"
            }
            Self::Reading => {
                "the input's store limits: more `--requests`, more `--prep-workers` or a machine nearer to it make it faster"
            }
        }
    }

    fn of(seen: &Seen) -> Self {
        let span = seen.seconds.max(1e-9);
        let computes = seen.cpu_seconds > 0.8 * span * seen.threads as f64;
        // Reading waits only for room, which is not there as long as somebody behind it is slower.
        match seen.stages.read.waiting_seconds > 0.2 * span {
            true if seen.on_host || !computes => Self::Device,
            false if !computes => Self::Reading,
            _ => Self::Processor,
        }
    }
}

/// What a limit is told by.
struct Seen {
    stages: StagesReport,
    seconds: f64,
    cpu_seconds: f64,
    /// Whether the devices are the host's processors.
    on_host: bool,
    threads: usize,
}

impl Forecast {
    /// What the plan alone tells.
    pub(crate) fn of(
        opened: &Opened,
        settings: &RunSettings,
        report: &Report,
        (column, memory, channels): (Column, MemorySplit, usize),
    ) -> Self {
        let (plan, patch) = (&opened.plan, opened.plan.geometry().patch.iter().product::<usize>());
        let (patches, voxels) = (plan.patches(column), voxels(plan));
        let mut work = report.work.clone();
        work.column = [column.y, column.x];
        work.blocks_total = plan.selection().len() as u64;
        work.patches_total = patches;
        work.redundancy = patches as f64 * patch as f64 / voxels.max(1) as f64;
        let all = plan.geometry().volume.iter().product::<usize>() as f64;
        let share = |whole: u64| (whole as f64 * voxels as f64 / all).ceil() as u64;
        let traffic = Traffic {
            chunks: share(opened.reader.chunks()),
            reads_once: memory.reads_once,
            raw_bytes_read: share(report.input.raw_bytes),
            objects: share(opened.output.objects(channels)),
            raw_bytes_written: voxels * (channels * opened.output.element().size()) as u64,
        };
        let (input, output) = (report.input.clone(), report.output.clone());
        let blocks_per_part = match settings.part {
            Part::Shard { count, .. } => Some(per_part(plan.tiles(), count)),
            _ => None,
        };
        Self { input, output, work, blocks_per_part, memory, traffic, calibration: None }
    }
}

/// The least and the most tiles that one of `count` parts has.
fn per_part(tiles: Zyx, count: usize) -> [u64; 2] {
    let all = tiles.iter().product::<usize>();
    [all / count.max(1), all.div_ceil(count.max(1))].map(|blocks| blocks as u64)
}

fn voxels(plan: &Plan) -> u64 {
    plan.selection().iter().map(|tile| plan.tile(tile).voxels() as u64).sum()
}

/// The run to measure: of neighbouring tiles from the middle on, with `patches` patches or a few more, into memory.
pub(crate) fn sample(mut opened: Opened, settings: &mut RunSettings, patches: u64, channels: usize) -> Opened {
    let chosen = neighbours(&opened.plan, patches);
    opened.plan = opened.plan.select(&chosen);
    opened.output = opened.output.in_memory(&Environment::empty());
    opened.skipped = Selection::new(opened.plan.tiles(), |_| false);
    settings.values.nonfinite = NonFinite::Replace(0.0);
    let statistics =
        matches!(settings.values.normalisation, Normalisation::Volume { .. } | Normalisation::ZScore { given: None });
    // Statistics of the whole volume would read all of it; these numbers take as long to apply.
    opened.earlier = opened.earlier.or_else(|| {
        let top = match opened.reader.element() {
            Element::F16 | Element::F32 | Element::F64 => 1.0,
            integer => 2_f64.powi(8 * integer.size() as i32),
        };
        let bounds = vec![[0.0, top]; opened.reader.channels()];
        let head = Head::new(opened.recipe.clone(), &opened.plan, channels, &bounds);
        let recorded = Recorded { left: opened.plan.selection().clone(), windows: Vec::new(), damaged: Vec::new() };
        statistics.then_some(Earlier { head, complete: false, recorded })
    });
    opened
}

/// Tiles of the plan, in its order, from the middle on.
fn neighbours(plan: &Plan, patches: u64) -> Selection {
    let tiles: Vec<Zyx> = plan.selection().iter().collect();
    let mut left = patches;
    let mut chosen = std::collections::HashSet::new();
    for &tile in tiles.iter().skip(tiles.len() / 2).chain(tiles.iter().take(tiles.len() / 2).rev()) {
        if left == 0 {
            break;
        }
        chosen.insert(tile);
        // A patch at a tile's border gives to its neighbours too and is counted again with them: half is about right.
        left = left.saturating_sub((plan.contributions(tile) as u64).div_ceil(2));
    }
    plan.selection().filter(|tile| chosen.contains(&tile))
}

/// Watches a run's patches.
pub(crate) struct Watch {
    seen: Arc<std::sync::Mutex<Vec<(f64, u64)>>>,
    _task: AbortOnDropHandle<()>,
}

impl Watch {
    pub(crate) fn start(progress: Arc<Progress>) -> Self {
        let (seen, began) = (Arc::<std::sync::Mutex<Vec<(f64, u64)>>>::default(), Instant::now());
        let into = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut looks = tokio::time::interval(LOOKS);
            loop {
                looks.tick().await;
                let mut seen = into.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let patches = progress.snapshot().patches;
                if seen.last().is_none_or(|(_, before)| *before < patches) {
                    seen.push((began.elapsed().as_secs_f64(), patches));
                }
            }
        });
        Self { seen, _task: AbortOnDropHandle::new(task) }
    }

    /// Patches per second between the first batches and the last.
    pub(crate) fn rate(&self, patches: u64, seconds: f64) -> f64 {
        let seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        middle(&seen).unwrap_or(patches as f64 / seconds.max(1e-9))
    }
}

/// The slope between the first look with a quarter of all and the last; nothing if that is too little to tell.
fn middle(seen: &[(f64, u64)]) -> Option<f64> {
    let &(end, all) = seen.last()?;
    let &(start, some) = seen.iter().find(|(_, patches)| *patches >= all.div_ceil(4))?;
    (end > start && (all - some) * 2 >= all).then(|| (all - some) as f64 / (end - start))
}

/// What the short run that `report` tells of says about the whole one.
pub(crate) fn calibration(
    report: &Report,
    watch: &Watch,
    whole: &Forecast,
    (cpu_seconds, threads): (f64, usize),
) -> Calibration {
    let (work, seconds) = (&report.work, report.seconds.stream);
    let patches_per_second = watch.rate(work.patches_total, seconds);
    let over = |bytes: u64, raw: f64| if raw > 0.0 { bytes as f64 / raw } else { 0.0 };
    let read = &report.storage_read;
    let raw_read = read.chunks_decoded as f64 * whole.input.raw_bytes as f64 / whole_chunks(whole);
    let raw_written =
        whole.traffic.raw_bytes_written as f64 * work.blocks_total as f64 / whole.work.blocks_total.max(1) as f64;
    let on_host = report.devices.iter().all(|device| device.name == "cpu");
    let seen = Seen { stages: report.stages, seconds, cpu_seconds, on_host, threads };
    Calibration {
        devices: report.devices.clone(),
        blocks: work.blocks_total,
        patches: work.patches_total,
        seconds,
        patches_per_second,
        stored_over_raw_read: over(read.bytes_read, raw_read),
        stored_over_raw_written: over(report.storage_written.bytes_written, raw_written),
        predicted_seconds: report.seconds.devices + whole.work.patches_total as f64 / patches_per_second,
        limit: Limit::of(&seen),
    }
}

/// Chunks of the whole input.
fn whole_chunks(whole: &Forecast) -> f64 {
    let share = whole.traffic.raw_bytes_read as f64 / whole.input.raw_bytes.max(1) as f64;
    (whole.traffic.chunks as f64 / share.max(1e-12)).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Reading;

    #[test]
    fn the_rate_is_that_of_the_middle() {
        // Two seconds to fill the pipe, then ten patches a second.
        let seen: Vec<(f64, u64)> =
            (0..=8).map(|i| (if i == 0 { 0.0 } else { 2.0 + f64::from(i) }, 10 * i as u64)).collect();
        assert_eq!(middle(&seen), Some(10.0));
        assert_eq!(middle(&[(0.0, 0), (1.0, 4)]), None, "one batch tells no rate");
        assert_eq!(middle(&[]), None);
    }

    #[test]
    fn what_is_never_idle_limits() {
        let stages = |waiting_seconds| StagesReport {
            read: Reading { working_seconds: 1.0, waiting_seconds, items: 5 },
            ..StagesReport::default()
        };
        let seen = |waits, cpu_seconds, on_host| Seen {
            stages: stages(waits),
            seconds: 10.0,
            cpu_seconds,
            on_host,
            threads: 4,
        };
        assert_eq!(Limit::of(&seen(5.0, 9.0, false)), Limit::Device);
        assert_eq!(Limit::of(&seen(5.0, 39.0, true)), Limit::Device);
        assert_eq!(Limit::of(&seen(5.0, 39.0, false)), Limit::Processor);
        assert_eq!(Limit::of(&seen(0.0, 39.0, false)), Limit::Processor);
        assert_eq!(Limit::of(&seen(0.0, 9.0, false)), Limit::Reading);
    }

    #[test]
    fn parts_differ_by_one_block_at_most() {
        assert_eq!(per_part([3, 5, 7], 4), [26, 27]);
        assert_eq!(per_part([2, 2, 2], 4), [2, 2]);
    }
}
