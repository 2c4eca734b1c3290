//! Cutting a patch out of what was read: normalising, padding and converting on the way, straight into the batch.

use bytemuck::cast_slice_mut;
use haloflow_engine::ElementKind;
use haloflow_geometry::{Patch, Zyx};
use haloflow_volume::Brick;

use crate::normalise::Normaliser;
use crate::number::{Number, with_number};
use crate::sample::{Sample, with_samples};

/// Voxels that are brought together before they are normalised. A patch's rows are short and lie far apart, so that a processor cannot
/// foresee them; it fetches many at one time when they are only copied, and few when each voxel is looked up on the way.
const TOGETHER: usize = 4096;

/// What stands in a patch where it reaches past the data, always on the high side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// The data mirrored at its last voxel, which is not repeated.
    #[default]
    Reflect,
    /// The last voxel.
    Edge,
    /// Zero, after normalising.
    Zero,
}

impl Padding {
    /// Where voxel `i` of a patch with `valid` voxels of data comes from; `None` is zero.
    fn source(self, i: usize, valid: usize) -> Option<usize> {
        match self {
            _ if i < valid => Some(i),
            Self::Zero => None,
            Self::Edge => Some(valid - 1),
            Self::Reflect if valid == 1 => Some(0),
            Self::Reflect => {
                let period = 2 * (valid - 1);
                let phase = i % period;
                Some(phase.min(period - phase))
            }
        }
    }
}

/// What is the same for all patches of a run.
#[derive(Clone, Copy, Debug)]
pub struct Cutting {
    /// Full size of a patch, voxels.
    pub size: Zyx,
    /// What stands beyond the data.
    pub padding: Padding,
    /// The element kind of the batch.
    pub kind: ElementKind,
}

/// Writes `patch` of `brick` into `row`: `[channel, z, y, x]`, native endianness. The brick must hold all the patch's data; there is
/// one normaliser per channel.
pub fn cut(brick: &Brick, patch: &Patch, normalisers: &[Normaliser], cutting: &Cutting, row: &mut [u8]) {
    let channel_bytes = cutting.size.iter().product::<usize>() * cutting.kind.size();
    for ((data, normaliser), out) in brick.channels.iter().zip(normalisers).zip(row.chunks_exact_mut(channel_bytes)) {
        with_samples!(brick.element, data, samples => {
            with_number!(cutting.kind, N => {
                cut_channel::<_, N>(samples, &Placed { brick, patch, cutting }, normaliser, cast_slice_mut(out));
            });
        });
    }
}

struct Placed<'a> {
    brick: &'a Brick,
    patch: &'a Patch,
    cutting: &'a Cutting,
}

impl Placed<'_> {
    /// The place in the brick of the row of data that becomes row `z`, `y` of the patch; `None` is zero.
    fn data_row(&self, z: usize, y: usize) -> Option<usize> {
        let [z, y] = [(0, z), (1, y)].map(|(axis, i)| {
            let source = self.cutting.padding.source(i, self.patch.valid[axis])?;
            Some(self.patch.start[axis] - self.brick.region.start[axis] + source)
        });
        let [_, height, width] = self.brick.region.shape();
        Some((z? * height + y?) * width + self.patch.start[2] - self.brick.region.start[2])
    }
}

fn cut_channel<T: Sample, N: Number>(samples: &[T], placed: &Placed<'_>, normaliser: &Normaliser, out: &mut [N]) {
    let [_, height, width] = placed.cutting.size;
    let (kind, padding, valid) = (placed.cutting.kind, placed.cutting.padding, placed.patch.valid[2]);
    let together = (TOGETHER / valid).max(1);
    let mut near = vec![T::zeroed(); together * valid];
    for (group, out) in out.chunks_mut(together * width).enumerate() {
        let rows = (group * together..).map(|row| placed.data_row(row / height, row % height));
        let rows: Vec<_> = rows.take(out.len() / width).collect();
        for (near, start) in near.chunks_exact_mut(valid).zip(&rows) {
            if let Some(start) = *start {
                near.copy_from_slice(&samples[start..start + valid]);
            }
        }
        for ((row, near), start) in out.chunks_exact_mut(width).zip(near.chunks_exact(valid)).zip(&rows) {
            if start.is_none() {
                row.fill(N::zeroed());
                continue;
            }
            normaliser.row(near, kind, &mut row[..valid]);
            for x in valid..width {
                row[x] = padding.source(x, valid).map_or(N::zeroed(), |source| row[source]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
