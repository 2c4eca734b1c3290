//! The accumulators of a tile: f32, one voxel for each voxel of the tile and each output channel.

use bytemuck::cast_slice;
use haloflow_engine::EngineSpec;
use haloflow_geometry::{Box3, Contribution, Zyx};
use haloflow_volume::AlignedBytes;
use rayon::prelude::*;

use crate::number::{Number, with_number};

/// One output patch that gives to a tile.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    /// `[channel, z, y, x]` in the engine's output kind.
    pub row: &'a [u8],
    /// First voxel of the patch, in volume coordinates.
    pub start: Zyx,
    /// What it gives to the tile.
    pub contribution: Contribution<'a>,
}

/// The sums of a tile.
pub struct Accumulator {
    region: Box3,
    /// f32.
    values: AlignedBytes,
}

impl Accumulator {
    /// Zeros for every voxel of `region` and every one of `channels` channels.
    #[must_use]
    pub fn zeroed(region: Box3, channels: usize) -> Self {
        Self { region, values: AlignedBytes::zeroed(channels * region.voxels() * size_of::<f32>()) }
    }

    /// Adds patches in the order given, in parallel over channels and planes: each voxel sees the patches in that order.
    pub fn add(&mut self, given: &[Given<'_>], spec: &EngineSpec) {
        let region = self.region;
        let [depth, height, width] = region.shape();
        self.values.as_mut_slice::<f32>().par_chunks_mut(height * width).enumerate().for_each(|(plane, sums)| {
            let place = Plane { region, channel: plane / depth, z: region.start[0] + plane % depth };
            let mut line = vec![0.0; spec.patch[2]];
            for given in given {
                with_number!(spec.output, N => add_plane::<N>(sums, &place, given, spec, &mut line));
            }
        });
    }

    /// The sums, f32, `[channel, z, y, x]`.
    #[must_use]
    pub fn into_values(self) -> AlignedBytes {
        self.values
    }
}

/// One plane of a tile.
struct Plane {
    region: Box3,
    channel: usize,
    z: usize,
}

fn add_plane<N: Number>(sums: &mut [f32], plane: &Plane, given: &Given<'_>, spec: &EngineSpec, line: &mut [f32]) {
    let row: &[N] = cast_slice(given.row);
    let [along_z, along_y, along_x] = given.contribution.axes;
    if !along_z.range.contains(&plane.z) {
        return;
    }
    let [_, height, width] = spec.patch;
    let width_of_tile = plane.region.shape()[2];
    let weight_z = along_z.weights[plane.z - along_z.range.start];
    let first_plane = (plane.channel * spec.patch[0] + plane.z - given.start[0]) * height;
    let first_column = along_x.range.start - given.start[2];
    let line = &mut line[..along_x.range.len()];
    for (y, weight_y) in along_y.range.clone().zip(&along_y.weights) {
        let from = (first_plane + y - given.start[1]) * width + first_column;
        N::widen(&row[from..from + line.len()], line);
        let to = (y - plane.region.start[1]) * width_of_tile + along_x.range.start - plane.region.start[2];
        let weight = weight_z * weight_y;
        for ((sum, value), weight_x) in sums[to..to + line.len()].iter_mut().zip(&*line).zip(&along_x.weights) {
            *sum += value * (weight * weight_x);
        }
    }
}

#[cfg(test)]
mod tests;
