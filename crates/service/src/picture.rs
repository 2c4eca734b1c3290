//! A slice as a grey picture.

use crate::runner::Slice;

/// Shares of the values that are black and white.
const BLACK: f64 = 0.005;
const WHITE: f64 = 0.995;

/// The slice as a PNG, eight bits of grey: from the half per cent of its darkest values to that of its brightest. What is no number is
/// black.
///
/// # Errors
/// A sentence, if the slice has another size than it says.
pub(crate) fn png(slice: &Slice) -> Result<Vec<u8>, String> {
    let [low, high] = window(&slice.values);
    let span = if high > low { high - low } else { 1.0 };
    // A float that is no number becomes 0, and one beyond the bounds becomes the bound.
    let grey: Vec<u8> = slice.values.iter().map(|value| (255.0 * (value - low) / span).round() as u8).collect();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, slice.width, slice.height);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&grey));
    written.map_err(|error| format!("the slice cannot be drawn: {error}"))?;
    Ok(file)
}

fn window(values: &[f32]) -> [f32; 2] {
    let mut finite: Vec<f32> = values.iter().copied().filter(|value| value.is_finite()).collect();
    if finite.is_empty() {
        return [0.0, 1.0];
    }
    let last = finite.len() - 1;
    [BLACK, WHITE].map(|share| {
        let place = (share * last as f64).round() as usize;
        *finite.select_nth_unstable_by(place.min(last), f32::total_cmp).1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixels(values: Vec<f32>) -> Vec<u8> {
        let file = png(&Slice { width: values.len() as u32, height: 1, values }).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        pixels
    }

    #[test]
    fn the_darkest_is_black_and_the_brightest_white() {
        assert_eq!(pixels(vec![100.0, 200.0, 300.0]), [0, 128, 255]);
        assert_eq!(pixels(vec![7.0, 7.0]), [0, 0]);
        assert_eq!(pixels(vec![f32::NAN, 0.0, f32::INFINITY, 1.0]), [0, 0, 255, 255]);
        assert!(png(&Slice { width: 2, height: 2, values: vec![1.0] }).is_err());
    }
}
