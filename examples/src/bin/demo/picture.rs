//! Two slices side by side, as a PNG.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result};

use crate::tomogram::Slice;

/// Pixels along each side of a voxel.
const ZOOM: usize = 3;

/// White pixels between the slices.
const GAP: usize = 12;

/// Draws slices of equal size from left to right, all in one grey window: its lower end is black, its upper end white.
pub(crate) fn draw(slices: [Slice<'_>; 2], window: [f32; 2], path: &Path) -> Result<()> {
    let [left, right] = slices;
    let rows = left.voxels.chunks_exact(left.width).zip(right.voxels.chunks_exact(right.width));
    let mut pixels = Vec::new();
    for (left, right) in rows {
        let zoomed = |row: &[f32]| row.iter().flat_map(|&voxel| [grey(voxel, window); ZOOM]).collect::<Vec<u8>>();
        let line = [zoomed(left), vec![u8::MAX; GAP], zoomed(right)].concat();
        pixels.extend(line.repeat(ZOOM));
    }
    let width = (left.width + right.width) * ZOOM + GAP;
    save(&pixels, width, path).with_context(|| format!("the picture {} cannot be written", path.display()))
}

fn grey(voxel: f32, [black, white]: [f32; 2]) -> u8 {
    // The cast saturates.
    ((voxel - black) / (white - black) * f32::from(u8::MAX)).round() as u8
}

fn save(pixels: &[u8], width: usize, path: &Path) -> Result<()> {
    let file = BufWriter::new(File::create(path)?);
    let mut encoder = png::Encoder::new(file, u32::try_from(width)?, u32::try_from(pixels.len() / width)?);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(pixels)?;
    Ok(())
}
