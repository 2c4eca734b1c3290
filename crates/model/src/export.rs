//! Export: a class and its weights become a bundle, by Python, once.

use std::path::{Path, PathBuf};

use crate::cache::Cache;
use crate::checksum::{Sha256, sha256_of_file};
use crate::error::ModelError;
use crate::python::{Python, Told};

/// What a run exports by itself: a named architecture and its weights.
#[derive(Clone, Debug)]
pub struct ExportRequest<'a> {
    /// The architecture's name.
    pub model_type: &'a str,
    /// Its weights.
    pub weights: &'a Path,
    /// The patch it is exported with.
    pub patch: [usize; 3],
    /// Input channels.
    pub channels_in: usize,
    /// A file with more names.
    pub registry: Option<&'a Path>,
    /// libtorch's version.
    pub libtorch: &'a str,
}

impl ExportRequest<'_> {
    fn key(&self) -> Result<String, ModelError> {
        let registry = self.registry.map(sha256_of_file).transpose()?.unwrap_or_default();
        let sum = Sha256::default().with(Python::source_sum()).with(self.libtorch).with(self.model_type);
        let sum = sum.with(sha256_of_file(self.weights)?).with(registry).with(self.channels_in);
        Ok(sum.with(format!("{:?}", self.patch)).finish()[..32].to_owned())
    }

    fn arguments(&self, out: &Path) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let mut arguments = vec!["export".to_owned(), "--model-type".to_owned(), self.model_type.to_owned()];
        arguments.extend(["--weights".to_owned(), text(self.weights), "--patch".to_owned()]);
        arguments.extend(self.patch.map(|side| side.to_string()));
        arguments.extend(["--channels-in".to_owned(), self.channels_in.to_string()]);
        if let Some(registry) = self.registry {
            arguments.extend(["--registry".to_owned(), text(registry)]);
        }
        arguments.extend(["--out".to_owned(), text(out)]);
        arguments
    }
}

/// The bundle of an architecture and its weights: the cache's, else one that Python makes.
///
/// # Errors
/// No such weights, no Python, or what Python said.
pub fn exported(
    request: &ExportRequest<'_>,
    cache: &Cache,
    python: &dyn Fn() -> Result<Python, ModelError>,
    told: Told<'_>,
) -> Result<PathBuf, ModelError> {
    let key = request.key()?;
    let entry = cache.entry("exported", &key, |part| {
        tracing::info!("exporting {} with the weights {} (once)", request.model_type, request.weights.display());
        python()?.run(&request.arguments(&part.join("bundle")), told)
    })?;
    Ok(entry.join("bundle"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_same_weights_are_exported_once() {
        let folder = tempfile::tempdir().unwrap();
        let (weights, interpreter) = (folder.path().join("w.pt"), folder.path().join("python"));
        let made = folder.path().join("made");
        let text = format!("#!/bin/bash\nfor out; do :; done\nmkdir \"$out\"\necho \"$*\" >> '{}'\n", made.display());
        std::fs::write(&interpreter, text).unwrap();
        std::fs::set_permissions(&interpreter, std::fs::Permissions::from_mode(0o755)).unwrap();
        let cache = Cache::new(Some(&folder.path().join("cache")), |_| None).unwrap();
        let python = || Python::find(Some(&interpreter), Path::new("/"));
        let export = |patch| {
            let request = ExportRequest {
                model_type: "denoise-net",
                weights: &weights,
                patch,
                channels_in: 1,
                registry: None,
                libtorch: "2.11.0",
            };
            exported(&request, &cache, &python, &mut |_| {})
        };
        assert!(export([8; 3]).unwrap_err().message.contains("w.pt cannot be read"));
        std::fs::write(&weights, "1").unwrap();
        let first = export([8; 3]).unwrap();
        assert!(first.is_dir());
        assert_eq!(export([8; 3]).unwrap(), first);
        assert_ne!(export([16; 3]).unwrap(), first);
        std::fs::write(&weights, "2").unwrap();
        assert_ne!(export([8; 3]).unwrap(), first);
        let lines = std::fs::read_to_string(made).unwrap();
        assert_eq!(lines.lines().count(), 3);
        assert!(
            lines.contains("export --model-type denoise-net --weights") && lines.contains("--patch 8 8 8"),
            "{lines}"
        );
    }
}
