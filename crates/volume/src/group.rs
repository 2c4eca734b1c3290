//! The groups of OME-Zarr images: written when an output is created, and once more when its values are known.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::location::Location;
use crate::ome::omero;
use crate::{VolumeError, ZarrFormat};

/// The group of an image.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) location: Location,
    pub(crate) format: ZarrFormat,
    pub(crate) attributes: Value,
}

/// How viewers are told to show the images of an output.
#[derive(Debug)]
pub(crate) struct Display {
    /// One per array; none for bare arrays.
    pub(crate) groups: Vec<Option<Group>>,
    /// The input's `omero` metadata, and the number of its channel that the first output channel goes with.
    pub(crate) omero: Option<Value>,
    pub(crate) first: usize,
}

impl Group {
    pub(crate) async fn write(&self) -> Result<(), VolumeError> {
        if self.format == ZarrFormat::V3 {
            let group = json!({"zarr_format": 3, "node_type": "group", "attributes": self.attributes});
            return self.location.put("zarr.json", pretty(&group)).await;
        }
        // The attributes first: a group without them could not be told to be ours, and so not be overwritten.
        self.location.put(".zattrs", pretty(&self.attributes)).await?;
        self.location.put(".zgroup", pretty(&json!({"zarr_format": 2}))).await
    }
}

impl Display {
    /// Writes the range of each channel's values into the images' metadata.
    pub(crate) async fn write(&self, windows: &[[f64; 2]]) -> Result<(), VolumeError> {
        let stacked = self.groups.len() == 1;
        for (number, group) in self.groups.iter().enumerate() {
            let Some(group) = group else { continue };
            let (own, first) = if stacked { (windows, 0) } else { (&windows[number..=number], number) };
            let omero = omero(own, self.omero.as_ref(), self.first + first);
            let mut attributes = group.attributes.clone();
            match group.format {
                ZarrFormat::V2 => attributes["omero"] = omero,
                ZarrFormat::V3 => attributes["ome"]["omero"] = omero,
            }
            Group { location: group.location.clone(), format: group.format, attributes }.write().await?;
        }
        Ok(())
    }
}

/// A JSON document as it is stored.
pub(crate) fn pretty(value: &Value) -> Bytes {
    Bytes::from(format!("{value:#}\n"))
}
