//! The `.npy` files of the golden vectors: format 1.0, little-endian, C order.

use std::path::Path;

/// The values of a file, as f64, whatever their kind.
#[must_use]
pub fn values(path: &Path) -> Vec<f64> {
    let bytes = bytes(path);
    let (header, data) = split(&bytes);
    let kind = header.split("'descr': '").nth(1).and_then(|rest| rest.split('\'').next());
    match kind {
        Some("|u1") => data.iter().map(|&value| f64::from(value)).collect(),
        Some("<u2") => words(data).map(|word| f64::from(u16::from_le_bytes(word))).collect(),
        Some("<i2") => words(data).map(|word| f64::from(i16::from_le_bytes(word))).collect(),
        Some("<f4") => words(data).map(|word| f64::from(f32::from_le_bytes(word))).collect(),
        other => panic!("{} holds {other:?}", path.display()),
    }
}

/// The first `count` bits of a file of bytes, the least significant bit of each byte first.
#[must_use]
pub fn bits(path: &Path, count: usize) -> Vec<bool> {
    let bytes = bytes(path);
    let (_, data) = split(&bytes);
    (0..count).map(|i| data[i / 8] >> (i % 8) & 1 == 1).collect()
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn split(bytes: &[u8]) -> (&str, &[u8]) {
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    (std::str::from_utf8(&bytes[10..10 + length]).unwrap(), &bytes[10 + length..])
}

fn words<const N: usize>(data: &[u8]) -> impl Iterator<Item = [u8; N]> {
    data.as_chunks::<N>().0.iter().copied()
}
