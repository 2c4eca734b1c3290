//! The stages of a run, each alone and together, with an identity in the network's place.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use haloflow_volume::CpuPool;

use crate::bench::Bench;
use crate::figures::Figures;
use crate::synthetic::{Synthetic, gamma};
use crate::{cast, kernels, merge, prepare, read, whole, write};

/// What is measured.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Voxels along each side of the volume.
    #[arg(long, default_value = "512")]
    size: NonZeroUsize,
    /// Voxels along each side of a chunk.
    #[arg(long, default_value = "128")]
    chunk: NonZeroUsize,
    /// How often everything is measured; the medians are shown.
    #[arg(long, default_value = "3")]
    repeat: NonZeroUsize,
    /// Where input and output lie; unset is the system's folder for temporary files.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Writes the figures to this file too.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Measures, and tells the figures.
pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::tempdir_in(&parent).with_context(|| format!("{} takes no folder", parent.display()))?;
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let cpu = CpuPool::new(cores)?;
    let volume = Synthetic { size: arguments.size.get(), chunk: [arguments.chunk.get(); 3], voxel: gamma };
    let source = folder.path().join("input.ome.zarr").display().to_string();
    volume.write(&source, &cpu).await?;

    let settings = whole::settings(&source, &folder.path().join("output.ome.zarr").display().to_string(), cores);
    // The first run warms the page cache and tells how the pipeline laid its work out.
    let (report, _) = whole::run(&settings).await?;
    let bench = Bench::new(settings, report, cpu, volume).await?;
    let mut figures = Figures::new(&bench, arguments.repeat.get());
    println!("{figures}");
    measure(&bench, &mut figures).await?;
    figures.kernels = kernels::measure(&bench.spec, bench.settings.layout.seam, 5)?;
    println!("{}", figures.table());
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&figures)?;
        std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

/// Every stage alone, and all together, `repeat` times in turn, so that a slow moment of the machine does not fall on one of them.
async fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let &bounds = bench.report.normalisation.first().context("the run took no statistics")?;
    let given = whole::without_statistics(&bench.settings, bounds);
    for _ in 0..figures.repeat {
        figures.add("read", read::measure(bench).await?);
        figures.add("prepare", prepare::measure(bench).await?);
        figures.add("merge", merge::measure(bench).await?);
        figures.add("cast", cast::measure(bench).await?);
        figures.add("write", write::measure(bench).await?);
        let (run, streaming) = whole::run(&given).await?;
        figures.add("streaming", streaming);
        figures.add("together", whole::run(&bench.settings).await?.1);
        figures.tell_of(&run);
    }
    Ok(())
}
