//! `model.toml`: what is known of a model.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::ModelError;
use crate::kind::Kind;

/// What is known of a model. Sizes are voxels, z y x.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ModelFacts {
    /// Its name.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// Where it came from.
    #[serde(default)]
    pub source: String,
    /// Input channels, if known.
    pub channels_in: Option<usize>,
    /// Output channels, if known.
    pub channels_out: Option<usize>,
    /// The input channels' names.
    #[serde(default)]
    pub input_names: Vec<String>,
    /// The output channels' names.
    #[serde(default)]
    pub output_names: Vec<String>,
    /// The patch it was trained with.
    pub patch: Option<[usize; 3]>,
    /// A patch's sides must be multiples of these.
    #[serde(default = "ones")]
    pub divisible_by: [usize; 3],
    /// The kind of number of its weights.
    #[serde(default)]
    pub kind: Kind,
    /// What its output means.
    #[serde(default)]
    pub output: OutputMeaning,
    /// The normalisation that it expects.
    pub normalisation: Option<NormalisationFacts>,
    /// Voxels of the input that a voxel of the output depends on, along each axis.
    #[serde(default, deserialize_with = "one_or_three")]
    pub receptive_field: Option<[usize; 3]>,
    /// Its pooling grid: patches should start on multiples of it.
    #[serde(default, deserialize_with = "one_or_three")]
    pub align: Option<[usize; 3]>,
    /// SHA-256 of every file, by its name in the bundle.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// How it was exported: a record for people.
    #[serde(default)]
    pub export: toml::Table,
}

/// What an output voxel means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputMeaning {
    /// An intensity in the input's space: it is brought back into the input's range.
    #[default]
    Intensity,
    /// A probability: stored as it is.
    Probability,
    /// A label: stored as it is.
    Label,
}

/// The normalisation that a model expects.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NormalisationFacts {
    /// `percentile`, `volume`, `zscore`, `global` or `none`.
    pub how: String,
    /// Lower percentile, or bound.
    pub lower: Option<f64>,
    /// Upper percentile, or bound.
    pub upper: Option<f64>,
    /// Bounds that normalised voxels are clipped to.
    pub clip: Option<Clip>,
}

/// A switch, or bounds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Clip {
    /// `true` is 0 and 1.
    Switch(bool),
    /// The bounds.
    Bounds([f32; 2]),
}

impl Clip {
    /// The bounds, if it clips.
    #[must_use]
    pub const fn bounds(self) -> Option<[f32; 2]> {
        match self {
            Self::Switch(true) => Some([0.0, 1.0]),
            Self::Switch(false) => None,
            Self::Bounds(bounds) => Some(bounds),
        }
    }
}

impl ModelFacts {
    /// The facts of a single file: its name, and nothing that restricts anything.
    #[must_use]
    pub fn of_file(path: &Path) -> Self {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Self { name, divisible_by: ones(), source: path.display().to_string(), ..Self::default() }
    }

    /// Reads `model.toml`.
    ///
    /// # Errors
    /// Names the file, the key and what is allowed.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ModelError> {
        let facts: Self = toml::from_str(text)
            .map_err(|error| ModelError::data(format!("{}: {}", path.display(), one_line(&error.to_string()))))?;
        match facts.problem() {
            None => Ok(facts),
            Some(problem) => Err(ModelError::data(format!("{}: {problem}", path.display()))),
        }
    }

    fn problem(&self) -> Option<String> {
        let zero = |key: &str, sizes: Option<[usize; 3]>| {
            sizes
                .filter(|sizes| sizes.contains(&0))
                .map(|sizes| format!("`{key}` is {sizes:?}; every side is at least 1"))
        };
        let names = |key: &str, names: &[String], channels: Option<usize>| match channels {
            Some(0) => Some(format!("`{key}` counts 0 channels; a model has at least 1")),
            Some(channels) if !names.is_empty() && names.len() != channels => {
                Some(format!("`{key}` are {} names for {channels} channels", names.len()))
            }
            _ => None,
        };
        let hows = ["percentile", "volume", "zscore", "global", "none"];
        let how = self.normalisation.as_ref().filter(|facts| !hows.contains(&facts.how.as_str()));
        zero("patch", self.patch)
            .or_else(|| zero("divisible-by", Some(self.divisible_by)))
            .or_else(|| zero("align", self.align))
            .or_else(|| names("input-names", &self.input_names, self.channels_in))
            .or_else(|| names("output-names", &self.output_names, self.channels_out))
            .or_else(|| how.map(|facts| format!("`how` is {}; allowed are {}", facts.how, hows.join(", "))))
    }

    /// A sentence if a patch of this size cannot go through the model.
    #[must_use]
    pub fn patch_problem(&self, patch: [usize; 3]) -> Option<String> {
        let axis = (0..3).find(|&axis| !patch[axis].is_multiple_of(self.divisible_by[axis].max(1)))?;
        Some(format!(
            "`patch` is {} along axis {} and the model {} needs a multiple of {}",
            patch[axis],
            ["z", "y", "x"][axis],
            self.name,
            self.divisible_by[axis]
        ))
    }
}

const fn ones() -> [usize; 3] {
    [1; 3]
}

pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn one_or_three<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[usize; 3]>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Sizes {
        One(usize),
        Three([usize; 3]),
    }
    Ok(Some(match Sizes::deserialize(deserializer)? {
        Sizes::One(size) => [size; 3],
        Sizes::Three(sizes) => sizes,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_are_read() {
        let text = "name = 'a'\ndescription = 'b'\nsource = 'c'\nchannels-in = 1\nchannels-out = 2\n\
            input-names = ['raw']\noutput-names = ['x', 'y']\npatch = [64, 64, 64]\ndivisible-by = [16, 16, 16]\n\
            kind = 'f32'\noutput = 'probability'\nreceptive-field = 140\nalign = [16, 16, 16]\n\
            [normalisation]\nhow = 'percentile'\nlower = 0.5\nupper = 99.9\nclip = [0, 1]\n\
            [files]\n'module.ts' = '00'\n[export]\ntorch = '2.11.0'\n";
        let facts = ModelFacts::parse(text, Path::new("model.toml")).unwrap();
        assert_eq!((facts.channels_out, facts.receptive_field), (Some(2), Some([140; 3])));
        assert_eq!(facts.normalisation.as_ref().unwrap().clip.unwrap().bounds(), Some([0.0, 1.0]));
        assert_eq!(facts.patch_problem([64, 64, 32]), None);
        let told = facts.patch_problem([64, 60, 64]).unwrap();
        assert_eq!(told, "`patch` is 60 along axis y and the model a needs a multiple of 16");
    }

    #[test]
    fn what_is_wrong_is_told_by_its_key() {
        for (text, part) in [
            ("name = 'a'\npatches = [1, 1, 1]", "patches"),
            ("name = 'a'\noutput = 'colour'", "probability"),
            ("name = 'a'\npatch = [0, 1, 1]", "`patch` is [0, 1, 1]"),
            ("name = 'a'\nchannels-in = 2\ninput-names = ['x']", "1 names for 2 channels"),
            ("name = 'a'\n[normalisation]\nhow = 'minmax'", "`how` is minmax; allowed are percentile"),
            ("", "name"),
        ] {
            let told = ModelFacts::parse(text, Path::new("there/model.toml")).unwrap_err().message;
            assert!(told.starts_with("there/model.toml: ") && told.contains(part), "{told}");
        }
    }
}
