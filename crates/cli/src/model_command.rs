//! `haloflow model inspect|export|compile`; `bench` and `trial` have files of their own.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use haloflow_engine::ElementKind;
use haloflow_engine_torch::TorchDevice;
use haloflow_model::{CompileMode, Kind, Model, ModelError, Package, Wanted, compile_arguments};

use crate::model_args::{CompileCommand, ExportCommand, InspectCommand, MadeFor, ModelCommand};
use crate::models::Found;
use crate::run::fail;
use crate::{exit, model_bench, model_trial};

/// Runs the command to its end.
pub(crate) fn run(command: &ModelCommand) -> ExitCode {
    // Without a bar to draw above.
    let logging = crate::logging::start("text", "info", &indicatif::MultiProgress::new());
    let done = logging.map_err(ModelError::usage).and_then(|()| match command {
        ModelCommand::Inspect(command) => inspect(command),
        ModelCommand::Export(command) => export(command),
        ModelCommand::Compile(command) => compile(command),
        ModelCommand::Bench(command) => model_bench::run(command),
        ModelCommand::Trial(command) => model_trial::run(command),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&[error.message], exit::model_code(error.kind)),
    }
}

fn inspect(command: &InspectCommand) -> Result<(), ModelError> {
    let model = Model::open(&command.path, &Found::new(&command.places)?.cache)?;
    let fits = |package: &Package| {
        let device = if package.facts.device == "cuda" { TorchDevice::Cuda(0) } else { TorchDevice::Cpu };
        package.check(&wanted(package, device), model.weights()).err().map(|error| format!("refused: {error}"))
    };
    let text = if command.json { format!("{:#}\n", model.json(&fits)) } else { model.text(&fits) };
    // A closed pipe is no reason to fail.
    drop(std::io::stdout().lock().write_all(text.as_bytes()));
    Ok(())
}

/// What `device` would need of a package of this one's shape.
pub(crate) fn wanted(package: &Package, device: TorchDevice) -> Wanted {
    let facts = &package.facts;
    Wanted {
        libtorch: haloflow_engine_torch::libtorch_version(),
        device: device.to_string(),
        architecture: haloflow_engine_torch::architecture(device),
        runs_on: haloflow_engine_torch::runs_on,
        batch: facts.batch,
        patch: facts.patch,
        kind: facts.kind,
        mode: facts.mode.parse().unwrap_or_default(),
        dynamic: facts.dynamic,
    }
}

fn export(command: &ExportCommand) -> Result<(), ModelError> {
    // Told before the minute that an export takes.
    let device = command.compile.as_deref().map(device).transpose()?;
    let python = Found::new(&command.places)?.python()?;
    python.run(&command.arguments(), &mut tell)?;
    let Some(device) = device else { return Ok(()) };
    let made_for = MadeFor::device(command.out.clone(), device.to_string(), command.places.clone());
    compile(&CompileCommand { made_for, out: None })
}

pub(crate) fn device(text: &str) -> Result<TorchDevice, ModelError> {
    text.parse().map_err(|error| ModelError::usage(format!("`device`: {error}")))
}

pub(crate) fn kind(text: &str) -> Result<Kind, ModelError> {
    text.parse().map_err(|error| ModelError::usage(format!("`kind`: {error}")))
}

/// The engine's name for a kind.
pub(crate) const fn element_kind(kind: Kind) -> ElementKind {
    match kind {
        Kind::F32 => ElementKind::F32,
        Kind::F16 => ElementKind::F16,
        Kind::Bf16 => ElementKind::Bf16,
    }
}

/// Hands a line of Python's on.
pub(crate) fn tell(line: &str) {
    // Nobody is left to tell if standard error is closed.
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

fn compile(command: &CompileCommand) -> Result<(), ModelError> {
    let places = Found::new(&command.made_for.places)?;
    let model = Model::open(&command.made_for.path, &places.cache)?;
    let (Some(folder), Some(_)) = (&model.folder, &model.program) else {
        return Err(ModelError::data(format!(
            "{} holds no exported program to compile: a TorchScript module cannot be compiled; export the network's class with \
             `haloflow model export`",
            model.path.display()
        )));
    };
    let wanted = asked(&command.made_for, &model)?;
    let out = command.out.clone().unwrap_or_else(|| folder.join("compiled").join(name(&wanted)));
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let part = std::fs::create_dir_all(parent).and_then(|()| tempfile::tempdir_in(parent));
    let part = part.map_err(|error| ModelError::data(format!("{} cannot be written: {error}", out.display())))?;
    let made = part.path().join("package.pt2");
    places.python()?.run(&compile_arguments(folder, &wanted, &made), &mut tell)?;
    // The facts last: a package without them is not looked at.
    for extension in ["pt2", "toml"] {
        std::fs::rename(made.with_extension(extension), out.with_extension(extension))
            .map_err(|error| ModelError::data(format!("{} cannot be put in place: {error}", out.display())))?;
    }
    drop(writeln!(std::io::stdout().lock(), "{}", out.with_extension("pt2").display()));
    Ok(())
}

/// What a package is to be made for.
pub(crate) fn asked(command: &MadeFor, model: &Model) -> Result<Wanted, ModelError> {
    let device = device(&command.device)?;
    let on_cuda = device != TorchDevice::Cpu;
    let kind = match command.kind.as_deref() {
        None => {
            if on_cuda {
                Kind::F16
            } else {
                Kind::F32
            }
        }
        Some(text) => kind(text)?,
    };
    let typed = command.patch.as_ref().and_then(|patch| <[usize; 3]>::try_from(patch.as_slice()).ok());
    let patch = typed.or(model.facts.patch).unwrap_or([64; 3]);
    if let Some(sentence) = model.facts.patch_problem(patch) {
        return Err(ModelError::usage(sentence));
    }
    let batch = command.batch.unwrap_or(if on_cuda { 64 } else { 4 });
    if batch == 0 {
        return Err(ModelError::usage("`batch` is 0; it must be at least 1"));
    }
    Ok(Wanted {
        libtorch: haloflow_engine_torch::libtorch_version(),
        device: device.to_string(),
        architecture: haloflow_engine_torch::architecture(device),
        runs_on: haloflow_engine_torch::runs_on,
        batch,
        patch,
        kind,
        mode: command.mode.parse::<CompileMode>().map_err(|error| ModelError::usage(format!("`mode`: {error}")))?,
        dynamic: command.dynamic,
    })
}

/// A package's name: what it is for.
fn name(wanted: &Wanted) -> String {
    let architecture = wanted.architecture.to_lowercase().replace(' ', "-");
    let [z, y, x] = wanted.patch;
    let batch = if wanted.dynamic { "any".to_owned() } else { wanted.batch.to_string() };
    format!("{architecture}-{batch}x{z}x{y}x{x}-{}-{}.pt2", wanted.kind, wanted.mode.of_package().name())
}
