#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
//! The seam between the pipeline and whatever runs a network.
//!
//! An [`Engine`] is made by an [`EngineFactory`] on the thread that will own it until the end; the factory is `Send`,
//! the engine need not be. It allocates the host memory it wants to be fed from ([`Engine::allocate`]) and then serves
//! batches: [`Engine::submit`] starts the work and returns a [`Completion`], on which anybody but the device thread
//! may wait.
//!
//! Batches are plain host memory. A batch holds `batch` rows; a row is one patch, laid out as
//! `[channel, z, y, x]`, C order, native endianness, in the element kind that the [`EngineSpec`] names. Input and
//! output patches have the same size in voxels; the number of channels may differ.

pub mod conformance;
pub mod fake;
mod fingerprint;
mod memory;
mod timeline;
pub mod warm;

pub use fingerprint::{fill_fixed, fingerprint_bytes};
pub use memory::{HeapMemory, HostMemory, Slot};
pub use timeline::{Span, Timeline};

/// The element kind of a row of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementKind {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    Bf16,
}

impl ElementKind {
    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

impl std::fmt::Display for ElementKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        })
    }
}

/// What an engine takes and gives. Fixed from the moment the engine is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSpec {
    /// Rows (patches) of a full batch.
    pub batch: usize,
    /// Patch size in voxels, z y x, of input and output alike.
    pub patch: [usize; 3],
    /// Channels of an input row.
    pub channels_in: usize,
    /// Channels of an output row.
    pub channels_out: usize,
    /// Element kind of an input row.
    pub input: ElementKind,
    /// Element kind of an output row.
    pub output: ElementKind,
    /// Whether the engine always runs the whole batch. If so, whoever submits a short batch fills the rows beyond the
    /// real ones with zeros, and nobody reads their output.
    pub pad_short: bool,
}

impl EngineSpec {
    /// Voxels of one patch.
    #[must_use]
    pub fn patch_voxels(&self) -> usize {
        self.patch.iter().product()
    }

    /// Bytes of one input row.
    #[must_use]
    pub fn input_row_bytes(&self) -> usize {
        self.channels_in * self.patch_voxels() * self.input.size()
    }

    /// Bytes of one output row.
    #[must_use]
    pub fn output_row_bytes(&self) -> usize {
        self.channels_out * self.patch_voxels() * self.output.size()
    }

    /// Bytes of one slot: a full input batch and a full output batch.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.batch * (self.input_row_bytes() + self.output_row_bytes())
    }

    /// Allocates a slot of this spec's size on the ordinary heap, for engines that need no special memory.
    #[must_use]
    pub fn heap_slot(&self) -> Slot {
        Slot {
            input: Box::new(HeapMemory::zeroed(self.batch * self.input_row_bytes())),
            output: Box::new(HeapMemory::zeroed(self.batch * self.output_row_bytes())),
        }
    }
}

/// Why an engine could not do what was asked: what a caller decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineErrorKind {
    /// The device that was named does not exist on this machine.
    NoSuchDevice,
    /// The model could not be loaded: no file, or not a model.
    Load,
    /// The model's output does not fit: another patch size, another number of channels, another rank.
    Shape,
    /// The model failed on a batch. The engine stays usable.
    Run,
    /// The device has too little memory for the batch. The engine stays usable.
    OutOfMemory,
    /// The device is gone. The engine is not usable any more.
    DeviceLost,
}

/// An engine's failure, told as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{device}: {message}")]
pub struct EngineError {
    /// What a caller decides by.
    pub kind: EngineErrorKind,
    /// The device's name, such as `cpu` or `cuda:1`.
    pub device: String,
    /// What happened, for a person.
    pub message: String,
}

impl EngineError {
    /// Makes an error of `kind` for `device`.
    pub fn new(kind: EngineErrorKind, device: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, device: device.into(), message: message.into() }
    }
}

/// A batch that an engine did not complete: its slot comes back, so that nothing is lost and another device may try.
#[derive(Debug)]
pub struct Rejected {
    /// The slot, its input rows as they were submitted.
    pub slot: Slot,
    /// Why.
    pub error: EngineError,
}

/// Makes an engine on the thread that will own it.
pub trait EngineFactory: Send {
    /// The device's name, such as `cpu` or `cuda:1`: used for the thread's name and in reports.
    fn device(&self) -> String;

    /// Loads the model, moves it to the device and warms it up at its fixed shape, so that nothing is loaded or compiled
    /// after this returns.
    ///
    /// # Errors
    /// [`EngineErrorKind::NoSuchDevice`], [`Load`](EngineErrorKind::Load), [`Shape`](EngineErrorKind::Shape),
    /// [`Run`](EngineErrorKind::Run) or [`OutOfMemory`](EngineErrorKind::OutOfMemory).
    fn make(self: Box<Self>) -> Result<Box<dyn Engine>, EngineError>;
}

/// A network on a device. Owned by one thread.
pub trait Engine {
    /// What the engine takes and gives. Never changes.
    fn spec(&self) -> &EngineSpec;

    /// A sentence on what runs: the form of the model, the library's version.
    fn describe(&self) -> String;

    /// Allocates one slot of exactly the spec's size, in memory that this device reads and writes fastest.
    ///
    /// # Errors
    /// [`EngineErrorKind::OutOfMemory`].
    fn allocate(&mut self) -> Result<Slot, EngineError>;

    /// Starts to run the first `rows` rows of `slot.input`. Rows beyond them hold zeros if the spec pads short batches
    /// and anything otherwise. The completion gives the slot back with `rows` rows of output.
    ///
    /// # Errors
    /// The slot comes back with the cause, and the engine stays usable unless the cause is
    /// [`EngineErrorKind::DeviceLost`]. `rows` of 0 or more than the batch, or a slot of another size, is
    /// [`EngineErrorKind::Shape`].
    fn submit(&mut self, slot: Slot, rows: usize) -> Result<Box<dyn Completion>, Rejected>;

    /// Runs one fixed batch and gives the hash of what came out: engines of equal spec whose results may stand side by side
    /// in one volume give the same. Blocks; for start-up.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    fn fingerprint(&mut self, mut slot: Slot) -> Result<(Slot, u64), Rejected> {
        let (kind, rows) = (self.spec().input, self.spec().batch);
        fill_fixed(kind, 0, slot.input.bytes_mut());
        let slot = self.submit(slot, rows)?.wait()?;
        let hash = fingerprint_bytes(slot.output.bytes());
        Ok((slot, hash))
    }
}

/// A batch under way on a device.
pub trait Completion: Send {
    /// Blocks until the batch is done and gives its slot back. Waiting is for a thread that may block: not for the device's
    /// own thread and not for an async worker. Dropping a completion without waiting loses the slot, not the engine.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    fn wait(self: Box<Self>) -> Result<Slot, Rejected>;
}

/// A completion for engines that compute inside [`Engine::submit`].
pub struct Completed(pub Slot);

impl Completion for Completed {
    fn wait(self: Box<Self>) -> Result<Slot, Rejected> {
        Ok(self.0)
    }
}

/// Checks what every engine checks on submission: the number of rows and the slot's size.
///
/// # Errors
/// [`EngineErrorKind::Shape`], naming both sides.
pub fn check_submission(spec: &EngineSpec, device: &str, slot: &Slot, rows: usize) -> Result<(), EngineError> {
    if rows == 0 || rows > spec.batch {
        let message = format!("a batch of {rows} rows was submitted; allowed are 1 to {}", spec.batch);
        return Err(EngineError::new(EngineErrorKind::Shape, device, message));
    }
    let expected = (spec.batch * spec.input_row_bytes(), spec.batch * spec.output_row_bytes());
    let given = (slot.input.bytes().len(), slot.output.bytes().len());
    if given != expected {
        let message =
            format!("a slot of {given:?} bytes (input, output) was submitted; this engine's slots have {expected:?}");
        return Err(EngineError::new(EngineErrorKind::Shape, device, message));
    }
    Ok(())
}
