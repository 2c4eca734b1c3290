//! The HTTP API: one file per group of addresses, all of them wired here.

mod control;
mod data;
mod health;
mod inside;
mod jobs;
mod page;
mod slices;
mod stream;
mod submit;
mod take;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use http::StatusCode;
use utoipa::OpenApi;

use crate::daemon::Daemon;
use crate::guard::{Guard, guard};
use crate::problem::Problem;

/// The document that describes the API, made from its types.
#[derive(OpenApi)]
#[openapi(
    info(title = "haloflow", description = "Runs neural networks over whole microscopy volumes."),
    paths(
        submit::submit,
        jobs::list,
        jobs::show,
        jobs::config,
        jobs::report,
        jobs::logs,
        control::cancel,
        control::pause,
        control::resume,
        stream::of_job,
        stream::of_all,
        inside::stages,
        inside::numbers,
        slices::sides,
        slices::slice,
        health::live,
        health::ready,
        health::models,
        health::devices
    ),
    modifiers(&Tokens)
)]
struct Document;

struct Tokens;

impl utoipa::Modify for Tokens {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
        let none: [&str; 0] = [];
        openapi.security = Some(vec![SecurityRequirement::new("token", none)]);
    }
}

/// The OpenAPI document, as JSON.
#[must_use]
pub fn openapi() -> String {
    Document::openapi().to_pretty_json().unwrap_or_default()
}

/// Every address.
pub(crate) fn router(daemon: &Daemon, guarded: Guard) -> Router {
    page::routes(Router::new())
        .route("/v1/jobs", post(submit::submit).get(jobs::list))
        .route("/v1/jobs/{id}", get(jobs::show))
        .route("/v1/jobs/{id}/config", get(jobs::config))
        .route("/v1/jobs/{id}/report", get(jobs::report))
        .route("/v1/jobs/{id}/logs", get(jobs::logs))
        .route("/v1/jobs/{id}/cancel", post(control::cancel))
        .route("/v1/jobs/{id}/pause", post(control::pause))
        .route("/v1/jobs/{id}/resume", post(control::resume))
        .route("/v1/jobs/{id}/events", get(stream::of_job))
        .route("/v1/jobs/{id}/stages", get(inside::stages))
        .route("/v1/jobs/{id}/slices", get(slices::sides))
        .route("/v1/jobs/{id}/slices/{side}", get(slices::slice))
        .route("/data/{key}/{side}/{*path}", get(data::object).options(data::object))
        .route("/metrics", get(inside::numbers))
        .route("/v1/events", get(stream::of_all))
        .route("/v1/models", get(health::models))
        .route("/v1/devices", get(health::devices))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/openapi.json", get(|| async { ([("content-type", "application/json")], openapi()).into_response() }))
        .fallback(|| async {
            Problem::new(
                StatusCode::NOT_FOUND,
                "no-such-address",
                "there is nothing at this address; /openapi.json lists what is",
            )
        })
        .method_not_allowed_fallback(|| async {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", "this address does not know that method")
        })
        .with_state(daemon.clone())
        .layer(from_fn_with_state(guarded, guard))
}
