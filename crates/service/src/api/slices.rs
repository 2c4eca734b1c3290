//! What can be seen of a job's volumes: slices as pictures, and a link to a viewer.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::take::{Asked, Id, SidePart};
use crate::daemon::Daemon;
use crate::job::Job;
use crate::picture::png;
use crate::problem::Problem;
use crate::runner::{Side, SideInfo};

/// The viewer that the link opens. It runs in the browser and fetches the volumes from this daemon.
const VIEWER: &str = "https://neuroglancer-demo.appspot.com/";

/// What can be seen.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Sides {
    /// The volume.
    input: Option<SideInfo>,
    /// Why not.
    input_told: Option<String>,
    /// The first result.
    output: Option<SideInfo>,
    /// Why not.
    output_told: Option<String>,
    /// Opens both in Neuroglancer.
    neuroglancer: Option<String>,
}

/// Tells what can be seen of a job's volumes.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/slices", tag = "slices", params(("id" = i64, Path, minimum = 1)),
    responses(
        (status = 200, body = Sides),
        (status = 404, description = "No such job", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn sides(
    State(daemon): State<Daemon>,
    Id(id): Id,
    headers: HeaderMap,
) -> Result<Json<Sides>, Problem> {
    let job = daemon.job(id).await?;
    let runner = &daemon.shared.runner;
    let (input, output) = (runner.side(&job.config, Side::Input).await, runner.side(&job.config, Side::Output).await);
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    // A proxy in front may speak TLS, without which the viewer's page could not fetch from another machine.
    let encrypted =
        headers.get("x-forwarded-proto").is_some_and(|scheme| scheme.as_bytes().eq_ignore_ascii_case(b"https"));
    let scheme = if encrypted { "https" } else { "http" };
    let neuroglancer = host.map(|host| viewer(&job, (scheme, host), output.is_ok()));
    let neuroglancer = neuroglancer.filter(|_| input.is_ok());
    let (input, input_told) = parted(input);
    let (output, output_told) = parted(output);
    Ok(Json(Sides { input, input_told, output, output_told, neuroglancer }))
}

fn parted(side: Result<SideInfo, crate::runner::NotShown>) -> (Option<SideInfo>, Option<String>) {
    match side {
        Ok(side) => (Some(side), None),
        Err(why) => (None, Some(why.to_string())),
    }
}

/// A link with the viewer's whole state behind its `#!`, which no server gets to see.
fn viewer(job: &Job, (scheme, host): (&str, &str), with_output: bool) -> String {
    let names = ["input", "output"].into_iter().take(1 + usize::from(with_output));
    let layers = names.map(|name| {
        let source = format!("zarr://{scheme}://{host}/data/{}/{name}/", job.data_key);
        serde_json::json!({ "type": "image", "name": name, "source": source })
    });
    let state = serde_json::json!({ "layers": layers.collect::<Vec<_>>(), "layout": "4panel" }).to_string();
    let mut link = format!("{VIEWER}#!");
    for byte in state.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~:/,".contains(&byte) {
            link.push(byte as char);
        } else {
            link.push_str(&format!("%{byte:02X}"));
        }
    }
    link
}

/// Which slice.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Its place along z, voxels from 0.
    z: usize,
    /// Pixels along its longer side, about.
    #[serde(default = "usual_pixels")]
    #[param(minimum = 16, maximum = 2048, default = 512)]
    pixels: usize,
}

const fn usual_pixels() -> usize {
    512
}

/// What tells one state of a slice from the next, of the output of a job that runs. It is never the same for two runs of a job.
fn tag(daemon: &Daemon, job: &Job, side: Side, z: usize) -> Option<String> {
    let live = daemon.live(job.status.id).filter(|_| side == Side::Output)?;
    Some(format!("\"{}-{}\"", job.status.started_ms.unwrap_or_default(), live.progress.stored_at(z)))
}

/// A slice across z, as a PNG.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/slices/{side}", tag = "slices",
    params(("id" = i64, Path, minimum = 1), ("side" = String, Path, description = "`input` or `output`"), Wanted),
    responses(
        (status = 200, description = "The slice", body = Vec<u8>, content_type = "image/png",
            headers(("ETag", description = "Of the output of a job that runs: another one as soon as a block was stored that touches the slice"))),
        (status = 304, description = "It is the one that If-None-Match names"),
        (status = 400, description = "A question that cannot be answered", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such job, or nothing to see", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn slice(
    State(daemon): State<Daemon>,
    Id(id): Id,
    SidePart(side): SidePart,
    Asked(wanted): Asked<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if !(16..=2048).contains(&wanted.pixels) {
        let detail = format!("`pixels` is {}; it must be 16 to 2048", wanted.pixels);
        return Err(Problem::new(StatusCode::BAD_REQUEST, "bad-query", detail));
    }
    let job = daemon.job(id).await?;
    // Taken first: what is stored meanwhile makes another one.
    let tag = tag(&daemon, &job, side, wanted.z);
    let known = headers.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    if tag.is_some() && tag.as_deref() == known {
        return Ok(StatusCode::NOT_MODIFIED.into_response());
    }
    // A slice may be large where there is no coarser level.
    let _place = daemon.shared.looking.acquire().await;
    let not_shown = |why: String| Problem::new(StatusCode::NOT_FOUND, "nothing-to-see", why);
    let slice = daemon.shared.runner.slice(&job.config, side, wanted.z, wanted.pixels).await;
    let slice = slice.map_err(|why| not_shown(why.to_string()))?;
    let drawn = tokio::task::spawn_blocking(move || png(&slice)).await;
    let file = drawn.unwrap_or_else(|error| Err(error.to_string())).map_err(not_shown)?;
    let mut response = ([(header::CONTENT_TYPE, "image/png")], file).into_response();
    if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(&tag).ok()) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}
