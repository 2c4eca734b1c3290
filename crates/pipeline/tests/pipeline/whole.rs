//! Normalisation by the whole volume, against numpy's definitions.

use haloflow_engine::fake::Fake;
use haloflow_pipeline::normalise::Normalisation;
use haloflow_pipeline::{Report, RunSettings};
use haloflow_volume::{AlignedBytes, Element, Environment};

use crate::inputs::noise;
use crate::support::{Volume, block_on, complete, devices, layout, load, plain, settings, spec, store, trim};

const SHAPE: [usize; 3] = [11, 13, 17];
const Q: [f64; 2] = [0.5, 99.9];

/// Two channels of 16-bit numbers.
fn integers() -> (Volume, Vec<Vec<f32>>) {
    let count = SHAPE.iter().product();
    let of = |seed: u64| -> Vec<u16> { (0..count).map(|i| (noise(seed, i) % 50_000) as u16 / seed as u16).collect() };
    let channels = [of(1), of(3)];
    let floats = channels.iter().map(|channel| channel.iter().map(|&value| value.into()).collect()).collect();
    let channels = channels.iter().map(|channel| AlignedBytes::from_slice(channel)).collect();
    (Volume { shape: SHAPE, element: Element::U16, channels }, floats)
}

/// Two channels of f32 numbers.
fn floats() -> (Volume, Vec<Vec<f32>>) {
    let count = SHAPE.iter().product();
    let of =
        |seed: u64| -> Vec<f32> { (0..count).map(|i| noise(seed, i) as f32 / 977.0 - 5000.0 * seed as f32).collect() };
    let floats = vec![of(5), of(9)];
    let channels = floats.iter().map(|channel| AlignedBytes::from_slice(channel)).collect();
    (Volume { shape: SHAPE, element: Element::F32, channels }, floats)
}

/// Runs the identity over both channels without bringing the result back.
fn normalised(volume: &Volume, normalisation: Normalisation) -> (Report, Volume) {
    let mut settings: RunSettings = settings(layout([6; 3], [2; 3], trim(1)), plain(), 4);
    settings.values.normalisation = normalisation;
    settings.values.denormalise = false;
    settings.input.c = vec![0, 1];
    settings.output.stack_channels = true;
    // Passes over the volume must not ask for more than the volume has.
    settings.resources.memory = 2 << 20;
    let spec = spec(&settings, 2);
    block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", volume, [4, 5, 6]).await;
        let report = complete(&settings, &environment, devices(2, |device| Fake::identity(device, spec.clone()))).await;
        (report, load(&environment, "memory://out", 2).await)
    })
}

/// numpy's `percentile(data, q)` of f32 data, the way the golden README writes it down.
fn percentile(data: &[f32], q: f64) -> f64 {
    let mut sorted = data.to_vec();
    sorted.sort_by(f32::total_cmp);
    let rank = (data.len() - 1) as f64 * (q / 100.0);
    let (below, part) = (sorted[rank as usize], rank - rank.floor());
    let above = sorted[(rank as usize + 1).min(data.len() - 1)];
    let step = f64::from(above - below);
    if part < 0.5 { f64::from(below) + step * part } else { f64::from(above) - step * (1.0 - part) }
}

fn by_definition(x: f32, offset: f64, scale: f64) -> f32 {
    (f64::from((f64::from(x) - offset) as f32) / scale) as f32
}

#[test]
fn percentiles_of_the_whole_volume() {
    for (volume, channels) in [integers(), floats()] {
        let (report, given) = normalised(&volume, Normalisation::Volume { percentiles: Q });
        assert_eq!(given.element, Element::F32);
        for (channel, data) in channels.iter().enumerate() {
            let [low, high] = Q.map(|q| percentile(data, q));
            assert_eq!(report.normalisation[channel].map(f64::to_bits), [low.to_bits(), high.to_bits()]);
            let expected: Vec<f32> = data.iter().map(|&x| by_definition(x, low, high - low)).collect();
            assert!(given.f32(channel) == expected, "channel {channel} of {}", volume.element);
        }
    }
}

#[test]
fn mean_and_deviation_of_the_whole_volume() {
    for (volume, channels) in [integers(), floats()] {
        let (report, given) = normalised(&volume, Normalisation::ZScore { given: None });
        for (channel, data) in channels.iter().enumerate() {
            let count = data.len() as f64;
            let mean = data.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
            let deviation = (data.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count).sqrt();
            let [ours, above] = report.normalisation[channel];
            assert!((ours - mean).abs() <= 1e-9 * mean.abs() && (above - ours - deviation).abs() <= 1e-9 * deviation);
            for (&x, &y) in data.iter().zip(given.f32(channel)) {
                let expected = (f64::from(x) - mean) / deviation;
                assert!((f64::from(y) - expected).abs() <= 1e-6 * expected.abs().max(1.0), "{y} instead of {expected}");
            }
        }
    }
}

#[test]
fn given_numbers_are_taken_as_they_are() {
    let (volume, channels) = integers();
    let (report, given) = normalised(&volume, Normalisation::ZScore { given: Some([100.0, 25.0]) });
    assert_eq!(report.normalisation, [[100.0, 125.0]; 2]);
    for (channel, data) in channels.iter().enumerate() {
        let expected: Vec<f32> = data.iter().map(|&x| by_definition(x, 100.0, 25.0)).collect();
        assert!(given.f32(channel) == expected);
    }
}
