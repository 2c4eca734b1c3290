//! Buffers of voxels.

use std::fmt;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use haloflow_geometry::Box3;

use crate::Element;

/// A buffer of bytes whose start is aligned for every [`Element`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AlignedBytes {
    words: Vec<u64>,
    length: usize,
}

impl AlignedBytes {
    /// A buffer of `length` zero bytes.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        Self { words: vec![0; length.div_ceil(size_of::<u64>())], length }
    }

    /// A copy of `values`.
    #[must_use]
    pub fn from_slice<T: Pod>(values: &[T]) -> Self {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// The elements of the buffer. Bytes that do not fill an element at the end are left out; `T` must not need more than 8-byte
    /// alignment (an empty slice comes back if it does).
    #[must_use]
    pub fn as_slice<T: Pod>(&self) -> &[T] {
        let bytes: &[u8] = self;
        let whole = bytes.len() - bytes.len() % size_of::<T>().max(1);
        bytemuck::try_cast_slice(&bytes[..whole]).unwrap_or_default()
    }

    /// The elements of the buffer, to be changed; as [`Self::as_slice`].
    #[must_use]
    pub fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        let bytes: &mut [u8] = self;
        let whole = bytes.len() - bytes.len() % size_of::<T>().max(1);
        bytemuck::try_cast_slice_mut(&mut bytes[..whole]).unwrap_or_default()
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.length]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.length]
    }
}

impl AsRef<[u8]> for AlignedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBytes({} bytes)", self.length)
    }
}

/// The voxels of a region, one buffer per channel.
#[derive(Clone, Debug)]
pub struct Brick {
    /// Which voxels of the volume these are.
    pub region: Box3,
    /// The kind of number.
    pub element: Element,
    /// One buffer per requested channel, in the order asked for: `region.shape()` elements, axes z, y, x, C order.
    pub channels: Vec<AlignedBytes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_typed_and_ragged_ends_left_out() {
        let mut buffer = AlignedBytes::zeroed(11);
        assert_eq!(buffer.len(), 11);
        buffer.as_mut_slice::<f32>()[1] = 2.5;
        assert_eq!(buffer.as_slice::<f32>(), [0.0, 2.5]);
        assert_eq!(buffer.as_slice::<f64>().len(), 1);
        assert_eq!(AlignedBytes::from_slice(&[1u16, 2, 3]).as_slice::<u16>(), [1, 2, 3]);
    }
}
