//! Open: everything that is checked and settled before a run may create anything.

use haloflow_engine::{ElementKind, EngineSpec};
use haloflow_geometry::{Column, Plan, Selection};
use haloflow_volume::{CpuPool, Element, Environment, OutputPlan, VolumeReader};

use crate::fault::{Fault, FaultKind, Stage, counted};
use crate::memory::{Demand, MemorySplit, split};
use crate::normalise::{Normalisation, Normaliser};
use crate::recipe::{Head, Recipe, recipe};
use crate::report::{InputReport, OutputReport, Report, WorkReport};
use crate::resume::{Earlier, check_count, earlier};
use crate::settings::{LatticeChoice, Part, RunSettings, Values};
use crate::skip::skip;
use crate::whole::{pass_bytes, whole_moments, whole_percentiles};

/// What is known once the input has been opened and the outputs have been checked.
pub(crate) struct Opened {
    pub(crate) reader: VolumeReader,
    pub(crate) output: OutputPlan,
    /// Of what is left to do of the part that is asked for.
    pub(crate) plan: Plan,
    /// What of it was left but need not be computed.
    pub(crate) skipped: Selection,
    pub(crate) cpu: CpuPool,
    /// The run that is gone on with.
    pub(crate) earlier: Option<Earlier>,
    /// What makes the result.
    pub(crate) recipe: Recipe,
}

/// By how much fewer chunks may be on their way where memory is scarce.
const FEWER: [usize; 4] = [1, 2, 4, 8];

/// Checks all of a run that can be checked without its model: the settings, the input, the outputs, the plan, and, once the network
/// is known, that an earlier run can be gone on with. Nothing is created. A run does the same again; this is for whoever has to do
/// something expensive before it.
///
/// # Errors
/// What the run would end with.
pub async fn check(settings: &RunSettings, environment: &Environment) -> Result<(), Fault> {
    settings.check()?;
    let opened = checked(settings, environment, &mut Report::default()).await?;
    if settings.network.is_empty() { Ok(()) } else { opened.check_recipe() }
}

/// Opens the input, checks the outputs, makes the plan of what is left to do. Nothing is created.
pub(crate) async fn open(
    settings: &RunSettings,
    environment: &Environment,
    report: &mut Report,
) -> Result<Opened, Fault> {
    warn_about(settings, settings.lattice()?);
    let opened = checked(settings, environment, report).await?;
    opened.check_recipe()?;
    for name in opened.earlier.iter().flat_map(|earlier| &earlier.recorded.damaged) {
        tracing::warn!("the record {name} is torn; its blocks are computed again");
    }
    Ok(opened)
}

/// As [`open`], whatever the recipe of an earlier run.
pub(crate) async fn checked(
    settings: &RunSettings,
    environment: &Environment,
    report: &mut Report,
) -> Result<Opened, Fault> {
    let told = |error: haloflow_volume::VolumeError| Fault::volume(Stage::Open, &error);
    let lattice = settings.lattice()?;
    let cpu = CpuPool::new(settings.resources.threads).map_err(told)?;
    let reader = VolumeReader::open(&settings.input, environment, &cpu).await.map_err(told)?;
    let mut request = settings.output.clone();
    request.default_element = settings.default_element(reader.element());
    request.block = settings.layout.settled_block(lattice);
    request.shared = matches!(settings.part, Part::Shard { .. });
    let output = OutputPlan::check(request, reader.description(), environment, &cpu).await.map_err(told)?;
    let geometry = settings.layout.geometry(lattice, reader.shape(), Some(output.unit()));
    let output = output.with_pyramid(settings.pyramid.levels, geometry.tile).map_err(told)?;
    let plan = settings.part.of(Plan::new(geometry).map_err(|error| Fault::geometry(&error))?);
    check_count(&plan)?;
    let recipe = recipe(settings, &reader, &output, &plan);
    let (asked, earlier) = (plan.selection().len(), earlier(&output, &plan).await?);
    let plan = match &earlier {
        Some(earlier) => plan.select(&earlier.recorded.left),
        None => plan,
    };
    let blocks_before = (asked - plan.selection().len()) as u64;
    let (plan, skipped, skipped_report) = skip(plan, settings, &reader, (environment, &cpu)).await?;
    report.input = InputReport {
        url: reader.description().url.clone(),
        shape: reader.shape(),
        element: reader.element().to_string(),
        raw_bytes: reader.shape().iter().product::<usize>() as u64 * input_bytes(&reader),
    };
    report.output = OutputReport {
        urls: output.urls(),
        element: output.element().to_string(),
        unit: output.unit(),
        levels: output.factors().len() + 1,
    };
    report.work = WorkReport {
        lattice: if lattice == LatticeChoice::Volume { "volume" } else { "block" }.into(),
        patch: geometry.patch,
        block: geometry.tile,
        skipped: skipped_report,
        blocks_before,
        ..WorkReport::default()
    };
    Ok(Opened { reader, output, plan, skipped, cpu, earlier, recipe })
}

/// Settings that work but are worth a word.
fn warn_about(settings: &RunSettings, lattice: LatticeChoice) {
    let layout = &settings.layout;
    if lattice == LatticeChoice::Volume {
        return;
    }
    let (asked, used) = (layout.halo, layout.effective_halo());
    if asked.is_some_and(|asked| asked != used) {
        tracing::warn!(
            "`halo` is {asked:?}, less than what is trimmed; {used:?} is used",
            asked = asked.unwrap_or_default()
        );
    }
    if used == [0; 3] {
        tracing::warn!("`halo` is 0: blocks see nothing of their neighbours, and seams will show at their faces");
    }
    if settings.values.normalisation.depends_on_block() {
        tracing::warn!(
            "`normalize` is percentile: every block is normalised by its own percentiles, so the result may step at block faces; \
             `--normalize volume` uses those of the whole volume"
        );
    }
}

/// Bytes per voxel of the input, over all channels that are read.
pub(crate) fn input_bytes(reader: &VolumeReader) -> u64 {
    (reader.element().size() * reader.channels()) as u64
}

impl Opened {
    /// Refuses to go on with a run of another recipe.
    fn check_recipe(&self) -> Result<(), Fault> {
        let check = |earlier: &Earlier| earlier.head.check(&self.recipe, &self.output.urls().join(", "));
        self.earlier.as_ref().map_or(Ok(()), check)
    }

    /// Bytes per voxel of an open tile: the sums in f32, and the finished copy.
    pub(crate) fn tile_bytes(&self, spec: &EngineSpec) -> u64 {
        (spec.channels_out * (size_of::<f32>() + self.output.element().size())) as u64
    }

    /// Checks that what the model takes and gives fits the plan, the input and the outputs.
    pub(crate) fn check_model(&self, spec: &EngineSpec) -> Result<(), Fault> {
        let wrong = |message: String| Err(Fault::new(FaultKind::Data, Stage::Open, message));
        let patch = self.plan.geometry().patch;
        if spec.patch != patch {
            let taken = spec.patch;
            return wrong(format!(
                "the model takes patches of {taken:?} voxels and `patch` is {patch:?}; they must be equal"
            ));
        }
        if spec.channels_in != self.reader.channels() {
            return wrong(format!(
                "the model takes {} and `c` names {}; name one input channel for each",
                counted(spec.channels_in, "channel"),
                self.reader.channels()
            ));
        }
        let arrays = self.output.arrays();
        if !self.output.stacked() && spec.channels_out != arrays {
            return wrong(format!(
                "the model gives {} and `out` names {}; name one output for each channel, or one output and `--stack-channels`",
                counted(spec.channels_out, "channel"),
                counted(arrays, "output"),
            ));
        }
        Ok(())
    }

    /// Warns if voxels may be too large for the kind of the batch: they would lose digits or become infinite without a word.
    pub(crate) fn warn_about_overflow(&self, settings: &RunSettings, spec: &EngineSpec) {
        let element = self.reader.element();
        let unbounded = settings.values.normalisation == Normalisation::None && settings.values.clip.is_none();
        if spec.input != ElementKind::F16 || !unbounded || matches!(element, Element::U8 | Element::I8 | Element::F16) {
            return;
        }
        if element == Element::I16 {
            tracing::warn!(
                "the network computes in f16 and gets voxels of {element} without normalisation: integers above 2048 lose digits; `--no-amp` or \
                 a `--normalize` avoid that"
            );
        } else {
            tracing::warn!(
                "the network computes in f16, which ends at 65504, and gets voxels of {element} without normalisation: larger ones become \
                 infinite, and integers above 2048 lose digits; `--no-amp` or a `--normalize` avoid that"
            );
        }
    }

    /// Chooses the column and splits the memory. Where it is scarce fewer chunks are on their way at one time, by the factor that is
    /// returned too: reading a chunk twice costs more than waiting for it.
    pub(crate) fn split(
        &self,
        settings: &RunSettings,
        spec: &EngineSpec,
        slots: usize,
    ) -> Result<(Column, MemorySplit, usize), Fault> {
        let statistics = if matches!(
            settings.values.normalisation,
            Normalisation::Volume { .. } | Normalisation::ZScore { given: None }
        ) {
            pass_bytes(&self.reader)
        } else {
            0
        };
        let demand = |fewer: usize| {
            let reading = self.reader.clone().with_requests(self.reader.requests() / fewer).transfer_bytes();
            let units = self.output.in_flight();
            let writing = self.output.transfer_bytes() / units as u64 * (units / fewer).max(1) as u64;
            Demand {
                plan: &self.plan,
                spec,
                slots,
                input_bytes: input_bytes(&self.reader),
                tile_bytes: self.tile_bytes(spec),
                transfer: reading + writing.max(statistics),
                unit: self.reader.unit(),
            }
        };
        let (mut given, mut least) = (None, u64::MAX);
        for fewer in FEWER {
            let split = split(settings.resources.memory, &demand(fewer));
            let reads_once = split.as_ref().is_ok_and(|(_, memory)| memory.kept <= memory.cache);
            let read = split.as_ref().map_or(u64::MAX, |(_, memory)| memory.read);
            if given.is_none() || reads_once || read < least {
                given = Some(split.map(|(column, memory)| (column, memory, fewer)));
                least = read;
            }
            if reads_once {
                break;
            }
        }
        given.unwrap_or_else(|| Err(Fault::defect(Stage::Plan, "memory was not split")))
    }

    /// The numbers of the whole volume's normalisation, one pair per input channel; none if they differ from block to block. Those
    /// that were recorded are taken as they are.
    pub(crate) async fn bounds(
        &self,
        settings: &RunSettings,
        environment: &Environment,
        recorded: Option<&Head>,
    ) -> Result<Vec<[f64; 2]>, Fault> {
        if let Some(head) = recorded {
            return Ok(head.normalisation());
        }
        let source = || self.statistics_source(settings, environment);
        let channels = self.reader.channels();
        Ok(match settings.values.normalisation {
            Normalisation::Percentile { .. } => Vec::new(),
            Normalisation::None => vec![[0.0, 1.0]; channels],
            Normalisation::Global { bounds } => vec![bounds; channels],
            Normalisation::Volume { percentiles } => {
                whole_percentiles(&source().await?, &self.cpu, percentiles).await?
            }
            Normalisation::ZScore { given: Some(given) } => vec![spread(given); channels],
            Normalisation::ZScore { given: None } => {
                whole_moments(&source().await?, &self.cpu).await?.into_iter().map(spread).collect()
            }
        })
    }

    /// The level that statistics are taken from.
    async fn statistics_source(
        &self,
        settings: &RunSettings,
        environment: &Environment,
    ) -> Result<VolumeReader, Fault> {
        let Some(level) = settings.values.statistics_level else { return Ok(self.reader.clone()) };
        let mut input = settings.input.clone();
        input.level = level;
        input.level_given = true;
        VolumeReader::open(&input, environment, &self.cpu).await.map_err(|error| Fault::volume(Stage::Open, &error))
    }
}

/// Mean and deviation as the values that become 0 and 1.
fn spread([mean, deviation]: [f64; 2]) -> [f64; 2] {
    [mean, mean + deviation]
}

/// The normalisers that these numbers make for voxels of `element` in batches of `kind`, one per input channel.
pub(crate) fn normalisers(
    values: &Values,
    bounds: &[[f64; 2]],
    element: Element,
    kind: ElementKind,
) -> Vec<Normaliser> {
    let made = |[low, high]: [f64; 2]| match values.normalisation {
        Normalisation::None => Normaliser::identity(),
        Normalisation::Global { .. } => Normaliser::global([low, high], values.eps),
        _ => Normaliser::shift_and_scale(low, high - low, values.eps),
    };
    bounds.iter().map(|&pair| made(pair).with_clip(values.clip).tabulated(element, kind)).collect()
}

/// What is written into the outputs' attributes about where they come from.
pub(crate) fn provenance(settings: &RunSettings, report: &Report) -> serde_json::Value {
    let mut provenance = match &settings.output.provenance {
        serde_json::Value::Object(given) => given.clone(),
        _ => serde_json::Map::new(),
    };
    provenance.insert("version".into(), report.version.clone().into());
    provenance.insert("input".into(), report.input.url.clone().into());
    provenance.insert("complete".into(), false.into());
    provenance.insert("normalisation".into(), serde_json::json!(report.normalisation));
    provenance.into()
}
