//! Compiled packages: what one was made for, finding one that fits, making one that is missing.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::bundle::PROGRAM;
use crate::cache::Cache;
use crate::checksum::{self, Sha256};
use crate::error::ModelError;
use crate::facts::one_line;
use crate::kind::{CompileMode, Kind};
use crate::model::Model;
use crate::python::{Python, Told};

/// What a package was made for: `NAME.toml` beside `NAME.pt2`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PackageFacts {
    /// libtorch's version; what follows a `+` does not count.
    pub libtorch: String,
    /// `cpu` or `cuda`.
    pub device: String,
    /// `AVX512`, `sm_90`.
    pub architecture: String,
    /// Rows of a batch; 0 for any number.
    pub batch: usize,
    /// Patch, z y x.
    pub patch: [usize; 3],
    /// What it computes in.
    pub kind: Kind,
    /// The mode it was compiled in.
    pub mode: String,
    /// Whether the number of rows may change.
    pub dynamic: bool,
    /// SHA-256 of the package.
    pub sha256: String,
    /// SHA-256 of the module in the bundle that it was made from.
    pub weights_sha256: String,
}

/// What a run needs of a package.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// This process's libtorch, `2.11.0`.
    pub libtorch: String,
    /// `cpu` or `cuda:N`.
    pub device: String,
    /// What native code for the device is made for.
    pub architecture: String,
    /// Whether code for the first architecture runs on the second.
    pub runs_on: fn(&str, &str) -> bool,
    /// Rows of a full batch.
    pub batch: usize,
    /// Patch, z y x.
    pub patch: [usize; 3],
    /// What is computed in.
    pub kind: Kind,
    /// The mode asked for.
    pub mode: CompileMode,
    /// Whether batches are to be run with as many rows as they have.
    pub dynamic: bool,
}

impl Wanted {
    /// `cpu` or `cuda`.
    fn device_kind(&self) -> &str {
        self.device.split(':').next().unwrap_or_default()
    }

    /// What tells a package in the cache from every other; one that another Python source made is another.
    fn key(&self, program: &str) -> String {
        let batch = if self.dynamic { 0 } else { self.batch };
        let sum =
            Sha256::default().with(Python::source_sum()).with(program).with(&self.libtorch).with(self.device_kind());
        let sum = sum.with(&self.architecture).with(batch).with(format!("{:?}", self.patch)).with(self.kind);
        sum.with(self.mode.of_package().name()).finish()[..32].to_owned()
    }
}

impl PackageFacts {
    /// A sentence on why the package cannot serve, both sides named; none if it can. The batch of a dynamic package is any.
    #[must_use]
    pub fn misfit(&self, wanted: &Wanted, weights: Option<&str>) -> Option<String> {
        let differs = |what: &str, made: &dyn std::fmt::Display, needed: &dyn std::fmt::Display| {
            let (made, needed) = (made.to_string(), needed.to_string());
            (made != needed).then(|| format!("was made for {what} {made} and {needed} is needed"))
        };
        let version = self.libtorch.split('+').next().unwrap_or_default();
        let architecture = (!(wanted.runs_on)(&self.architecture, &wanted.architecture))
            .then(|| format!("was made for {} and this device is {}", self.architecture, wanted.architecture));
        let shape = |patch: [usize; 3]| format!("{} x {} x {}", patch[0], patch[1], patch[2]);
        let mode = self.mode.parse::<CompileMode>().map_or("unknown", |mode| mode.of_package().name());
        differs("libtorch", &version, &wanted.libtorch)
            .or_else(|| differs("device", &self.device, &wanted.device_kind()))
            .or(architecture)
            .or_else(|| differs("patch", &shape(self.patch), &shape(wanted.patch)))
            .or_else(|| differs("kind", &self.kind, &wanted.kind))
            .or_else(|| differs("mode", &mode, &wanted.mode.of_package().name()))
            .or_else(|| differs("a batch that changes:", &self.dynamic, &wanted.dynamic))
            .or_else(|| if self.dynamic { None } else { differs("batch", &self.batch, &wanted.batch) })
            .or_else(|| differs("weights", &self.weights_sha256, &weights?))
    }
}

/// A package with its facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The `.pt2` file.
    pub path: PathBuf,
    /// What it was made for.
    pub facts: PackageFacts,
}

impl Package {
    /// The package at `path` if there are facts beside it.
    ///
    /// # Errors
    /// If the facts cannot be read.
    pub fn beside(path: &Path) -> Result<Option<Self>, ModelError> {
        let facts = path.with_extension("toml");
        if !facts.is_file() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&facts).map_err(|error| ModelError::file(&facts, "read", &error))?;
        let parsed = toml::from_str(&text)
            .map_err(|error| ModelError::data(format!("{}: {}", facts.display(), one_line(&error.to_string()))))?;
        Ok(Some(Self { path: path.to_owned(), facts: parsed }))
    }

    /// The packages of a folder, in order of their names; none if there is no such folder.
    pub(crate) fn all_in(folder: &Path) -> Result<Vec<Self>, ModelError> {
        let Ok(entries) = std::fs::read_dir(folder) else { return Ok(Vec::new()) };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "pt2"));
        paths.sort();
        let found: Result<Vec<Option<Self>>, ModelError> = paths.iter().map(|path| Self::beside(path)).collect();
        Ok(found?.into_iter().flatten().collect())
    }

    /// Checks that the package is the one that its facts are about and can serve.
    ///
    /// # Errors
    /// Both sides named.
    pub fn check(&self, wanted: &Wanted, weights: Option<&str>) -> Result<(), ModelError> {
        if let Some(misfit) = self.facts.misfit(wanted, weights) {
            return Err(ModelError::data(format!("the compiled package {} {misfit}", self.path.display())));
        }
        checksum::check(&self.path, &self.facts.sha256)
    }
}

/// A package that fits, and where it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The package.
    pub package: PathBuf,
    /// `bundle`, `cache`, or `compiled` if it had to be made.
    pub origin: &'static str,
}

/// A package of `model` for what is wanted: the model's own, else the cache's, else one that Python makes. Two processes that
/// want the same make it once.
///
/// # Errors
/// Why there is none: nothing to make it from, no Python, or what Python said.
pub fn package_for(
    model: &Model,
    wanted: &Wanted,
    cache: &Cache,
    python: &dyn Fn() -> Result<Python, ModelError>,
    told: Told<'_>,
) -> Result<Found, ModelError> {
    for package in &model.packages {
        match package.check(wanted, model.weights()) {
            Ok(()) => return Ok(Found { package: package.path.clone(), origin: "bundle" }),
            // Named alone, it is this one or none.
            Err(error) if model.program.is_none() && model.module.is_none() => return Err(error),
            Err(error) => tracing::debug!("{error}"),
        }
    }
    let (Some(folder), Some(program)) = (&model.folder, model.facts.files.get(PROGRAM)) else {
        return Err(ModelError::data(format!(
            "{} holds no {PROGRAM} to compile: a TorchScript module cannot be compiled; export the network's class with \
             `haloflow model export`",
            model.path.display()
        )));
    };
    let mut origin = "cache";
    let key = wanted.key(program);
    for attempt in 0..2 {
        let entry = cache.entry("compiled", &key, |part| {
            origin = "compiled";
            python()?.run(&compile_arguments(folder, wanted, &part.join("package.pt2")), &mut *told)
        })?;
        let path = entry.join("package.pt2");
        let package = Package::beside(&path)?
            .ok_or_else(|| ModelError::data(format!("{} has no facts beside it", path.display())));
        match package.and_then(|package| package.check(wanted, None)) {
            Ok(()) => return Ok(Found { package: path, origin }),
            // What was in the cache is damaged: once, it is made again.
            Err(error) if attempt == 0 && origin == "cache" => {
                tracing::warn!("{error}; it is compiled again");
                cache.discard(&entry)?;
            }
            Err(error) => {
                cache.discard(&entry)?;
                return Err(error);
            }
        }
    }
    Err(ModelError::data("the cache changes while it is read"))
}

/// What Python is told to make a package.
#[must_use]
pub fn compile_arguments(bundle: &Path, wanted: &Wanted, out: &Path) -> Vec<String> {
    let [z, y, x] = wanted.patch.map(|side| side.to_string());
    let (bundle, out) = (bundle.display().to_string(), out.display().to_string());
    let (batch, kind) = (wanted.batch.to_string(), wanted.kind.to_string());
    let mode = wanted.mode.of_package().name().to_owned();
    [
        vec!["compile".to_owned(), "--bundle".to_owned(), bundle, "--device".to_owned(), wanted.device.clone()],
        vec!["--batch".to_owned(), batch, "--patch".to_owned(), z, y, x, "--kind".to_owned(), kind],
        vec!["--mode".to_owned(), mode, "--dynamic".to_owned(), wanted.dynamic.to_string(), "--out".to_owned(), out],
    ]
    .concat()
}

#[cfg(test)]
mod tests;
