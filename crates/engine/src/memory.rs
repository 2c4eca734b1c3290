//! Host memory that batches live in.

use std::fmt;

/// A block of host memory of fixed size, aligned for `u64`.
pub trait HostMemory: Send + Sync {
    /// The memory, to read.
    fn bytes(&self) -> &[u8];
    /// The memory, to write.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Told by an engine before a device starts to use the memory and after it has stopped, so that memory which a device
    /// reaches by itself can check that nobody touches it in between.
    fn set_in_flight(&self, _in_flight: bool) {}
}

/// Ordinary heap memory.
pub struct HeapMemory {
    words: Vec<u64>,
    bytes: usize,
}

impl HeapMemory {
    /// Allocates `bytes` bytes of zeros.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        Self { words: vec![0; bytes.div_ceil(8)], bytes }
    }
}

impl HostMemory for HeapMemory {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }
}

/// One place in the ring: the memory of a whole input batch and of a whole output batch. It travels from the batch stage
/// over the device to the merge stage and back to the ring; whoever holds it owns both halves.
pub struct Slot {
    /// `batch` input rows.
    pub input: Box<dyn HostMemory>,
    /// `batch` output rows.
    pub output: Box<dyn HostMemory>,
}

impl Slot {
    /// Tells both halves whether a device is using them.
    pub fn set_in_flight(&self, in_flight: bool) {
        self.input.set_in_flight(in_flight);
        self.output.set_in_flight(in_flight);
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({} + {} bytes)", self.input.bytes().len(), self.output.bytes().len())
    }
}
