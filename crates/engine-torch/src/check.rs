//! Whether a device computes right: the CUDA tests, in a form that needs no test runner, and on the CPU ordinary ones.

use std::sync::{Barrier, Mutex, OnceLock};

use haloflow_engine::{EngineSpec, Slot, fill_fixed, fingerprint_bytes};

use crate::bench::DeviceBench;
use crate::options::TorchOptions;

/// Different inputs; batches take turns among them.
const INPUTS: u64 = 5;

/// Every so many batches one is short.
const SHORT_EVERY: usize = 7;

/// Slots in flight: as many as a run has per device.
const SLOTS: usize = 3;

/// Sends `batches` batches through every device of `options` at once and checks that each gives the bytes that the bare model gives
/// on the first device; a slot is filled with other bytes before each use. Gives a description of each device.
///
/// # Errors
/// A sentence: what differed first, or what a device failed at.
pub fn check_devices(options: &[TorchOptions], batches: usize) -> Result<Vec<String>, String> {
    let one_at_a_time = Mutex::new(());
    let expected = OnceLock::new();
    let all_ready = Barrier::new(options.len());
    std::thread::scope(|scope| {
        let threads = options.iter().map(|options| {
            let (one_at_a_time, expected, all_ready) = (&one_at_a_time, &expected, &all_ready);
            scope.spawn(move || {
                let made = {
                    let _made_alone = one_at_a_time.lock();
                    make(options, expected)
                };
                // Whoever failed must come here too, or the others wait for ever.
                all_ready.wait();
                let expected = expected.get().ok_or("no device has said what to expect")?;
                made.and_then(|mut bench| check_device(&mut bench, expected, batches))
                    .map_err(|told| format!("{}: {told}", options.device))
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a device's thread panicked".to_owned())?).collect()
    })
}

/// Makes a device; the first one says what is expected of all.
fn make(options: &TorchOptions, expected: &OnceLock<Expected>) -> Result<DeviceBench, String> {
    let bench = DeviceBench::new(options).map_err(|error| error.message)?;
    if expected.get().is_none() {
        // Nobody else sets it: devices are made one after the other.
        drop(expected.set(Expected::of(&bench).map_err(|error| error.message)?));
    }
    Ok(bench)
}

/// What the bare model makes of the inputs.
struct Expected {
    spec: EngineSpec,
    /// The output's bytes, for each input.
    outputs: Vec<Vec<u8>>,
}

impl Expected {
    fn of(bench: &DeviceBench) -> Result<Self, haloflow_engine::EngineError> {
        let spec = bench.spec().clone();
        let outputs = (0..INPUTS).map(|seed| bench.bare_output(&input(&spec, seed))).collect::<Result<_, _>>()?;
        Ok(Self { spec, outputs })
    }
}

fn input(spec: &EngineSpec, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; spec.batch * spec.input_row_bytes()];
    fill_fixed(spec.input, seed, &mut bytes);
    bytes
}

fn check_device(bench: &mut DeviceBench, expected: &Expected, batches: usize) -> Result<String, String> {
    if *bench.spec() != expected.spec {
        return Err(format!("it runs {:?}, the first device {:?}", bench.spec(), expected.spec));
    }
    let spec = &expected.spec;
    let inputs: Vec<Vec<u8>> = (0..INPUTS).map(|seed| input(spec, seed)).collect();
    if expected.outputs.iter().any(|output| output.iter().all(|byte| *byte == 0)) {
        return Err("the model gives zeros only, which proves nothing; give it another input".to_owned());
    }
    let fill = |batch: usize, slot: &mut Slot| fill(spec, &inputs, batch, slot);
    let landed = |batch: usize, slot: &Slot| compare(spec, &expected.outputs, batch, slot);
    bench.stream(SLOTS, batches, fill, landed)?;
    Ok(bench.engine().describe())
}

/// The rows of a batch.
fn rows_of(batch: usize, spec: &EngineSpec) -> usize {
    if batch % SHORT_EVERY == SHORT_EVERY - 1 { spec.batch.div_ceil(2) } else { spec.batch }
}

/// Poisons both halves of a slot, then fills in the rows of a batch.
fn fill(spec: &EngineSpec, inputs: &[Vec<u8>], batch: usize, slot: &mut Slot) -> usize {
    let rows = rows_of(batch, spec);
    slot.output.bytes_mut().fill(0xA5);
    let bytes = slot.input.bytes_mut();
    bytes.fill(if spec.pad_short { 0 } else { 0xFF });
    let used = rows * spec.input_row_bytes();
    bytes[..used].copy_from_slice(&inputs[batch % inputs.len()][..used]);
    rows
}

fn compare(spec: &EngineSpec, outputs: &[Vec<u8>], batch: usize, slot: &Slot) -> Result<(), String> {
    let used = rows_of(batch, spec) * spec.output_row_bytes();
    let (given, wanted) = (&slot.output.bytes()[..used], &outputs[batch % outputs.len()][..used]);
    if given == wanted {
        return Ok(());
    }
    let first = given.iter().zip(wanted).position(|(given, wanted)| given != wanted).unwrap_or(0);
    let differ = given.iter().zip(wanted).filter(|(given, wanted)| given != wanted).count();
    Err(format!(
        "batch {batch} differs from the bare model's output in {differ} of {used} bytes, the first at {first} (hashes {:x} and {:x}, kind {})",
        fingerprint_bytes(given),
        fingerprint_bytes(wanted),
        spec.output
    ))
}
