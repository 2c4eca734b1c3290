//! `haloflow inspect`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use haloflow_pipeline::{Fault, Stage};
use haloflow_volume::{Environment, Inspection, LevelInspection, Network, inspect};
use indicatif::HumanBytes;

use crate::exit;
use crate::run::fail;

#[derive(Debug, Args)]
pub(crate) struct InspectCommand {
    /// A Zarr array, an OME-Zarr image or a collection of images: URL, path or TensorStore spec
    #[arg(value_name = "URL|SPEC")]
    pub(crate) source: String,
    /// Tell it as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not look for credentials and do not sign requests
    #[arg(long)]
    pub(crate) anonymous: bool,
}

/// Runs the command to its end.
pub(crate) fn run(command: &InspectCommand) -> ExitCode {
    let network = Network { anonymous: command.anonymous, ..Network::default() };
    let environment = Environment::with_network(std::env::vars(), network);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&[format!("the async runtime cannot start: {error}")], exit::SOFTWARE),
    };
    let found = match runtime.block_on(inspect(&command.source, &environment)) {
        Ok(found) => found,
        Err(error) => {
            let fault = Fault::volume(Stage::Open, &error);
            return fail(&[fault.to_string()], exit::code(fault.kind));
        }
    };
    let text = if command.json {
        serde_json::to_string_pretty(&found).map(|text| text + "\n").map_err(|error| error.to_string())
    } else {
        told(&found).map_err(|error| error.to_string())
    };
    match text {
        // A closed pipe is no fault.
        Ok(text) => drop(std::io::stdout().lock().write_all(text.as_bytes())),
        Err(sentence) => return fail(&[sentence], exit::SOFTWARE),
    }
    ExitCode::SUCCESS
}

fn told(found: &Inspection) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    match found {
        Inspection::Collection { what, members } => {
            writeln!(text, "{what}")?;
            for member in members {
                writeln!(text, "  {member}")?;
            }
        }
        Inspection::Volume { levels } => {
            for level in levels {
                tell_level(&mut text, level)?;
            }
        }
    }
    Ok(text)
}

fn tell_level(text: &mut String, level: &LevelInspection) -> std::fmt::Result {
    let description = &level.description;
    if description.level == 0 {
        let what = if description.is_group { "OME-Zarr image" } else { "array" };
        let version = format!("{:?}", description.zarr_format).to_lowercase();
        writeln!(text, "{}: {what}, Zarr {version}, {} levels", description.url, description.levels)?;
    }
    writeln!(text, "level {}     {}, fill {}", description.level, description.element, level.fill)?;
    for (place, axis) in description.axes.iter().enumerate() {
        let shard = description.shard.as_ref().map_or(String::new(), |shard| format!(", shard {}", shard[place]));
        writeln!(
            text,
            "  axis {:<4} {} voxels of {} {} from {}; chunk {}{shard}",
            axis.name,
            axis.size,
            axis.scale,
            axis.unit.as_deref().unwrap_or("(no unit)"),
            axis.translation,
            description.chunk[place]
        )?;
    }
    writeln!(text, "  codecs    {}", level.codecs)?;
    let ratio = level.raw_bytes as f64 / level.stored_bytes.max(1) as f64;
    writeln!(
        text,
        "  size      {} raw, {} stored ({ratio:.2} x) in {} of {} objects",
        HumanBytes(level.raw_bytes),
        HumanBytes(level.stored_bytes),
        level.objects,
        level.objects_in_all
    )
}
