//! `haloflow watch`: the same bar as that of `run`.

use std::io::Write;
use std::process::ExitCode;

use haloflow_pipeline::progress::Snapshot;
use haloflow_service::job::{JobId, JobProgress, JobState, JobStatus};
use indicatif::MultiProgress;

use super::Refused;
use super::events::{Events, is_at_rest};
use super::server::Server;
use crate::exit;
use crate::logging;
use crate::show::Shown;

/// Shows a job to its end, and ends as it did. A paused job ends as an interrupted run does.
pub(super) async fn watch(server: &Server, id: JobId) -> Result<ExitCode, Refused> {
    let bars = MultiProgress::new();
    logging::start("text", "info", &bars).map_err(|sentence| Refused(vec![sentence], exit::SOFTWARE))?;
    let (mut events, mut shown) = (Events::new(server, id), Shown::new(&bars));
    loop {
        let status = events.next().await?;
        if is_at_rest(&status) {
            shown.finish();
            return ended(&status);
        }
        match &status.progress {
            Some(progress) if status.state == JobState::Running => shown.update(&snapshot(progress), &progress.doing),
            _ => shown.update(&Snapshot::default(), status.state.name()),
        }
    }
}

fn snapshot(progress: &JobProgress) -> Snapshot {
    Snapshot {
        tiles: progress.blocks,
        tiles_total: progress.blocks_total,
        voxels: progress.voxels,
        voxels_total: progress.voxels_total,
        bytes_per_voxel: progress.bytes_per_voxel,
        patches: progress.patches,
        patches_total: progress.patches_total,
        ..Snapshot::default()
    }
}

fn ended(status: &JobStatus) -> Result<ExitCode, Refused> {
    let id = status.id;
    match (status.state, &status.fault) {
        (JobState::Succeeded, _) => {
            drop(writeln!(std::io::stdout().lock(), "job {id} succeeded: {}", status.outputs.join(", ")));
            Ok(ExitCode::SUCCESS)
        }
        (JobState::Failed, Some(fault)) => {
            Err(Refused(vec![fault.message.clone()], status.exit_code.unwrap_or(exit::SOFTWARE)))
        }
        (state, _) => {
            Err(Refused(vec![format!("job {id} is {}", state.name())], status.exit_code.unwrap_or(exit::INTERRUPTED)))
        }
    }
}
