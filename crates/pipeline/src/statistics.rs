//! Percentiles, means and standard deviations of voxels, exact and in one or two passes over the data.
//!
//! Values are f32. Ranks are found by counting: first the upper sixteen bits of an order-preserving key, then the lower sixteen
//! bits of the few keys that matter. For data of sixteen bits or fewer the first pass is the last.
//! NaN has no rank and infinity no place between two values: both are left out.

use haloflow_volume::Element;
use rayon::prelude::*;

use crate::sample::{Sample, with_samples};

/// An order-preserving key of an f32: `a < b` exactly if `key(a) < key(b)`, for all but NaN (and −0 comes before 0).
fn key(value: f32) -> u32 {
    let bits = value.to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

fn value(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 { key & !(1 << 31) } else { !key })
}

/// Counts of the values seen, by the upper half of their key.
#[derive(Clone, Debug)]
pub struct Counts {
    upper: Vec<u64>,
    total: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Self { upper: vec![0; 1 << 16], total: 0 }
    }
}

/// The interpolated percentile of numpy's `linear` method: rank `v = (n-1) q/100`, `k = floor v`, `g = v - k`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rank {
    below: u64,
    fraction: f64,
}

impl Counts {
    /// Counts the values of `data`.
    pub fn add(&mut self, data: &impl Visit) {
        data.visit(|value, times| {
            if value.is_finite() {
                self.upper[(key(value) >> 16) as usize] += times;
                self.total += times;
            }
        });
    }

    /// Adds what another pass over other data counted.
    pub fn merge(&mut self, other: &Self) {
        self.total += other.total;
        for (sum, part) in self.upper.iter_mut().zip(&other.upper) {
            *sum += part;
        }
    }

    /// What a second pass must count so that the percentiles `q` (0 to 100) are exact. `None` if there are no values.
    #[must_use]
    pub fn refine(&self, q: [f64; 2]) -> Option<Refinement> {
        let last = self.total.checked_sub(1)?;
        let ranks = q.map(|q| {
            let virtual_rank = last as f64 * (q / 100.0);
            let below = (virtual_rank.floor() as u64).min(last);
            Rank { below, fraction: if below == last { 0.0 } else { virtual_rank - virtual_rank.floor() } }
        });
        let wanted = ranks.map(|rank| [rank.below, (rank.below + 1).min(last)]);
        let places = wanted.map(|pair| pair.map(|rank| self.place(rank)));
        let mut buckets: Vec<u16> = places.iter().flatten().map(|place| place.0).collect();
        buckets.sort_unstable();
        buckets.dedup();
        let lower = vec![vec![0; 1 << 16]; buckets.len()];
        Some(Refinement { ranks, places, buckets, lower })
    }

    /// The upper half of the key of the value at `rank`, and the value's rank among those with the same upper half.
    fn place(&self, rank: u64) -> (u16, u64) {
        let mut left = rank;
        for (upper, &count) in self.upper.iter().enumerate() {
            if left < count {
                return (upper as u16, left);
            }
            left -= count;
        }
        (u16::MAX, 0)
    }
}

/// The second pass: counts by the lower half of the key, for the few upper halves that matter.
#[derive(Clone, Debug)]
pub struct Refinement {
    ranks: [Rank; 2],
    places: [[(u16, u64); 2]; 2],
    buckets: Vec<u16>,
    lower: Vec<Vec<u64>>,
}

impl Refinement {
    /// Counts the values of `data`: the same ones that the first pass saw, in any order.
    pub fn add(&mut self, data: &impl Visit) {
        data.visit(|value, times| {
            let key = key(value);
            if let (true, Ok(bucket)) = (value.is_finite(), self.buckets.binary_search(&((key >> 16) as u16))) {
                self.lower[bucket][(key & 0xFFFF) as usize] += times;
            }
        });
    }

    /// Adds what another second pass over other data counted.
    pub fn merge(&mut self, other: &Self) {
        for (sums, parts) in self.lower.iter_mut().zip(&other.lower) {
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum += part;
            }
        }
    }

    /// The two percentiles.
    #[must_use]
    pub fn percentiles(&self) -> [f64; 2] {
        std::array::from_fn(|i| {
            let [below, above] = self.places[i].map(|place| self.value(place));
            interpolate(below, above, self.ranks[i].fraction)
        })
    }

    fn value(&self, (upper, rank): (u16, u64)) -> f32 {
        let mut left = rank;
        let counts = self.buckets.binary_search(&upper).map_or(&[][..], |bucket| &self.lower[bucket]);
        let lower = counts.iter().position(|&count| {
            let here = left < count;
            left = left.saturating_sub(count);
            here
        });
        value(u32::from(upper) << 16 | lower.unwrap_or(0) as u32)
    }
}

/// Linear interpolation between two neighbouring values as numpy rounds it: the difference in f32, the rest in f64, from the
/// nearer end.
#[must_use]
pub fn interpolate(below: f32, above: f32, fraction: f64) -> f64 {
    let difference = f64::from(above - below);
    if fraction < 0.5 {
        f64::from(below) + difference * fraction
    } else {
        f64::from(above) - difference * (1.0 - fraction)
    }
}

/// The percentiles `q` (0 to 100) of the values of `data`, exact. `None` if there are no values.
pub fn percentiles(data: &impl Visit, q: [f64; 2]) -> Option<[f64; 2]> {
    let mut counts = Counts::default();
    counts.add(data);
    let mut refinement = counts.refine(q)?;
    refinement.add(data);
    Some(refinement.percentiles())
}

/// Voxels of some element kind, seen as f32.
#[derive(Clone, Copy, Debug)]
pub struct Voxels<'a> {
    /// The element kind.
    pub element: Element,
    /// The voxels, native endianness, aligned for their kind.
    pub bytes: &'a [u8],
}

/// Something that has values, each some number of times.
pub trait Visit {
    /// Gives every value, as f32, and how often it stands there.
    fn visit(&self, visitor: impl FnMut(f32, u64));
}

impl Visit for Voxels<'_> {
    /// Data of few different values is counted first, and each value is given once.
    fn visit(&self, mut visitor: impl FnMut(f32, u64)) {
        match Tally::of(self) {
            Some(tally) => tally.visit(visitor),
            None => with_samples!(self.element, self.bytes, samples => {
                samples.iter().for_each(|sample| visitor(sample.to_f32(), 1));
            }),
        }
    }
}

/// How often each value stands in data of at most sixteen bits.
#[derive(Clone, Debug)]
pub struct Tally {
    values: Vec<f32>,
    counts: Vec<u64>,
}

impl Tally {
    /// Whether `element` has few enough values.
    #[must_use]
    pub const fn suits(element: Element) -> bool {
        matches!(element, Element::U8 | Element::I8 | Element::U16 | Element::I16)
    }

    /// Counts the values of `data`, on all threads of the current pool; `None` if its kind has too many.
    #[must_use]
    pub fn of(data: &Voxels<'_>) -> Option<Self> {
        with_samples!(data.element, data.bytes, samples => Self::of_samples(samples))
    }

    fn of_samples<T: Sample>(samples: &[T]) -> Option<Self> {
        if T::TABLE == 0 {
            return None;
        }
        let values = (0..T::TABLE).map(|index| T::at(index).to_f32()).collect();
        let none = || Self { values: Vec::new(), counts: vec![0; T::TABLE] };
        let parts = samples.par_chunks(PART).map(|part| Self { values: Vec::new(), counts: counts(part) });
        let all = parts.reduce(none, |mut all, part| {
            all.merge(&part);
            all
        });
        Some(Self { values, ..all })
    }

    /// Adds what was counted in other data of the same kind.
    pub fn merge(&mut self, other: &Self) {
        for (sum, part) in self.counts.iter_mut().zip(&other.counts) {
            *sum += part;
        }
    }
}

/// Voxels that are counted in one go; so few that 32 bits hold their number.
const PART: usize = 1 << 20;

/// How often each value of the table stands in at most [`PART`] samples. Neighbours are often equal, and are counted in two tables in
/// turn, so that one need not wait for the other.
fn counts<T: Sample>(samples: &[T]) -> Vec<u64> {
    let (mut even, mut odd) = (vec![0_u32; T::TABLE], vec![0_u32; T::TABLE]);
    let pairs = samples.chunks_exact(2);
    pairs.remainder().iter().for_each(|last| even[last.index()] += 1);
    for pair in pairs {
        even[pair[0].index()] += 1;
        odd[pair[1].index()] += 1;
    }
    even.iter().zip(&odd).map(|(&even, &odd)| u64::from(even) + u64::from(odd)).collect()
}

impl Visit for Tally {
    fn visit(&self, mut visitor: impl FnMut(f32, u64)) {
        for (&value, &count) in self.values.iter().zip(&self.counts).filter(|(_, count)| **count > 0) {
            visitor(value, count);
        }
    }
}

/// Number, mean and sum of squared differences, merged by the formula of Chan, Golub and LeVeque (1979).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    /// The moments of the finite values of `data`, in f64: the mean first, then the squares around it.
    #[must_use]
    pub fn of(data: &impl Visit) -> Self {
        let (mut count, mut sum) = (0.0, 0.0);
        data.visit(|value, times| {
            if value.is_finite() {
                count += times as f64;
                sum += f64::from(value) * times as f64;
            }
        });
        let mean = if count > 0.0 { sum / count } else { 0.0 };
        let mut squares = 0.0;
        data.visit(|value, times| {
            if value.is_finite() {
                squares += (f64::from(value) - mean).powi(2) * times as f64;
            }
        });
        Self { count, mean, squares }
    }

    /// The moments of both sets of values.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let count = self.count + other.count;
        if count == 0.0 {
            return self;
        }
        let difference = other.mean - self.mean;
        Self {
            count,
            mean: self.mean + difference * other.count / count,
            squares: self.squares + other.squares + difference.powi(2) * self.count * other.count / count,
        }
    }

    /// Mean and standard deviation of the population. `None` if there are no values.
    #[must_use]
    pub fn mean_and_deviation(self) -> Option<[f64; 2]> {
        (self.count > 0.0).then(|| [self.mean, (self.squares / self.count).sqrt()])
    }
}

#[cfg(test)]
mod tests;
