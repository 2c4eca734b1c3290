//! Removes jobs that ended long ago, or beyond as many as are kept.

use std::time::Duration;

use crate::daemon::Daemon;
use crate::job::now_ms;

/// Between two looks for such jobs.
const EVERY: Duration = Duration::from_secs(60);

/// Removes what is not kept, now.
pub(crate) async fn prune(daemon: &Daemon) {
    let shared = &daemon.shared;
    let mut removed = 0;
    loop {
        match shared.store.prune(shared.settings.keep, now_ms()).await {
            Ok(jobs) if jobs.is_empty() => break,
            Ok(jobs) => {
                removed += jobs.len();
                shared.runner.forget(jobs).await;
            }
            Err(error) => {
                tracing::error!("jobs that have ended cannot be removed: {error}");
                break;
            }
        }
    }
    if removed > 0 {
        tracing::info!("{removed} jobs that have ended are not kept any longer");
    }
}

/// Removes what is not kept, again and again until the daemon stops.
pub(crate) async fn prune_until_stopped(daemon: &Daemon) {
    let stopping = &daemon.shared.stopping;
    while stopping.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
        prune(daemon).await;
    }
}
