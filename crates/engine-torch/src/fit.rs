//! The largest batch that a device has memory for.

use haloflow_engine::{EngineError, EngineErrorKind, EngineSpec};
use tch::Device;

use crate::cause::Cause;
use crate::factory::{asked_spec, existing_device, load, warm_up};
use crate::options::TorchOptions;
use crate::ring::Ring;
use crate::stream::{memory, release_memory};

/// The share of a device's memory that is left free: what fits to the last byte at start-up may not fit an hour later.
const RESERVE: u64 = 20;

/// The largest batch that is tried. Nothing is gained beyond it, and a slot of the host holds as many patches.
const LARGEST: usize = 256;

/// Finds the largest batch with which the model of `options` fits on its device, leaving a twentieth of the memory free. On the
/// CPU that is the default, 4: its memory is the host's. Loads the model, and frees everything before it returns.
///
/// Call it on a thread that ends afterwards, since it chooses that thread's device and stream.
///
/// # Errors
/// As [`EngineFactory::make`](haloflow_engine::EngineFactory::make), of kind [`EngineErrorKind::OutOfMemory`] if not even one
/// patch fits.
pub fn fitting_batch(options: &TorchOptions) -> Result<usize, EngineError> {
    let name = options.device.to_string();
    probe(options).map_err(|cause| cause.on(&name))
}

/// What `--batch auto` is on the CPU.
const ON_CPU: usize = 4;

fn probe(options: &TorchOptions) -> Result<usize, Cause> {
    let device = existing_device(options.device)?;
    if device == Device::Cpu {
        return Ok(ON_CPU);
    }
    let streams = Ring::streams(device)?;
    let model = load(options, device)?;
    let mut last = None;
    let found = largest(LARGEST, |batch| {
        let asked = EngineSpec { batch, ..asked_spec(options) };
        let fits = warm_up(&model, device, &asked).map(|warm| warm.spec.slot_bytes() as u64);
        let left = fits.and_then(|ring| {
            let (free, total) = memory(device)?;
            // The ring holds two batches, and a graph's buffers one more.
            Ok(free > total / RESERVE + 3 * ring)
        });
        let released = release_memory(device);
        let fits = match left {
            Ok(fits) => fits,
            Err(cause) if cause.kind == EngineErrorKind::OutOfMemory => {
                last = Some(cause);
                false
            }
            Err(cause) => return Err(cause),
        };
        Ok(released.map(|()| fits)?)
    })?;
    drop((model, streams));
    release_memory(device)?;
    match found {
        0 => Err(last.unwrap_or_else(|| Cause::new(EngineErrorKind::OutOfMemory, "not even one patch fits"))),
        batch => Ok(batch),
    }
}

/// The largest number from 1 to `limit` that fits, 0 if none does: doubled until one does not fit, then halved between.
fn largest<E>(limit: usize, mut fits: impl FnMut(usize) -> Result<bool, E>) -> Result<usize, E> {
    let (mut good, mut bad) = (0, limit + 1);
    while good + 1 < bad {
        let tried = if bad > limit { (2 * good).clamp(1, limit) } else { good.midpoint(bad) };
        if fits(tried)? {
            good = tried;
        } else {
            bad = tried;
        }
    }
    Ok(good)
}

/// The same cause and, if memory was what was missing, the batch that would fit.
pub(crate) fn with_advice(
    cause: Cause,
    device: Device,
    batch: usize,
    mut run: impl FnMut(usize) -> Result<(), Cause>,
) -> Cause {
    if cause.kind != EngineErrorKind::OutOfMemory || device == Device::Cpu {
        return cause;
    }
    let found = largest(batch.saturating_sub(1), |batch| {
        release_memory(device)?;
        match run(batch) {
            Ok(()) => Ok(true),
            Err(cause) if cause.kind == EngineErrorKind::OutOfMemory => Ok(false),
            Err(cause) => Err(cause),
        }
    });
    let advice = match found {
        Ok(0) => "not even one patch fits".to_owned(),
        Ok(fits) => format!("a batch of {fits} would fit, or `--batch auto`"),
        // A compiled model takes one batch size only.
        Err(_) => return cause,
    };
    Cause::new(cause.kind, format!("{}; the batch is {batch}: {advice}", cause.message.trim_end_matches('.')))
}

#[cfg(test)]
mod tests {
    use super::largest;

    #[test]
    fn the_largest_that_fits_is_found_with_few_tries() {
        for limit in [1, 2, 3, 64, 255, 256] {
            for truth in 0..=limit {
                let mut tries = 0;
                let found = largest(limit, |batch| {
                    tries += 1;
                    assert!((1..=limit).contains(&batch));
                    Ok::<bool, ()>(batch <= truth)
                });
                assert_eq!(found, Ok(truth), "limit {limit}");
                assert!(tries <= 17, "{tries} tries for {truth} of {limit}");
            }
        }
    }

    #[test]
    fn an_error_ends_the_search() {
        assert_eq!(largest(8, |batch| if batch < 4 { Ok(true) } else { Err(batch) }), Err(4));
    }
}
