//! Synthetic volumes.

use anyhow::Result;
use haloflow_examples::volume::NewVolume;
use haloflow_geometry::{Box3, Zyx};
use haloflow_volume::{AlignedBytes, CpuPool, Element, Environment};
use rayon::prelude::*;

/// A cube of u16 voxels, each a function of its place.
#[derive(Clone, Copy)]
pub(crate) struct Synthetic {
    /// Voxels along each side.
    pub(crate) size: usize,
    /// Size of a chunk, voxels.
    pub(crate) chunk: Zyx,
    /// The voxel at a place, z y x.
    pub(crate) voxel: fn(Zyx) -> u16,
}

impl Synthetic {
    pub(crate) const fn shape(self) -> Zyx {
        [self.size; 3]
    }

    /// Writes the volume to `url`, a layer of chunks at a time.
    pub(crate) async fn write(self, url: &str, cpu: &CpuPool) -> Result<()> {
        let new = NewVolume { url: url.to_owned(), shape: self.shape(), element: Element::U16, chunk: self.chunk };
        let writer = new.create(&Environment::empty(), cpu).await?;
        let whole = Box3::of_shape(self.shape());
        let layer = [self.chunk[0], self.size, self.size];
        for cell in whole.cells(layer).indices() {
            let region = Box3::of_cell(cell, layer).intersect(&whole);
            let voxels = cpu.run(move || AlignedBytes::from_slice(&voxels(region, self.voxel))).await?;
            writer.write(region, vec![voxels]).await?;
        }
        Ok(())
    }
}

/// The voxels of a region, C order.
pub(crate) fn voxels(region: Box3, voxel_at: fn(Zyx) -> u16) -> Vec<u16> {
    let [_, height, width] = region.shape();
    let mut voxels = vec![0; region.voxels()];
    voxels.par_chunks_mut(width).enumerate().for_each(|(row, out)| {
        let (z, y) = (region.start[0] + row / height, region.start[1] + row % height);
        for (x, voxel) in (region.start[2]..).zip(out) {
            *voxel = voxel_at([z, y, x]);
        }
    });
    voxels
}

/// Draws from a gamma distribution of shape 2, times 60: sums of two exponential ones.
pub(crate) fn gamma(place: Zyx) -> u16 {
    let bits = random(place);
    let uniform = |bits: u64| ((bits & 0xFFFF_FFFF) as f64 + 1.0) / 4_294_967_296.0;
    (-60.0 * (uniform(bits) * uniform(bits >> 32)).ln()) as u16
}

fn random(place: Zyx) -> u64 {
    scrambled((place[0] as u64) << 42 | (place[1] as u64) << 21 | place[2] as u64)
}

/// The finaliser of the generator `splitmix64` (Steele, Lea and Flood, 2014).
const fn scrambled(seed: u64) -> u64 {
    let seed = (seed ^ seed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let seed = (seed ^ seed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    seed ^ seed >> 31
}
