//! The golden vectors: their files, and their input volumes, which are made from the formulas of their README.

use std::path::{Path, PathBuf};

use haloflow_geometry::{Box3, Zyx};
use haloflow_volume::AlignedBytes;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A golden input.
#[derive(Clone, Debug)]
pub struct Input {
    /// Kind of number, such as `uint16`.
    pub element: String,
    /// Size, z y x.
    pub shape: Zyx,
    /// The voxels.
    pub voxels: AlignedBytes,
}

/// A file of the golden vectors.
#[must_use]
pub fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

/// A JSON file of the golden vectors.
#[must_use]
pub fn json(name: &str) -> Value {
    crate::ended::json(&file(name))
}

/// The input of this name, checked against the SHA-256 that is recorded.
#[must_use]
pub fn input(name: &str) -> Input {
    let row = &json("inputs/index.json")[name];
    let element = row["dtype"].as_str().unwrap().to_owned();
    let shape: Zyx = serde_json::from_value(row["shape"].clone()).unwrap();
    let values: Vec<f64> = Box3::of_shape(shape).indices().enumerate().map(|(i, at)| value(name, i, at)).collect();
    let voxels = cast(&values, &element);
    let digest: String = Sha256::digest(&voxels[..]).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, row["sha256_data"], "{name}");
    Input { element, shape, voxels }
}

fn cast(values: &[f64], element: &str) -> AlignedBytes {
    match element {
        "uint8" => AlignedBytes::from_slice(&values.iter().map(|&value| value as u8).collect::<Vec<_>>()),
        "uint16" => AlignedBytes::from_slice(&values.iter().map(|&value| value as u16).collect::<Vec<_>>()),
        "int16" => AlignedBytes::from_slice(&values.iter().map(|&value| value as i16).collect::<Vec<_>>()),
        "float32" => AlignedBytes::from_slice(&values.iter().map(|&value| value as f32).collect::<Vec<_>>()),
        other => panic!("no input is {other}"),
    }
}

fn value(name: &str, i: usize, at: Zyx) -> f64 {
    let [z, y, x] = at.map(|index| index as f64);
    let random = |seed, modulus| (noise(seed, i) % modulus) as f64;
    match name {
        "u16_grad" => 150.0 + 11.0 * z + 7.0 * y + 5.0 * x + random(1, 401),
        "u16_cube64" => 100.0 + 9.0 * z + (y * x / 4.0).floor() + random(2, 1501),
        "u8_slab" => (4.0 * z + 2.0 * y + x + random(3, 61)).min(255.0),
        "f32_signed" => {
            let raw = noise(4, i);
            let value = (raw as f64 - 8_388_608.0) / 32768.0 + 6.0 * z - 4.0 * y + 2.5 * x;
            if raw.is_multiple_of(211) { value * -3.7 } else { value }
        }
        "u16_thin" => 300.0 + 20.0 * z + 3.0 * y + 8.0 * x + random(5, 101),
        "u16_const" => 1234.0,
        "i16_signed" => -850.0 + 31.0 * z + 13.0 * y + 9.0 * x + random(6, 301),
        "u16_sat" if at.iter().all(|&index| index >= 24) => 65535.0,
        "u16_sat" => 2000.0 + 40.0 * z + 30.0 * y + 20.0 * x + random(7, 2001),
        "u16_spikes" => match at {
            [3, 4, 5] => 60000.0,
            [10, 10, 10] => 12345.0,
            [19, 0, 19] => 501.0,
            [0, 19, 7] => 65535.0,
            _ => 500.0,
        },
        _ => panic!("no input is called {name}"),
    }
}

/// 24 bits of splitmix64, for the voxel at place `i`.
#[must_use]
pub fn noise(seed: u64, i: usize) -> u64 {
    let mut state = seed.wrapping_add((i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (state ^ (state >> 31)) >> 40
}
