//! The network: whether its files are sound, and which of its forms run on this machine.

use haloflow_engine_torch::TorchDevice;
use haloflow_model::{Cache, Model, ModelError, Package};

use super::check::{Check, Told};
use crate::args::RunArgs;
use crate::compile::{Compiling, Wish};
use crate::model_args::Places;
use crate::model_command::wanted;
use crate::typed::Errors;
use crate::{exit, models};

/// Looks at the model that was named, if one was. What has to be unpacked goes into a folder that is removed again.
pub(super) fn look(args: &RunArgs, devices: &[TorchDevice], told: &mut Told) {
    let Some(path) = &args.model else { return };
    let subject = path.display().to_string();
    let mut errors = Errors::default();
    let asked = Compiling::read(args, &mut errors);
    told.refuse("compile", errors);
    if models::must_export(args) {
        return told.tell(with_python(args, "model", subject, "weights, which Python exports once"));
    }
    match open(args, path) {
        Err(error) => {
            let fix = "name a file or folder that is a model, whole and unchanged";
            told.tell(Check::failed("model", subject, error.message, fix, exit::model_code(error.kind)));
        }
        Ok(model) => {
            told.tell(Check::ok("model", &subject, format!("{} ({}), whole", model.facts.name, model.form.name())));
            let fits = model.packages.iter().map(|package| fit(package, &model, devices)).collect::<Vec<_>>();
            let runs = fits.iter().any(Result::is_ok);
            for (package, fit) in model.packages.iter().zip(fits) {
                let name = package.path.display().to_string();
                let found = fit.map_or_else(
                    |why| format!("not for this machine: {why}"),
                    |devices| format!("runs on {}", devices.join(", ")),
                );
                told.tell(Check::ok("package", name, found));
            }
            told.tell(form(args, &model, asked.wish, runs, subject));
        }
    }
}

fn open(args: &RunArgs, path: &std::path::Path) -> Result<Model, ModelError> {
    let unpacked = tempfile::tempdir();
    let unpacked = unpacked.map_err(|error| ModelError::usage(format!("no folder for what is unpacked: {error}")))?;
    let cache = match path.is_dir() {
        true => args.cache.as_deref().unwrap_or(unpacked.path()),
        false => unpacked.path(),
    };
    Model::open(path, &Cache::new(Some(cache), |_| None)?)
}

/// The devices that a package runs on, or why it runs on none.
fn fit(package: &Package, model: &Model, devices: &[TorchDevice]) -> Result<Vec<String>, String> {
    let (mut runs, mut reasons) = (Vec::new(), Vec::new());
    for device in devices {
        match package.facts.misfit(&wanted(package, *device), model.weights()) {
            None => runs.push(device.to_string()),
            Some(reason) => reasons.push(reason),
        }
    }
    match reasons.into_iter().next() {
        Some(reason) if runs.is_empty() => Err(format!("it {reason}")),
        _ => Ok(runs),
    }
}

/// What will run: the module, a package, or one that Python makes first.
fn form(args: &RunArgs, model: &Model, wish: Wish, has_package: bool, subject: String) -> Check {
    let has_module = model.module.is_some();
    let again = "compile it for this machine: `haloflow model compile`";
    match (wish, has_package) {
        (Wish::Off, _) if has_module => Check::ok("form", subject, "the TorchScript module runs"),
        (_, true) => Check::ok("form", subject, "a compiled package runs, at the batch and patch that it was made for"),
        (_, false) if model.program.is_some() => {
            with_python(args, "form", subject, "no package is for this machine; Python makes one once")
        }
        (Wish::On, false) if has_module => Check::warning(
            "form",
            subject,
            "no package is for this machine, so that the TorchScript module runs",
            again,
        ),
        (_, false) if model.packages.is_empty() && !has_module => {
            let found = "nothing beside the package tells what it was made for, so that this shows only when it runs";
            Check::warning("form", subject, found, "put its .toml beside it")
        }
        (_, false) => {
            let found = "no package is for this machine, and nothing else of it may run";
            Check::failed("form", subject, found, again, exit::DATA)
        }
    }
}

/// Something that needs Python unless it is in the cache already.
fn with_python(args: &RunArgs, check: &'static str, subject: String, found: &str) -> Check {
    let places = Places { python: args.python.clone(), cache: args.cache.clone() };
    match models::Found::new(&places).and_then(|found| found.python()) {
        Ok(_) => Check::ok(check, subject, format!("{found}; Python is found")),
        Err(error) => {
            let found = format!("{found} unless it is in the cache, and {}", error.message);
            Check::warning(check, subject, found, "name one with torch by `python`")
        }
    }
}

#[cfg(test)]
mod tests {
    use haloflow_model::{Kind, PackageFacts};

    use super::*;

    fn package(device: &str, libtorch: &str) -> Package {
        let facts = PackageFacts {
            libtorch: libtorch.into(),
            device: device.into(),
            architecture: haloflow_engine_torch::architecture(TorchDevice::Cpu),
            batch: 4,
            patch: [16; 3],
            kind: Kind::F32,
            mode: "default".into(),
            dynamic: false,
            sha256: String::new(),
            weights_sha256: String::new(),
        };
        Package { path: format!("{device}-{libtorch}.pt2").into(), facts }
    }

    fn model() -> Model {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.ts");
        std::fs::write(&path, "").unwrap();
        Model::open(&path, &Cache::new(Some(folder.path()), |_| None).unwrap()).unwrap()
    }

    #[test]
    fn a_package_is_held_against_every_device() {
        let (model, here) = (model(), haloflow_engine_torch::libtorch_version());
        let of = |device, libtorch, devices: &[TorchDevice]| fit(&package(device, libtorch), &model, devices);
        assert_eq!(of("cpu", &here, &[TorchDevice::Cpu]), Ok(vec!["cpu".to_owned()]));
        let told = of("cpu", "1.0.0", &[TorchDevice::Cpu]).unwrap_err();
        assert_eq!(told, format!("it was made for libtorch 1.0.0 and {here} is needed"));
        let told = of("cuda", &here, &[TorchDevice::Cpu]).unwrap_err();
        assert_eq!(told, "it was made for device cuda and cpu is needed");
    }

    #[test]
    fn what_will_run_follows_from_what_there_is() {
        let of = |model: &Model, wish, has_package| {
            let json = serde_json::to_value(form(&RunArgs::default(), model, wish, has_package, "net".into())).unwrap();
            format!("{} {}", json["verdict"].as_str().unwrap(), json["found"].as_str().unwrap())
        };
        let with_module = model();
        assert_eq!(of(&with_module, Wish::Off, false), "ok the TorchScript module runs");
        assert!(of(&with_module, Wish::On, true).starts_with("ok a compiled package runs"));
        assert!(of(&with_module, Wish::On, false).starts_with("warning no package is for this machine"));
        assert!(of(&with_module, Wish::Required, false).starts_with("failed no package is for this machine"));
        let mut without = Model { module: None, ..with_module };
        assert!(of(&without, Wish::Off, false).starts_with("warning nothing beside the package tells"));
        without.packages.push(package("cuda", "1.0.0"));
        assert!(of(&without, Wish::Off, false).starts_with("failed no package is for this machine"));
    }
}
