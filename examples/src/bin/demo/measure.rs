//! How noisy a tomogram is, and where its grey values lie.

use crate::tomogram::Tomogram;

/// The standard deviation of the difference of neighbouring slices. Structures reach over several slices and mostly cancel; noise is
/// independent from slice to slice and counts twice, in variance.
pub(crate) fn slice_noise(tomogram: &Tomogram) -> f64 {
    let neighbours = tomogram.slices().zip(tomogram.slices().skip(1));
    let differences = neighbours.flat_map(|(here, next)| {
        here.voxels.iter().zip(next.voxels).map(|(here, next)| f64::from(*next) - f64::from(*here))
    });
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for difference in differences {
        count += 1.0;
        sum += difference;
        squares += difference * difference;
    }
    (squares / count - (sum / count) * (sum / count)).sqrt()
}

/// The percentiles `q` (0 to 100) of `voxels`, to the nearest rank.
pub(crate) fn percentiles(voxels: &[f32], q: [f64; 2]) -> [f32; 2] {
    let mut sorted = voxels.to_vec();
    sorted.sort_by(f32::total_cmp);
    let last = sorted.len().saturating_sub(1);
    q.map(|q| sorted.get((last as f64 * q / 100.0).round() as usize).copied().unwrap_or(0.0))
}
