//! A folder with a small volume in it, and a command line that works.

use std::path::PathBuf;

use haloflow_geometry::{Box3, Zyx};
use tempfile::TempDir;

use crate::binary::Haloflow;
use crate::golden::noise;
use crate::golden_model;
use crate::image::Image;
use crate::zarr::Array;

/// A folder that is gone when the test is done.
#[derive(Debug)]
pub struct Scene {
    folder: TempDir,
}

impl Scene {
    /// An empty folder.
    #[must_use]
    pub fn empty() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// A folder with `in.zarr`: an image of 24 x 33 x 40 u16 voxels that look like noise.
    #[must_use]
    pub fn new() -> Self {
        Self::of(SHAPE, &noisy(SHAPE))
    }

    /// A folder with `in.zarr`: an image of these voxels, in chunks of 16 x 16 x 16.
    #[must_use]
    pub fn of(shape: Zyx, voxels: &[u16]) -> Self {
        let scene = Self::empty();
        volume(shape).write(&scene.path("in.zarr"), voxels);
        scene
    }

    /// A path in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the identity over `in.zarr` into `out.zarr`, in patches of 16 x 16 x 16. Any key may be set anew.
    #[must_use]
    pub fn job(&self) -> Haloflow {
        Haloflow::run()
            .key("--in", self.path("in.zarr"))
            .key("--out", self.path("out.zarr"))
            .key("--model", golden_model("identity"))
            .keys("--devices cpu --patch 16 --overlap 4 --trim-voxels 2 --normalize false")
    }
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

/// The size of a scene's volume.
pub const SHAPE: Zyx = [24, 33, 40];

/// An image with the axes z, y, x and chunks of 16 x 16 x 16.
#[must_use]
pub fn volume(shape: Zyx) -> Image {
    let micrometer = Some("micrometer");
    Image {
        axes: vec![("z", micrometer, 2.0), ("y", micrometer, 0.5), ("x", micrometer, 0.5)],
        array: Array::new(&shape, &[16; 3], "uint16"),
    }
}

/// Voxels that look like noise, from 0 to 3999.
#[must_use]
pub fn noisy(shape: Zyx) -> Vec<u16> {
    (0..shape.iter().product()).map(|i| (noise(11, i) % 4000) as u16).collect()
}

/// Noise with one voxel of 65535.
#[must_use]
pub fn with_bright_voxel(shape: Zyx, [z, y, x]: Zyx) -> Vec<u16> {
    let mut voxels = noisy(shape);
    voxels[(z * shape[1] + y) * shape[2] + x] = u16::MAX;
    voxels
}

/// What the golden model `box3` makes of a whole volume at once: the mean of the 3 x 3 x 3 voxels around each voxel, with zeros
/// outside, rounded. No mean of 27 whole numbers lies near a half, so rounding in another order changes nothing.
#[must_use]
pub fn box3(voxels: &[u16], shape: Zyx) -> Vec<u16> {
    let [depth, height, width] = shape;
    let around = |index: usize, size: usize| index.saturating_sub(1)..(index + 2).min(size);
    let mean = |[z, y, x]: Zyx| {
        let mut sum = 0;
        for z in around(z, depth) {
            for y in around(y, height) {
                sum += around(x, width).map(|x| u32::from(voxels[(z * height + y) * width + x])).sum::<u32>();
            }
        }
        ((2 * sum + 27) / 54) as u16
    };
    Box3::of_shape(shape).indices().map(mean).collect()
}
