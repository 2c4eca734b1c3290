//! OME-Zarr images, written byte by byte.

use std::path::Path;

use bytemuck::Pod;
use serde_json::{Value, json};

use crate::zarr::{Array, put_json};

/// An axis of an image: name, unit, voxel size.
pub type Axis = (&'static str, Option<&'static str>, f64);

/// An image with one level.
#[derive(Clone, Debug)]
pub struct Image {
    /// The axes, in stored order.
    pub axes: Vec<Axis>,
    /// The array, one axis for each of `axes`. Its version decides that of the image: 0.4 on v2, 0.5 on v3.
    pub array: Array,
}

impl Image {
    /// Writes the image below `folder`.
    pub fn write<T: Pod>(&self, folder: &Path, values: &[T]) {
        self.write_metadata(folder);
        self.array.write(&folder.join("0"), values);
    }

    /// Writes the metadata of the image and of its array.
    pub fn write_metadata(&self, folder: &Path) {
        self.array.write_metadata(&folder.join("0"));
        let multiscale = multiscale(&self.axes);
        if self.array.format == 2 {
            put_json(folder, ".zgroup", &json!({"zarr_format": 2}));
            let mut multiscale = multiscale;
            multiscale["version"] = json!("0.4");
            put_json(folder, ".zattrs", &json!({"multiscales": [multiscale]}));
        } else {
            let ome = json!({"version": "0.5", "multiscales": [multiscale]});
            let group = json!({"zarr_format": 3, "node_type": "group", "attributes": {"ome": ome}});
            put_json(folder, "zarr.json", &group);
        }
    }
}

/// The axes and their scale as OME-Zarr metadata of an image whose one level is at `0`.
#[must_use]
pub fn multiscale(axes: &[Axis]) -> Value {
    let scale: Vec<f64> = axes.iter().map(|axis| axis.2).collect();
    let axes: Vec<Value> = axes.iter().map(stored_axis).collect();
    json!({"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": scale}]}]})
}

fn stored_axis(&(name, unit, _): &Axis) -> Value {
    let kind = match name {
        "t" => "time",
        "c" => "channel",
        _ => "space",
    };
    let mut axis = json!({"name": name, "type": kind});
    if let Some(unit) = unit {
        axis["unit"] = json!(unit);
    }
    axis
}
