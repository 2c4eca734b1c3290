//! What is measured: the same volume, plan and limits for every stage alone as for the whole run.

use std::sync::Arc;

use anyhow::{Context, Result};
use haloflow_engine::EngineSpec;
use haloflow_examples::volume::input;
use haloflow_geometry::{Box3, Column, Plan};
use haloflow_pipeline::{LatticeChoice, Report, RunSettings};
use haloflow_volume::{AlignedBytes, CpuPool, Environment, Leftovers, VolumeReader};

use crate::synthetic::Synthetic;
use crate::whole;

/// Everything the measurements share.
pub(crate) struct Bench {
    pub(crate) settings: RunSettings,
    /// How a whole run laid out its work.
    pub(crate) report: Report,
    pub(crate) plan: Arc<Plan>,
    pub(crate) column: Column,
    pub(crate) spec: EngineSpec,
    pub(crate) cpu: CpuPool,
    pub(crate) volume: Synthetic,
    /// Every tile that the run wrote, and its voxels.
    pub(crate) written: Vec<(Box3, AlignedBytes)>,
}

impl Bench {
    /// The plan and the column are those of the run that `report` tells of.
    pub(crate) async fn new(settings: RunSettings, report: Report, cpu: CpuPool, volume: Synthetic) -> Result<Self> {
        let geometry = settings.layout.geometry(LatticeChoice::Volume, volume.shape(), Some(report.output.unit));
        let plan = Arc::new(Plan::new(geometry).context("the benchmark's volume cannot be planned")?);
        let [y, x] = report.work.column;
        let spec = whole::spec(&settings);
        let target = settings.output.targets.first().context("the run had no output")?;
        let output = VolumeReader::open(&input(target), &Environment::empty(), &cpu).await?;
        let mut written = Vec::new();
        for tile in Box3::of_shape(plan.tiles()).indices().map(|tile| plan.tile(tile)) {
            let channels = output.read(tile).await?.channels;
            written.extend(channels.into_iter().map(|voxels| (tile, voxels)));
        }
        Ok(Self { settings, report, plan, column: Column { y, x }, spec, cpu, volume, written })
    }

    /// What the reads of a run share, with as much room as it had.
    pub(crate) fn leftovers(&self) -> Leftovers {
        let (plan, column) = (Arc::clone(&self.plan), self.column);
        Leftovers::new(self.report.memory.cache, move |cell| plan.reads_of(column, cell))
    }

    /// The input.
    pub(crate) async fn reader(&self) -> Result<VolumeReader> {
        Ok(VolumeReader::open(&self.settings.input, &Environment::empty(), &self.cpu).await?)
    }
}
