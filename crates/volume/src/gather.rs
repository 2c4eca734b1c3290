//! Copying between chunks and z, y, x buffers.

use std::sync::Arc;

use haloflow_geometry::{Box3, Zyx};
use rayon::prelude::*;

use crate::Brick;
use crate::axes::Strides;

/// A decoded chunk or a part of one, or the absence of one.
#[derive(Debug)]
pub(crate) enum Unit {
    /// Every voxel, in stored axis order.
    Voxels(Vec<u8>),
    /// The voxels of a box, for each of the placement's planes: z, y, x, C order.
    Part(Box3, Vec<u8>),
    /// Nothing is stored: every voxel is the fill value.
    Fill,
}

impl Unit {
    /// Bytes it holds in memory.
    pub(crate) fn weight(&self) -> usize {
        let voxels = match self {
            Self::Voxels(bytes) | Self::Part(_, bytes) => bytes.len(),
            Self::Fill => 0,
        };
        voxels + size_of::<Self>()
    }

    /// What the voxels of `part`, which lies in the chunk, are: of the placement's planes alone.
    pub(crate) fn part(
        self: &Arc<Self>,
        part: &Box3,
        placement: &Placement,
        strides: Strides,
        size: usize,
    ) -> Arc<Self> {
        let length = placement.planes.len() * part.voxels() * size;
        match &**self {
            Self::Voxels(bytes) if *part == placement.covers && bytes.len() == length => Arc::clone(self),
            Self::Part(region, _) if region == part => Arc::clone(self),
            Self::Fill => Arc::clone(self),
            Self::Voxels(_) | Self::Part(..) => {
                let mut cut = Vec::with_capacity(length);
                for plane in 0..placement.planes.len() {
                    let Some(source) = self.plane(plane, placement, strides) else { continue };
                    for z in part.start[0]..part.stop[0] {
                        for y in part.start[1]..part.stop[1] {
                            let row = source.row([z, y, part.start[2]]);
                            push_row(&mut cut, source.bytes, row, part.shape()[2], size);
                        }
                    }
                }
                Arc::new(Self::Part(*part, cut))
            }
        }
    }

    /// The voxels of one of the placement's planes; nothing if they are the fill value.
    fn plane(&self, plane: usize, placement: &Placement, strides: Strides) -> Option<Plane<'_>> {
        match self {
            Self::Fill => None,
            Self::Voxels(bytes) => Some(Plane {
                bytes,
                base: placement.planes[plane].1,
                origin: placement.covers.start,
                strides: strides.zyx,
            }),
            Self::Part(region, bytes) => {
                let [_, height, width] = region.shape();
                let base = plane * region.voxels();
                Some(Plane { bytes, base, origin: region.start, strides: [height * width, width, 1] })
            }
        }
    }
}

/// The voxels of one channel of a chunk or of a part of it.
struct Plane<'a> {
    bytes: &'a [u8],
    /// The first voxel, elements.
    base: usize,
    /// Where that is.
    origin: Zyx,
    /// Elements from voxel to voxel.
    strides: Zyx,
}

impl Plane<'_> {
    /// The row that begins with `voxel`.
    fn row(&self, voxel: Zyx) -> Row {
        let first = (0..3).map(|axis| (voxel[axis] - self.origin[axis]) * self.strides[axis]).sum::<usize>();
        Row { first: self.base + first, step: self.strides[2] }
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
                let Some(place) = placement.planes.iter().position(|(buffer, _)| *buffer == channel) else { continue };
                let part = placement.covers.intersect(&region);
                if part.is_empty() || z < part.start[0] || z >= part.stop[0] {
                    continue;
                }
                let source = unit.as_ref().plane(place, placement, strides);
                for y in part.start[1]..part.stop[1] {
                    let target =
                        Row { first: (y - region.start[1]) * width + part.start[2] - region.start[2], step: 1 };
                    match &source {
                        Some(source) => {
                            let row = source.row([z, y, part.start[2]]);
                            copy_row(plane, target, source.bytes, row, part.shape()[2], size);
                        }
                        None => fill_row(&mut plane[target.first * size..][..part.shape()[2] * size], fill),
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

/// Appends a row.
fn push_row(target: &mut Vec<u8>, source: &[u8], from: Row, count: usize, size: usize) {
    if from.step == 1 {
        target.extend_from_slice(&source[from.first * size..][..count * size]);
        return;
    }
    for i in 0..count {
        let from = (from.first + i * from.step) * size;
        target.extend_from_slice(&source[from..from + size]);
    }
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
