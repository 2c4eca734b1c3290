use haloflow_volume::AlignedBytes;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::golden_inputs::{golden_json, input};

/// Both percentiles by the two general passes, with the data in `parts` parts.
fn by_two_passes(data: &[f32], q: [f64; 2], parts: usize) -> Option<[f64; 2]> {
    let parts: Vec<Values> = data.chunks(data.len().div_ceil(parts).max(1)).map(|part| Values(part.to_vec())).collect();
    let mut counts = Counts::default();
    for part in &parts {
        let mut own = Counts::default();
        own.add(part);
        counts.merge(&own);
    }
    let mut refinement = counts.refine(q)?;
    for part in &parts {
        let mut own = counts.refine(q)?;
        own.add(part);
        refinement.merge(&own);
    }
    Some(refinement.percentiles())
}

struct Values(Vec<f32>);

impl Visit for Values {
    fn visit(&self, mut visitor: impl FnMut(f32, u64)) {
        self.0.iter().for_each(|&value| visitor(value, 1));
    }
}

fn assert_bits(given: Option<[f64; 2]>, expected: f64, what: &str) {
    assert_eq!(given.unwrap().map(f64::to_bits), [expected.to_bits(); 2], "{what}: {given:?} instead of {expected}");
}

fn bits(hex: &Value) -> u64 {
    u64::from_str_radix(hex.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// The rows of the table: percentile and result.
fn rows(row: &Value) -> Vec<(f64, f64)> {
    let q = row["q"].as_array().unwrap().iter().map(|q| q.as_f64().unwrap());
    q.zip(row["bits"].as_array().unwrap().iter().map(|hex| f64::from_bits(bits(hex)))).collect()
}

#[test]
fn percentiles_of_whole_inputs_are_numpys_bit_for_bit() {
    let table = golden_json("tables/percentiles.json");
    let of_inputs: Vec<&Value> = table.as_array().unwrap().iter().filter(|row| row["input"].is_string()).collect();
    assert_eq!(of_inputs.len(), 9);
    for row in of_inputs {
        let name = row["input"].as_str().unwrap();
        let input = input(name);
        let voxels = Voxels { element: input.element, bytes: &input.voxels };
        let as_f32: Vec<f32> = with_samples!(input.element, &input.voxels[..], samples => samples.iter().map(|sample| sample.to_f32()).collect());
        assert_eq!(as_f32.len() as u64, row["n"].as_u64().unwrap());
        let tally = Tally::of(&voxels);
        assert_eq!(tally.is_some(), Tally::suits(input.element));
        for (q, expected) in rows(row) {
            assert_bits(percentiles(&voxels, [q, q]), expected, name);
            assert_bits(by_two_passes(&as_f32, [q, q], 5), expected, name);
            if let Some(tally) = &tally {
                assert_bits(percentiles(tally, [q, q]), expected, name);
            }
        }
    }
}

#[test]
fn percentiles_of_small_arrays_are_numpys_bit_for_bit() {
    let table = golden_json("tables/percentiles.json");
    let small: Vec<&Value> = table.as_array().unwrap().iter().filter(|row| row["data"].is_array()).collect();
    assert_eq!(small.len(), 7);
    for row in small {
        let data: Vec<f32> =
            row["data_bits"].as_array().unwrap().iter().map(|hex| f32::from_bits(bits(hex) as u32)).collect();
        for (q, expected) in rows(row) {
            assert_bits(by_two_passes(&data, [q, q], 1), expected, "one part");
            assert_bits(by_two_passes(&data, [q, q], 3), expected, "three parts");
        }
    }
}

#[test]
fn nothing_has_no_percentiles_and_nan_has_no_rank() {
    assert_eq!(by_two_passes(&[], [0.0, 100.0], 1), None);
    assert_eq!(by_two_passes(&[f32::NAN, -f32::NAN], [0.0, 100.0], 1), None);
    assert_eq!(by_two_passes(&[f32::NAN, 3.0, -1.0, f32::NAN], [0.0, 100.0], 2), Some([-1.0, 3.0]));
    let infinite = [f32::INFINITY, 3.0, f32::NEG_INFINITY, -1.0, f32::INFINITY];
    assert_eq!(by_two_passes(&infinite, [0.0, 100.0], 2), Some([-1.0, 3.0]));
    assert_eq!(by_two_passes(&[f32::INFINITY, f32::NAN], [0.0, 100.0], 1), None);
    assert_eq!(percentiles(&Voxels { element: Element::U16, bytes: &AlignedBytes::default() }, [1.0, 99.0]), None);
    assert_eq!(Moments::of(&Values(vec![])).mean_and_deviation(), None);
    let moments = Moments::of(&Values(vec![f32::NAN, 1.0, f32::INFINITY, 3.0]));
    assert_eq!(moments.mean_and_deviation(), Some([2.0, 1.0]));
    assert_eq!(moments.merge(Moments::default()), moments);
    assert_eq!(Moments::default().merge(moments), moments);
}

/// numpy's `linear` percentile of sorted data, straight from its definition.
fn by_sorting(data: &[f32], q: f64) -> f64 {
    let mut sorted = data.to_vec();
    sorted.sort_by(f32::total_cmp);
    let last = sorted.len() - 1;
    let rank = last as f64 * (q / 100.0);
    if rank >= last as f64 {
        return sorted[last].into();
    }
    let (below, fraction) = (rank.floor() as usize, rank - rank.floor());
    interpolate(sorted[below], sorted[below + 1], fraction)
}

fn deviation(data: &[f32]) -> [f64; 2] {
    let count = data.len() as f64;
    let mean = data.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
    [mean, (data.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum::<f64>() / count).sqrt()]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn keys_keep_the_order_and_come_back(one in any::<f32>(), other in any::<f32>()) {
        prop_assert_eq!(value(key(one)).to_bits(), one.to_bits());
        prop_assert_eq!(key(one).cmp(&key(other)), one.total_cmp(&other));
    }

    #[test]
    fn any_floats_in_any_parts_give_the_sorted_percentiles(
        data in prop::collection::vec(-1e30_f32..1e30, 1..80),
        q in [0.0..=100.0_f64, 0.0..=100.0],
        parts in 1..6_usize,
    ) {
        let given = by_two_passes(&data, q, parts).unwrap();
        prop_assert_eq!(given.map(f64::to_bits), q.map(|q| by_sorting(&data, q).to_bits()));
    }

    #[test]
    fn counting_integers_in_parts_equals_counting_the_whole(
        data in prop::collection::vec(any::<i16>(), 1..200),
        q in [0.0..=100.0_f64, 0.0..=100.0],
        cut in any::<prop::sample::Index>(),
    ) {
        let tally = |part: &[i16]| Tally::of(&Voxels { element: Element::I16, bytes: bytemuck::cast_slice(part) }).unwrap();
        let (one, other) = data.split_at(cut.index(data.len()));
        let mut merged = tally(one);
        merged.merge(&tally(other));
        let floats: Vec<f32> = data.iter().map(|&value| value.into()).collect();
        prop_assert_eq!(percentiles(&merged, q), by_two_passes(&floats, q, 1));
        prop_assert_eq!(percentiles(&merged, q), percentiles(&tally(&data), q));
    }

    #[test]
    fn moments_of_parts_are_those_of_the_whole(
        data in prop::collection::vec(-1e4_f32..1e4, 1..200),
        offset in prop::sample::select(vec![0.0_f32, 1e6]),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let data: Vec<f32> = data.into_iter().map(|value| value + offset).collect();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(data.len())).collect();
        places.extend([0, data.len()]);
        places.sort_unstable();
        let parts = places.windows(2).map(|place| Moments::of(&Values(data[place[0]..place[1]].to_vec())));
        let merged = parts.fold(Moments::default(), Moments::merge).mean_and_deviation().unwrap();
        let naive = deviation(&data);
        prop_assert!((merged[0] - naive[0]).abs() <= 1e-12 * naive[0].abs().max(1.0), "{merged:?} {naive:?}");
        prop_assert!((merged[1] - naive[1]).abs() <= 1e-9 * naive[1].max(1.0), "{merged:?} {naive:?}");
    }
}
