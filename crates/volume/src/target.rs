//! One output: where it is, whether it is created or opened, and what its array looks like.

use haloflow_geometry::Zyx;
use serde_json::{Value, json};

use crate::axes::{AxisMap, bare_axes};
use crate::blueprint::{Blueprint, Compressor};
use crate::collection::kind;
use crate::input::{in_range, matches_spec};
use crate::lattice::{check_block, check_extent, check_shard, chunk_shape};
use crate::layout::{Layout, sizes};
use crate::ledger::FOLDER;
use crate::location::Location;
use crate::node::Node;
use crate::ome::is_image;
use crate::pyramid::{Grid, Levels, axes_of, coarser};
use crate::spec::{Source, Spec};
use crate::{AxisInfo, AxisKind, Element, InputDescription, OutputRequest, VolumeError, VolumeErrorKind, ZarrFormat};

/// Blosc and some readers cannot hold more in one chunk.
const LARGEST_CHUNK: usize = i32::MAX as usize;

/// One output of which everything was checked.
#[derive(Debug)]
pub(crate) struct Target {
    /// The group or bare array.
    pub(crate) location: Location,
    /// The array: the same location, or `0` in the group.
    pub(crate) array: Location,
    pub(crate) is_group: bool,
    /// What to create; `None` if an existing array is opened.
    pub(crate) blueprint: Option<Blueprint>,
    /// Whether something is there that will be deleted.
    pub(crate) delete: bool,
    pub(crate) layout: Layout,
    pub(crate) map: AxisMap,
    pub(crate) t: usize,
    pub(crate) c: usize,
    /// The levels coarser than `array`, each half of the one before.
    pub(crate) coarser: Vec<CoarserLevel>,
}

/// A level of a pyramid that will be created.
#[derive(Debug)]
pub(crate) struct CoarserLevel {
    pub(crate) factors: Zyx,
    pub(crate) array: Location,
    pub(crate) blueprint: Blueprint,
    pub(crate) layout: Layout,
}

/// What is there before a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Whether anything is.
    pub(crate) exists: bool,
    /// Whether it is what a run has begun that this one goes on with.
    pub(crate) begun: bool,
}

impl Target {
    pub(crate) async fn check(
        source: &Source,
        request: &OutputRequest,
        input: &InputDescription,
        Found { exists, begun }: Found,
    ) -> Result<Self, VolumeError> {
        let location = source.location().clone();
        let (spec, is_group) = match source {
            Source::Place(_) => (None, true),
            Source::Spec(spec) => (Some(&**spec), false),
        };
        let delete = !begun && (request.overwrite || spec.is_some_and(|spec| spec.delete_existing));
        // What a run has begun it may go on with, as if it were not there yet.
        let opens = spec.is_some_and(|spec| spec.open == Some(true));
        let opened = may_proceed(&location, exists && (opens || !begun), delete, spec).await?;
        let array = if is_group { location.at("0") } else { location.clone() };
        let (blueprint, layout, axes) = match opened {
            Some(metadata) => {
                let layout = Layout::read(&metadata, &location.url)?;
                let axes = axes_like(&layout, &input.axes);
                agreed_element(request, Some(layout.element), &location.url)?;
                (None, layout, axes)
            }
            None => {
                let blueprint = blueprint(request, spec, input, &location.url)?;
                let layout = Layout::read(&blueprint.metadata(&json!({})), &array.url)
                    .map_err(|error| VolumeError { kind: VolumeErrorKind::Usage, ..error })?;
                let axes = blueprint.axes.clone();
                (Some(blueprint), layout, axes)
            }
        };
        let map = AxisMap::of(&axes, &location.url)?;
        let shape_given = blueprint.as_ref().is_none_or(|blueprint| blueprint.given.contains_key("shape"));
        let (t, c) = indices(request, &layout, map, shape_given, &location.url)?;
        let target = Self {
            location,
            array,
            is_group,
            blueprint,
            delete: exists && delete,
            layout,
            map,
            t,
            c,
            coarser: Vec::new(),
        };
        target.check_shapes(request, input)?;
        Ok(target)
    }

    /// Spatial shape of a stored object.
    pub(crate) fn unit(&self) -> Zyx {
        self.map.spatial(&self.layout.chunk)
    }

    /// Plans coarser levels, for tiles of `tile` voxels.
    pub(crate) fn plan_pyramid(&mut self, levels: Levels, tile: Zyx) -> Result<(), VolumeError> {
        let (Some(finest), true) = (&self.blueprint, self.is_group) else {
            return Err(VolumeError::usage(format!(
                "`pyramid` needs an OME-Zarr image, but the spec of {} makes a bare array: give a URL or a path instead",
                self.location.url
            )));
        };
        let extent = self.map.spatial(&finest.shape());
        let grid = Grid { factors: [1; 3], extent, chunk: finest.chunk, shard: finest.shard };
        let scale = self.map.zyx.map(|place| place.map_or(1.0, |place| finest.axes[place].scale));
        for (number, grid) in coarser(grid, scale, tile, levels)?.into_iter().enumerate() {
            let axes = axes_of(&finest.axes, self.map.zyx, &grid);
            let blueprint = Blueprint { axes, chunk: grid.chunk, shard: grid.shard, ..finest.clone() };
            let array = self.location.at(&(number + 1).to_string());
            let layout = Layout::read(&blueprint.metadata(&json!({})), &array.url)?;
            self.coarser.push(CoarserLevel { factors: grid.factors, array, blueprint, layout });
        }
        Ok(())
    }

    fn check_shapes(&self, request: &OutputRequest, input: &InputDescription) -> Result<(), VolumeError> {
        let (url, layout, map) = (&self.location.url, &self.layout, self.map);
        let extent = map.spatial(&layout.shape);
        check_extent(extent, input_extent(input)?, url)?;
        check_block(self.unit(), request.block, extent)?;
        let shared =
            |place: Option<usize>| place.is_some_and(|place| layout.chunk[place] > 1 && layout.shape[place] > 1);
        let (name, place) = if shared(map.t) { ("time", map.t) } else { ("channel", map.c) };
        if shared(map.t) || (shared(map.c) && !request.stack_channels) {
            return Err(VolumeError::usage(format!(
                "chunks of {url} hold {} entries of the {name} axis, but only one is written, so a chunk could not be written whole: \
                 use a chunk of 1 along that axis",
                AxisMap::along(place, &layout.chunk)
            )));
        }
        if layout.unit_codec().decoded_size() > LARGEST_CHUNK {
            return Err(VolumeError::usage(format!(
                "a chunk of {url} of shape {:?} would be larger than 2 GiB: choose a smaller chunk",
                layout.unit()
            )));
        }
        Ok(())
    }
}

/// Decides whether the output may be made. Gives the metadata of an existing array that is to be opened.
async fn may_proceed(
    location: &Location,
    exists: bool,
    delete: bool,
    spec: Option<&Spec>,
) -> Result<Option<Value>, VolumeError> {
    let url = &location.url;
    let (open, create) = spec.map_or((None, None), |spec| (spec.open, spec.create));
    if open == Some(true) && spec.is_some_and(|spec| spec.delete_existing) {
        return Err(VolumeError::usage(format!(
            "the spec of {url} has both open and delete_existing: keep one of them"
        )));
    }
    match (exists, delete) {
        (false, _) if create == Some(false) || (open == Some(true) && create.is_none()) => {
            Err(VolumeError::data(format!("the output {url} does not exist: add \"create\": true to its spec")))
        }
        (false, _) => Ok(None),
        (true, true) => may_be_deleted(location).await.map(|()| None),
        (true, false) if open == Some(true) => match (Node::find(location).await?, spec) {
            (Some(Node::Array(metadata)), Some(spec)) => {
                matches_spec(&metadata, spec)?;
                refuse_bool(&metadata, url)?;
                Ok(Some(metadata))
            }
            _ => Err(VolumeError::data(format!("the output {url} is to be opened, but it is no Zarr array"))),
        },
        (true, false) => Err(VolumeError::new(
            VolumeErrorKind::Exists,
            format!(
                "the output {url} exists already: pass --overwrite (or \"delete_existing\": true in a spec) to replace it"
            ),
        )),
    }
}

/// Refuses to delete what a run could not have made: anything but an array, an OME-Zarr image or a group of haloflow's own.
async fn may_be_deleted(location: &Location) -> Result<(), VolumeError> {
    let node = if location.is_file() { None } else { Node::find(location).await? };
    let what = match node {
        // A run that was killed before it made anything else.
        None if !location.is_file() && location.at(FOLDER).exists().await? => return Ok(()),
        None => "something that is no Zarr array or group",
        Some(Node::Array(metadata)) if metadata["node_type"] == "array" || metadata["zarr_format"] == 2 => {
            return Ok(());
        }
        Some(Node::Array(_)) => "a zarr.json that is of no array or group",
        Some(Node::Group(attributes)) => match kind(&attributes) {
            Some(what) => what,
            None if is_image(&attributes) || !attributes["haloflow"].is_null() => return Ok(()),
            None => "a Zarr group that is no OME-Zarr image and not made by haloflow",
        },
    };
    Err(VolumeError::usage(format!(
        "{} holds {what}, so it is not deleted: choose another output, or remove it yourself",
        location.url
    )))
}

fn blueprint(
    request: &OutputRequest,
    spec: Option<&Spec>,
    input: &InputDescription,
    url: &str,
) -> Result<Blueprint, VolumeError> {
    let format = spec.map_or(request.format.unwrap_or(ZarrFormat::V3), |spec| spec.format);
    let given = spec.map(|spec| spec.metadata.clone()).unwrap_or_default();
    conflict(request.format.is_some_and(|wanted| wanted != format), "format", "its driver", url)?;
    let layout_given = given.contains_key("chunks") || given.contains_key("chunk_grid");
    let codecs_given = given.contains_key("compressor") || given.contains_key("codecs");
    conflict(
        layout_given && (request.chunk.is_some() || request.shard.is_some()),
        "chunk or shard",
        "its metadata",
        url,
    )?;
    conflict(codecs_given && request.compressor.is_some(), "compressor", "its metadata", url)?;
    conflict(given.contains_key("codecs") && request.shard.is_some(), "shard", "its metadata", url)?;
    if format == ZarrFormat::V2 && request.shard.is_some() {
        return Err(VolumeError::usage(format!(
            "the output {url} is Zarr v2, which has no shards: leave the shard out or use Zarr v3"
        )));
    }
    refuse_bool(&json!(given), url)?;
    let element = agreed_element(request, spec.and_then(|spec| spec.element), url)?;
    let axes = created_axes(request, &given, input, url)?;
    let map = AxisMap::of(&axes, url)?;
    let input_map = AxisMap::of(&input.axes, &input.url)?;
    let extent = map.spatial(&axes.iter().map(|axis| axis.size).collect::<Vec<_>>());
    let chunk = chunk_shape(request.chunk, request.shard, input_map.spatial(&input.chunk), request.block, extent);
    check_shard(chunk, request.shard)?;
    let compressor = request.compressor.as_deref().map_or(Ok(Compressor::Blosc("zstd", 3)), Compressor::read)?;
    let separator = if format == ZarrFormat::V2 && spec.is_some() { "." } else { "/" };
    Ok(Blueprint { format, axes, map, element, chunk, shard: request.shard, compressor, given, separator })
}

fn conflict(is_conflict: bool, what: &str, place: &str, url: &str) -> Result<(), VolumeError> {
    if is_conflict {
        return Err(VolumeError::usage(format!(
            "the {what} of {url} is given twice, by an option and by {place} in the spec: keep one of them"
        )));
    }
    Ok(())
}

/// The axes of a new array: the input's with one time point and one channel, or as many as the spec's shape has.
fn created_axes(
    request: &OutputRequest,
    given: &serde_json::Map<String, Value>,
    input: &InputDescription,
    url: &str,
) -> Result<Vec<AxisInfo>, VolumeError> {
    let mut axes = input.axes.clone();
    axes.iter_mut().filter(|axis| axis.kind != AxisKind::Space).for_each(|axis| axis.size = 1);
    if request.stack_channels && axes.iter().all(|axis| axis.kind != AxisKind::Channel) {
        let place = axes.iter().position(|axis| axis.kind == AxisKind::Space).unwrap_or(0);
        let channel = AxisInfo {
            name: "c".to_owned(),
            kind: AxisKind::Channel,
            unit: None,
            size: 1,
            scale: 1.0,
            translation: 0.0,
        };
        axes.insert(place, channel);
    }
    let Some(shape) = given.get("shape") else { return Ok(axes) };
    let shape = sizes(shape).filter(|shape| (2..=5).contains(&shape.len()));
    let shape = shape.ok_or_else(|| {
        VolumeError::usage(format!("the shape in the spec of {url} must be a list of 2 to 5 whole numbers"))
    })?;
    if shape.len() == axes.len() {
        axes.iter_mut().zip(shape).for_each(|(axis, size)| axis.size = size);
        return Ok(axes);
    }
    let ranked = ["t", "c", "z", "y", "x"].into_iter().skip(5 - shape.len()).zip(shape);
    Ok(ranked.map(|(name, size)| axis_named(name, size, &input.axes)).collect())
}

/// The input's axis of this name with another size, or a plain one.
fn axis_named(name: &str, size: usize, input: &[AxisInfo]) -> AxisInfo {
    let kind = crate::axes::kind_of_name(name).unwrap_or(AxisKind::Space);
    let plain = || AxisInfo { name: name.to_owned(), kind, unit: None, size, scale: 1.0, translation: 0.0 };
    input.iter().find(|axis| axis.name == name).map_or_else(plain, |axis| AxisInfo { size, ..axis.clone() })
}

/// The axes of an existing array: by its own names, else as the input's if it has as many, else by rank.
fn axes_like(layout: &Layout, input: &[AxisInfo]) -> Vec<AxisInfo> {
    if layout.dimension_names.is_none() && layout.shape.len() == input.len() {
        return input.iter().zip(&layout.shape).map(|(axis, &size)| AxisInfo { size, ..axis.clone() }).collect();
    }
    bare_axes(layout)
}

fn indices(
    request: &OutputRequest,
    layout: &Layout,
    map: AxisMap,
    shape_given: bool,
    url: &str,
) -> Result<(usize, usize), VolumeError> {
    let default = |place: Option<usize>, input: usize| if shape_given && place.is_some() { input } else { 0 };
    let t = request.t.unwrap_or_else(|| default(map.t, request.input_t));
    in_range("time point", "the output's time point", t, AxisMap::along(map.t, &layout.shape), url)?;
    if !request.stack_channels {
        let c = request.c.unwrap_or_else(|| default(map.c, request.input_c));
        in_range("channel", "the output's channel", c, AxisMap::along(map.c, &layout.shape), url)?;
        return Ok((t, c));
    }
    if request.c.is_some_and(|channel| channel != 0) {
        return Err(VolumeError::usage(format!(
            "stacked channels of {url} start at channel 0, so no other output channel can be chosen"
        )));
    }
    if map.c.is_none() {
        return Err(VolumeError::usage(format!(
            "channels cannot be stacked in {url}, which has no channel axis: its shape is {:?}",
            layout.shape
        )));
    }
    Ok((t, 0))
}

fn agreed_element(request: &OutputRequest, stored: Option<Element>, url: &str) -> Result<Element, VolumeError> {
    match (request.element, stored) {
        (Some(asked), Some(stored)) if asked != stored => Err(VolumeError::usage(format!(
            "the element kind of {url} is {stored}, but {asked} was asked for: they must agree"
        ))),
        (asked, stored) => Ok(asked.or(stored).unwrap_or(request.default_element)),
    }
}

fn refuse_bool(metadata: &Value, url: &str) -> Result<(), VolumeError> {
    if metadata["dtype"] == "|b1" || metadata["data_type"] == "bool" {
        return Err(VolumeError::usage(format!(
            "the element kind bool is not supported for the output {url}: use uint8"
        )));
    }
    Ok(())
}

fn input_extent(input: &InputDescription) -> Result<Zyx, VolumeError> {
    let shape: Vec<usize> = input.axes.iter().map(|axis| axis.size).collect();
    Ok(AxisMap::of(&input.axes, &input.url)?.spatial(&shape))
}
