//! Volumes with known content.

use std::num::NonZeroUsize;

use haloflow_geometry::{Box3, Zyx};
use haloflow_volume::{
    AlignedBytes, AxisInfo, AxisKind, Brick, CpuPool, Element, Environment, InputDescription, InputOptions, OutputPlan,
    OutputRequest, VolumeError, VolumeReader, VolumeWriter, ZarrFormat,
};
use serde_json::json;

pub(crate) fn cpu() -> CpuPool {
    CpuPool::new(NonZeroUsize::new(2).unwrap()).unwrap()
}

/// What a volume holds at a voxel.
pub(crate) fn value(channel: usize, [z, y, x]: Zyx) -> u16 {
    (channel * 20_000 + z * 1009 + y * 101 + x * 7 + 1) as u16
}

pub(crate) fn voxels(channel: usize, region: Box3) -> AlignedBytes {
    AlignedBytes::from_slice(&region.indices().map(|voxel| value(channel, voxel)).collect::<Vec<u16>>())
}

pub(crate) fn assert_holds(brick: &Brick, channels: &[usize]) {
    for (buffer, &channel) in brick.channels.iter().zip(channels) {
        assert_eq!(buffer.as_slice::<u16>(), voxels(channel, brick.region).as_slice::<u16>(), "{}", brick.region);
    }
    assert_eq!(brick.channels.len(), channels.len());
}

/// An input elsewhere with these axes, chunked 4 x 4 x 4, in units of 0.5 micrometers.
pub(crate) fn described(names: &str, shape: Zyx) -> InputDescription {
    let axis = |name: char| {
        let place = "zyx".find(name);
        AxisInfo {
            name: name.to_string(),
            kind: match name {
                't' => AxisKind::Time,
                'c' => AxisKind::Channel,
                _ => AxisKind::Space,
            },
            unit: place.map(|_| "micrometer".to_owned()),
            size: place.map_or(1, |place| shape[place]),
            scale: place.map_or(1.0, |_| 0.5),
            translation: place.map_or(0.0, |_| 0.25),
        }
    };
    let axes: Vec<AxisInfo> = names.chars().map(axis).collect();
    let chunk = axes.iter().map(|axis| if axis.kind == AxisKind::Space { axis.size.min(4) } else { 1 }).collect();
    InputDescription {
        url: "memory://elsewhere".to_owned(),
        zarr_format: ZarrFormat::V3,
        axes,
        levels: 1,
        level: 0,
        chunk,
        shard: None,
        is_group: true,
        element: Element::U16,
        compressor: "none".to_owned(),
        omero: None,
    }
}

pub(crate) fn request(target: &str) -> OutputRequest {
    OutputRequest {
        targets: vec![target.to_owned()],
        stack_channels: false,
        element: None,
        default_element: Element::U16,
        chunk: None,
        shard: None,
        format: None,
        compressor: None,
        t: None,
        c: None,
        input_t: 0,
        input_c: 0,
        overwrite: false,
        resume: false,
        shared: false,
        block: None,
        provenance: json!({"made_by": "a test"}),
    }
}

pub(crate) fn options(source: &str) -> InputOptions {
    InputOptions {
        source: source.to_owned(),
        level: 0,
        level_given: false,
        t: 0,
        c: vec![0],
        cache_bytes: 1 << 24,
        requests: 8,
    }
}

pub(crate) async fn open(source: &str, environment: &Environment) -> Result<VolumeReader, VolumeError> {
    VolumeReader::open(&options(source), environment, &cpu()).await
}

pub(crate) async fn check(
    request: OutputRequest,
    input: &InputDescription,
    environment: &Environment,
) -> Result<OutputPlan, VolumeError> {
    OutputPlan::check(request, input, environment, &cpu()).await
}

/// Makes an output and writes the whole of it, one tile of one unit after the other.
pub(crate) async fn make(
    request: OutputRequest,
    input: &InputDescription,
    channels: usize,
    environment: &Environment,
) -> Result<VolumeWriter, VolumeError> {
    let plan = check(request, input, environment).await?;
    let unit = plan.unit();
    let writer = plan.create(channels, serde_json::Value::Null).await?;
    let size = |name: &str| input.axes.iter().find(|axis| axis.name == name).map_or(1, |axis| axis.size);
    let volume = Box3::of_shape(["z", "y", "x"].map(size));
    for cell in volume.cells(unit).indices() {
        let tile = Box3::of_cell(cell, unit).intersect(&volume);
        writer.write(tile, (0..channels).map(|channel| voxels(channel, tile)).collect()).await?;
    }
    Ok(writer)
}
