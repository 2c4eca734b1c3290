//! How overlapping patches share a voxel, along one axis.
//!
//! A lattice is a product of three axes, so what is decided per axis holds for the product: the sum of the weights over a
//! voxel is the product of three sums, and "the later patch in plan order wins" is "the later patch on each axis wins".

use std::f32::consts::PI;
use std::ops::Range;

/// How patches are joined along one axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AxisSeam {
    /// Cut `voxels` from each face of a patch that is no face of the box; where kept regions overlap, the later patch wins.
    Trim {
        /// Voxels cut from an inner face.
        voxels: usize,
    },
    /// Weigh patches by raised-cosine ramps of `overlap` voxels on inner faces.
    Blend {
        /// Length of a ramp, voxels.
        overlap: usize,
        /// Least weight of a voxel outside the margin.
        floor: f32,
        /// Outermost voxels of inner faces that get no weight at all.
        margin: usize,
    },
}

/// What one patch gives to a span of voxels along one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Index of the patch on this axis.
    pub patch: usize,
    /// First voxel of the patch, in volume coordinates.
    pub start: usize,
    /// The voxels it gives, in volume coordinates.
    pub range: Range<usize>,
    /// One weight per voxel of `range`. The weights of all shares of a voxel sum to one.
    pub weights: Vec<f32>,
}

/// The raised-cosine ramp of `n` weights: `0.5 - 0.5 cos(pi (i+1) / (n+1))`, computed in f32 as the predecessor does.
#[must_use]
pub fn ramp(n: usize) -> Vec<f32> {
    (0..n).map(|i| 0.5 - 0.5 * (PI * (i + 1) as f32 / (n + 1) as f32).cos()).collect()
}

/// Blending weights, not yet normalised, of a patch whose `valid` voxels start at `start` in a box of `length` voxels.
#[must_use]
pub fn blend_weights(start: usize, valid: usize, length: usize, overlap: usize, floor: f32, margin: usize) -> Vec<f32> {
    let mut weights = vec![1.0_f32; valid];
    let (before, after) = (start, length.saturating_sub(start + valid));
    for (i, weight) in ramp(overlap.min(before).saturating_sub(margin)).into_iter().enumerate() {
        if let Some(place) = weights.get_mut(margin + i) {
            *place *= weight;
        }
    }
    for (i, weight) in ramp(overlap.min(after).saturating_sub(margin)).into_iter().enumerate() {
        if let Some(place) = valid.checked_sub(margin + i + 1).and_then(|place| weights.get_mut(place)) {
            *place *= weight;
        }
    }
    for weight in &mut weights {
        *weight = weight.max(floor);
    }
    if before > 0 {
        weights.iter_mut().take(margin).for_each(|weight| *weight = 0.0);
    }
    if after > 0 {
        weights.iter_mut().rev().take(margin).for_each(|weight| *weight = 0.0);
    }
    weights
}

/// What a patch keeps of itself when `trim` voxels are cut from its inner faces: a range inside the box.
#[must_use]
pub fn trim_range(start: usize, valid: usize, length: usize, trim: usize) -> Range<usize> {
    let low = if start > 0 { start + trim } else { start };
    let end = start + valid;
    let high = if end < length { end.saturating_sub(trim) } else { end };
    low..high.max(low)
}

/// The shares of the patches at `starts` over `bounds`, normalised, in the order of `starts`; `patch` numbers count from
/// zero. Patches that give nothing are absent. `None` if some voxel of `bounds` gets nothing.
pub(crate) fn shares(bounds: &Range<usize>, starts: &[usize], patch: usize, seam: AxisSeam) -> Option<Vec<Share>> {
    let raw: Vec<Vec<f32>> = starts
        .iter()
        .map(|&start| raw_weights(start - bounds.start, patch.min(bounds.end - start), bounds.len(), seam))
        .collect();
    let mut sums = vec![0.0_f64; bounds.len()];
    let mut owner = vec![usize::MAX; bounds.len()];
    for (index, (&start, weights)) in starts.iter().zip(&raw).enumerate() {
        for (i, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            sums[start - bounds.start + i] += f64::from(weight);
            owner[start - bounds.start + i] = index;
        }
    }
    let last_wins = matches!(seam, AxisSeam::Trim { .. });
    let normalised = starts.iter().zip(raw).enumerate().filter_map(|(index, (&start, weights))| {
        let place = |i: usize| start - bounds.start + i;
        let weights = weights.into_iter().enumerate().map(|(i, weight)| match last_wins {
            true => f32::from(u8::from(owner[place(i)] == index)),
            false if weight > 0.0 => (f64::from(weight) / sums[place(i)]) as f32,
            false => 0.0,
        });
        share(index, start, &weights.collect::<Vec<_>>())
    });
    let shares = normalised.collect();
    (!owner.contains(&usize::MAX)).then_some(shares)
}

fn raw_weights(start: usize, valid: usize, length: usize, seam: AxisSeam) -> Vec<f32> {
    match seam {
        AxisSeam::Trim { voxels } => {
            let kept = trim_range(start, valid, length, voxels);
            (start..start + valid).map(|voxel| f32::from(u8::from(kept.contains(&voxel)))).collect()
        }
        AxisSeam::Blend { overlap, floor, margin } => blend_weights(start, valid, length, overlap, floor, margin),
    }
}

/// The share without the voxels at both ends that have no weight; `None` if nothing is left.
fn share(patch: usize, start: usize, weights: &[f32]) -> Option<Share> {
    let first = weights.iter().position(|weight| *weight > 0.0)?;
    let last = weights.iter().rposition(|weight| *weight > 0.0)?;
    Some(Share { patch, start, range: start + first..start + last + 1, weights: weights[first..=last].to_vec() })
}

impl Share {
    /// The part of the share inside `span`; `None` if there is none.
    pub(crate) fn within(&self, span: &Range<usize>) -> Option<Self> {
        let range = self.range.start.max(span.start)..self.range.end.min(span.end);
        let weights =
            self.weights.get(range.start.checked_sub(self.range.start)?..range.end.checked_sub(self.range.start)?)?;
        (!range.is_empty()).then(|| Self { weights: weights.to_vec(), range, ..*self })
    }
}
