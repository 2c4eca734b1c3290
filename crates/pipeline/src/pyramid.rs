//! Coarser levels: each voxel from those of the level before that it covers, as they are stored.

use bytemuck::Pod;
use half::f16;
use haloflow_geometry::{Box3, Zyx};
use haloflow_volume::{AlignedBytes, Element, Levels, Window};
use rayon::prelude::*;

use crate::sample::{Sample, with_samples};

/// The pyramid of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pyramid {
    /// How many levels.
    pub levels: Levels,
    /// How a voxel is made from those that it covers.
    pub method: Downsampling,
}

/// How a voxel is made from those that it covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Downsampling {
    /// Their mean; integers are rounded to the nearest, halves to the even one. For intensities.
    #[default]
    Mean,
    /// The most frequent value, of several the greatest. For labels.
    Mode,
    /// The greatest. For masks.
    Max,
}

/// What a tile covers on a level of which one voxel stands for `factors` voxels.
pub(crate) fn covered(tile: Box3, factors: Zyx) -> Box3 {
    Box3::new(
        std::array::from_fn(|axis| tile.start[axis] / factors[axis]),
        std::array::from_fn(|axis| tile.stop[axis].div_ceil(factors[axis])),
    )
}

/// The voxels of a box of `shape`, made coarser by `steps` (1 or 2 along each axis). Voxels at the end of an odd axis stand for what
/// there is. Runs on all threads of the current pool.
pub fn coarsen(element: Element, bytes: &[u8], shape: Zyx, steps: Zyx, method: Downsampling) -> AlignedBytes {
    with_samples!(element, bytes, voxels => coarsened(voxels, shape, steps, method))
}

fn coarsened<T: Reduce>(voxels: &[T], shape: Zyx, steps: Zyx, method: Downsampling) -> AlignedBytes {
    let [depth, height, width]: Zyx = std::array::from_fn(|axis| shape[axis].div_ceil(steps[axis]));
    let mut out = AlignedBytes::zeroed(depth * height * width * size_of::<T>());
    let reduce = match method {
        Downsampling::Mean => T::mean,
        Downsampling::Mode => mode,
        Downsampling::Max => greatest,
    };
    out.as_mut_slice::<T>().par_chunks_mut((height * width).max(1)).enumerate().for_each(|(z, plane)| {
        for (place, voxel) in plane.iter_mut().enumerate() {
            let at = [z, place / width, place % width];
            let mut covered = [T::zeroed(); 8];
            let mut count = 0;
            let range = |axis: usize| at[axis] * steps[axis]..((at[axis] + 1) * steps[axis]).min(shape[axis]);
            for z in range(0) {
                for y in range(1) {
                    for x in range(2) {
                        covered[count] = voxels[(z * shape[1] + y) * shape[2] + x];
                        count += 1;
                    }
                }
            }
            *voxel = reduce(&covered[..count]);
        }
    });
    out
}

/// A kind of voxel that can be averaged.
trait Reduce: Pod + PartialOrd + Send + Sync {
    /// The mean of one to eight values.
    fn mean(values: &[Self]) -> Self;
}

macro_rules! integers {
    ($($kind:ty, $wide:ty);+) => {$(
        impl Reduce for $kind {
            fn mean(values: &[Self]) -> Self {
                let count = values.len() as $wide;
                let sum: $wide = values.iter().map(|value| <$wide>::from(*value)).sum();
                let (below, rest) = (sum.div_euclid(count), 2 * sum.rem_euclid(count));
                let up = rest > count || (rest == count && below % 2 != 0);
                // A mean lies between its values.
                (below + <$wide>::from(up)) as Self
            }
        }
    )+};
}

macro_rules! floats {
    ($($kind:ty),+) => {$(
        impl Reduce for $kind {
            fn mean(values: &[Self]) -> Self {
                (values.iter().map(|value| f64::from(*value)).sum::<f64>() / values.len() as f64) as Self
            }
        }
    )+};
}

integers!(u8, i32; i8, i32; u16, i32; i16, i32; u32, i64; i32, i64; u64, i128; i64, i128);
floats!(f32, f64);

impl Reduce for f16 {
    fn mean(values: &[Self]) -> Self {
        Self::from_f64(values.iter().map(|value| f64::from(*value)).sum::<f64>() / values.len() as f64)
    }
}

fn mode<T: Reduce>(values: &[T]) -> T {
    let votes = |value: &T| values.iter().filter(|other| *other == value).count();
    values
        .iter()
        .copied()
        .reduce(|best, value| {
            let (more, same) = (votes(&value) > votes(&best), votes(&value) == votes(&best));
            if more || (same && value > best) { value } else { best }
        })
        .unwrap_or_else(T::zeroed)
}

fn greatest<T: Reduce>(values: &[T]) -> T {
    values.iter().copied().reduce(|best, value| if value > best { value } else { best }).unwrap_or_else(T::zeroed)
}

/// The range of the finite values that are stored.
pub(crate) fn window(element: Element, bytes: &[u8]) -> Window {
    with_samples!(element, bytes, voxels => window_of(voxels))
}

fn window_of<T: Sample>(voxels: &[T]) -> Window {
    if T::TABLE == 0 || voxels.is_empty() {
        let values = voxels.iter().map(|voxel| f64::from(voxel.to_f32())).filter(|value| value.is_finite());
        return values.map(Window::of).fold(Window::EMPTY, Window::and);
    }
    // Small integers: always finite, and in lanes that a processor compares together.
    let (mut least, mut greatest) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
    for voxels in voxels.chunks(LANES) {
        for ((voxel, least), greatest) in voxels.iter().zip(&mut least).zip(&mut greatest) {
            let value = voxel.to_f32();
            *least = if value < *least { value } else { *least };
            *greatest = if value > *greatest { value } else { *greatest };
        }
    }
    Window {
        least: least.into_iter().fold(f32::INFINITY, f32::min).into(),
        greatest: greatest.into_iter().fold(f32::NEG_INFINITY, f32::max).into(),
    }
}

/// Values that are compared together.
const LANES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn coarse<T: Pod>(element: Element, voxels: &[T], shape: Zyx, steps: Zyx, method: Downsampling) -> Vec<T> {
        coarsen(element, bytemuck::cast_slice(voxels), shape, steps, method).as_slice::<T>().to_vec()
    }

    #[test]
    fn means_are_rounded_to_the_nearest_and_halves_to_the_even() {
        let voxels: [u8; 8] = [1, 2, 1, 1, 255, 255, 3, 4];
        assert_eq!(coarse(Element::U8, &voxels, [1, 1, 8], [1, 1, 2], Downsampling::Mean), [2, 1, 255, 4]);
        let voxels: [i16; 6] = [-1, -2, -3, -4, -5, 7];
        assert_eq!(coarse(Element::I16, &voxels, [1, 2, 3], [1, 2, 2], Downsampling::Mean), [-3, 2]);
        let voxels = [u64::MAX; 8];
        assert_eq!(coarse(Element::U64, &voxels, [2; 3], [2; 3], Downsampling::Mean), [u64::MAX]);
        let voxels = [0.5_f32, 1.0, 3.0];
        assert_eq!(coarse(Element::F32, &voxels, [3, 1, 1], [2, 1, 1], Downsampling::Mean), [0.75, 3.0]);
    }

    #[test]
    fn labels_keep_their_values() {
        let voxels: [u8; 8] = [0, 0, 0, 7, 7, 7, 9, 0];
        assert_eq!(coarse(Element::U8, &voxels, [2; 3], [2; 3], Downsampling::Mode), [0]);
        assert_eq!(coarse(Element::U8, &voxels, [2; 3], [2; 3], Downsampling::Max), [9]);
        assert_eq!(coarse(Element::U8, &voxels[..4], [1, 2, 2], [1, 1, 2], Downsampling::Mode), [0, 7]);
    }

    #[test]
    fn windows_hold_all_finite_values() {
        let voxels = [f32::NAN, 2.0, f32::INFINITY, -3.0];
        let all = Window { least: -3.0, greatest: 2.0 };
        assert_eq!(window(Element::F32, bytemuck::cast_slice(&voxels)), all);
        assert_eq!(window(Element::F32, bytemuck::cast_slice(&voxels[..1])), Window::EMPTY);
        let mut voxels: Vec<i16> = (0..100).collect();
        (voxels[37], voxels[99]) = (-3, 1000);
        assert_eq!(window(Element::I16, bytemuck::cast_slice(&voxels)), Window { least: -3.0, greatest: 1000.0 });
        assert_eq!(window(Element::I16, &AlignedBytes::default()), Window::EMPTY);
    }

    #[test]
    fn tiles_cover_whole_voxels_of_a_level() {
        let tile = Box3::new([0, 64, 64], [37, 128, 101]);
        assert_eq!(covered(tile, [4, 4, 4]), Box3::new([0, 16, 16], [10, 32, 26]));
    }
}
