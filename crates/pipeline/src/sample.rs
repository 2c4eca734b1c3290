//! Voxels of every element kind as f32.

use bytemuck::Pod;
use half::f16;

/// An element kind that a volume is stored in.
pub(crate) trait Sample: Pod + Send + Sync {
    /// Number of different values if a table of all of them is worth making; 0 otherwise.
    const TABLE: usize = 0;

    /// The value, rounded to f32 where f32 has too few digits.
    fn to_f32(self) -> f32;

    /// The value's place in a table of [`TABLE`](Self::TABLE) values.
    fn index(self) -> usize {
        0
    }

    /// The value at a place of the table.
    fn at(_index: usize) -> Self {
        Self::zeroed()
    }
}

macro_rules! tabled {
    ($($kind:ty, $bits:ty);+) => {$(
        impl Sample for $kind {
            const TABLE: usize = 1 << <$kind>::BITS;
            fn to_f32(self) -> f32 {
                f32::from(self)
            }
            fn index(self) -> usize {
                usize::from(self as $bits)
            }
            fn at(index: usize) -> Self {
                index as Self
            }
        }
    )+};
}

macro_rules! cast {
    ($($kind:ty),+) => {$(
        impl Sample for $kind {
            fn to_f32(self) -> f32 {
                self as f32
            }
        }
    )+};
}

tabled!(u8, u8; i8, u8; u16, u16; i16, u16);
cast!(u32, i32, u64, i64, f32, f64);

impl Sample for f16 {
    fn to_f32(self) -> f32 {
        self.into()
    }
}

/// Runs `$body` with `$samples` bound to `$bytes` as a slice of the Rust type of `$element`.
macro_rules! with_samples {
    ($element:expr, $bytes:expr, $samples:ident => $body:expr) => {{
        use haloflow_volume::Element as Kind;
        macro_rules! typed {
            ($kind:ty) => {{
                let $samples: &[$kind] = bytemuck::cast_slice($bytes);
                $body
            }};
        }
        match $element {
            Kind::U8 => typed!(u8),
            Kind::I8 => typed!(i8),
            Kind::U16 => typed!(u16),
            Kind::I16 => typed!(i16),
            Kind::U32 => typed!(u32),
            Kind::I32 => typed!(i32),
            Kind::U64 => typed!(u64),
            Kind::I64 => typed!(i64),
            Kind::F16 => typed!(half::f16),
            Kind::F32 => typed!(f32),
            Kind::F64 => typed!(f64),
        }
    }};
}

pub(crate) use with_samples;

/// Voxels of `element` as f32.
pub(crate) fn values(element: haloflow_volume::Element, bytes: &[u8]) -> Vec<f32> {
    with_samples!(element, bytes, samples => samples.iter().map(|sample| sample.to_f32()).collect())
}
