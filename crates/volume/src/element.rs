//! The kinds of number an array can hold.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::VolumeError;

/// A kind of number; in memory always in the machine's own byte order. A boolean array reads as [`Element::U8`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Element {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    F32,
    F64,
}

/// Element, Zarr v3 name, short name, Zarr v2 type character and size.
const NAMES: [(Element, &str, &str, &str); 11] = [
    (Element::U8, "uint8", "u8", "u1"),
    (Element::I8, "int8", "i8", "i1"),
    (Element::U16, "uint16", "u16", "u2"),
    (Element::I16, "int16", "i16", "i2"),
    (Element::U32, "uint32", "u32", "u4"),
    (Element::I32, "int32", "i32", "i4"),
    (Element::U64, "uint64", "u64", "u8"),
    (Element::I64, "int64", "i64", "i8"),
    (Element::F16, "float16", "f16", "f2"),
    (Element::F32, "float32", "f32", "f4"),
    (Element::F64, "float64", "f64", "f8"),
];

impl Element {
    /// Size of one element, bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The number that one element's bytes stand for, in the machine's byte order; NaN if there are too few of them.
    pub(crate) fn value(self, bytes: &[u8]) -> f64 {
        macro_rules! of {
            ($kind:ty) => {
                bytemuck::try_pod_read_unaligned::<$kind>(bytes).map_or(f64::NAN, |value| value as f64)
            };
        }
        match self {
            Self::U8 => of!(u8),
            Self::I8 => of!(i8),
            Self::U16 => of!(u16),
            Self::I16 => of!(i16),
            Self::U32 => of!(u32),
            Self::I32 => of!(i32),
            Self::U64 => of!(u64),
            Self::I64 => of!(i64),
            Self::F16 => bytemuck::try_pod_read_unaligned::<half::f16>(bytes).map_or(f64::NAN, f64::from),
            Self::F32 => of!(f32),
            Self::F64 => of!(f64),
        }
    }

    /// The Zarr v3 name, such as `uint16`.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    /// The Zarr v2 type string of little-endian data, such as `<u2`.
    pub(crate) fn v2_name(self) -> String {
        let order = if self.size() == 1 { '|' } else { '<' };
        format!("{order}{}", NAMES.iter().find(|row| row.0 == self).map_or("", |row| row.3))
    }
}

impl FromStr for Element {
    type Err = VolumeError;

    /// Reads `uint16`, `u16` or, with its byte order mark, `<u2`. `u8` and `i8` are the one-byte kinds; `<u8` is the eight-byte one.
    fn from_str(text: &str) -> Result<Self, VolumeError> {
        let row = match text.strip_prefix(['<', '>', '|', '=']) {
            Some(kind) => NAMES.iter().find(|row| row.3 == kind),
            None => NAMES.iter().find(|row| row.1 == text || row.2 == text),
        };
        row.map(|row| row.0).ok_or_else(|| {
            let allowed = NAMES.map(|row| row.1).join(", ");
            VolumeError::usage(format!("the element kind {text:?} is not supported: it must be one of {allowed}"))
        })
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Element {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_read() {
        for (element, long, short, v2) in NAMES {
            assert_eq!(long.parse::<Element>().unwrap(), element);
            assert_eq!(short.parse::<Element>().unwrap(), element);
            assert_eq!(format!(">{v2}").parse::<Element>().unwrap(), element);
            assert_eq!(element.v2_name().parse::<Element>().unwrap(), element);
        }
        assert_eq!("<u8".parse::<Element>().unwrap(), Element::U64);
        assert_eq!("u8".parse::<Element>().unwrap(), Element::U8);
        let error = "complex64".parse::<Element>().unwrap_err();
        assert!(error.message.contains("complex64") && error.message.contains("float16"));
    }
}
