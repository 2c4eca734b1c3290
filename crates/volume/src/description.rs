//! What an input volume is, as found in its metadata.

use serde::Serialize;

use crate::Element;

/// Which version of the Zarr format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ZarrFormat {
    /// Zarr v2; its OME-Zarr groups are of version 0.4.
    #[serde(rename = "2")]
    V2,
    /// Zarr v3; its OME-Zarr groups are of version 0.5.
    #[serde(rename = "3")]
    V3,
}

/// What an axis means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AxisKind {
    /// Time points.
    Time,
    /// Channels.
    Channel,
    /// One of z, y, x.
    Space,
}

/// One axis of an array.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AxisInfo {
    /// The name as stored, such as `z`.
    pub name: String,
    /// What it means.
    pub kind: AxisKind,
    /// The unit as stored, such as `micrometer`.
    pub unit: Option<String>,
    /// Number of samples.
    pub size: usize,
    /// Distance between samples, in the unit.
    pub scale: f64,
    /// Position of the first sample, in the unit.
    pub translation: f64,
}

/// An input volume as found in its metadata: what `open` chose, and what an output copies from it.
#[derive(Clone, Debug, Serialize)]
pub struct InputDescription {
    /// Where the array or group is, in a form that can be opened again.
    pub url: String,
    /// The version of the Zarr format.
    pub zarr_format: ZarrFormat,
    /// The array's axes in stored order, with the chosen level's size, scale and translation.
    pub axes: Vec<AxisInfo>,
    /// How many resolution levels there are; 1 for a bare array.
    pub levels: usize,
    /// Which level was opened; 0 is the finest.
    pub level: usize,
    /// Shape of the smallest part that can be read alone (the chunk, or the inner chunk of a shard), in the order of `axes`.
    pub chunk: Vec<usize>,
    /// Shape of a stored object if it is a shard, in the order of `axes`.
    pub shard: Option<Vec<usize>>,
    /// Whether it is an OME-Zarr group rather than a bare array.
    pub is_group: bool,
    /// The kind of number.
    pub element: Element,
    /// The compressor as stored: its name, or `none`.
    pub compressor: String,
    /// The group's `omero` metadata (channel names, colours, display ranges).
    pub omero: Option<serde_json::Value>,
}
