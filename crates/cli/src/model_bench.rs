//! `haloflow model bench`: the compiled form beside TorchScript, in turns, so that what else the machine does slows both.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use haloflow_engine::{EngineError, EngineErrorKind, EngineFactory, fill_fixed};
use haloflow_engine_torch::{CompiledForm, TorchFactory, TorchOptions};
use haloflow_model::{Model, ModelError, Wanted, package_for};

use crate::machine::Machine;
use crate::model_args::BenchCommand;
use crate::model_command::{asked, element_kind, tell};
use crate::models::Found;

/// Measures and prints.
pub(crate) fn run(command: &BenchCommand) -> Result<(), ModelError> {
    if command.batches == 0 {
        return Err(ModelError::usage("`batches` is 0; it must be at least 1"));
    }
    let places = Found::new(&command.made_for.places)?;
    let model = Model::open(&command.made_for.path, &places.cache)?;
    let wanted = asked(&command.made_for, &model)?;
    let script = options(&model, &wanted)?;
    let package = package_for(&model, &wanted, &places.cache, &|| places.python(), &mut tell)?.package;
    let compiled = Some(CompiledForm { package: Ok(package), required: true });
    let forms = [script.clone(), TorchOptions { compiled, ..script }];
    let [script, compiled] = in_turns(forms, command.batches)
        .map_err(|error| ModelError::data(format!("the model cannot be measured: {error}")))?;
    drop(std::io::stdout().lock().write_all(report(&wanted, &script, &compiled).as_bytes()));
    Ok(())
}

fn options(model: &Model, wanted: &Wanted) -> Result<TorchOptions, ModelError> {
    let Some(module) = &model.module else {
        let path = model.path.display();
        return Err(ModelError::data(format!(
            "{path} holds no TorchScript module to measure the compiled form beside"
        )));
    };
    let device = wanted.device.parse().map_err(ModelError::usage)?;
    Ok(TorchOptions {
        channels_in: model.facts.channels_in.unwrap_or(1),
        channels_out: model.facts.channels_out,
        kind: element_kind(wanted.kind),
        pad_short: true,
        intra_op_threads: Machine::here().cores,
        graph: wanted.mode.graph(),
        ..TorchOptions::new(module.clone(), device, wanted.batch, wanted.patch)
    })
}

/// A form on a thread of its own, which an engine must not leave.
struct Runner {
    ask: SyncSender<()>,
    took: Receiver<Result<Duration, EngineError>>,
}

impl Runner {
    /// Makes the engine and runs a batch whenever it is asked; one engine is made after the other.
    fn start(options: TorchOptions) -> Result<Self, EngineError> {
        let ((ask, asked), (tell, took)) = (sync_channel::<()>(1), sync_channel(1));
        std::thread::spawn(move || {
            let made = Box::new(TorchFactory::new(options)).make();
            let ready = made.and_then(|mut engine| engine.allocate().map(|slot| (engine, slot)));
            let (mut engine, slot) = match ready {
                Ok(ready) => ready,
                // Whoever started it waits for this, or has gone.
                Err(error) => return drop(tell.send(Err(error))),
            };
            let (spec, mut slot) = (engine.spec().clone(), slot);
            fill_fixed(spec.input, 0, slot.input.bytes_mut());
            let (rows, mut slot) = (spec.batch, Some(slot));
            drop(tell.send(Ok(Duration::ZERO)));
            for () in asked {
                let began = Instant::now();
                let Some(free) = slot.take() else { return };
                let done = engine.submit(free, rows).and_then(|flight| flight.wait());
                let took = done.map(|back| slot = Some(back)).map(|()| began.elapsed());
                drop(tell.send(took.map_err(|rejected| rejected.error)));
            }
        });
        let runner = Self { ask, took };
        runner.answer().map(|_| runner)
    }

    fn batch(&self) -> Result<Duration, EngineError> {
        // A thread that is gone gives no answer either.
        let _ = self.ask.send(());
        self.answer()
    }

    fn answer(&self) -> Result<Duration, EngineError> {
        let gone = || EngineError {
            kind: EngineErrorKind::Run,
            device: String::new(),
            message: "the thread of a form ended early".into(),
        };
        self.took.recv().unwrap_or_else(|_| Err(gone()))
    }
}

/// The time of each of `batches` batches of each form, after one that does not count.
fn in_turns(forms: [TorchOptions; 2], batches: usize) -> Result<[Vec<Duration>; 2], EngineError> {
    let [script, compiled] = forms.map(Runner::start);
    let runners = [script?, compiled?];
    let mut times = [Vec::new(), Vec::new()];
    for batch in 0..=batches {
        for (runner, times) in runners.iter().zip(&mut times) {
            let took = runner.batch()?;
            times.extend((batch > 0).then_some(took));
        }
    }
    Ok(times)
}

fn report(wanted: &Wanted, script: &[Duration], compiled: &[Duration]) -> String {
    let [z, y, x] = wanted.patch;
    let voxels = (wanted.batch * z * y * x) as f64;
    let (script, compiled) = (median(script), median(compiled));
    let line = |name: &str, seconds: f64| {
        format!("{name:<12}{:9.1} ms per batch{:9.3} Mvox/s\n", seconds * 1e3, voxels / seconds / 1e6)
    };
    format!(
        "{} on {} ({}), batch {}, patch {z} x {y} x {x}, medians\n{}{}ratio {:.2}\n",
        wanted.kind,
        wanted.device,
        wanted.architecture,
        wanted.batch,
        line("TorchScript", script),
        line("compiled", compiled),
        script / compiled
    )
}

fn median(times: &[Duration]) -> f64 {
    let mut seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    seconds.sort_by(f64::total_cmp);
    let middle = seconds.len() / 2;
    if seconds.len() % 2 == 1 { seconds[middle] } else { f64::midpoint(seconds[middle - 1], seconds[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_the_times_counts() {
        let of = |times: &[u64]| median(&times.iter().map(|time| Duration::from_secs(*time)).collect::<Vec<_>>());
        assert_eq!((of(&[9, 1, 2]), of(&[4, 1, 2, 100])), (2.0, 3.0));
    }
}
