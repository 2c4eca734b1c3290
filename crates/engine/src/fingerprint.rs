//! A fixed batch, and the hash of what an engine makes of it.

use std::hash::{DefaultHasher, Hasher};

use crate::ElementKind;
use crate::fake::write_elements;

/// Elements that are written at a time.
const PIECE: usize = 4096;

/// Fills `bytes` with elements of `kind` between 0 and 1 that look random and are the same every time for a `seed`.
pub fn fill_fixed(kind: ElementKind, seed: u64, bytes: &mut [u8]) {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(2 * seed + 1);
    let mut piece = [0.0_f32; PIECE];
    for out in bytes.chunks_mut(PIECE * kind.size()) {
        let elements = out.len() / kind.size();
        for element in &mut piece[..elements] {
            // A linear congruential generator (Knuth, MMIX); its upper bits are the random ones.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *element = (state >> 40) as f32 / (1 << 24) as f32;
        }
        write_elements(kind, &piece[..elements], out);
    }
}

/// A hash of `bytes`, the same on every thread of a process.
#[must_use]
pub fn fingerprint_bytes(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::read_elements;

    #[test]
    fn the_fixed_batch_is_fixed_and_covers_its_range() {
        for kind in [ElementKind::F32, ElementKind::F16, ElementKind::Bf16] {
            let mut bytes = vec![0; 10_000 * kind.size()];
            fill_fixed(kind, 7, &mut bytes);
            let elements = read_elements(kind, &bytes);
            assert!(elements.iter().all(|element| (0.0..=1.0).contains(element)));
            assert!(elements.iter().any(|element| *element < 0.01) && elements.iter().any(|element| *element > 0.99));
            let mut again = vec![1; bytes.len()];
            fill_fixed(kind, 7, &mut again);
            assert_eq!(bytes, again);
            fill_fixed(kind, 8, &mut again);
            assert_ne!(bytes, again);
        }
    }
}
