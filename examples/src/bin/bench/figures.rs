//! The figures: for a person, as a table, and for a program, as JSON.

use std::fmt::{self, Write};
use std::time::Duration;

use haloflow_pipeline::Report;
use haloflow_pipeline::report::{SecondsReport, StagesReport};
use serde::Serialize;

use crate::bench::Bench;

/// What was measured, on what, and how it was called.
#[derive(Serialize)]
pub(crate) struct Figures {
    command: String,
    version: &'static str,
    profile: &'static str,
    cores: usize,
    size: [usize; 3],
    element: &'static str,
    chunk: [usize; 3],
    patch: [usize; 3],
    overlap: [usize; 3],
    batch: usize,
    patches: u64,
    /// Voxels of all patches over voxels of the volume.
    redundancy: f64,
    repeat: usize,
    stages: Vec<Figure>,
    /// Patch voxels per second on one core, prepared and merged.
    pub(crate) kernels: [f64; 2],
    /// Where the time of one more run went, by the clock.
    run_seconds: SecondsReport,
    /// What its stages worked and waited.
    run_stages: StagesReport,
}

/// One stage alone, or all together.
#[derive(Serialize)]
struct Figure {
    name: &'static str,
    /// Every measurement, in the order they were made.
    seconds: Vec<f64>,
    median_seconds: f64,
    /// Voxels of the volume, not of its patches, over the median.
    voxels_per_second: f64,
    /// MB (10^6 bytes) of the raw volume over the median.
    megabytes_per_second: f64,
}

impl Figures {
    pub(crate) fn new(bench: &Bench, repeat: usize) -> Self {
        let (work, layout) = (&bench.report.work, &bench.settings.layout);
        Self {
            command: std::env::args().collect::<Vec<_>>().join(" "),
            version: env!("CARGO_PKG_VERSION"),
            profile: if cfg!(debug_assertions) { "dev" } else { "release" },
            cores: bench.cpu.threads(),
            size: bench.volume.shape(),
            element: "uint16",
            chunk: bench.volume.chunk,
            patch: layout.patch,
            overlap: layout.overlap,
            batch: bench.spec.batch,
            patches: work.patches_total,
            redundancy: work.redundancy,
            repeat,
            stages: Vec::new(),
            kernels: [0.0; 2],
            run_seconds: SecondsReport::default(),
            run_stages: StagesReport::default(),
        }
    }

    /// Adds the measurements of a stage.
    pub(crate) fn add(&mut self, name: &'static str, measured: &[Duration]) {
        let seconds: Vec<f64> = measured.iter().map(Duration::as_secs_f64).collect();
        let median_seconds = median(&seconds);
        let voxels_per_second = self.size.iter().product::<usize>() as f64 / median_seconds;
        let megabytes_per_second = voxels_per_second * size_of::<u16>() as f64 / 1e6;
        self.stages.push(Figure { name, seconds, median_seconds, voxels_per_second, megabytes_per_second });
    }

    /// Adds where the time of a run went.
    pub(crate) fn tell_of(&mut self, run: &Report) {
        (self.run_seconds, self.run_stages) = (run.seconds, run.stages);
    }

    /// The table.
    pub(crate) fn table(&self) -> String {
        let mut table = format!("{:<10}{:>10}{:>16}{:>10}\n", "stage", "seconds", "Mvoxels/s", "MB/s");
        for Figure { name, median_seconds, voxels_per_second, megabytes_per_second, .. } in &self.stages {
            let millions = voxels_per_second / 1e6;
            // Writing into a string does not fail.
            let _ = writeln!(table, "{name:<10}{median_seconds:>10.3}{millions:>16.1}{megabytes_per_second:>10.1}");
        }
        let [prepared, merged] = self.kernels.map(|rate| rate / 1e9);
        let _ = writeln!(
            table,
            "\nOne core prepares {prepared:.2} and merges {merged:.2} billion patch voxels per second."
        );
        let SecondsReport { total, statistics, stream, .. } = self.run_seconds;
        let _ = writeln!(
            table,
            "Each stage alone has the whole machine. `together` is a whole run; of one more, {total:.3} s long, were:"
        );
        let _ = writeln!(table, "  {statistics:.3} s statistics, a pass of their own that reads the volume once more");
        let _ = writeln!(table, "  {stream:.3} s streaming, in which the stages worked, summed over their tasks:");
        for (name, reading) in self.run_stages.named() {
            let _ = writeln!(table, "    {name:<8} {:.3} s", reading.working_seconds);
        }
        table
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, profile, cores, size, chunk, patch, overlap, batch, patches, redundancy, repeat, .. } =
            self;
        writeln!(f, "$ {command}")?;
        writeln!(f, "{cores} cores, profile {profile}, medians of {repeat}")?;
        writeln!(f, "volume {size:?} uint16, chunks {chunk:?} blosc-zstd, on a local disk")?;
        writeln!(
            f,
            "patch {patch:?}, overlap {overlap:?}, batch {batch}: {patches} patches, {redundancy:.2} times the volume's voxels"
        )
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.len().saturating_sub(1) / 2, sorted.len() / 2);
    match (sorted.get(low), sorted.get(high)) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => f64::NAN,
    }
}
