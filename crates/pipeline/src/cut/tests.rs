use half::{bf16, f16};
use haloflow_geometry::Box3;
use haloflow_volume::{AlignedBytes, Element};
use proptest::prelude::*;

use super::*;

/// numpy's `pad(mode="reflect")` on the high side: whole mirror images, one after the other.
fn reflected_like_numpy(valid: usize, size: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..valid).collect();
    while places.len() < size {
        let end = places.len();
        match valid {
            1 => places.push(0),
            _ => places.extend((1..valid).map(|back| places[end - 1 - back]).collect::<Vec<_>>()),
        }
    }
    places.truncate(size);
    places
}

fn sources(padding: Padding, valid: usize, size: usize) -> Vec<Option<usize>> {
    (0..size).map(|i| padding.source(i, valid)).collect()
}

#[test]
fn paddings_reach_past_the_data_as_numpy_does() {
    // numpy.pad(arange(4), (0, 8), "reflect")
    assert_eq!(reflected_like_numpy(4, 12), [0, 1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1]);
    for valid in 1..7 {
        for size in valid..4 * valid + 3 {
            let expected: Vec<_> = reflected_like_numpy(valid, size).into_iter().map(Some).collect();
            assert_eq!(sources(Padding::Reflect, valid, size), expected, "valid {valid} of {size}");
        }
    }
    assert_eq!(sources(Padding::Reflect, 2, 5), [0, 1, 0, 1, 0].map(Some));
    assert_eq!(sources(Padding::Edge, 2, 4), [0, 1, 1, 1].map(Some));
    assert_eq!(sources(Padding::Zero, 2, 4), [Some(0), Some(1), None, None]);
}

/// A brick whose voxels are the numbers 1, 2, … plus 1000 for each channel.
fn brick(region: Box3, channels: usize) -> Brick {
    let of = |channel: usize| -> Vec<u16> { (0..region.voxels()).map(|i| (1 + i + 1000 * channel) as u16).collect() };
    let channels = (0..channels).map(|channel| AlignedBytes::from_slice(&of(channel))).collect();
    Brick { region, element: Element::U16, channels }
}

fn cut_f32(brick: &Brick, patch: &Patch, normalisers: &[Normaliser], size: Zyx, padding: Padding) -> Vec<f32> {
    let mut row = AlignedBytes::zeroed(brick.channels.len() * size.iter().product::<usize>() * 4);
    row.fill(0xA5);
    cut(brick, patch, normalisers, &Cutting { size, padding, kind: ElementKind::F32 }, &mut row);
    row.as_slice().to_vec()
}

#[test]
fn zero_padding_is_zero_after_normalising() {
    let brick = brick(Box3::new([0; 3], [1, 1, 2]), 2);
    let normalisers = [Normaliser::shift_and_scale(1.0, 2.0, 1e-6), Normaliser::identity()];
    let patch = Patch { start: [0; 3], valid: [1, 1, 2] };
    let row = cut_f32(&brick, &patch, &normalisers, [1, 2, 3], Padding::Zero);
    assert_eq!(row, [0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 1001.0, 1002.0, 0.0, 0.0, 0.0, 0.0]);
    let row = cut_f32(&brick, &patch, &normalisers, [1, 2, 3], Padding::Edge);
    assert_eq!(row[..6], [0.0, 0.5, 0.5, 0.0, 0.5, 0.5]);
}

#[test]
fn halves_are_rounded_to_nearest_even() {
    let region = Box3::of_shape([1, 1, 3]);
    let values = [1.0_f32 / 3.0, 2049.0, 70000.0];
    let brick = Brick { region, element: Element::F32, channels: vec![AlignedBytes::from_slice(&values)] };
    let patch = Patch { start: [0; 3], valid: [1, 1, 3] };
    for kind in [ElementKind::F16, ElementKind::Bf16] {
        let mut row = AlignedBytes::zeroed(8);
        let cutting = Cutting { size: [1, 1, 4], padding: Padding::Zero, kind };
        cut(&brick, &patch, &[Normaliser::identity()], &cutting, &mut row);
        let expected: Vec<u16> = values
            .iter()
            .chain([&0.0])
            .map(|&value| match kind {
                ElementKind::F16 => f16::from_f32(value).to_bits(),
                _ => bf16::from_f32(value).to_bits(),
            })
            .collect();
        assert_eq!(row.as_slice::<u16>(), expected, "{kind}");
    }
}

#[test]
fn rows_that_are_brought_together_in_several_goes_are_those_of_one() {
    let size = [3, 70, 70];
    let patch = Patch { start: [0, 1, 5], valid: [2, 65, 61] };
    assert!(size[0] * size[1] * patch.valid[2] > 3 * TOGETHER, "too small to need several goes");
    let brick = brick(Box3::of_shape([2, 66, 68]), 1);
    for padding in [Padding::Zero, Padding::Edge] {
        let row = cut_f32(&brick, &patch, &[Normaliser::identity()], size, padding);
        for ([z, y, x], given) in Box3::of_shape(size).indices().zip(row) {
            let inside = z < 2 && y < 65 && x < 61;
            let voxel = (z.min(1) * 66 + y.min(64) + 1) * 68 + x.min(60) + 5;
            let expected = if inside || padding == Padding::Edge { 1.0 + voxel as f32 } else { 0.0 };
            assert_eq!(given, expected, "{padding:?} z {z}, y {y}, x {x}");
        }
    }
}

fn axis() -> impl Strategy<Value = (usize, usize, usize, usize)> {
    // Start of the brick, patch start inside it, valid, size beyond valid.
    (0..4_usize, 0..3_usize, 1..5_usize, 0..7_usize)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn a_patch_is_the_padded_data(
        axes in [axis(), axis(), axis()],
        slack in 0..3_usize,
        padding in prop::sample::select(vec![Padding::Reflect, Padding::Edge, Padding::Zero]),
    ) {
        let of = |f: fn((usize, usize, usize, usize)) -> usize| -> Zyx { axes.map(f) };
        let (start, valid) = (of(|axis| axis.0 + axis.1), of(|axis| axis.2));
        let size = of(|axis| axis.2 + axis.3);
        let stop: Zyx = std::array::from_fn(|axis| start[axis] + valid[axis] + slack);
        let brick = brick(Box3::new(of(|axis| axis.0), stop), 1);
        let row = cut_f32(&brick, &Patch { start, valid }, &[Normaliser::identity()], size, padding);
        let [_, height, width] = brick.region.shape();
        for (place, given) in Box3::of_shape(size).indices().zip(row) {
            let source: Option<Vec<usize>> = (0..3).map(|axis| {
                let source = padding.source(place[axis], valid[axis])?;
                Some(start[axis] - brick.region.start[axis] + source)
            }).collect();
            let expected = source.map_or(0.0, |at| brick.channels[0].as_slice::<u16>()[(at[0] * height + at[1]) * width + at[2]].into());
            prop_assert_eq!(given, expected, "{:?}", place);
        }
    }
}
