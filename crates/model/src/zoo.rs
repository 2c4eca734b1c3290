//! BioImage.IO models: `rdf.yaml` in versions 0.4 and 0.5, read as far as a volume can be run by them.
//!
//! What is not understood is refused by its name: a model that runs with a step left out gives wrong numbers.

mod steps;
mod tensor;

use std::path::{Path, PathBuf};

use serde_json::Value;

pub use steps::VoxelStep;

use crate::error::ModelError;
use crate::facts::{ModelFacts, OutputMeaning, one_line};
use steps::Preparation;
use tensor::{Sizes, Tensor};

/// What a description asks for.
#[derive(Clone, Debug)]
pub struct Zoo {
    /// The TorchScript weights.
    pub module: PathBuf,
    /// Their sum, if it is told.
    pub sha256: Option<String>,
    /// The description as facts: name, channels, patch, normalisation.
    pub facts: ModelFacts,
    /// Mean and standard deviation, where the description fixes them.
    pub given: Option<[f64; 2]>,
    /// Outermost voxels of a patch that its output is not to be taken from, z y x.
    pub halo: [usize; 3],
    /// What is done to every voxel of the output, in order.
    pub after: Vec<VoxelStep>,
    sizes: Sizes,
}

/// The description in `folder`, if there is one.
pub(crate) fn description(folder: &Path) -> Option<PathBuf> {
    ["rdf.yaml", "bioimageio.yaml"].map(|name| folder.join(name)).into_iter().find(|path| path.is_file())
}

impl Zoo {
    /// Reads the description at `path`.
    ///
    /// # Errors
    /// Names what is missing or not supported.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let text = std::fs::read_to_string(path).map_err(|error| ModelError::file(path, "read", &error))?;
        Self::parse(&text, path.parent().unwrap_or(Path::new(".")))
            .map_err(|sentence| ModelError::data(format!("{}: {sentence}", path.display())))
    }

    fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        // YAML 1.2: an axis named `y` is no boolean.
        let options = serde_saphyr::options! { strict_booleans: true };
        let value: Value =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| one_line(&error.to_string()))?;
        if let Some(other) = value["type"].as_str().filter(|kind| *kind != "model") {
            return Err(format!("`type` is {other}; only a model can be run"));
        }
        let (input, output) = (Tensor::read(only(&value, "inputs")?)?, Tensor::read(only(&value, "outputs")?)?);
        output.check_same_size()?;
        let before = Preparation::read(only(&value, "inputs")?)?;
        let after = steps::after(only(&value, "outputs")?)?;
        let (module, sha256) = weights(&value, folder)?;
        let sizes = input.sizes.clone().ok_or("`inputs` tells no size of z, y and x")?;
        let label = matches!(after.last(), Some(VoxelStep::Binarize { .. }));
        let facts = ModelFacts {
            name: value["name"].as_str().unwrap_or("a BioImage.IO model").to_owned(),
            description: value["description"].as_str().unwrap_or_default().to_owned(),
            source: value["id"].as_str().unwrap_or_default().to_owned(),
            channels_in: input.channels,
            channels_out: output.channels,
            patch: Some(sizes.patch()),
            divisible_by: [1; 3],
            output: if label { OutputMeaning::Label } else { OutputMeaning::Probability },
            normalisation: Some(before.facts),
            ..ModelFacts::default()
        };
        Ok(Self { module, sha256, facts, given: before.given, halo: output.halo, after, sizes })
    }

    /// A sentence if a patch of this size cannot go through the model.
    #[must_use]
    pub fn patch_problem(&self, patch: [usize; 3]) -> Option<String> {
        self.sizes.problem(patch).map(|sentence| format!("{sentence} (the model {})", self.facts.name))
    }
}

/// The one element of a list.
fn only<'a>(value: &'a Value, key: &str) -> Result<&'a Value, String> {
    match value[key].as_array().map(Vec::as_slice) {
        Some([one]) => Ok(one),
        Some(several) => Err(format!("`{key}` are {}; only models with one can be run", several.len())),
        None => Err(format!("`{key}` is missing")),
    }
}

/// The TorchScript weights and their sum.
fn weights(value: &Value, folder: &Path) -> Result<(PathBuf, Option<String>), String> {
    let Some(entry) = value["weights"].get("torchscript") else {
        let formats = value["weights"].as_object().map(|formats| formats.keys().cloned().collect::<Vec<_>>());
        let formats = formats.unwrap_or_default().join(", ");
        return Err(format!("`weights` has {formats} and no torchscript, which is the only format that can be run"));
    };
    let source = entry["source"].as_str().ok_or("`weights.torchscript` names no `source`")?;
    if source.contains("://") {
        return Err(format!(
            "`weights.torchscript` lies at {source}; download it beside this file, nothing is fetched here"
        ));
    }
    Ok((folder.join(source), entry["sha256"].as_str().map(str::to_owned)))
}

#[cfg(test)]
mod tests;
