//! OME-Zarr metadata: which arrays are the levels of an image, and what their axes mean.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::axes::kind_of_name;
use crate::{AxisInfo, AxisKind, VolumeError, Window, ZarrFormat};

/// The part of `multiscales[0]` that matters here; versions 0.1 to 0.5.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Multiscale {
    #[serde(default)]
    axes: Vec<Axis>,
    pub(crate) datasets: Vec<Dataset>,
    #[serde(default, rename = "coordinateTransformations")]
    transformations: Vec<Transformation>,
}

/// One resolution level.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Dataset {
    /// Key of the array, relative to the group.
    pub(crate) path: String,
    #[serde(default, rename = "coordinateTransformations")]
    transformations: Vec<Transformation>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Axis {
    Name(String),
    Full {
        name: String,
        #[serde(default, rename = "type")]
        kind: Option<String>,
        #[serde(default)]
        unit: Option<String>,
    },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Transformation {
    Identity {},
    Scale { scale: Vec<f64> },
    Translation { translation: Vec<f64> },
}

impl Multiscale {
    /// The first image in a group's attributes (`.zattrs`, or the `attributes` of `zarr.json`), if there is one.
    pub(crate) fn find(attributes: &Value, url: &str) -> Result<Option<Self>, VolumeError> {
        let list = if attributes["ome"]["multiscales"].is_null() {
            &attributes["multiscales"]
        } else {
            &attributes["ome"]["multiscales"]
        };
        let Some(first) = list.get(0) else { return Ok(None) };
        Self::deserialize(first).map(Some).map_err(|error| {
            VolumeError::data(format!("the OME-Zarr metadata (multiscales) of {url} is not valid: {error}"))
        })
    }

    /// The axes of one level, whose array has this shape.
    pub(crate) fn axes(&self, level: usize, shape: &[usize], url: &str) -> Result<Option<Vec<AxisInfo>>, VolumeError> {
        if self.axes.is_empty() {
            return Ok(None);
        }
        let bad = |what: String| VolumeError::data(format!("the OME-Zarr metadata of {url} cannot be used: {what}"));
        if self.axes.len() != shape.len() {
            return Err(bad(format!("it names {} axes but level {level} has {}", self.axes.len(), shape.len())));
        }
        let mut scale = vec![1.0; shape.len()];
        let mut translation = vec![0.0; shape.len()];
        let level_steps = self.datasets.get(level).map_or(&[][..], |dataset| &dataset.transformations);
        for step in level_steps.iter().chain(&self.transformations) {
            step.apply(&mut scale, &mut translation).map_err(|count| {
                bad(format!("a coordinate transformation has {count} values for {} axes", shape.len()))
            })?;
        }
        let axes = self.axes.iter().enumerate().map(|(place, axis)| {
            let (name, kind, unit) = match axis {
                Axis::Name(name) => (name, None, None),
                Axis::Full { name, kind, unit } => (name, kind.as_deref(), unit.clone()),
            };
            let kind = kind_of(name, kind).map_err(bad)?;
            Ok(AxisInfo {
                name: name.clone(),
                kind,
                unit,
                size: shape[place],
                scale: scale[place],
                translation: translation[place],
            })
        });
        axes.collect::<Result<_, _>>().map(Some)
    }
}

impl Transformation {
    fn apply(&self, scale: &mut [f64], translation: &mut [f64]) -> Result<(), usize> {
        let (values, scales) = match self {
            Self::Identity {} => return Ok(()),
            Self::Scale { scale } => (scale, true),
            Self::Translation { translation } => (translation, false),
        };
        if values.len() != scale.len() {
            return Err(values.len());
        }
        for (place, value) in values.iter().enumerate() {
            if scales {
                scale[place] *= value;
                translation[place] *= value;
            } else {
                translation[place] += value;
            }
        }
        Ok(())
    }
}

fn kind_of(name: &str, kind: Option<&str>) -> Result<AxisKind, String> {
    match kind {
        Some("space") => Ok(AxisKind::Space),
        Some("time") => Ok(AxisKind::Time),
        Some("channel") => Ok(AxisKind::Channel),
        None => kind_of_name(name).ok_or_else(|| format!("the axis {name:?} is none of t, c, z, y, x")),
        Some(other) => Err(format!("the axis {name:?} is of the kind {other:?}, which must be space, time or channel")),
    }
}

/// Whether a group's attributes say that it is an image, in any version.
pub(crate) fn is_image(attributes: &Value) -> bool {
    !attributes["multiscales"].is_null() || !attributes["ome"]["multiscales"].is_null()
}

/// The OME-Zarr attributes of a group whose levels, the finest first, have these axes and lie at `0`, `1` and so on.
pub(crate) fn group_attributes(levels: &[&[AxisInfo]], name: &str, format: ZarrFormat) -> Value {
    let version = if format == ZarrFormat::V2 { "0.4" } else { "0.5" };
    let axes: Vec<Value> = levels.first().into_iter().flat_map(|axes| axes.iter().map(stored_axis)).collect();
    let datasets: Vec<Value> = levels
        .iter()
        .enumerate()
        .map(|(path, axes)| json!({"path": path.to_string(), "coordinateTransformations": transformations(axes)}))
        .collect();
    let mut multiscale = json!({"name": name, "axes": axes, "datasets": datasets});
    if format == ZarrFormat::V2 {
        multiscale["version"] = json!(version);
        return json!({"multiscales": [multiscale]});
    }
    json!({"ome": {"version": version, "multiscales": [multiscale]}})
}

fn transformations(axes: &[AxisInfo]) -> Vec<Value> {
    let scale: Vec<f64> = axes.iter().map(|axis| axis.scale).collect();
    let translation: Vec<f64> = axes.iter().map(|axis| axis.translation).collect();
    let mut transformations = vec![json!({"type": "scale", "scale": scale})];
    if translation.iter().any(|value| *value != 0.0) {
        transformations.push(json!({"type": "translation", "translation": translation}));
    }
    transformations
}

/// The `omero` metadata of an image whose channels hold values within these bounds: names and colours are those of the input's
/// channels of the same numbers, if it tells.
pub(crate) fn omero(windows: &[Window], input: Option<&Value>, first: usize) -> Value {
    let channel = |(number, window): (usize, &Window)| {
        let [low, high] = window.ends();
        let known = input.map_or(&Value::Null, |omero| &omero["channels"][first + number]);
        let text = |key: &str, default: String| known[key].as_str().map_or(default, str::to_owned);
        json!({
            "label": text("label", number.to_string()),
            "color": text("color", "FFFFFF".to_owned()),
            "active": true,
            "window": {"min": low, "max": high, "start": low, "end": high},
        })
    };
    json!({"channels": windows.iter().enumerate().map(channel).collect::<Vec<_>>()})
}

fn stored_axis(axis: &AxisInfo) -> Value {
    let mut stored = json!({"name": axis.name, "type": axis.kind});
    if let Some(unit) = &axis.unit {
        stored["unit"] = json!(unit);
    }
    stored
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> Vec<AxisInfo> {
        let axis = |name: &str, size, scale, translation| AxisInfo {
            name: name.to_owned(),
            kind: kind_of_name(name).unwrap(),
            unit: (name != "c").then(|| "micrometer".to_owned()),
            size,
            scale,
            translation,
        };
        vec![axis("c", 2, 1.0, 0.0), axis("z", 3, 2.0, 0.5), axis("y", 4, 0.4, 0.1), axis("x", 5, 0.4, 0.1)]
    }

    #[test]
    fn axes_survive_both_versions() {
        for format in [ZarrFormat::V2, ZarrFormat::V3] {
            let attributes = group_attributes(&[&axes()], "volume", format);
            let image = Multiscale::find(&attributes, "x").unwrap().unwrap();
            assert_eq!(image.axes(0, &[2, 3, 4, 5], "x").unwrap().unwrap(), axes());
            assert!(image.axes(0, &[3, 4, 5], "x").is_err());
        }
    }

    #[test]
    fn transformations_of_the_image_follow_those_of_the_level() {
        let attributes = json!({"multiscales": [{"axes": ["y", "x"], "datasets": [{"path": "0", "coordinateTransformations": [
            {"type": "scale", "scale": [2, 2]}, {"type": "translation", "translation": [1, 3]}]}],
            "coordinateTransformations": [{"type": "scale", "scale": [10, 1]}]}]});
        let axes = Multiscale::find(&attributes, "x").unwrap().unwrap().axes(0, &[4, 4], "x").unwrap().unwrap();
        assert_eq!((axes[0].scale, axes[0].translation), (20.0, 10.0));
        assert_eq!((axes[1].scale, axes[1].translation), (2.0, 3.0));
    }
}
