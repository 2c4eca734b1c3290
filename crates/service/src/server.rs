//! The sockets: takes connections, not more than so many, gives slow ones up, and ends them when the daemon stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::daemon::Daemon;
use crate::dispatch::dispatch;
use crate::prune::{prune, prune_until_stopped};
use crate::{api, guard};

/// How long answers that have begun may take to end when the daemon stops.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Before the next connection is taken when the system has none to give.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until the daemon is told to stop and its jobs have stopped.
pub async fn serve(daemon: Daemon, listener: TcpListener) {
    let router = api::router(&daemon, guard::Guard::new(&daemon));
    let jobs = tokio::spawn({
        let daemon = daemon.clone();
        async move {
            let stopping = daemon.shared.stopping.clone();
            let warm = stopping.run_until_cancelled(daemon.shared.runner.warm_up()).await;
            if let Some(Err(why)) = &warm {
                tracing::error!("no job can run: {why}");
            }
            let _before = daemon.shared.readiness.send_replace(warm.unwrap_or_else(|| Err("it is stopping".into())));
            prune(&daemon).await;
            tokio::join!(dispatch(daemon.clone()), prune_until_stopped(&daemon));
        }
    });
    accept(&daemon, listener, router).await;
    if jobs.await.is_err() {
        tracing::error!("the task that starts jobs panicked");
    }
}

async fn accept(daemon: &Daemon, listener: TcpListener, router: Router) {
    let limits = daemon.shared.settings.limits;
    let (places, graceful) = (Arc::new(Semaphore::new(limits.connections)), GracefulShutdown::new());
    let mut server = Builder::new(TokioExecutor::new()).http1_only();
    server.http1().timer(TokioTimer::new()).header_read_timeout(limits.patience);
    while let Some((stream, peer)) = next(daemon, &listener).await {
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!(%peer, "a connection is refused: {} are open", limits.connections);
            continue;
        };
        let router = router.clone().layer(axum::Extension(ConnectInfo(peer)));
        let connection = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%peer, "the connection ended: {error}");
            }
            drop(place);
        });
    }
    if tokio::time::timeout(LAST_ANSWERS, graceful.shutdown()).await.is_err() {
        tracing::debug!("connections were still open when the daemon stopped");
    }
}

/// The next connection; none when the daemon stops.
async fn next(daemon: &Daemon, listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    loop {
        match daemon.shared.stopping.run_until_cancelled(listener.accept()).await? {
            Ok((stream, peer)) => {
                // Small answers are not held back; where that cannot be set nothing is lost but time.
                drop(stream.set_nodelay(true));
                return Some((stream, peer));
            }
            Err(error) => {
                tracing::warn!("no connection could be taken: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
