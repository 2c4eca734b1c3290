//! Buffers of voxels.

use std::fmt;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use haloflow_geometry::Box3;
use memmap2::MmapMut;

use crate::Element;

/// Buffers of at least so many bytes get pages of their own.
const LARGE: usize = 4 << 20;

/// A buffer of bytes whose start is aligned for every [`Element`].
///
/// Large ones are mapped, in huge pages where the system has them: buffers come and go with every block, and to get fresh memory page
/// by page would take as long as all the work on it.
pub struct AlignedBytes {
    memory: Memory,
    length: usize,
}

enum Memory {
    Words(Vec<u64>),
    /// Aligned as words are.
    Bytes(Vec<u8>),
    Pages(MmapMut),
}

impl AlignedBytes {
    /// A buffer of `length` zero bytes.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        let pages = if length < LARGE { None } else { pages(length) };
        let words = || Memory::Words(vec![0; length.div_ceil(size_of::<u64>())]);
        Self { memory: pages.map_or_else(words, Memory::Pages), length }
    }

    /// A copy of `values`.
    #[must_use]
    pub fn from_slice<T: Pod>(values: &[T]) -> Self {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// These bytes without copying them, if they happen to be aligned; else themselves.
    ///
    /// # Errors
    /// The bytes, if they are not aligned.
    pub(crate) fn adopt(bytes: Vec<u8>) -> Result<Self, Vec<u8>> {
        let length = bytes.len();
        match bytes.as_ptr().align_offset(align_of::<u64>()) {
            0 => Ok(Self { memory: Memory::Bytes(bytes), length }),
            _ => Err(bytes),
        }
    }

    #[cfg(test)]
    pub(crate) const fn is_adopted(&self) -> bool {
        matches!(self.memory, Memory::Bytes(_))
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

/// Zeroed pages, huge ones where the system has them; none where it refuses.
fn pages(length: usize) -> Option<MmapMut> {
    let pages = MmapMut::map_anon(length).ok()?;
    // Only a hint: small pages do as well.
    #[cfg(target_os = "linux")]
    drop(pages.advise(memmap2::Advice::HugePage));
    Some(pages)
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Words(words) => &bytemuck::cast_slice(words)[..self.length],
            Memory::Bytes(bytes) => bytes,
            Memory::Pages(pages) => pages,
        }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Words(words) => &mut bytemuck::cast_slice_mut(words)[..self.length],
            Memory::Bytes(bytes) => bytes,
            Memory::Pages(pages) => pages,
        }
    }
}

impl Default for AlignedBytes {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl Clone for AlignedBytes {
    fn clone(&self) -> Self {
        Self::from_slice::<u8>(self)
    }
}

impl PartialEq for AlignedBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for AlignedBytes {}

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

    #[test]
    fn bytes_are_adopted_if_they_are_aligned() {
        let aligned = AlignedBytes::from_slice(&[1_u16, 2, 3, 4]).to_vec();
        let place = aligned.as_ptr();
        match AlignedBytes::adopt(aligned) {
            Ok(mut adopted) => {
                assert_eq!((adopted.as_ptr(), adopted.as_slice::<u16>()), (place, &[1, 2, 3, 4][..]));
                adopted.as_mut_slice::<u16>()[0] = 7;
                assert_eq!(adopted.clone().as_slice::<u16>(), [7, 2, 3, 4]);
            }
            Err(given) => assert_ne!(given.as_ptr().align_offset(8), 0),
        }
    }

    #[test]
    fn large_buffers_are_as_small_ones() {
        let mut buffer = AlignedBytes::zeroed(LARGE + 5);
        assert!(matches!(buffer.memory, Memory::Pages(_)));
        assert!(buffer.iter().all(|byte| *byte == 0));
        buffer.as_mut_slice::<f64>()[LARGE / 8 - 1] = 1.5;
        let copy = buffer.clone();
        assert_eq!(
            (copy.len(), copy.as_slice::<f64>().len(), copy.as_slice::<f64>()[LARGE / 8 - 1]),
            (LARGE + 5, LARGE / 8, 1.5)
        );
        assert!(copy == buffer);
        buffer[LARGE + 4] = 1;
        assert!(copy != buffer);
    }
}
