use bytemuck::Pod;

use super::*;

fn rules(element: Element, rounding: Rounding) -> Cast {
    Cast { element, rounding, nonfinite: NonFinite::Fail }
}

fn cast_as<T: Pod>(values: &[f32], element: Element, rounding: Rounding) -> (Vec<T>, CastCounts) {
    let (bytes, counts) = cast(values, &rules(element, rounding)).unwrap();
    (bytes.as_slice::<T>().to_vec(), counts)
}

/// The neighbours of a bound among the f32 numbers, the bound itself, and far beyond.
macro_rules! saturates {
    ($($kind:ty, $element:expr);+) => {$({
        for rounding in [Rounding::NearestEven, Rounding::Truncate] {
            for bound in [<$kind>::MIN as f32, <$kind>::MAX as f32] {
                for value in [bound.next_down(), bound, bound.next_up(), bound * 3.0 - 1.0, f32::MAX, f32::MIN] {
                    let (cast, counts) = cast_as::<$kind>(&[value], $element, rounding);
                    let rounded = if rounding == Rounding::Truncate { value.trunc() } else { value.round_ties_even() };
                    // Every f32 of this size is a whole number that an i128 holds, but for the greatest ones.
                    let exact = rounded as i128;
                    let clamped = exact.clamp(<$kind>::MIN.into(), <$kind>::MAX.into());
                    assert_eq!(i128::from(cast[0]), clamped, "{} of {value}", $element);
                    if rounding == Rounding::NearestEven {
                        assert_eq!(counts.clipped_low, u64::from(exact < <$kind>::MIN.into()), "{} of {value}", $element);
                        assert_eq!(counts.clipped_high, u64::from(exact > <$kind>::MAX.into()), "{} of {value}", $element);
                    }
                }
            }
        }
    })+};
}

#[test]
fn every_integer_kind_saturates_exactly_at_its_bounds() {
    saturates!(u8, Element::U8; i8, Element::I8; u16, Element::U16; i16, Element::I16);
    saturates!(u32, Element::U32; i32, Element::I32; u64, Element::U64; i64, Element::I64);
}

#[test]
fn bounds_that_f32_cannot_hold_are_no_clip_below_and_a_clip_above() {
    let below = 2_147_483_520.0_f32;
    assert_eq!(
        cast_as::<i32>(&[below], Element::I32, Rounding::NearestEven),
        (vec![2_147_483_520], CastCounts::default())
    );
    let high = CastCounts { clipped_high: 1, ..CastCounts::default() };
    assert_eq!(cast_as::<i32>(&[2_147_483_648.0], Element::I32, Rounding::Truncate), (vec![i32::MAX], high));
    assert_eq!(
        cast_as::<i32>(&[-2_147_483_648.0], Element::I32, Rounding::Truncate),
        (vec![i32::MIN], CastCounts::default())
    );
    assert_eq!(cast_as::<u32>(&[4_294_967_296.0], Element::U32, Rounding::Truncate), (vec![u32::MAX], high));
    assert_eq!(
        cast_as::<u64>(&[18_446_744_073_709_551_616.0], Element::U64, Rounding::Truncate),
        (vec![u64::MAX], high)
    );
    assert_eq!(
        cast_as::<i64>(&[9_223_372_036_854_775_808.0], Element::I64, Rounding::Truncate),
        (vec![i64::MAX], high)
    );
    let edge = cast_as::<i64>(&[-9_223_372_036_854_775_808.0], Element::I64, Rounding::Truncate);
    assert_eq!(edge, (vec![i64::MIN], CastCounts::default()));
}

#[test]
fn halves_go_to_the_even_neighbour_or_toward_zero() {
    let values = [0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 254.5, 255.49, 7.999];
    let (nearest, counts) = cast_as::<i16>(&values, Element::I16, Rounding::NearestEven);
    assert_eq!((nearest, counts), (vec![0, 2, 2, 0, -2, 0, 254, 255, 8], CastCounts::default()));
    let (truncated, _) = cast_as::<i16>(&values, Element::I16, Rounding::Truncate);
    assert_eq!(truncated, [0, 1, 2, 0, -1, 0, 254, 255, 7]);
}

#[test]
fn what_the_cast_changes_is_counted() {
    let values = [-0.4, -0.6, 255.4, 255.6, 300.0, 12.0];
    let (cast, counts) = cast_as::<u8>(&values, Element::U8, Rounding::NearestEven);
    assert_eq!(cast, [0, 0, 255, 255, 255, 12]);
    assert_eq!(counts, CastCounts { clipped_low: 1, clipped_high: 2, nonfinite: 0 });
    // Truncation clips first, as the golden vectors do: a value outside the range is clipped, however little it is outside.
    let (_, counts) = cast_as::<u8>(&values, Element::U8, Rounding::Truncate);
    assert_eq!(counts, CastCounts { clipped_low: 2, clipped_high: 3, nonfinite: 0 });
    let mut sum = counts;
    sum.add(&CastCounts { clipped_low: 1, clipped_high: 10, nonfinite: 100 });
    assert_eq!(sum, CastCounts { clipped_low: 3, clipped_high: 13, nonfinite: 100 });
}

#[test]
fn floats_keep_their_value_or_their_range() {
    let values = [1.0e30, -1.0e30, 0.1, 65504.0, 65536.0];
    assert_eq!(cast_as::<f32>(&values, Element::F32, Rounding::Truncate), (values.to_vec(), CastCounts::default()));
    let (doubles, _) = cast_as::<f64>(&values, Element::F64, Rounding::NearestEven);
    assert_eq!(doubles, values.map(f64::from));
    let (halves, counts) = cast_as::<f16>(&values, Element::F16, Rounding::NearestEven);
    assert_eq!(halves, [f16::MAX, f16::MIN, f16::from_f32(0.1), f16::MAX, f16::MAX]);
    assert_eq!(counts, CastCounts { clipped_low: 1, clipped_high: 2, nonfinite: 0 });
}

#[test]
fn values_that_are_no_numbers_fail_or_are_replaced_and_counted() {
    let values = [1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for element in [Element::U8, Element::I64, Element::F16, Element::F32, Element::F64] {
        for (start, first) in [(0, 1), (1, 0), (2, 0), (3, 0)] {
            let told = cast(&values[start..], &rules(element, Rounding::NearestEven)).unwrap_err();
            assert_eq!(told, first, "{element}");
        }
        let replacing = Cast { nonfinite: NonFinite::Replace(7.0), ..rules(element, Rounding::NearestEven) };
        let (bytes, counts) = cast(&values, &replacing).unwrap();
        let (plain, _) = cast(&[1.0, 7.0, 7.0, 7.0], &rules(element, Rounding::NearestEven)).unwrap();
        assert_eq!(bytes, plain, "{element}");
        assert_eq!(counts, CastCounts { nonfinite: 3, ..CastCounts::default() });
    }
    let beyond = Cast { nonfinite: NonFinite::Replace(300.0), ..rules(Element::U8, Rounding::NearestEven) };
    let (bytes, counts) = cast(&[f32::NAN], &beyond).unwrap();
    assert_eq!((bytes.as_slice::<u8>()[0], counts.clipped_high, counts.nonfinite), (255, 1, 1));
}

/// What a value becomes between the bounds of a kind, and what is counted.
fn by_itself(value: f32, [least, greatest]: [f64; 2]) -> (f64, CastCounts) {
    let rounded = f64::from(value).round_ties_even();
    let counts = CastCounts {
        clipped_low: u64::from(rounded < least),
        clipped_high: u64::from(rounded > greatest),
        nonfinite: 0,
    };
    (rounded.clamp(least, greatest), counts)
}

#[test]
fn many_values_are_rounded_and_counted_as_each_by_itself() {
    // Every quarter around every whole number of the kinds and some beyond, and the neighbours of every half.
    let quarters = (-140_000..=140_000 * 2).map(|quarter| quarter as f32 / 4.0);
    let halves = (-40_000..=70_000).flat_map(|whole| {
        let half = whole as f32 + 0.5;
        [half.next_down(), half, half.next_up()]
    });
    let beyond = [-0.0, f32::MIN, f32::MAX, 4_194_304.5, -4_194_304.5, 1e9, -1e9, f32::MIN_POSITIVE];
    let values: Vec<f32> = quarters.chain(halves).chain(beyond).collect();
    macro_rules! same {
        ($($kind:ty, $element:expr);+) => {$({
            let (cast, counts) = cast_as::<$kind>(&values, $element, Rounding::NearestEven);
            let mut all = CastCounts::default();
            for (&value, cast) in values.iter().zip(cast) {
                let (expected, of_value) = by_itself(value, [<$kind>::MIN, <$kind>::MAX].map(f64::from));
                assert_eq!(f64::from(cast), expected, "{} of {value}", $element);
                all.add(&of_value);
            }
            assert_eq!(counts, all, "{}", $element);
        })+};
    }
    same!(u8, Element::U8; i8, Element::I8; u16, Element::U16; i16, Element::I16);
}
