//! Copying between chunks and z, y, x buffers.

use haloflow_geometry::{Box3, Zyx};
use rayon::prelude::*;

use crate::Brick;
use crate::axes::Strides;

/// A decoded chunk, or the absence of one.
#[derive(Debug)]
pub(crate) enum Unit {
    /// Every voxel, in stored axis order.
    Voxels(Vec<u8>),
    /// Nothing is stored: every voxel is the fill value.
    Fill,
}

impl Unit {
    /// Bytes it holds in memory.
    pub(crate) fn weight(&self) -> usize {
        let voxels = match self {
            Self::Voxels(bytes) => bytes.len(),
            Self::Fill => 0,
        };
        voxels + size_of::<Self>()
    }
}

/// Where a chunk is, and which planes of time and channel of it belong to which buffer.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    /// The voxels the chunk covers; may reach past the volume.
    pub(crate) covers: Box3,
    /// Buffer number, and the place in the chunk of that channel's first voxel, elements.
    pub(crate) planes: Vec<(usize, usize)>,
}

/// One row of voxels in a buffer: first element and distance between elements.
#[derive(Clone, Copy, Debug)]
struct Row {
    first: usize,
    step: usize,
}

/// Copies what the chunks have of the brick's region into the brick. Runs on all threads of the current pool.
pub(crate) fn gather(brick: &mut Brick, units: &[(Placement, impl AsRef<Unit> + Sync)], strides: Strides, fill: &[u8]) {
    let (region, size) = (brick.region, fill.len());
    let [_, height, width] = region.shape();
    let plane_bytes = (height * width * size).max(1);
    brick.channels.par_iter_mut().enumerate().for_each(|(channel, buffer)| {
        buffer.par_chunks_mut(plane_bytes).enumerate().for_each(|(depth, plane)| {
            let z = region.start[0] + depth;
            for (placement, unit) in units {
                let Some(&(_, base)) = placement.planes.iter().find(|(buffer, _)| *buffer == channel) else { continue };
                let part = placement.covers.intersect(&region);
                if part.is_empty() || z < part.start[0] || z >= part.stop[0] {
                    continue;
                }
                for y in part.start[1]..part.stop[1] {
                    let start = [z, y, part.start[2]];
                    let target =
                        Row { first: (y - region.start[1]) * width + part.start[2] - region.start[2], step: 1 };
                    let source =
                        Row { first: base + offset(start, placement.covers.start, strides), step: strides.zyx[2] };
                    match unit.as_ref() {
                        Unit::Voxels(bytes) => copy_row(plane, target, bytes, source, part.shape()[2], size),
                        Unit::Fill => fill_row(&mut plane[target.first * size..][..part.shape()[2] * size], fill),
                    }
                }
            }
        });
    });
}

/// Copies what the tile has of a chunk into the chunk, which has been filled with the fill value. `channels` are z, y, x buffers of
/// the tile.
pub(crate) fn scatter(
    chunk: &mut [u8],
    placement: &Placement,
    strides: Strides,
    (tile, channels): (Box3, &[impl AsRef<[u8]>]),
    size: usize,
) {
    let part = placement.covers.intersect(&tile);
    let [_, height, width] = tile.shape();
    for &(buffer, base) in &placement.planes {
        let voxels = channels[buffer].as_ref();
        for z in part.start[0]..part.stop[0] {
            for y in part.start[1]..part.stop[1] {
                let start = [z, y, part.start[2]];
                let target = Row { first: base + offset(start, placement.covers.start, strides), step: strides.zyx[2] };
                let source = Row {
                    first: offset(start, tile.start, Strides { t: 0, c: 0, zyx: [height * width, width, 1] }),
                    step: 1,
                };
                copy_row(chunk, target, voxels, source, part.shape()[2], size);
            }
        }
    }
}

/// Fills a buffer with copies of one element.
pub(crate) fn fill_row(row: &mut [u8], element: &[u8]) {
    if element.iter().all(|byte| *byte == element[0]) {
        row.fill(element[0]);
    } else {
        row.chunks_exact_mut(element.len()).for_each(|voxel| voxel.copy_from_slice(element));
    }
}

fn offset(voxel: Zyx, origin: Zyx, strides: Strides) -> usize {
    (0..3).map(|axis| (voxel[axis] - origin[axis]) * strides.zyx[axis]).sum()
}

fn copy_row(target: &mut [u8], to: Row, source: &[u8], from: Row, count: usize, size: usize) {
    if to.step == 1 && from.step == 1 {
        target[to.first * size..][..count * size].copy_from_slice(&source[from.first * size..][..count * size]);
        return;
    }
    for i in 0..count {
        let (to, from) = ((to.first + i * to.step) * size, (from.first + i * from.step) * size);
        target[to..to + size].copy_from_slice(&source[from..from + size]);
    }
}
