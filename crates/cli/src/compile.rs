//! `--compile`: finds or makes the compiled form for each device, before any device starts.

use std::collections::HashMap;
use std::path::PathBuf;

use haloflow_engine::ElementKind;
use haloflow_engine_torch::{CompiledForm, TorchDevice, TorchOptions};
use haloflow_model::{CompileMode, Form, Kind, Model, ModelError, Package, Wanted, package_for};

use crate::args::RunArgs;
use crate::models::Opened;
use crate::typed::{BatchSize, Errors, choose};

/// Whether the compiled form is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Off,
    On,
    Required,
}

/// How to compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compiling {
    pub(crate) wish: Wish,
    pub(crate) mode: CompileMode,
    /// Batches are run with as many rows as they have.
    pub(crate) dynamic: bool,
}

impl Compiling {
    /// Reads the keys `compile`, `compile-mode` and `compile-dynamic`.
    pub(crate) fn read(args: &RunArgs, errors: &mut Errors) -> Self {
        let wishes = [("false", Wish::Off), ("true", Wish::On), ("required", Wish::Required)];
        let modes = CompileMode::ALL.map(|mode| (mode.name(), mode));
        let dynamic = [("auto", false), ("false", false), ("true", true)];
        Self {
            wish: choose("compile", args.compile.as_deref().unwrap_or("false"), &wishes, errors),
            mode: choose("compile-mode", args.compile_mode.as_deref().unwrap_or("default"), &modes, errors),
            dynamic: choose("compile-dynamic", args.compile_dynamic.as_deref().unwrap_or("auto"), &dynamic, errors),
        }
    }

    /// Whether CUDA graphs are asked for.
    pub(crate) const fn graph(self) -> bool {
        !matches!(self.wish, Wish::Off) && self.mode.graph()
    }
}

/// A sentence if the model has no module and what was typed needs one.
pub(crate) fn problem(args: &RunArgs, model: &Model) -> Option<String> {
    let needed = match (&model.module, args.batch, args.compile.as_deref()) {
        (Some(_), ..) => return None,
        (None, Some(BatchSize::Found(_)), _) => {
            "`batch` is auto, which is found with a TorchScript module: name the batch"
        }
        (None, _, Some("false")) if model.packages.is_empty() && model.form != Form::Package => {
            "`compile` is false: leave it out, or name a bundle that holds a module"
        }
        _ => return None,
    };
    Some(format!("{} holds no TorchScript module, so that it runs only compiled, and {needed}", model.path.display()))
}

/// Whether the compiled form is to run, so that it may have to be made first.
pub(crate) fn is_wanted(args: &RunArgs, model: &Model) -> bool {
    model.module.is_none() || Compiling::read(args, &mut Errors::default()).wish != Wish::Off
}

/// Gives every engine the compiled form where it is wanted.
pub(crate) fn attach(args: &RunArgs, opened: &Opened, engines: &mut [TorchOptions]) -> Result<(), ModelError> {
    let asked = Compiling::read(args, &mut Errors::default());
    match (&opened.model.module, asked.wish) {
        // There is nothing to fall back to.
        (None, _) => attach_compiled(Compiling { wish: Wish::Required, ..asked }, opened, engines),
        (Some(_), Wish::Off) => Ok(()),
        (Some(_), Wish::On | Wish::Required) => attach_compiled(asked, opened, engines),
    }
}

fn attach_compiled(asked: Compiling, opened: &Opened, engines: &mut [TorchOptions]) -> Result<(), ModelError> {
    let mut found: HashMap<(bool, String), Result<PathBuf, ModelError>> = HashMap::new();
    for engine in engines {
        if let Some(package) = lone_package(&opened.model) {
            use_lone(package, opened, engine, asked)?;
            continue;
        }
        let wanted = wanted(engine, asked);
        // Devices of one kind share a package.
        let key = (engine.device == TorchDevice::Cpu, wanted.architecture.clone());
        let package = found.entry(key).or_insert_with(|| find(opened, &wanted)).clone();
        let required = asked.wish == Wish::Required;
        engine.pad_short = !asked.dynamic;
        engine.compiled = Some(match package {
            Err(error) if required => return Err(error),
            package => CompiledForm { package: package.map_err(|error| error.message), required },
        });
    }
    Ok(())
}

/// The package that was named by itself, as a file.
fn lone_package(model: &Model) -> Option<Option<&Package>> {
    (model.form == Form::Package).then(|| model.packages.first())
}

/// A package named by itself runs or nothing does. Without facts beside it, it tells at its warm-up what does not fit.
fn use_lone(
    package: Option<&Package>,
    opened: &Opened,
    engine: &mut TorchOptions,
    asked: Compiling,
) -> Result<(), ModelError> {
    let mut asked = asked;
    if let Some(package) = package {
        asked.dynamic = package.facts.dynamic;
        asked.mode = package.facts.mode.parse().unwrap_or_default();
        package.check(&wanted(engine, asked), None)?;
    }
    engine.pad_short = !asked.dynamic;
    engine.compiled = Some(CompiledForm { package: Ok(opened.model.path.clone()), required: true });
    Ok(())
}

fn find(opened: &Opened, wanted: &Wanted) -> Result<PathBuf, ModelError> {
    let places = &opened.places;
    let python = || {
        tracing::info!("compiling {} for {} (once; a minute or more)", opened.model.facts.name, wanted.device);
        places.python()
    };
    let found =
        package_for(&opened.model, wanted, &places.cache, &python, &mut |line| tracing::debug!("python: {line}"))?;
    tracing::info!("the package for {} is from the {}: {}", wanted.device, found.origin, found.package.display());
    Ok(found.package)
}

/// What an engine needs of a package.
pub(crate) fn wanted(engine: &TorchOptions, asked: Compiling) -> Wanted {
    Wanted {
        libtorch: haloflow_engine_torch::libtorch_version(),
        device: engine.device.to_string(),
        architecture: haloflow_engine_torch::architecture(engine.device),
        runs_on: haloflow_engine_torch::runs_on,
        batch: engine.batch,
        patch: engine.patch,
        kind: match engine.kind {
            ElementKind::F32 => Kind::F32,
            ElementKind::F16 => Kind::F16,
            ElementKind::Bf16 => Kind::Bf16,
        },
        mode: asked.mode,
        dynamic: asked.dynamic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(compile: Option<&str>, mode: Option<&str>, dynamic: Option<&str>) -> Result<Compiling, Vec<String>> {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let args = RunArgs {
            compile: text(compile),
            compile_mode: text(mode),
            compile_dynamic: text(dynamic),
            ..RunArgs::default()
        };
        let mut errors = Errors::default();
        let compiling = Compiling::read(&args, &mut errors);
        errors.into_result(compiling)
    }

    #[test]
    fn words_mean_what_they_meant() {
        let off = read(None, None, None).unwrap();
        assert_eq!((off.wish, off.dynamic, off.graph()), (Wish::Off, false, false));
        let graphs = read(Some("required"), Some("max-autotune"), Some("auto")).unwrap();
        assert_eq!((graphs.wish, graphs.dynamic, graphs.graph()), (Wish::Required, false, true));
        assert!(!read(Some("false"), Some("reduce-overhead"), None).unwrap().graph());
        assert!(read(Some("true"), None, Some("true")).unwrap().dynamic);
    }

    #[test]
    fn wrong_words_are_told_with_the_allowed_ones() {
        let told = read(Some("maybe"), Some("fast"), Some("sometimes")).unwrap_err();
        assert_eq!(told[0], "`compile` is maybe; allowed are false, true, required");
        assert!(told[1].contains("`compile-mode` is fast; allowed are default, reduce-overhead"));
        assert!(told[2].contains("`compile-dynamic` is sometimes"));
    }
}
