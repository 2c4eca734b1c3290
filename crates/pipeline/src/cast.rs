//! From f32 to the kind that is stored.

use bytemuck::cast_slice_mut;
use half::f16;
use haloflow_volume::{AlignedBytes, Element};
use serde::Serialize;

/// How integer outputs are rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest integer, halves to the even one.
    #[default]
    NearestEven,
    /// Toward zero.
    Truncate,
}

/// What is done with NaN and infinity in the result.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum NonFinite {
    /// The run fails and names the voxel.
    #[default]
    Fail,
    /// This value is stored instead.
    Replace(f32),
}

/// The kind and the rules of a cast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cast {
    /// The kind that is stored.
    pub element: Element,
    /// For integers.
    pub rounding: Rounding,
    /// For NaN and infinity.
    pub nonfinite: NonFinite,
}

/// Voxels that the cast changed by more than rounding. Values are compared with the kind's range after rounding to the nearest, but
/// before truncating: a fraction below 0 is clipped low in an unsigned kind although truncating it gives 0 as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CastCounts {
    /// Below the kind's range, stored as its least value.
    pub clipped_low: u64,
    /// Above the kind's range, stored as its greatest value.
    pub clipped_high: u64,
    /// NaN or infinite.
    pub nonfinite: u64,
}

impl CastCounts {
    /// Adds another tile's counts.
    pub const fn add(&mut self, other: &Self) {
        self.clipped_low += other.clipped_low;
        self.clipped_high += other.clipped_high;
        self.nonfinite += other.nonfinite;
    }
}

/// Casts `values`. Integers saturate exactly.
///
/// # Errors
/// The index of the first value that is NaN or infinite, if such values are to fail.
pub fn cast(values: &[f32], rules: &Cast) -> Result<(AlignedBytes, CastCounts), usize> {
    let mut bytes = AlignedBytes::zeroed(values.len() * rules.element.size());
    let counts = cast_to(values, rules, &mut bytes)?;
    Ok((bytes, counts))
}

/// As [`cast`], into `bytes`, which are as many as the values need and aligned for their kind.
///
/// # Errors
/// As [`cast`].
pub fn cast_to(values: &[f32], rules: &Cast, bytes: &mut [u8]) -> Result<CastCounts, usize> {
    let mut counts = CastCounts::default();
    macro_rules! integers {
        ($kind:ty) => {
            cast_into(values, cast_slice_mut::<_, $kind>(bytes), rules, &mut counts, |value, counts| {
                let rounded = match rules.rounding {
                    Rounding::NearestEven => value.round_ties_even(),
                    Rounding::Truncate => value,
                };
                // f64 holds every f32 and the bounds of the small kinds; a 64-bit bound rounds up to the first value beyond it.
                let above = f64::from(rounded) > <$kind>::MAX as f64 || (<$kind>::BITS == 64 && f64::from(rounded) >= <$kind>::MAX as f64);
                counts.clipped_low += u64::from(f64::from(rounded) < <$kind>::MIN as f64);
                counts.clipped_high += u64::from(above);
                rounded as $kind
            })
        };
    }
    macro_rules! small {
        ($kind:ty) => {
            match rules.rounding {
                Rounding::NearestEven if values.iter().fold(true, |all, value| all & value.is_finite()) => {
                    let bounds = [<$kind>::MIN, <$kind>::MAX].map(f32::from);
                    counts = cast_small(values, cast_slice_mut(bytes), bounds, |whole| whole as $kind);
                    Ok(())
                }
                _ => integers!($kind),
            }
        };
    }
    match rules.element {
        Element::U8 => small!(u8),
        Element::I8 => small!(i8),
        Element::U16 => small!(u16),
        Element::I16 => small!(i16),
        Element::U32 => integers!(u32),
        Element::I32 => integers!(i32),
        Element::U64 => integers!(u64),
        Element::I64 => integers!(i64),
        Element::F16 => cast_into(values, cast_slice_mut::<_, f16>(bytes), rules, &mut counts, |value, counts| {
            let greatest = f16::MAX.to_f32();
            counts.clipped_low += u64::from(value < -greatest);
            counts.clipped_high += u64::from(value > greatest);
            f16::from_f32(value.clamp(-greatest, greatest))
        }),
        Element::F32 => cast_into(values, cast_slice_mut::<_, f32>(bytes), rules, &mut counts, |value, _| value),
        Element::F64 => cast_into(values, cast_slice_mut::<_, f64>(bytes), rules, &mut counts, |value, _| value.into()),
    }?;
    Ok(counts)
}

/// 1.5 x 2^23. Added to an f32 of at most 2^22 it leaves no digits behind the point: the sum is rounded as every sum is, to the nearest,
/// halves to the even one, and its lowest bits are the whole number.
const ROUNDER: f32 = 12_582_912.0;

/// Casts finite values to integers of at most sixteen bits, without a branch and without a call, so that a processor does several at a time.
fn cast_small<T>(values: &[f32], out: &mut [T], [least, greatest]: [f32; 2], narrow: impl Fn(i32) -> T) -> CastCounts {
    let mut counts = CastCounts::default();
    // Few enough at a time to count in 32 bits.
    for (values, out) in values.chunks(1 << 16).zip(out.chunks_mut(1 << 16)) {
        let [mut low, mut high] = [0_u32; 2];
        for (&value, out) in values.iter().zip(out) {
            let sum = value.clamp(least - 1.0, greatest + 1.0) + ROUNDER;
            let rounded = sum - ROUNDER;
            low += u32::from(rounded < least);
            high += u32::from(rounded > greatest);
            let whole = (rounded.clamp(least, greatest) + ROUNDER).to_bits().cast_signed();
            *out = narrow(whole - ROUNDER.to_bits().cast_signed());
        }
        counts.clipped_low += u64::from(low);
        counts.clipped_high += u64::from(high);
    }
    counts
}

fn cast_into<T>(
    values: &[f32],
    out: &mut [T],
    rules: &Cast,
    counts: &mut CastCounts,
    convert: impl Fn(f32, &mut CastCounts) -> T,
) -> Result<(), usize> {
    for (i, (&value, out)) in values.iter().zip(out).enumerate() {
        let finite = match (value.is_finite(), rules.nonfinite) {
            (true, _) => value,
            (false, NonFinite::Fail) => return Err(i),
            (false, NonFinite::Replace(other)) => {
                counts.nonfinite += 1;
                other
            }
        };
        *out = convert(finite, counts);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
