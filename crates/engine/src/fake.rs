//! Engines without a library or a device: what tests and benchmarks run instead of a network.
//!
//! They are ordinary engines and pass the same conformance suite as every other.

use std::sync::Arc;

use half::f16;

use crate::{
    Completed, Completion, ElementKind, Engine, EngineError, EngineErrorKind, EngineFactory, EngineSpec, Rejected,
    Slot, check_submission, fill_fixed, fingerprint_bytes,
};

/// What a fake computes for one row: input and output elements as f32, `[channel, z, y, x]`.
pub type RowFunction = Arc<dyn Fn(&[f32], &mut [f32]) + Send + Sync>;

/// What a fake does with its n-th batch (counted from zero, per engine) before it computes.
pub type BeforeBatch = Arc<dyn Fn(usize) -> Result<(), EngineError> + Send + Sync>;

/// A recipe for a fake engine.
#[derive(Clone)]
pub struct Fake {
    device: String,
    spec: EngineSpec,
    computes: Computes,
    before: BeforeBatch,
}

#[derive(Clone)]
enum Computes {
    /// The output repeats the input.
    Identity,
    Row(RowFunction),
}

impl Fake {
    /// A fake on `device` that computes `row` for every row.
    pub fn new(device: &str, spec: EngineSpec, row: impl Fn(&[f32], &mut [f32]) + Send + Sync + 'static) -> Self {
        Self::computing(device, spec, Computes::Row(Arc::new(row)))
    }

    /// `y = x`, element for element; the spec's output channels repeat the input's. Where input and output are of one kind the bytes are
    /// copied as they are, so that a benchmark measures the pipeline and not its fake network.
    #[must_use]
    pub fn identity(device: &str, spec: EngineSpec) -> Self {
        Self::computing(device, spec, Computes::Identity)
    }

    fn computing(device: &str, spec: EngineSpec, computes: Computes) -> Self {
        Self { device: device.into(), spec, computes, before: Arc::new(|_| Ok(())) }
    }

    /// `y = x * scale + offset`, two roundings to f32.
    #[must_use]
    pub fn affine(device: &str, spec: EngineSpec, scale: f32, offset: f32) -> Self {
        Self::new(device, spec, move |input, output| {
            for (y, x) in output.iter_mut().zip(input) {
                *y = x * scale + offset;
            }
        })
    }

    /// The same fake, calling `before` with the batch's number before each batch: to be slow, to hang, to count.
    #[must_use]
    pub fn before(self, before: impl Fn(usize) -> Result<(), EngineError> + Send + Sync + 'static) -> Self {
        Self { before: Arc::new(before), ..self }
    }

    /// The same fake, failing on batch `nth` and on no other.
    #[must_use]
    pub fn failing_on(self, nth: usize, kind: EngineErrorKind, message: &str) -> Self {
        let error = EngineError::new(kind, self.device.clone(), message);
        self.before(move |batch| if batch == nth { Err(error.clone()) } else { Ok(()) })
    }
}

impl EngineFactory for Fake {
    fn device(&self) -> String {
        self.device.clone()
    }

    fn make(self: Box<Self>) -> Result<Box<dyn Engine>, EngineError> {
        Ok(Box::new(FakeEngine { fake: *self, batches: 0 }))
    }
}

struct FakeEngine {
    fake: Fake,
    batches: usize,
}

impl Engine for FakeEngine {
    fn spec(&self) -> &EngineSpec {
        &self.fake.spec
    }

    fn describe(&self) -> String {
        "fake".into()
    }

    fn allocate(&mut self) -> Result<Slot, EngineError> {
        Ok(self.fake.spec.heap_slot())
    }

    fn submit(&mut self, mut slot: Slot, rows: usize) -> Result<Box<dyn Completion>, Rejected> {
        let batch = self.batches;
        self.batches += 1;
        let checked = check_submission(&self.fake.spec, &self.fake.device, &slot, rows);
        if let Err(error) = checked.and_then(|()| (self.fake.before)(batch)) {
            return Err(Rejected { slot, error });
        }
        let rows = if self.fake.spec.pad_short { self.fake.spec.batch } else { rows };
        run_rows(&self.fake, &mut slot, rows);
        Ok(Box::new(Completed(slot)))
    }

    /// Not counted as a batch: whoever fails the n-th batch means those of the run.
    fn fingerprint(&mut self, mut slot: Slot) -> Result<(Slot, u64), Rejected> {
        let spec = &self.fake.spec;
        fill_fixed(spec.input, 0, slot.input.bytes_mut());
        run_rows(&self.fake, &mut slot, spec.batch);
        let hash = fingerprint_bytes(slot.output.bytes());
        Ok((slot, hash))
    }
}

fn run_rows(fake: &Fake, slot: &mut Slot, rows: usize) {
    let spec = &fake.spec;
    let inputs = slot.input.bytes().chunks_exact(spec.input_row_bytes());
    let outputs = slot.output.bytes_mut().chunks_exact_mut(spec.output_row_bytes());
    let rows = inputs.zip(outputs).take(rows);
    match &fake.computes {
        Computes::Identity if spec.input == spec.output => rows.for_each(|(input, output)| repeat(input, output)),
        Computes::Identity => compute_rows(spec, rows, repeat),
        Computes::Row(row) => compute_rows(spec, rows, &**row),
    }
}

/// Computes rows in f32, whatever their kinds.
fn compute_rows<'a>(
    spec: &EngineSpec,
    rows: impl Iterator<Item = (&'a [u8], &'a mut [u8])>,
    row: impl Fn(&[f32], &mut [f32]),
) {
    let mut computed = vec![0.0; spec.channels_out * spec.patch_voxels()];
    for (input, output) in rows {
        row(&read_elements(spec.input, input), &mut computed);
        write_elements(spec.output, &computed, output);
    }
}

/// Fills `output` with `input`, over and over.
fn repeat<T: Copy>(input: &[T], output: &mut [T]) {
    for part in output.chunks_mut(input.len()) {
        part.copy_from_slice(&input[..part.len()]);
    }
}

/// The elements of `bytes` as f32.
#[must_use]
pub fn read_elements(kind: ElementKind, bytes: &[u8]) -> Vec<f32> {
    match kind {
        ElementKind::F32 => bytemuck::pod_collect_to_vec(bytes),
        ElementKind::F16 => bytes.as_chunks().0.iter().map(|&pair| f16::from_ne_bytes(pair).to_f32()).collect(),
        ElementKind::Bf16 => bytes.as_chunks().0.iter().map(|&pair| half::bf16::from_ne_bytes(pair).to_f32()).collect(),
    }
}

/// Writes `elements` into `bytes` in `kind`, rounding to nearest even.
pub fn write_elements(kind: ElementKind, elements: &[f32], bytes: &mut [u8]) {
    match kind {
        ElementKind::F32 => bytes.copy_from_slice(bytemuck::cast_slice(elements)),
        ElementKind::F16 => {
            for (pair, element) in bytes.as_chunks_mut().0.iter_mut().zip(elements) {
                *pair = f16::from_f32(*element).to_ne_bytes();
            }
        }
        ElementKind::Bf16 => {
            for (pair, element) in bytes.as_chunks_mut().0.iter_mut().zip(elements) {
                *pair = half::bf16::from_f32(*element).to_ne_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs an identity of two rows of `channels` (in, out) and gives the output's bytes.
    fn identity(kinds: [ElementKind; 2], channels: [usize; 2], fill: impl Fn(&mut [u8])) -> Vec<u8> {
        let spec = EngineSpec {
            batch: 2,
            patch: [1, 2, 2],
            channels_in: channels[0],
            channels_out: channels[1],
            input: kinds[0],
            output: kinds[1],
            pad_short: false,
        };
        let mut engine = Box::new(Fake::identity("fake:0", spec)).make().unwrap();
        let mut slot = engine.allocate().unwrap();
        fill(slot.input.bytes_mut());
        let Ok(slot) = engine.submit(slot, 2).and_then(Completion::wait) else { panic!("the batch was refused") };
        slot.output.bytes().to_vec()
    }

    #[test]
    fn the_identity_of_one_kind_copies_every_bit() {
        // The first four signal that they are no number, two in f16 and two in bf16: a conversion would quiet them.
        let patterns = [0x7C01_u16, 0xFC01, 0x7F81, 0xFF81, 0x8000, 0x0001, 0x3C00, 0x0000];
        let patterns: Vec<u8> = patterns.into_iter().flat_map(u16::to_ne_bytes).collect();
        for kind in [ElementKind::F16, ElementKind::Bf16] {
            let output = identity([kind; 2], [1, 1], |input| input.copy_from_slice(&patterns));
            assert_eq!(output, patterns, "{kind}");
        }
    }

    #[test]
    fn channels_repeat_whatever_the_kinds() {
        let numbers: Vec<f32> = (0..8).map(|i| i as f32 - 1.5).collect();
        let repeated: Vec<f32> = numbers.chunks(4).flat_map(|row| [row, row, row]).flatten().copied().collect();
        for kinds in [[ElementKind::F16, ElementKind::F16], [ElementKind::F16, ElementKind::F32]] {
            let output = identity(kinds, [1, 3], |input| write_elements(kinds[0], &numbers, input));
            assert_eq!(read_elements(kinds[1], &output), repeated, "{kinds:?}");
        }
    }
}
