//! Bringing voxels into the range that a network wants, and its output back.

use std::sync::Arc;

use bytemuck::cast_slice;
use haloflow_engine::ElementKind;
use haloflow_volume::{AlignedBytes, Element};

use crate::number::{Number, with_number};
use crate::sample::{Sample, with_samples};

/// Voxels that are normalised in one go where there is no table.
const RUN: usize = 64;

/// How voxels are normalised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Normalisation {
    /// By two percentiles of each block with its halo. Needs the block lattice.
    Percentile {
        /// The percentiles that become 0 and 1.
        percentiles: [f64; 2],
    },
    /// By two percentiles of the whole volume.
    Volume {
        /// The percentiles that become 0 and 1.
        percentiles: [f64; 2],
    },
    /// By mean and standard deviation of the whole volume: computed, or given.
    ZScore {
        /// Mean and standard deviation, if given.
        given: Option<[f64; 2]>,
    },
    /// By given bounds that become 0 and 1; voxels are clipped to them first.
    Global {
        /// Lower and upper bound.
        bounds: [f64; 2],
    },
    /// Not at all.
    None,
}

impl Normalisation {
    /// Whether the normalisation differs from block to block.
    #[must_use]
    pub const fn depends_on_block(&self) -> bool {
        matches!(self, Self::Percentile { .. })
    }
}

/// One normalisation with its numbers: what is done to the voxels of a block or of the whole volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Normaliser {
    forward: Forward,
    clip: Option<[f32; 2]>,
    inverse: Affine,
    table: Option<Table>,
}

/// What every voxel of a kind with few values becomes, in the network's kind of number.
#[derive(Clone, Debug, PartialEq)]
struct Table {
    kind: ElementKind,
    values: Arc<AlignedBytes>,
}

/// `y * scale + offset`, each step rounded to f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// Factor.
    pub scale: f32,
    /// What is added.
    pub offset: f32,
}

impl Affine {
    /// The map that changes nothing.
    pub const IDENTITY: Self = Self { scale: 1.0, offset: 0.0 };

    /// Applies the map.
    #[must_use]
    pub fn apply(self, y: f32) -> f32 {
        y * self.scale + self.offset
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Forward {
    Identity,
    /// `x - offset` and then `/ scale`, in f64, each rounded to f32.
    Wide {
        offset: f64,
        scale: f64,
    },
    /// The same with a scale that was too small: the division is in f32.
    Flat {
        offset: f64,
        scale: f32,
    },
    /// Clipped to the bounds, then `(x - lower) / scale`, all in f32.
    Clipped {
        lower: f32,
        upper: f32,
        scale: f32,
    },
}

impl Normaliser {
    /// `offset` becomes 0 and `offset + span` becomes 1; a span below `eps` is taken as `eps`.
    #[must_use]
    pub fn shift_and_scale(offset: f64, span: f64, eps: f64) -> Self {
        let forward = match span < eps {
            true => Forward::Flat { offset, scale: eps as f32 },
            false => Forward::Wide { offset, scale: span },
        };
        Self {
            forward,
            clip: None,
            inverse: Affine { scale: span.max(eps) as f32, offset: offset as f32 },
            table: None,
        }
    }

    /// Voxels are clipped to the bounds first; the bounds become 0 and 1.
    #[must_use]
    pub fn global([lower, upper]: [f64; 2], eps: f64) -> Self {
        let scale = (upper - lower).max(eps) as f32;
        let forward = Forward::Clipped { lower: lower as f32, upper: upper as f32, scale };
        Self { forward, clip: None, inverse: Affine { scale, offset: lower as f32 }, table: None }
    }

    /// Voxels as they are.
    #[must_use]
    pub const fn identity() -> Self {
        Self { forward: Forward::Identity, clip: None, inverse: Affine { scale: 1.0, offset: 0.0 }, table: None }
    }

    /// The same, clipping what it gives.
    #[must_use]
    pub fn with_clip(self, clip: Option<[f32; 2]>) -> Self {
        Self { clip, table: None, ..self }
    }

    /// Back from the network's range.
    #[must_use]
    pub const fn inverse(&self) -> Affine {
        self.inverse
    }

    /// The normalised value of `x`.
    #[must_use]
    pub fn apply(&self, x: f32) -> f32 {
        let normalised = match self.forward {
            Forward::Identity => x,
            Forward::Wide { offset, scale } => (f64::from((f64::from(x) - offset) as f32) / scale) as f32,
            Forward::Flat { offset, scale } => (f64::from(x) - offset) as f32 / scale,
            Forward::Clipped { lower, upper, scale } => (x.clamp(lower, upper) - lower) / scale,
        };
        match self.clip {
            Some([low, high]) => normalised.clamp(low, high),
            None => normalised,
        }
    }

    /// Prepares for voxels of `element` and batches of `kind`: for voxels with few values, a table of all of them.
    #[must_use]
    pub fn tabulated(self, element: Element, kind: ElementKind) -> Self {
        // An empty slice of bytes that is aligned for every kind.
        let none = &AlignedBytes::zeroed(0);
        let values = with_samples!(element, none, samples => with_number!(kind, N => self.tabulate::<_, N>(samples)));
        Self { table: values.map(|values| Table { kind, values: Arc::new(values) }), ..self }
    }

    fn tabulate<T: Sample, N: Number>(&self, _samples: &[T]) -> Option<AlignedBytes> {
        let value = |index| N::from_f32(self.apply(T::at(index).to_f32()));
        (T::TABLE > 0).then(|| AlignedBytes::from_slice(&(0..T::TABLE).map(value).collect::<Vec<N>>()))
    }

    /// Normalises a row of voxels and rounds it to the network's kind, `kind`.
    pub(crate) fn row<T: Sample, N: Number>(&self, from: &[T], kind: ElementKind, to: &mut [N]) {
        match &self.table {
            Some(table) if table.kind == kind && table.values.len() == T::TABLE * size_of::<N>() => {
                let table: &[N] = cast_slice(&table.values);
                for (y, x) in to.iter_mut().zip(from) {
                    *y = table[x.index()];
                }
            }
            _ => {
                let mut run = [0.0; RUN];
                for (to, from) in to.chunks_mut(RUN).zip(from.chunks(RUN)) {
                    let run = &mut run[..from.len()];
                    for (y, x) in run.iter_mut().zip(from) {
                        *y = self.apply(x.to_f32());
                    }
                    N::round(run, to);
                }
            }
        }
    }
}

/// The way back of each of `channels` output channels: that of the input channel of the same number if there are as many, else
/// that of the first.
pub(crate) fn inverses(normalisers: &[Normaliser], channels: usize) -> Vec<Affine> {
    let paired = normalisers.len() == channels;
    let of = |channel: usize| normalisers.get(if paired { channel } else { 0 });
    (0..channels).map(|channel| of(channel).map_or(Affine::IDENTITY, Normaliser::inverse)).collect()
}

#[cfg(test)]
mod tests;
