//! Opening an input: from what was typed to one level, one time point and some channels of a volume.

use serde_json::Value;
use sha2::Digest;

use crate::axes::{AxisMap, bare_axes};
use crate::collection::no_image;
use crate::layout::Layout;
use crate::location::Location;
use crate::node::Node;
use crate::ome::Multiscale;
use crate::spec::{Source, Spec};
use crate::{AxisInfo, Environment, InputDescription, InputOptions, StorageCounters, VolumeError, ZarrFormat};

/// An input whose metadata was read and whose selection was checked.
#[derive(Debug)]
pub(crate) struct Input {
    /// Where the array is.
    pub(crate) location: Location,
    pub(crate) layout: Layout,
    pub(crate) map: AxisMap,
    pub(crate) description: InputDescription,
    /// Filters, compressor or codecs, as stored.
    pub(crate) codecs: Value,
    /// What tells this array from another: the SHA-256 of its metadata, and the store's tag of it where there is one.
    pub(crate) identity: String,
}

/// What was found, before the selection is checked.
struct Found {
    location: Location,
    metadata: Value,
    layout: Layout,
    axes: Vec<AxisInfo>,
    levels: usize,
    group: Option<Value>,
}

impl Input {
    pub(crate) async fn open(
        options: &InputOptions,
        environment: &Environment,
        counters: &StorageCounters,
    ) -> Result<Self, VolumeError> {
        let source = Source::read(&options.source, environment).await?;
        if matches!(&source, Source::Spec(spec) if spec.delete_existing) {
            return Err(VolumeError::usage(format!(
                "the spec of the input {} has delete_existing, which is for outputs: remove it",
                source.location().url
            )));
        }
        let location = source.location().clone().with_counters(counters);
        let url = location.url.clone();
        let node = Node::find(&location).await?.ok_or_else(|| {
            VolumeError::data(format!(
                "there is no Zarr array or group at {url}: it has none of zarr.json, .zarray, .zattrs"
            ))
        })?;
        let found = match (node, &source) {
            (Node::Array(metadata), _) => {
                if let Source::Spec(spec) = &source {
                    matches_spec(&metadata, spec)?;
                }
                bare(location, &metadata, options.level)?
            }
            (Node::Group(..), Source::Spec(_)) => {
                return Err(VolumeError::data(format!(
                    "{url} is a group, but a spec names an array: add the path of a level, such as \"0\""
                )));
            }
            (Node::Group(attributes), Source::Place(_)) => level_of(location, attributes, options.level).await?,
        };
        let map = AxisMap::of(&found.axes, &url)?;
        check_selection(options, map, &found.layout.shape, &url)?;
        let description = describe(&found, url, options.level);
        let identity = identity(&found).await?;
        let codecs = codecs(&found.metadata);
        Ok(Self { location: found.location, layout: found.layout, map, description, codecs, identity })
    }
}

async fn identity(found: &Found) -> Result<String, VolumeError> {
    let sum = sha2::Sha256::digest(found.metadata.to_string());
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = if found.layout.format == ZarrFormat::V2 { ".zarray" } else { "zarr.json" };
    let tag = found.location.tag(key).await?;
    Ok(tag.map_or_else(|| sum.clone(), |tag| format!("{sum} {tag}")))
}

fn check_selection(options: &InputOptions, map: AxisMap, shape: &[usize], url: &str) -> Result<(), VolumeError> {
    in_range("time point", "--t", options.t, AxisMap::along(map.t, shape), url)?;
    if options.c.is_empty() {
        return Err(VolumeError::usage("no channel is chosen: give at least one with --c"));
    }
    options.c.iter().try_for_each(|&channel| in_range("channel", "--c", channel, AxisMap::along(map.c, shape), url))
}

fn describe(found: &Found, url: String, level: usize) -> InputDescription {
    let layout = &found.layout;
    let omero = found.group.as_ref().map(|group| {
        if group["ome"]["omero"].is_null() { group["omero"].clone() } else { group["ome"]["omero"].clone() }
    });
    InputDescription {
        url,
        zarr_format: layout.format,
        axes: found.axes.clone(),
        levels: found.levels,
        level,
        chunk: layout.unit().to_vec(),
        shard: layout.shards.as_ref().map(|_| layout.chunk.clone()),
        is_group: found.group.is_some(),
        element: layout.element,
        compressor: layout.compressor.clone(),
        omero: omero.filter(|omero| !omero.is_null()),
    }
}

fn bare(location: Location, metadata: &Value, level: usize) -> Result<Found, VolumeError> {
    if level != 0 {
        return Err(VolumeError::usage(format!(
            "the level {level} does not exist: {} is a bare array, which has only level 0",
            location.url
        )));
    }
    let layout = Layout::read(metadata, &location.url)?;
    let axes = bare_axes(&layout);
    Ok(Found { location, metadata: metadata.clone(), layout, axes, levels: 1, group: None })
}

async fn level_of(location: Location, attributes: Value, level: usize) -> Result<Found, VolumeError> {
    let url = location.url.clone();
    let Some(image) = Multiscale::find(&attributes, &url)? else { return Err(no_image(&location, &attributes).await) };
    let levels = image.datasets.len();
    if levels == 0 {
        return Err(VolumeError::data(format!("the image {url} has no levels: its list of datasets is empty")));
    }
    let dataset = image.datasets.get(level).ok_or_else(|| {
        VolumeError::usage(format!("the level {level} does not exist: {url} has {levels} levels, 0 to {}", levels - 1))
    })?;
    let location = location.at(&dataset.path);
    let Some(Node::Array(metadata)) = Node::find(&location).await? else {
        return Err(VolumeError::data(format!(
            "level {level} of {url} should be an array at {}, but there is none",
            location.url
        )));
    };
    let layout = Layout::read(&metadata, &location.url)?;
    let axes = image.axes(level, &layout.shape, &url)?.unwrap_or_else(|| bare_axes(&layout));
    Ok(Found { location, metadata, layout, axes, levels, group: Some(attributes) })
}

/// What encodes an array's chunks, as its metadata has it.
fn codecs(metadata: &Value) -> Value {
    if metadata["zarr_format"] == 2 {
        let filters = metadata["filters"].as_array().into_iter().flatten();
        return filters.chain(Some(&metadata["compressor"])).filter(|codec| !codec.is_null()).cloned().collect();
    }
    metadata["codecs"].clone()
}

/// A spec's `metadata` says what the array must be.
pub(crate) fn matches_spec(metadata: &Value, spec: &Spec) -> Result<(), VolumeError> {
    let url = &spec.location.url;
    let format = if metadata["zarr_format"] == 2 { ZarrFormat::V2 } else { ZarrFormat::V3 };
    if format != spec.format {
        let (stored, driver) = if format == ZarrFormat::V2 { ("v2", "zarr") } else { ("v3", "zarr3") };
        return Err(VolumeError::data(format!(
            "{url} is a Zarr {stored} array, but the spec names another driver: use {driver}"
        )));
    }
    for key in ["shape", "chunks", "dtype", "data_type"] {
        let Some(wanted) = spec.metadata.get(key) else { continue };
        if &metadata[key] != wanted {
            return Err(VolumeError::data(format!(
                "the {key} of {url} is {}, but the spec says {wanted}",
                metadata[key]
            )));
        }
    }
    Ok(())
}

/// Checks an index; the sentence names the flag and what is allowed.
pub(crate) fn in_range(what: &str, flag: &str, index: usize, size: usize, url: &str) -> Result<(), VolumeError> {
    if index < size {
        return Ok(());
    }
    Err(VolumeError::usage(format!(
        "{flag} {index} is out of range: {url} has {size} along its {what} axis, so it must be 0 to {}",
        size.saturating_sub(1)
    )))
}
