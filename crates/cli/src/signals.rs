//! The signals that ask a run to stop: SIGINT, SIGTERM, SIGHUP (a terminal that is closed).

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit;

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
