//! The kinds of number that a network computes with, and their conversion from and to f32.

use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// An element kind of a batch.
pub(crate) trait Number: Pod {
    /// Rounded to the nearest, halves to even.
    fn from_f32(value: f32) -> Self;

    /// A row of them.
    fn round(values: &[f32], out: &mut [Self]);

    /// A row of them as f32, exactly.
    fn widen(values: &[Self], out: &mut [f32]);
}

impl Number for f32 {
    fn from_f32(value: f32) -> Self {
        value
    }
    fn round(values: &[f32], out: &mut [Self]) {
        out.copy_from_slice(values);
    }
    fn widen(values: &[Self], out: &mut [f32]) {
        out.copy_from_slice(values);
    }
}

macro_rules! half {
    ($($kind:ty),+) => {$(
        impl Number for $kind {
            fn from_f32(value: f32) -> Self {
                Self::from_f32(value)
            }
            fn round(values: &[f32], out: &mut [Self]) {
                out.convert_from_f32_slice(values);
            }
            fn widen(values: &[Self], out: &mut [f32]) {
                values.convert_to_f32_slice(out);
            }
        }
    )+};
}

half!(f16, bf16);

/// Runs `$body` with `$number` as the Rust type of the element kind `$kind`.
macro_rules! with_number {
    ($kind:expr, $number:ident => $body:expr) => {{
        use haloflow_engine::ElementKind as Kind;
        macro_rules! typed {
            ($of:ty) => {{
                type $number = $of;
                $body
            }};
        }
        match $kind {
            Kind::F32 => typed!(f32),
            Kind::F16 => typed!(half::f16),
            Kind::Bf16 => typed!(half::bf16),
        }
    }};
}

pub(crate) use with_number;
