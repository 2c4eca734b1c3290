use bytemuck::Zeroable;
use half::f16;
use proptest::prelude::*;

use super::*;

/// Runs `$body` for every element kind of a batch.
macro_rules! with_every_number {
    ($kind:ident, $number:ident => $body:expr) => {
        for $kind in [ElementKind::F32, ElementKind::F16, ElementKind::Bf16] {
            with_number!($kind, $number => $body);
        }
    };
}

#[test]
fn shifting_and_scaling_round_twice() {
    // The first rounding loses the last digit of x - offset, so one rounding would give another result.
    let (offset, span, x) = (0.1_f64, 0.7_f64, 12345.678_f32);
    let normaliser = Normaliser::shift_and_scale(offset, span, 1e-6);
    let first = (f64::from(x) - offset) as f32;
    assert_eq!(normaliser.apply(x), (f64::from(first) / span) as f32);
    let differs = (0..1000)
        .map(|i| 12345.678_f32 + i as f32)
        .any(|x| normaliser.apply(x) != ((f64::from(x) - offset) / span) as f32);
    assert!(differs, "some value must show the first rounding");
    assert_eq!(normaliser.inverse(), Affine { scale: 0.7, offset: 0.1 });
}

#[test]
fn a_flat_span_divides_in_f32_by_eps() {
    let eps = 0.001_f64;
    let normaliser = Normaliser::shift_and_scale(500.0, 0.0, eps);
    for x in [500.0_f32, 501.0, 12345.0, 0.1] {
        assert_eq!(normaliser.apply(x), (f64::from(x) - 500.0) as f32 / eps as f32);
    }
    assert_eq!(normaliser.inverse(), Affine { scale: eps as f32, offset: 500.0 });
    let exact = Normaliser::shift_and_scale(500.0, eps, eps);
    assert_eq!(exact.apply(501.0), (1.0 / eps) as f32, "a span of exactly eps is not flat");
}

#[test]
fn global_clips_first_and_divides_in_f32() {
    let normaliser = Normaliser::global([100.3, 1400.7], 1e-6);
    let (lower, scale) = (100.3_f32, (1400.7_f64 - 100.3) as f32);
    assert_eq!(normaliser.apply(0.0), 0.0);
    assert_eq!(normaliser.apply(9000.0), (1400.7_f32 - lower) / scale);
    assert_eq!(normaliser.apply(777.0), (777.0 - lower) / scale);
    assert_eq!(normaliser.inverse(), Affine { scale, offset: lower });
    assert!(normaliser.apply(f32::NAN).is_nan());
}

#[test]
fn the_clip_comes_last_and_none_is_the_identity() {
    let clipped = Normaliser::shift_and_scale(0.0, 10.0, 1e-6).with_clip(Some([0.0, 5.0]));
    assert_eq!([-3.0, 20.0, 80.0].map(|x| clipped.apply(x)), [0.0, 2.0, 5.0]);
    assert_eq!(Normaliser::identity().apply(-7.25), -7.25);
    assert_eq!(Normaliser::identity().inverse(), Affine::IDENTITY);
}

/// Every value of a kind, by the table and directly.
fn assert_table_is_direct<T: Sample>(normaliser: &Normaliser, element: Element) {
    let all: Vec<T> = (0..T::TABLE).map(T::at).collect();
    with_every_number!(kind, N => {
        let tabulated = normaliser.clone().tabulated(element, kind);
        assert!(tabulated.table.is_some());
        let [mut by_table, mut direct] = [vec![N::zeroed(); all.len()], vec![N::zeroed(); all.len()]];
        tabulated.row(&all, kind, &mut by_table);
        normaliser.row(&all, kind, &mut direct);
        assert_eq!(by_table, direct, "{element} {kind}");
        let one_by_one: Vec<N> = all.iter().map(|value| N::from_f32(normaliser.apply(value.to_f32()))).collect();
        assert_eq!(direct, one_by_one, "{element} {kind}");
    });
}

#[test]
fn a_table_of_another_kind_is_not_used() {
    let normaliser = Normaliser::shift_and_scale(3.0, 7.0, 1e-6).tabulated(Element::U8, ElementKind::F32);
    let mut row = [0.0; 2];
    normaliser.row(&[500_u16, 3], ElementKind::F32, &mut row);
    assert_eq!(row, [normaliser.apply(500.0), 0.0]);
    let mut row = [f16::ZERO; 2];
    normaliser.row(&[50_u8, 3], ElementKind::F16, &mut row);
    assert_eq!(row, [f16::from_f32(normaliser.apply(50.0)), f16::ZERO]);
    assert!(normaliser.tabulated(Element::F32, ElementKind::F32).table.is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn tables_hold_what_would_be_computed(
        low in -40_000.0..70_000.0_f64,
        span in prop_oneof![Just(0.0), 1e-9..1e5_f64],
        clip in prop::option::of(Just([0.0_f32, 1.0])),
        global in any::<bool>(),
    ) {
        let normaliser = if global {
            Normaliser::global([low, low + span + 1.0], 1e-6)
        } else {
            Normaliser::shift_and_scale(low, span, 1e-6)
        };
        let normaliser = normaliser.with_clip(clip);
        assert_table_is_direct::<u8>(&normaliser, Element::U8);
        assert_table_is_direct::<i8>(&normaliser, Element::I8);
        assert_table_is_direct::<u16>(&normaliser, Element::U16);
        assert_table_is_direct::<i16>(&normaliser, Element::I16);
    }
}

#[test]
fn output_channels_go_back_by_their_own_input_channel_if_there_are_as_many() {
    let [one, two] = [10.0, 20.0].map(|offset| Normaliser::shift_and_scale(offset, 2.0, 1e-6));
    let [a, b] = [one.inverse(), two.inverse()];
    assert_eq!(inverses(&[one.clone(), two.clone()], 2), [a, b]);
    assert_eq!(inverses(&[one.clone(), two], 3), [a; 3]);
    assert_eq!(inverses(&[one], 2), [a; 2]);
    assert_eq!(inverses(&[], 1), [Affine::IDENTITY]);
}
