//! A run from beginning to end: everything is checked, the devices are warm, then the volume is streamed.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use haloflow_engine::{EngineFactory, EngineSpec, Timeline};
use haloflow_geometry::Zyx;
use haloflow_volume::carried::carried;
use haloflow_volume::{CpuPool, Environment, Ledger, Leftovers, VolumeError, VolumeWriter, Window};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::blocks::{BlockTrace, Traced};
use crate::board::Board;
use crate::budget::Budget;
use crate::device::{self, Device, DevicePorts, DeviceThread};
use crate::fault::{Fault, FaultKind, Faults, Stage};
use crate::live::Holdings;
use crate::memory::slots_per_device;
use crate::meter::{Meters, drawn_on};
use crate::open::{Opened, input_bytes, normalisers, open, provenance};
use crate::progress::Progress;
use crate::quarantine::{self, Quarantine};
use crate::recipe::Head;
use crate::report::{DeviceReport, Report, StagesReport, cpu_seconds, peak_resident_bytes};
use crate::resume::{Earlier, Recorded, recorded};
use crate::settings::RunSettings;
use crate::shared::Shared;
use crate::watchdog::watch;
use crate::wiring::{Channels, DeviceChannels, stream};

/// Threads that fill batches and empty them, for each device. One prepares about a billion voxels per second, and merges as many.
const FEEDING: usize = 4;

/// A run that has not begun.
pub struct Run {
    /// What it is told.
    pub settings: RunSettings,
    /// Variables that storage may look at.
    pub environment: Environment,
    /// One per device.
    pub factories: Vec<Box<dyn EngineFactory>>,
    /// Cancelled when somebody wants the run to stop: it admits nothing more, finishes what it has begun, and is cancelled if that
    /// takes longer than its settings allow.
    pub drain: CancellationToken,
    /// Cancelled when the run is to stop at once. What is recorded stays.
    pub cancel: CancellationToken,
    /// Moved as the run goes on.
    pub progress: Arc<Progress>,
    /// Where the stages draw their work, if anybody wants to see it.
    pub timeline: Option<Arc<Timeline>>,
    /// Who is told of the way of every block, if anybody is.
    pub blocks: Option<Arc<dyn BlockTrace>>,
}

/// A run that has begun.
pub(crate) struct Running {
    pub(crate) settings: RunSettings,
    environment: Environment,
    pub(crate) meters: Arc<Meters>,
    timeline: Option<Arc<Timeline>>,
    traced: Traced,
    pub(crate) progress: Arc<Progress>,
    pub(crate) faults: Faults,
    quarantine: Arc<Quarantine>,
    pub(crate) report: Report,
    board: Board,
    drain: CancellationToken,
    /// Cancelled when streaming begins: nothing before it is worth finishing.
    begun: CancellationToken,
    /// Whether it came as far as streaming.
    settled: bool,
}

impl Run {
    /// Runs to the end and reports, whatever the end was. Nothing is created or deleted before every check has passed and every
    /// device is warm.
    ///
    /// Cancellation: cancel the token rather than dropping the future; device threads are joined before this returns.
    ///
    /// # Errors
    /// The first fault; it is in the report too.
    pub async fn execute(self) -> (Report, Result<(), Fault>) {
        let began = Instant::now();
        let (mut running, factories) = self.begin();
        let _stopping = running.stop_when_asked();
        if let Err(fault) = running.go(factories).await {
            running.faults.keep(fault);
        }
        let ended = running.ended();
        (running.finish(began, &ended), ended)
    }

    /// The run, begun, and what makes its engines.
    pub(crate) fn begin(self) -> (Running, Vec<Box<dyn EngineFactory>>) {
        let quarantine = Arc::new(Quarantine::new(self.settings.resources.quarantine));
        let running = Running {
            settings: self.settings,
            environment: self.environment,
            meters: Arc::new(Meters::drawn_on(self.timeline.as_ref())),
            timeline: self.timeline,
            traced: Traced::by(self.blocks),
            progress: self.progress,
            quarantine,
            faults: Faults::new(self.cancel.child_token()),
            report: Report { version: env!("CARGO_PKG_VERSION").into(), ..Report::default() },
            board: Board::default(),
            drain: self.drain,
            begun: CancellationToken::new(),
            settled: false,
        };
        running.progress.window.set_meters(&running.meters);
        (running, self.factories)
    }
}

impl Running {
    async fn go(&mut self, factories: Vec<Box<dyn EngineFactory>>) -> Result<(), Fault> {
        let opened = self.open().await?;
        let nothing_left = opened.plan.selection().is_empty() && opened.skipped.is_empty();
        if let Some(earlier) = opened.earlier.clone().filter(|_| nothing_left) {
            return Box::pin(self.nothing_left(opened, &earlier)).await;
        }
        let (devices, channels) = self.start(factories).await?;
        let fleet = Arc::clone(channels.home.fleet());
        let ended = Box::pin(self.run_on(devices, opened, channels)).await;
        for error in fleet.retired() {
            let report = self.report.devices.iter_mut().find(|report| report.name == error.device);
            report.into_iter().for_each(|report| report.retired = Some(error.message.clone()));
        }
        ended
    }

    /// Opens the input and checks the outputs.
    pub(crate) async fn open(&mut self) -> Result<Opened, Fault> {
        self.settings.check()?;
        self.progress.set_doing("opening");
        let began = Instant::now();
        let cancel = self.faults.cancel().clone();
        // Boxed, like the others below: a run's future is large, and lives on stacks of all sizes.
        let opening = Box::pin(open(&self.settings, &self.environment, &mut self.report));
        let opened = cancel.run_until_cancelled(opening).await.unwrap_or_else(|| Err(Fault::interrupted()))?;
        self.report.seconds.open = began.elapsed().as_secs_f64();
        Ok(opened)
    }

    /// Starts the devices.
    pub(crate) async fn start(
        &mut self,
        factories: Vec<Box<dyn EngineFactory>>,
    ) -> Result<(Vec<Device>, Channels), Fault> {
        self.progress.set_doing("starting the devices");
        let began = Instant::now();
        let per_device = slots_per_device(factories.len(), self.settings.resources.max_inflight_batches);
        let channels = DeviceChannels::new(
            factories.iter().map(|factory| factory.device()).collect(),
            factories.len() * per_device,
        );
        self.progress.window.set_queue(3, &channels.batches_out);
        let ports = DevicePorts {
            batches: channels.batches_out,
            returned: channels.returned,
            fleet: Arc::clone(channels.home.fleet()),
            flights: channels.flights_in,
            meters: Arc::clone(&self.meters),
            faults: self.faults.clone(),
            board: self.board.clone(),
        };
        let devices = device::start(factories, per_device, ports).await?;
        self.report.seconds.devices = began.elapsed().as_secs_f64();
        let channels = Channels { batches: channels.batches_in, flights: channels.flights_out, home: channels.home };
        Ok((devices, channels))
    }

    /// Lets the devices go before they were given anything.
    pub(crate) async fn dismiss(&self, devices: Vec<DeviceThread>, channels: Channels) {
        drop(channels);
        device::join(devices, &self.faults, device::GRACE).await;
    }

    /// Ends a run whose blocks were all stored before, without starting a device.
    async fn nothing_left(&mut self, opened: Opened, earlier: &Earlier) -> Result<(), Fault> {
        self.settled = true;
        let Recorded { left, windows, .. } = &earlier.recorded;
        if earlier.complete || !left.is_empty() {
            return Ok(());
        }
        // Whoever stored the last block ended before it could say so.
        let told = |error: VolumeError| Fault::volume(Stage::Open, &error);
        self.report.normalisation = earlier.head.normalisation();
        let (ledger, tiles) = (opened.output.ledger().clone(), opened.plan.tiles());
        let writer = opened.output.create(earlier.head.channels, provenance(&self.settings, &self.report)).await;
        complete(&writer.map_err(told)?, windows, &ledger, tiles).await
    }

    /// Settles what depends on the model, creates the outputs and streams. The devices' threads are joined in every case.
    pub(crate) async fn run_on(
        &mut self,
        devices: Vec<Device>,
        opened: Opened,
        channels: Channels,
    ) -> Result<(), Fault> {
        self.report.devices = devices.iter().map(Device::report).collect();
        let Some(spec) = devices.first().map(|device| device.spec.clone()) else {
            return Err(Fault::new(FaultKind::Usage, Stage::Plan, "`devices` is empty; name at least one"));
        };
        let (slots, threads): (Vec<_>, Vec<_>) = devices.into_iter().map(Device::into_parts).unzip();
        let slots: Vec<_> = slots.into_iter().flatten().collect();
        match Box::pin(self.settle(opened, spec, slots.len())).await {
            Ok(shared) => {
                self.settled = true;
                self.progress.set_doing("streaming");
                let began = Instant::now();
                self.begun.cancel();
                let _watching = self.watch();
                self.show(&shared);
                stream(&shared, slots, threads, channels).await;
                let ended = self.complete(&shared).await;
                self.report.seconds.stream = began.elapsed().as_secs_f64();
                self.report.storage_read = shared.reader.counters();
                self.report.storage_written = shared.writer.counters();
                self.report.peak_leased_bytes = shared.budget.peak();
                self.progress.window.settle();
                ended
            }
            Err(fault) => {
                self.faults.report(fault.clone());
                self.dismiss(threads, channels).await;
                Err(fault)
            }
        }
    }

    /// Shows what storage and memory hold, as long as there is something to show.
    fn show(&self, shared: &Arc<Shared>) {
        let shared = Arc::downgrade(shared);
        self.progress.window.set_streaming(Box::new(move || {
            let shared = shared.upgrade()?;
            Some(Holdings {
                storage_read: shared.reader.counters(),
                storage_written: shared.writer.counters(),
                held_bytes: shared.budget.held(),
                budget_bytes: shared.budget.bytes(),
            })
        }));
    }

    /// Completes the outputs if every block of the volume is stored, by whomever.
    async fn complete(&self, shared: &Shared) -> Result<(), Fault> {
        let seen = self.progress.snapshot();
        if self.faults.first().is_some() || seen.tiles < seen.tiles_total {
            return Ok(());
        }
        let tiles = shared.plan.tiles();
        let Recorded { left, windows, .. } = recorded(&shared.ledger, tiles, shared.spec.channels_out).await?;
        if left.is_empty() { complete(&shared.writer, &windows, &shared.ledger, tiles).await } else { Ok(()) }
    }

    /// Everything between warm devices and the first step: channels, memory, statistics, and at last the outputs.
    async fn settle(&mut self, mut opened: Opened, spec: EngineSpec, slots: usize) -> Result<Arc<Shared>, Fault> {
        opened.check_model(&spec)?;
        opened.warn_about_overflow(&self.settings, &spec);
        let (column, memory, fewer) = opened.split(&self.settings, &spec, slots)?;
        let requests = opened.reader.requests() / fewer;
        opened.reader = opened.reader.with_requests(requests);
        self.report.memory = memory;
        self.report.work.column = [column.y, column.x];
        let bounds = self.bounds(&opened).await?;
        let tile_bytes = opened.tile_bytes(&spec);
        let Opened { reader, mut output, plan, skipped, cpu, recipe, .. } = opened;
        let (element, patches) = (output.element(), plan.patches(column));
        let voxels: u64 = plan.selection().iter().map(|tile| plan.tile(tile).voxels() as u64).sum();
        self.progress.set_totals(plan.selection().len() as u64, voxels, input_bytes(&reader), patches);
        self.report.work.patches_total = patches;
        self.report.work.redundancy = patches as f64 * spec.patch_voxels() as f64 / voxels.max(1) as f64;
        let in_flight = output.in_flight() / fewer;
        output = output.with_in_flight(in_flight);
        let factors = output.factors();
        let mine = Head::new(recipe, &plan, spec.channels_out, &bounds);
        let ledger = output.ledger().clone();
        let creating = async {
            let told = |error: VolumeError| Fault::volume(Stage::Open, &error);
            let value = serde_json::to_value(&mine).map_err(|error| Fault::defect(Stage::Open, &error.to_string()))?;
            // Another process may have begun at the same time: its numbers hold for all.
            let head = Head::read(&output.begin(spec.channels_out, &value).await.map_err(told)?, ledger.url())?;
            head.check(&mine.recipe, &output.urls().join(", "))?;
            self.report.normalisation = head.normalisation();
            output.create(spec.channels_out, provenance(&self.settings, &self.report)).await.map_err(told)
        };
        let Some(created) = self.faults.cancel().run_until_cancelled(creating).await else {
            return Err(Fault::interrupted());
        };
        let writer = created?;
        if let Some(timeline) = &self.timeline {
            reader.observe(drawn_on(timeline));
            writer.observe(drawn_on(timeline));
        }
        let bounds = &self.report.normalisation;
        let normalisers = normalisers(&self.settings.values, bounds, reader.element(), spec.input);
        let (values, resources) = (&self.settings.values, &self.settings.resources);
        let per_step = plan.steps(column).next().map_or(1, |step| step.len());
        let feeding = resources.threads.get().min(FEEDING * self.report.devices.len());
        let feed = CpuPool::urgent("haloflow-feed", NonZeroUsize::new(feeding).unwrap_or(NonZeroUsize::MIN));
        let plan = Arc::new(plan);
        let planned = Arc::clone(&plan);
        Ok(Arc::new(Shared {
            column,
            leftovers: Leftovers::new(memory.cache, move |cell| planned.reads_of(column, cell)),
            input_bytes: input_bytes(&reader),
            tile_bytes,
            reader: reader.with_cache(0),
            writer,
            ledger,
            cpu,
            feed: feed.map_err(|error| Fault::volume(Stage::Open, &error))?,
            budget: Budget::new(memory.leases),
            normalisation: values.normalisation,
            normalisers,
            eps: values.eps,
            clip: values.clip,
            denormalise: values.denormalise,
            after: values.after.clone(),
            padding: values.padding,
            cast: self.settings.cast(element),
            factors,
            downsampling: self.settings.pyramid.method,
            // Steps may be small: read so many at one time that four batches are under way.
            read_ahead: (4 * spec.batch)
                .div_ceil(per_step)
                .clamp(resources.prep_workers, 64.max(resources.prep_workers)),
            writers: resources.writer_workers,
            meters: Arc::clone(&self.meters),
            progress: Arc::clone(&self.progress),
            faults: self.faults.clone(),
            board: self.board.clone(),
            traced: self.traced.clone(),
            drain: self.drain.clone(),
            quarantine: Arc::clone(&self.quarantine),
            tasks: TaskTracker::new(),
            plan,
            skipped,
            spec,
        }))
    }

    /// The numbers of the whole volume's normalisation: taken from the volume, unless an earlier run has recorded them.
    async fn bounds(&mut self, opened: &Opened) -> Result<Vec<[f64; 2]>, Fault> {
        self.progress.set_doing("taking statistics");
        let began = Instant::now();
        let recorded = opened.earlier.as_ref().map(|earlier| &earlier.head);
        let statistics = opened.bounds(&self.settings, &self.environment, recorded);
        let bounds = self.faults.cancel().run_until_cancelled(statistics).await;
        let bounds = bounds.unwrap_or_else(|| Err(Fault::interrupted()))?;
        self.report.seconds.statistics = began.elapsed().as_secs_f64();
        Ok(bounds)
    }

    /// Cancels the run when it is asked to stop and cannot, or does not, finish what it has begun. Ends when it is dropped.
    pub(crate) fn stop_when_asked(&self) -> AbortOnDropHandle<()> {
        let (drain, begun, cancel) = (self.drain.clone(), self.begun.clone(), self.faults.cancel().clone());
        let timeout = self.settings.resources.drain_timeout;
        AbortOnDropHandle::new(tokio::spawn(carried(async move {
            drain.cancelled().await;
            if begun.is_cancelled() {
                tokio::time::sleep(timeout).await;
                tracing::warn!("what was begun is not finished within {timeout:?} (`drain-timeout`); it is given up");
            }
            cancel.cancel();
        })))
    }

    /// Watches the stages until it is dropped.
    fn watch(&self) -> Option<AbortOnDropHandle<()>> {
        let watchdog = self.settings.resources.watchdog.clone()?;
        let (board, faults) = (self.board.clone(), self.faults.clone());
        let seen = (Arc::clone(&self.meters), Arc::clone(&self.progress));
        Some(AbortOnDropHandle::new(tokio::spawn(carried(watch(watchdog, board, seen, faults)))))
    }

    /// How the run ended. A run that did not store everything never ends well.
    pub(crate) fn ended(&self) -> Result<(), Fault> {
        let seen = self.progress.snapshot();
        match self.faults.first() {
            Some(fault) => Err(fault),
            None if self.settled && seen.tiles == seen.tiles_total => Ok(()),
            None if self.drain.is_cancelled() || self.faults.cancel().is_cancelled() => Err(Fault::interrupted()),
            None => Err(quarantine::fault(&self.quarantine.list(), seen.tiles_total).unwrap_or_else(|| {
                Fault::defect(Stage::Write, &format!("only {} of {} blocks were stored", seen.tiles, seen.tiles_total))
            })),
        }
    }

    fn finish(mut self, began: Instant, ended: &Result<(), Fault>) -> Report {
        self.progress.set_doing("done");
        let seen = self.progress.snapshot();
        let report = &mut self.report;
        report.complete = ended.is_ok();
        report.fault = ended.clone().err();
        report.quarantined = self.quarantine.list();
        report.work.blocks = seen.tiles;
        report.work.blocks_total = seen.tiles_total;
        report.work.patches = seen.patches;
        report.work.batches = seen.batches;
        report.work.short_batches = seen.short_batches;
        report.voxels = self.progress.cast_counts();
        report.stages = StagesReport::of(&self.meters);
        report.seconds.total = began.elapsed().as_secs_f64();
        report.peak_resident_bytes = peak_resident_bytes();
        report.cpu_seconds = cpu_seconds();
        if report.seconds.stream > 0.0 {
            report.voxels_per_second = seen.voxels as f64 / report.seconds.stream;
            report.megabytes_per_second = report.voxels_per_second * seen.bytes_per_voxel as f64 / 1e6;
        }
        self.report
    }
}

/// Completes the metadata and says so in the ledger, in this order: what is said to be complete is.
async fn complete(writer: &VolumeWriter, windows: &[Window], ledger: &Ledger, tiles: Zyx) -> Result<(), Fault> {
    let told = |error: VolumeError| Fault::volume(Stage::Write, &error);
    writer.seal(windows).await.map_err(told)?;
    let blocks: usize = tiles.iter().product();
    ledger.complete(&serde_json::json!({ "blocks": blocks })).await.map_err(told)
}

impl Device {
    fn report(&self) -> DeviceReport {
        DeviceReport {
            name: self.name.clone(),
            description: self.description.clone(),
            start_seconds: self.start_seconds,
            retired: None,
        }
    }
}
