//! The figures: for a person, as a table, and for a program, as JSON.

use std::fmt::{self, Write};

use haloflow_pipeline::Report;
use haloflow_pipeline::report::{SecondsReport, StagesReport};
use serde::Serialize;

use crate::bench::Bench;
use crate::clock::Taken;

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
    pub(crate) repeat: usize,
    stages: Vec<Figure>,
    /// Patch voxels per second on one core, prepared and merged.
    pub(crate) kernels: [f64; 2],
    /// Where the time of the last run that was given its statistics went, by the clock.
    run_seconds: SecondsReport,
    /// What its stages worked and waited.
    run_stages: StagesReport,
}

/// One stage alone, or all together.
#[derive(Serialize)]
struct Figure {
    name: &'static str,
    /// By the clock, every measurement in the order they were made.
    seconds: Vec<f64>,
    /// On all cores together.
    core_seconds: Vec<f64>,
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

    /// Adds a measurement of a stage.
    pub(crate) fn add(&mut self, name: &'static str, Taken { seconds, core_seconds }: Taken) {
        let place = self.stages.iter().position(|figure| figure.name == name).unwrap_or_else(|| {
            self.stages.push(Figure { name, seconds: Vec::new(), core_seconds: Vec::new() });
            self.stages.len() - 1
        });
        self.stages[place].seconds.push(seconds);
        self.stages[place].core_seconds.push(core_seconds);
    }

    /// Adds where the time of a run went.
    pub(crate) fn tell_of(&mut self, run: &Report) {
        (self.run_seconds, self.run_stages) = (run.seconds, run.stages);
    }

    /// The medians of the stages of these names, added up: by the clock, and on all cores together.
    fn sum(&self, names: &[&str]) -> [f64; 2] {
        let of = |measured: fn(&Figure) -> &[f64]| {
            self.stages.iter().filter(|figure| names.contains(&figure.name)).map(measured).map(median).sum()
        };
        [of(|figure| &figure.seconds), of(|figure| &figure.core_seconds)]
    }

    /// The table.
    pub(crate) fn table(&self) -> String {
        let mut table =
            format!("{:<10}{:>10}{:>14}{:>12}{:>8}\n", "stage", "seconds", "core-seconds", "Mvoxels/s", "MB/s");
        let voxels = self.size.iter().product::<usize>() as f64;
        for Figure { name, .. } in &self.stages {
            let [seconds, core_seconds] = self.sum(&[name]);
            let (millions, megabytes) = (voxels / seconds / 1e6, voxels * size_of::<u16>() as f64 / seconds / 1e6);
            // Writing into a string does not fail.
            let _ = writeln!(table, "{name:<10}{seconds:>10.3}{core_seconds:>14.3}{millions:>12.1}{megabytes:>8.1}");
        }
        let [prepared, merged] = self.kernels.map(|rate| rate / 1e9);
        let _ = writeln!(
            table,
            "\nOne core prepares {prepared:.2} and merges {merged:.2} billion patch voxels per second."
        );
        let [seconds, core_seconds] = self.sum(&["streaming"]);
        let [alone, cores_alone] = self.sum(&["read", "write"]);
        let _ = writeln!(
            table,
            "Each stage alone has the whole machine. `together` is a whole run, `streaming` one that is given its statistics."
        );
        let _ = writeln!(
            table,
            "Streaming takes {:.2} times as long as reading and writing alone, and {:.2} times the core-seconds.",
            seconds / alone,
            core_seconds / cores_alone
        );
        let SecondsReport { stream, .. } = self.run_seconds;
        let _ = writeln!(table, "In the last, {stream:.3} s, the stages worked, summed over their tasks:");
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
