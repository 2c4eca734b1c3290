//! Streams, events, pinned memory and graphs of a device: the boundary to stream.cc and graph.cc. Everything it offers is safe
//! to call. On the CPU a stream is nothing, an event has always happened, and there is neither pinned memory nor a graph.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use haloflow_engine::HostMemory;
use tch::Device;

use crate::ffi::{Failure, checked};

#[repr(C)]
struct RawStream {
    _private: [u8; 0],
}

#[repr(C)]
struct RawEvent {
    _private: [u8; 0],
}

#[repr(C)]
struct RawGraph {
    _private: [u8; 0],
}

// SAFETY: the declarations match the definitions in stream.cc and graph.cc; none of those lets an exception out.
unsafe extern "C" {
    fn haloflow_stream_new(
        device: c_int,
        high_priority: bool,
        out: *mut *mut RawStream,
        text: *mut *mut c_char,
    ) -> c_int;
    fn haloflow_stream_free(stream: *mut RawStream);
    fn haloflow_stream_make_current(stream: *const RawStream, text: *mut *mut c_char) -> c_int;
    fn haloflow_stream_record(stream: *const RawStream, event: *mut RawEvent, text: *mut *mut c_char) -> c_int;
    fn haloflow_stream_wait(stream: *const RawStream, event: *const RawEvent, text: *mut *mut c_char) -> c_int;
    fn haloflow_stream_synchronize(stream: *const RawStream, text: *mut *mut c_char) -> c_int;
    fn haloflow_event_new(device: c_int, timed: bool, out: *mut *mut RawEvent, text: *mut *mut c_char) -> c_int;
    fn haloflow_event_synchronize(event: *const RawEvent, text: *mut *mut c_char) -> c_int;
    fn haloflow_event_elapsed(
        from: *const RawEvent,
        to: *const RawEvent,
        milliseconds: *mut f32,
        text: *mut *mut c_char,
    ) -> c_int;
    fn haloflow_event_free(event: *mut RawEvent);
    fn haloflow_pinned_new(device: c_int, bytes: usize, out: *mut *mut c_void, text: *mut *mut c_char) -> c_int;
    fn haloflow_pinned_free(device: c_int, memory: *mut c_void);
    fn haloflow_memory(device: c_int, free: *mut u64, total: *mut u64, text: *mut *mut c_char) -> c_int;
    fn haloflow_release_memory(device: c_int, text: *mut *mut c_char) -> c_int;
    fn haloflow_graph_begin(device: c_int, out: *mut *mut RawGraph, text: *mut *mut c_char) -> c_int;
    fn haloflow_graph_end(graph: *mut RawGraph, text: *mut *mut c_char) -> c_int;
    fn haloflow_graph_abandon(graph: *mut RawGraph);
    fn haloflow_graph_replay(graph: *mut RawGraph, text: *mut *mut c_char) -> c_int;
    fn haloflow_graph_free(graph: *mut RawGraph);
}

/// The device as C++ counts: CUDA devices from 0, the CPU is negative.
fn index(device: Device) -> c_int {
    match device {
        Device::Cuda(index) => c_int::try_from(index).unwrap_or(c_int::MAX),
        _ => -1,
    }
}

/// A stream of a device. It belongs to the thread that made it.
pub(crate) struct Stream {
    raw: *mut RawStream,
}

impl Stream {
    /// A stream of its own, and `device` becomes the calling thread's current one.
    pub(crate) fn new(device: Device, high_priority: bool) -> Result<Self, Failure> {
        let mut raw = null_mut();
        // SAFETY: plain values; `raw` is written on success only.
        checked(|text| unsafe { haloflow_stream_new(index(device), high_priority, &raw mut raw, text) })?;
        Ok(Self { raw })
    }

    /// From now on the calling thread's operations on the device go to this stream.
    pub(crate) fn make_current(&self) -> Result<(), Failure> {
        // SAFETY: `self.raw` came from `haloflow_stream_new` and is freed in `drop` only.
        checked(|text| unsafe { haloflow_stream_make_current(self.raw, text) })
    }

    /// `event` happens when what is on the stream now is done.
    pub(crate) fn record(&self, event: &Event) -> Result<(), Failure> {
        // SAFETY: both are alive. The runtime lets any thread record and wait for an event.
        checked(|text| unsafe { haloflow_stream_record(self.raw, event.raw, text) })
    }

    /// What is put on the stream from now on starts after `event`.
    pub(crate) fn wait(&self, event: &Event) -> Result<(), Failure> {
        // SAFETY: both are alive.
        checked(|text| unsafe { haloflow_stream_wait(self.raw, event.raw, text) })
    }

    /// Blocks until the stream is idle. For start-up, shutdown and after a failure only.
    pub(crate) fn synchronize(&self) -> Result<(), Failure> {
        // SAFETY: `self.raw` is alive.
        checked(|text| unsafe { haloflow_stream_synchronize(self.raw, text) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: `self.raw` came from `haloflow_stream_new` and is freed here only. The stream itself is libtorch's.
        unsafe { haloflow_stream_free(self.raw) }
    }
}

/// A point in the work of a stream.
pub(crate) struct Event {
    raw: *mut RawEvent,
}

// SAFETY: an event is a handle of the CUDA runtime, whose functions may be called on any thread, and nothing else.
unsafe impl Send for Event {}
// SAFETY: as above; nothing of it changes after it was made.
unsafe impl Sync for Event {}

impl Event {
    /// An event of `device`. A timed one costs a little more.
    pub(crate) fn new(device: Device, timed: bool) -> Result<Self, Failure> {
        let mut raw = null_mut();
        // SAFETY: plain values; `raw` is written on success only.
        checked(|text| unsafe { haloflow_event_new(index(device), timed, &raw mut raw, text) })?;
        Ok(Self { raw })
    }

    /// Sleeps until the event has happened; what the device failed at before it is told here.
    pub(crate) fn synchronize(&self) -> Result<(), Failure> {
        // SAFETY: `self.raw` came from `haloflow_event_new` and is freed in `drop` only.
        checked(|text| unsafe { haloflow_event_synchronize(self.raw, text) })
    }

    /// Milliseconds from `earlier` to this event. Both are timed and have happened.
    pub(crate) fn milliseconds_since(&self, earlier: &Self) -> Result<f64, Failure> {
        let mut milliseconds = 0.0;
        // SAFETY: both are alive; `milliseconds` is written on success.
        checked(|text| unsafe { haloflow_event_elapsed(earlier.raw, self.raw, &raw mut milliseconds, text) })?;
        Ok(f64::from(milliseconds))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: `self.raw` came from `haloflow_event_new` and is freed here only.
        unsafe { haloflow_event_free(self.raw) }
    }
}

/// Host memory that a device's copy engines reach directly; every device may use it.
pub(crate) struct PinnedMemory {
    memory: NonNull<u8>,
    bytes: usize,
    device: Device,
    /// Whether a device may be reading or writing it.
    in_flight: AtomicBool,
}

// SAFETY: the memory is owned like a box's, and only the flag can be changed through a shared reference.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Exactly `bytes` bytes of zeros, allocated through `device`.
    pub(crate) fn zeroed(device: Device, bytes: usize) -> Result<Self, Failure> {
        let mut memory = null_mut();
        // SAFETY: plain values; `memory` is written on success only.
        checked(|text| unsafe { haloflow_pinned_new(index(device), bytes, &raw mut memory, text) })?;
        let memory = NonNull::new(memory.cast()).ok_or_else(|| Failure::Thrown("no pinned memory came".to_owned()))?;
        Ok(Self { memory, bytes, device, in_flight: AtomicBool::new(false) })
    }

    fn check_at_rest(&self) {
        debug_assert!(!self.in_flight.load(Ordering::Acquire), "a slot was touched before both its events");
    }
}

impl HostMemory for PinnedMemory {
    fn bytes(&self) -> &[u8] {
        self.check_at_rest();
        // SAFETY: the memory is `bytes` long, initialised, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.check_at_rest();
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.bytes) }
    }

    fn set_in_flight(&self, in_flight: bool) {
        let before = self.in_flight.swap(in_flight, Ordering::AcqRel);
        debug_assert!(before != in_flight, "a slot was submitted, or given back, twice");
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: the memory came from `haloflow_pinned_new` and is freed here only. A slot in flight is owned by its
        // completion, which waits for the device before it lets go.
        unsafe { haloflow_pinned_free(index(self.device), self.memory.as_ptr().cast()) }
    }
}

/// Bytes of a CUDA device's memory: free, and in all.
pub(crate) fn memory(device: Device) -> Result<(u64, u64), Failure> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both are written on success.
    checked(|text| unsafe { haloflow_memory(index(device), &raw mut free, &raw mut total, text) })?;
    Ok((free, total))
}

/// Gives what libtorch keeps for later back to a CUDA device.
pub(crate) fn release_memory(device: Device) -> Result<(), Failure> {
    // SAFETY: plain values.
    checked(|text| unsafe { haloflow_release_memory(index(device), text) })
}

/// Work of a stream, recorded once, to be put on a stream again at little cost. It stays on the thread that captured it.
pub(crate) struct RecordedWork {
    raw: *mut RawGraph,
}

impl RecordedWork {
    /// Captures what `work` puts on the calling thread's current stream of `device`; that must not be the default stream.
    pub(crate) fn capture<E: From<Failure>>(device: Device, work: impl FnOnce() -> Result<(), E>) -> Result<Self, E> {
        let mut raw = null_mut();
        // SAFETY: plain values; `raw` is written on success only.
        checked(|text| unsafe { haloflow_graph_begin(index(device), &raw mut raw, text) })?;
        let ended = work().and_then(|()| {
            // SAFETY: `raw` came from `haloflow_graph_begin`, on this thread.
            Ok(checked(|text| unsafe { haloflow_graph_end(raw, text) })?)
        });
        match ended {
            Ok(()) => Ok(Self { raw }),
            Err(error) => {
                // SAFETY: as above; nobody uses `raw` after this.
                unsafe { haloflow_graph_abandon(raw) };
                Err(error)
            }
        }
    }

    /// Puts the work on the calling thread's current stream. The memory that it works on is the captured one's.
    pub(crate) fn replay(&self) -> Result<(), Failure> {
        // SAFETY: `self.raw` was captured completely and is freed in `drop` only.
        checked(|text| unsafe { haloflow_graph_replay(self.raw, text) })
    }
}

impl Drop for RecordedWork {
    fn drop(&mut self) {
        // SAFETY: `self.raw` came from `haloflow_graph_begin` and is freed here only.
        unsafe { haloflow_graph_free(self.raw) }
    }
}
