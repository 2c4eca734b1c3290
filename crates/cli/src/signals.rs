//! What asks a run to stop: SIGINT, SIGTERM, SIGHUP (a terminal that is closed), and the notice that the machine is about to be taken away.

use std::time::Duration;

use haloflow_volume::Environment;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit;

/// How often it is looked whether a notice has appeared. Machines are taken away half a minute after it, or later.
const LOOKS: Duration = Duration::from_secs(1);

/// Watches for signals until the runtime ends: the first asks the run to stop, the second ends the process.
///
/// # Errors
/// If the system refuses to deliver signals.
pub(crate) fn watch(drain: CancellationToken) -> std::io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        for first in [true, false] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
            if first {
                tracing::warn!("stopping; a second signal ends at once");
                drain.cancel();
            } else {
                std::process::exit(exit::INTERRUPTED.into());
            }
        }
    });
    Ok(())
}

/// Asks the run to stop once something is at `place`, a file or a URL.
pub(crate) fn watch_notice(place: String, environment: Environment, drain: CancellationToken) {
    tokio::spawn(async move {
        let mut looks = tokio::time::interval(LOOKS);
        loop {
            looks.tick().await;
            match haloflow_volume::exists(&place, &environment).await {
                Ok(true) => {
                    tracing::warn!("stopping: there is an interruption notice at {place}");
                    return drain.cancel();
                }
                Ok(false) => {}
                Err(error) => tracing::debug!("`interruption-notice`: {error}"),
            }
        }
    });
}
