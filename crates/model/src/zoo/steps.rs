//! Pre- and post-processing: the kinds that are understood, and what they become.

use serde_json::Value;

use crate::facts::{Clip, NormalisationFacts};

/// Something that is done to a voxel by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VoxelStep {
    /// `gain * y + offset`.
    Linear {
        /// Factor.
        gain: f32,
        /// What is added.
        offset: f32,
    },
    /// The logistic function.
    Sigmoid,
    /// Into bounds.
    Clip {
        /// Lower bound.
        low: f32,
        /// Upper bound.
        high: f32,
    },
    /// 1 above the threshold, else 0.
    Binarize {
        /// The threshold.
        threshold: f32,
    },
}

/// What is done to voxels before the network.
#[derive(Debug, PartialEq)]
pub(super) struct Preparation {
    pub(super) facts: NormalisationFacts,
    /// Mean and standard deviation, if they are fixed.
    pub(super) given: Option<[f64; 2]>,
}

/// One step: its name and its arguments.
struct Step<'a> {
    name: &'a str,
    given: &'a Value,
}

impl Step<'_> {
    fn number(&self, key: &str) -> Option<f64> {
        match &self.given[key] {
            // One for each channel: only the same for all is understood.
            Value::Array(values) => match values.as_slice() {
                [first, rest @ ..] if rest.iter().all(|value| value == first) => first.as_f64(),
                _ => None,
            },
            value => value.as_f64(),
        }
    }

    fn needed(&self, key: &str) -> Result<f64, String> {
        self.number(key).ok_or_else(|| format!("the step {} gives no single number as `{key}`", self.name))
    }

    /// The bounds of a clip.
    fn bounds(&self) -> Result<[f32; 2], String> {
        let [low, high] = [self.needed("min")? as f32, self.needed("max")? as f32];
        if low < high {
            Ok([low, high])
        } else {
            Err(format!("the step {} has the bounds {low} and {high}", self.name))
        }
    }

    /// Gain and offset of a step that is one.
    fn linear(&self) -> Option<Result<[f64; 2], String>> {
        let of_moments = || {
            let (mean, deviation) = (self.needed("mean")?, self.needed("std")?);
            Ok([1.0 / deviation, -mean / deviation])
        };
        match self.name {
            "scale_linear" => {
                let absent =
                    |key: &str, value: f64| if self.given[key].is_null() { Ok(value) } else { self.needed(key) };
                Some(absent("gain", 1.0).and_then(|gain| Ok([gain, absent("offset", 0.0)?])))
            }
            "fixed_zero_mean_unit_variance" => Some(of_moments()),
            "zero_mean_unit_variance" if self.given["mode"] == "fixed" => Some(of_moments()),
            _ => None,
        }
    }
}

fn steps<'a>(tensor: &'a Value, key: &str) -> Vec<Step<'a>> {
    let list = tensor[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |step: &'a Value| step["name"].as_str().or(step["id"].as_str()).unwrap_or("without a name");
    let steps = list.iter().map(|step| Step { name: name(step), given: &step["kwargs"] });
    // Everything is computed in floating point here.
    steps.filter(|step| !(step.name == "ensure_dtype" && step.given["dtype"] == "float32")).collect()
}

impl Preparation {
    pub(super) fn read(input: &Value) -> Result<Self, String> {
        let steps = steps(input, "preprocessing");
        let (first, rest) = match steps.as_slice() {
            [first, rest @ ..] => (Self::of(first)?, rest),
            [] => (Self::new("none", None, None), &[][..]),
        };
        match rest {
            [] => Ok(first),
            [clip] if clip.name == "clip" => {
                let bounds = clip.bounds()?;
                Ok(Self { facts: NormalisationFacts { clip: Some(Clip::Bounds(bounds)), ..first.facts }, ..first })
            }
            [other, ..] => Err(format!("the preprocessing {} after {} is not supported", other.name, steps[0].name)),
        }
    }

    fn new(how: &str, bounds: Option<[f64; 2]>, given: Option<[f64; 2]>) -> Self {
        let [lower, upper] = bounds.map_or([None; 2], |bounds| bounds.map(Some));
        Self { facts: NormalisationFacts { how: how.into(), lower, upper, clip: None }, given }
    }

    fn of(step: &Step<'_>) -> Result<Self, String> {
        if let Some(linear) = step.linear() {
            let [gain, offset] = linear?;
            if gain <= 0.0 {
                return Err(format!("the preprocessing {} has a gain of {gain}; it must be above 0", step.name));
            }
            return Ok(Self::new("zscore", None, Some([-offset / gain, 1.0 / gain])));
        }
        match step.name {
            "scale_range" => {
                let bound = |key: &str, absent: f64| step.number(key).unwrap_or(absent);
                let bounds = [bound("min_percentile", 0.0), bound("max_percentile", 100.0)];
                Ok(Self::new("volume", Some(bounds), None))
            }
            "zero_mean_unit_variance" => Ok(Self::new("zscore", None, None)),
            other => Err(format!("the preprocessing {other} is not supported as a first step")),
        }
    }
}

/// The steps after the network.
pub(super) fn after(output: &Value) -> Result<Vec<VoxelStep>, String> {
    steps(output, "postprocessing").iter().map(of_output).collect()
}

fn of_output(step: &Step<'_>) -> Result<VoxelStep, String> {
    if let Some(linear) = step.linear() {
        let [gain, offset] = linear?.map(|number| number as f32);
        return Ok(VoxelStep::Linear { gain, offset });
    }
    match step.name {
        "sigmoid" => Ok(VoxelStep::Sigmoid),
        "clip" => step.bounds().map(|[low, high]| VoxelStep::Clip { low, high }),
        "binarize" => Ok(VoxelStep::Binarize { threshold: step.needed("threshold")? as f32 }),
        "scale_range" | "zero_mean_unit_variance" | "scale_mean_variance" => Err(format!(
            "the postprocessing {} needs statistics of the whole output, which is never in memory; it is not supported",
            step.name
        )),
        other => Err(format!("the postprocessing {other} is not supported")),
    }
}
