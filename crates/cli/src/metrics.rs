//! The report as JSON, with samples of the progress.

use std::path::Path;

use haloflow_pipeline::Report;
use haloflow_pipeline::progress::Snapshot;
use serde::Serialize;

/// How far the run was at one moment.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Sample {
    /// Seconds since the start.
    pub(crate) seconds: f64,
    /// Blocks stored.
    pub(crate) blocks: u64,
    /// Patches merged.
    pub(crate) patches: u64,
    /// Voxels stored.
    pub(crate) voxels: u64,
}

impl Sample {
    pub(crate) const fn of(seconds: f64, seen: &Snapshot) -> Self {
        Self { seconds, blocks: seen.tiles, patches: seen.patches, voxels: seen.voxels }
    }
}

/// Writes the report and the samples to `path`.
///
/// # Errors
/// A sentence with the path.
pub(crate) fn write(path: &Path, report: &Report, samples: &[Sample]) -> Result<(), String> {
    #[derive(Serialize)]
    struct Metrics<'a> {
        #[serde(flatten)]
        report: &'a Report,
        samples: &'a [Sample],
    }
    let told = |error: &dyn std::fmt::Display| format!("`metrics-json`: {} cannot be written: {error}", path.display());
    let json = serde_json::to_vec_pretty(&Metrics { report, samples }).map_err(|error| told(&error))?;
    std::fs::write(path, json).map_err(|error| told(&error))
}
