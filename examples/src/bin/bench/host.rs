//! The stages of a run, each alone and together, with an identity in the network's place.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use haloflow_volume::CpuPool;

use crate::bench::Bench;
use crate::figures::Figures;
use crate::synthetic::{Synthetic, blobs};
use crate::{kernels, merge, prepare, read, whole, write};

/// What is measured.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Voxels along each side of the volume.
    #[arg(long, default_value = "256")]
    size: NonZeroUsize,
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
    let volume = Synthetic { size: arguments.size.get(), chunk: [64; 3], voxel: blobs };
    let source = folder.path().join("input.ome.zarr").display().to_string();
    volume.write(&source, &cpu).await?;

    let settings = whole::settings(&source, &folder.path().join("output.ome.zarr").display().to_string(), cores);
    // The first run warms the page cache and tells how the pipeline laid its work out.
    let (report, _) = whole::run(&settings).await?;
    let bench = Bench::new(settings, report, cpu, volume)?;
    let mut figures = Figures::new(&bench, arguments.repeat.get());
    println!("{figures}");
    for (name, measured) in measure(&bench, arguments.repeat.get()).await? {
        figures.add(name, &measured);
    }
    figures.kernels = kernels::measure(&bench.spec, bench.settings.layout.seam, 5)?;
    figures.tell_of(&whole::run(&bench.settings).await?.0);
    println!("{}", figures.table());
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&figures)?;
        std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

/// Every stage alone, and all together, `repeat` times in turn, so that a slow moment of the machine does not fall on one of them.
async fn measure(bench: &Bench, repeat: usize) -> Result<Vec<(&'static str, Vec<Duration>)>> {
    let mut measured = ["read", "prepare", "merge", "write", "together"].map(|name| (name, Vec::new()));
    for _ in 0..repeat {
        let times = [
            read::measure(bench).await?,
            prepare::measure(bench).await?,
            merge::measure(bench).await?,
            write::measure(bench).await?,
            whole::run(&bench.settings).await?.1,
        ];
        measured.iter_mut().zip(times).for_each(|((_, all), time)| all.push(time));
    }
    Ok(measured.into())
}
