//! The laws of the seam, as a suite that every engine must pass. Call [`check`] from a test.
//!
//! The suite wants an engine that computes the identity (`y = x`) with one channel in and out, any batch of at least 3, any
//! patch, any element kind.

use crate::fake::{read_elements, write_elements};
use crate::{Engine, EngineErrorKind, EngineFactory, Slot};

/// Runs every law on the engines that `factory` makes, each on a thread of its own, as the pipeline does.
///
/// # Errors
/// A sentence that names the law that was broken.
pub fn check(factory: impl Fn() -> Box<dyn EngineFactory>) -> Result<(), String> {
    for (law, holds) in LAWS {
        let factory = factory();
        let outcome = std::thread::scope(|scope| {
            scope
                .spawn(move || {
                    let mut engine = factory.make().map_err(|error| error.to_string())?;
                    holds(engine.as_mut())
                })
                .join()
        });
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(broken)) => return Err(format!("{law}: {broken}")),
            Err(_) => return Err(format!("{law}: the engine panicked")),
        }
    }
    Ok(())
}

type Law = fn(&mut dyn Engine) -> Result<(), String>;

const LAWS: [(&str, Law); 8] = [
    ("a slot has exactly the spec's size", slot_size),
    ("a full batch gives every row", full_batch),
    ("a short batch gives its rows", short_batch),
    ("rows beyond the real ones never change a result", padding_does_not_matter),
    ("slots can be used again, in any order", slots_are_reusable),
    ("no rows, or too many, are refused and the slot comes back", bad_rows),
    ("a slot of another size is refused and the engine stays usable", bad_slot),
    ("the fixed batch gives the same every time", fingerprints),
];

fn slot_size(engine: &mut dyn Engine) -> Result<(), String> {
    let slot = engine.allocate().map_err(|error| error.to_string())?;
    let spec = engine.spec();
    let expected = (spec.batch * spec.input_row_bytes(), spec.batch * spec.output_row_bytes());
    equal(&(slot.input.bytes().len(), slot.output.bytes().len()), &expected, "bytes of a slot")
}

fn full_batch(engine: &mut dyn Engine) -> Result<(), String> {
    let rows = engine.spec().batch;
    rows_come_back(engine, rows)
}

fn short_batch(engine: &mut dyn Engine) -> Result<(), String> {
    let rows = engine.spec().batch - 1;
    rows_come_back(engine, rows)
}

fn rows_come_back(engine: &mut dyn Engine, rows: usize) -> Result<(), String> {
    let slot = engine.allocate().map_err(|error| error.to_string())?;
    run_and_compare(engine, slot, rows, 1).map(drop)
}

fn padding_does_not_matter(engine: &mut dyn Engine) -> Result<(), String> {
    let mut slot = engine.allocate().map_err(|error| error.to_string())?;
    for seed in [3, 4] {
        slot.output.bytes_mut().fill(0xA5);
        slot = run_and_compare(engine, slot, 2, seed)?;
    }
    Ok(())
}

fn slots_are_reusable(engine: &mut dyn Engine) -> Result<(), String> {
    let mut slots: Vec<Slot> =
        (0..3).map(|_| engine.allocate()).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    for seed in 0..7 {
        let slot = slots.remove(seed % slots.len());
        let rows = 1 + seed % engine.spec().batch;
        let slot = run_and_compare(engine, slot, rows, seed)?;
        slots.push(slot);
    }
    Ok(())
}

fn bad_rows(engine: &mut dyn Engine) -> Result<(), String> {
    let batch = engine.spec().batch;
    let mut slot = engine.allocate().map_err(|error| error.to_string())?;
    for rows in [0, batch + 1] {
        slot = match engine.submit(slot, rows) {
            Ok(_) => return Err(format!("{rows} rows were taken by an engine of batch {batch}")),
            Err(rejected) => {
                equal(&rejected.error.kind, &EngineErrorKind::Shape, "kind of the error")?;
                rejected.slot
            }
        };
    }
    run_and_compare(engine, slot, batch, 5).map(drop)
}

fn bad_slot(engine: &mut dyn Engine) -> Result<(), String> {
    let mut small = engine.spec().clone();
    small.batch -= 1;
    match engine.submit(small.heap_slot(), 1) {
        Ok(_) => return Err("a slot of another size was taken".into()),
        Err(rejected) => equal(&rejected.error.kind, &EngineErrorKind::Shape, "kind of the error")?,
    }
    rows_come_back(engine, 1)
}

fn fingerprints(engine: &mut dyn Engine) -> Result<(), String> {
    let slot = engine.allocate().map_err(|error| error.to_string())?;
    let (slot, first) = engine.fingerprint(slot).map_err(|rejected| rejected.error.to_string())?;
    let (slot, second) = engine.fingerprint(slot).map_err(|rejected| rejected.error.to_string())?;
    equal(&second, &first, "hash")?;
    run_and_compare(engine, slot, 1, 6).map(drop)
}

/// Submits `rows` rows of a pattern made from `seed` and checks that they come back.
fn run_and_compare(engine: &mut dyn Engine, mut slot: Slot, rows: usize, seed: usize) -> Result<Slot, String> {
    let spec = engine.spec().clone();
    let values: Vec<f32> =
        (0..rows * spec.patch_voxels()).map(|i| ((i * 37 + seed * 101) % 509) as f32 / 8.0 - 20.0).collect();
    let used = rows * spec.input_row_bytes();
    let (real, padding) = slot.input.bytes_mut().split_at_mut(used);
    write_elements(spec.input, &values, real);
    padding.fill(if spec.pad_short { 0 } else { 0x5A });
    let sent = read_elements(spec.input, &slot.input.bytes()[..used]);
    let completion = engine.submit(slot, rows).map_err(|rejected| rejected.error.to_string())?;
    let slot = completion.wait().map_err(|rejected| rejected.error.to_string())?;
    let received = read_elements(spec.output, &slot.output.bytes()[..rows * spec.output_row_bytes()]);
    equal(&received, &sent, "rows")?;
    Ok(slot)
}

fn equal<T: PartialEq + std::fmt::Debug>(given: &T, expected: &T, what: &str) -> Result<(), String> {
    if given == expected {
        return Ok(());
    }
    let mut told = format!("{what}: expected {expected:?}, got {given:?}");
    told.truncate(300);
    Err(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::{ElementKind, EngineSpec};

    fn spec(kind: ElementKind, pad_short: bool) -> EngineSpec {
        EngineSpec { batch: 4, patch: [3, 4, 5], channels_in: 1, channels_out: 1, input: kind, output: kind, pad_short }
    }

    #[test]
    fn fakes_conform() {
        for kind in [ElementKind::F32, ElementKind::F16, ElementKind::Bf16] {
            for pad_short in [false, true] {
                let fake = Fake::identity("fake:0", spec(kind, pad_short)).before(|_| Ok(()));
                assert_eq!(check(|| Box::new(fake.clone())), Ok(()));
            }
        }
    }

    #[test]
    fn the_suite_notices_a_wrong_engine() {
        let fake = Fake::affine("fake:0", spec(ElementKind::F32, false), 1.0, 0.5);
        let told = check(|| Box::new(fake.clone())).unwrap_err();
        assert!(told.starts_with("a full batch gives every row: rows"), "{told}");
    }

    #[test]
    fn a_failing_batch_gives_its_slot_back_and_the_next_one_runs() {
        let fake =
            Fake::identity("fake:0", spec(ElementKind::F32, false)).failing_on(1, EngineErrorKind::Run, "told so");
        let mut engine = Box::new(fake).make().unwrap();
        let slot = engine.allocate().unwrap();
        let slot = run_and_compare(engine.as_mut(), slot, 2, 0).unwrap();
        let rejected = engine.submit(slot, 1).err().unwrap();
        assert_eq!(rejected.error.to_string(), "fake:0: told so");
        run_and_compare(engine.as_mut(), rejected.slot, 3, 1).unwrap();
    }
}
