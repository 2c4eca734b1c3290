//! The accumulators of a tile: f32, one voxel for each voxel of the tile and each output channel.

use bytemuck::cast_slice;
use haloflow_engine::EngineSpec;
use haloflow_geometry::{Box3, Contribution, Share, Zyx};
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
            with_number!(spec.output, N => add_plane::<N>(sums, &place, given, spec));
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

/// What a patch gives to a plane.
struct Slice<'a, N> {
    /// The patch's plane.
    values: &'a [N],
    /// The patch's first row and column, in volume coordinates.
    start: [usize; 2],
    weight: f32,
    along: [&'a Share; 2],
}

impl<'a, N: Number> Slice<'a, N> {
    /// Nothing if the patch does not give to the plane.
    fn new(given: &Given<'a>, plane: &Plane, spec: &EngineSpec) -> Option<Self> {
        let [along_z, along_y, along_x] = given.contribution.axes;
        if !along_z.range.contains(&plane.z) {
            return None;
        }
        let [start_z, start_y, start_x] = given.start;
        let voxels = spec.patch[1] * spec.patch[2];
        let first = (plane.channel * spec.patch[0] + plane.z - start_z) * voxels;
        Some(Self {
            values: &cast_slice(given.row)[first..first + voxels],
            start: [start_y, start_x],
            weight: along_z.weights[plane.z - along_z.range.start],
            along: [along_y, along_x],
        })
    }

    /// Adds what it gives to row `y`, both in volume coordinates; `sums` begin at `start_x`.
    fn add_row(&self, y: usize, (sums, start_x): (&mut [f32], usize), width: usize, line: &mut [f32]) {
        let [along_y, along_x] = self.along;
        if !along_y.range.contains(&y) {
            return;
        }
        let line = &mut line[..along_x.range.len()];
        let from = (y - self.start[0]) * width + along_x.range.start - self.start[1];
        N::widen(&self.values[from..from + line.len()], line);
        let weight = self.weight * along_y.weights[y - along_y.range.start];
        let sums = &mut sums[along_x.range.start - start_x..][..line.len()];
        for ((sum, value), weight_x) in sums.iter_mut().zip(&*line).zip(&along_x.weights) {
            *sum += value * (weight * weight_x);
        }
    }
}

/// Adds row by row, and to each row all that the patches give: so the sums are gone over from front to back, as a processor foresees.
fn add_plane<N: Number>(sums: &mut [f32], plane: &Plane, given: &[Given<'_>], spec: &EngineSpec) {
    let slices: Vec<Slice<'_, N>> = given.iter().filter_map(|given| Slice::new(given, plane, spec)).collect();
    let ranges = || slices.iter().map(|slice| &slice.along[0].range);
    let first = ranges().map(|range| range.start).min().unwrap_or_default();
    let end = ranges().map(|range| range.end).max().unwrap_or_default();
    let mut line = vec![0.0; spec.patch[2]];
    let [_, start_y, start_x] = plane.region.start;
    let width = plane.region.shape()[2];
    for y in first..end {
        let sums = &mut sums[(y - start_y) * width..][..width];
        for slice in &slices {
            slice.add_row(y, (sums, start_x), spec.patch[2], &mut line);
        }
    }
}

#[cfg(test)]
mod tests;
