//! Whether the daemon lives, whether it is ready, and what it has.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::daemon::Daemon;
use crate::problem::Problem;
use crate::runner::{DeviceState, LoadedModel};

/// That it is so.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Health {
    /// `live` or `ready`.
    status: String,
    /// The version of haloflow.
    version: String,
}

impl Health {
    fn of(status: &str) -> Json<Self> {
        Json(Self { status: status.into(), version: env!("CARGO_PKG_VERSION").into() })
    }
}

/// Whether the process answers: if not, start it anew.
#[utoipa::path(get, path = "/health/live", tag = "health", responses((status = 200, body = Health)))]
pub(super) async fn live() -> Json<Health> {
    Health::of("live")
}

/// Whether jobs can run: only once devices were seen and libtorch is loaded, and no longer when the daemon stops.
#[utoipa::path(
    get, path = "/health/ready", tag = "health",
    responses(
        (status = 200, body = Health),
        (status = 503, description = "Not yet, or no more", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn ready(State(daemon): State<Daemon>) -> Result<Json<Health>, Problem> {
    if daemon.shared.stopping.is_cancelled() {
        return Err(Problem::busy("the daemon is not ready: it is stopping", 10));
    }
    match &*daemon.shared.readiness.borrow() {
        Ok(()) => Ok(Health::of("ready")),
        Err(why) => Err(Problem::busy(&format!("the daemon is not ready: {why}"), 2)),
    }
}

/// The models that are ready to run.
#[utoipa::path(get, path = "/v1/models", tag = "machine", responses((status = 200, body = [LoadedModel])))]
pub(super) async fn models(State(daemon): State<Daemon>) -> Json<Vec<LoadedModel>> {
    Json(daemon.shared.runner.models())
}

/// The devices, with their memory and load.
#[utoipa::path(get, path = "/v1/devices", tag = "machine", responses((status = 200, body = [DeviceState])))]
pub(super) async fn devices(State(daemon): State<Daemon>) -> Json<Vec<DeviceState>> {
    Json(daemon.devices().await)
}
