//! The demo's volume in memory, as it comes from a TIFF.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use tiff::decoder::{Decoder, DecodingResult};

/// A volume of f32 voxels.
pub(crate) struct Tomogram {
    /// Size z, y, x, voxels.
    pub(crate) shape: [usize; 3],
    /// The voxels, C order.
    pub(crate) voxels: Vec<f32>,
}

/// One slice of a tomogram.
#[derive(Clone, Copy)]
pub(crate) struct Slice<'a> {
    pub(crate) width: usize,
    /// The voxels, C order.
    pub(crate) voxels: &'a [f32],
}

impl Tomogram {
    /// Reads a TIFF whose pages are the slices, f32 and all of one size.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
        Self::decode(BufReader::new(file)).with_context(|| format!("{} cannot be read", path.display()))
    }

    fn decode(file: BufReader<File>) -> Result<Self> {
        let mut decoder = Decoder::new(file)?;
        let (width, height) = decoder.dimensions()?;
        let (mut voxels, mut depth) = (Vec::new(), 0);
        loop {
            ensure!(decoder.dimensions()? == (width, height), "its slices differ in size");
            let DecodingResult::F32(slice) = decoder.read_image()? else { bail!("its voxels are not f32") };
            voxels.extend(slice);
            depth += 1;
            if !decoder.more_images() {
                return Ok(Self { shape: [depth, height as usize, width as usize], voxels });
            }
            decoder.next_image()?;
        }
    }

    /// The slices, first to last.
    pub(crate) fn slices(&self) -> impl Iterator<Item = Slice<'_>> {
        let [_, height, width] = self.shape;
        self.voxels.chunks_exact(height * width).map(move |voxels| Slice { width, voxels })
    }

    /// The slice in the middle.
    pub(crate) fn middle(&self) -> Slice<'_> {
        let nothing = Slice { width: 0, voxels: &[] };
        self.slices().nth(self.shape[0] / 2).unwrap_or(nothing)
    }
}
