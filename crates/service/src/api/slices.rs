//! What can be seen of a job's volumes: slices as pictures, and a link to a viewer.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
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
    let neuroglancer = host.map(|host| viewer(&job, host, output.is_ok()));
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
fn viewer(job: &Job, host: &str, with_output: bool) -> String {
    let names = ["input", "output"].into_iter().take(1 + usize::from(with_output));
    let layers = names.map(|name| {
        let source = format!("zarr://http://{host}/data/{}/{name}/", job.data_key);
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

/// A slice across z, as a PNG.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/slices/{side}", tag = "slices",
    params(("id" = i64, Path, minimum = 1), ("side" = String, Path, description = "`input` or `output`"), Wanted),
    responses(
        (status = 200, description = "The slice", body = Vec<u8>, content_type = "image/png"),
        (status = 400, description = "A question that cannot be answered", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such job, or nothing to see", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn slice(
    State(daemon): State<Daemon>,
    Id(id): Id,
    SidePart(side): SidePart,
    Asked(wanted): Asked<Wanted>,
) -> Result<Response, Problem> {
    if !(16..=2048).contains(&wanted.pixels) {
        let detail = format!("`pixels` is {}; it must be 16 to 2048", wanted.pixels);
        return Err(Problem::new(StatusCode::BAD_REQUEST, "bad-query", detail));
    }
    let job = daemon.job(id).await?;
    let not_shown = |why: String| Problem::new(StatusCode::NOT_FOUND, "nothing-to-see", why);
    let slice = daemon.shared.runner.slice(&job.config, side, wanted.z, wanted.pixels).await;
    let slice = slice.map_err(|why| not_shown(why.to_string()))?;
    let drawn = tokio::task::spawn_blocking(move || png(&slice)).await;
    let file = drawn.unwrap_or_else(|error| Err(error.to_string())).map_err(not_shown)?;
    Ok(([(header::CONTENT_TYPE, "image/png")], file).into_response())
}
