//! A device without a pipeline: what the ring is measured against and checked by.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use haloflow_engine::{Completion, Engine, EngineError, EngineSpec, HeapMemory, HostMemory, Rejected, Slot};
use tch::{Device, Tensor};

use crate::cause::Cause;
use crate::factory::make_streamed;
use crate::ffi::{HostTensor, copy_without_waiting};
use crate::graph::Graph;
use crate::options::TorchOptions;
use crate::shape::{tensor_size, torch_kind};
use crate::stream::Event;
use crate::streamed::StreamedEngine;

/// One device, warm, for benchmarks and checks. It stays on the thread that made it.
pub struct DeviceBench {
    engine: StreamedEngine,
}

impl DeviceBench {
    /// Makes the engine that [`TorchFactory`](crate::TorchFactory) would make for a CUDA device; on the CPU too.
    ///
    /// # Errors
    /// As [`EngineFactory::make`](haloflow_engine::EngineFactory::make).
    pub fn new(options: &TorchOptions) -> Result<Self, EngineError> {
        let name = options.device.to_string();
        Ok(Self { engine: make_streamed(options).map_err(|cause| cause.on(&name))? })
    }

    /// What the engine takes and gives.
    #[must_use]
    pub fn spec(&self) -> &EngineSpec {
        &self.engine.spec
    }

    /// The engine, to submit batches to.
    pub fn engine(&mut self) -> &mut dyn Engine {
        &mut self.engine
    }

    /// Sends `batches` batches over `slots` slots through the engine as a pipeline would: another thread waits for them. `fill`
    /// makes a slot ready for a batch and says how many rows it has; `landed` sees what came back. Gives the instant at which
    /// each batch was back.
    ///
    /// # Errors
    /// What the device failed at, or what `landed` did not like.
    pub fn stream(
        &mut self,
        slots: usize,
        batches: usize,
        mut fill: impl FnMut(usize, &mut Slot) -> usize,
        landed: impl FnMut(usize, &Slot) -> Result<(), String> + Send,
    ) -> Result<Vec<Instant>, String> {
        let (give_back, free) = sync_channel(slots);
        for _ in 0..slots {
            let slot = self.engine.allocate().map_err(|error| error.to_string())?;
            // There is room for every slot.
            drop(give_back.try_send(slot));
        }
        let (send, flights) = sync_channel(slots);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || wait_for_all(&flights, &give_back, landed));
            let mut failed = None;
            for batch in 0..batches {
                // Nobody gives slots back once something went wrong on the other side.
                let Ok(mut slot) = free.recv() else { break };
                let rows = fill(batch, &mut slot);
                match self.engine.submit(slot, rows) {
                    Ok(completion) => drop(send.send((batch, completion))),
                    Err(Rejected { error, .. }) => {
                        failed = Some(error.to_string());
                        break;
                    }
                }
            }
            drop(send);
            let waited = waiting.join().unwrap_or_else(|_| Err("the waiting thread panicked".to_owned()));
            failed.map_or(waited, Err)
        })
    }

    /// Milliseconds of each of `batches` runs of the bare model (or its graph) on the rows `input`, a whole batch, which are on the device
    /// by then, one after the other on the engine's compute stream. What the numbers are matters: a card draws less power over zeros,
    /// and is faster.
    ///
    /// # Errors
    /// What the device failed at, or an input that is no whole batch.
    pub fn bare(&self, input: &[u8], batches: usize) -> Result<Vec<f64>, EngineError> {
        let StreamedEngine { ring, graph, model, device, spec, name, .. } = &self.engine;
        let [buffer, _] = ring.buffers();
        let given = || -> Result<Tensor, Cause> {
            let mut memory = HeapMemory::zeroed(input.len());
            memory.bytes_mut().copy_from_slice(input);
            let size = tensor_size(spec.batch, spec.channels_in, spec.patch);
            let host = HostTensor::new(memory.bytes_mut(), &size, torch_kind(spec.input))?;
            Ok(host.tensor().f_to_device_(*device, torch_kind(spec.input), false, true)?)
        };
        let given = given().map_err(|cause| cause.on(name))?;
        let input = graph.as_ref().map_or(buffer, Graph::input);
        copy_without_waiting(input, &given).map_err(|failure| Cause::from(failure).on(name))?;
        self.timed(batches, ring.compute(), *device, || match graph {
            Some(graph) => graph.replay(),
            None => model.forward(input).map(drop),
        })
    }

    /// Milliseconds of each of `batches` uploads, and of as many downloads, of a whole batch with nothing else on the device.
    ///
    /// # Errors
    /// What the device failed at.
    pub fn copies(&self, slot: &mut Slot, batches: usize) -> Result<[Vec<f64>; 2], EngineError> {
        let StreamedEngine { ring, spec, device, name, .. } = &self.engine;
        let [input, output] = ring.buffers();
        let [upload, download] = ring.copies();
        let size = |channels| tensor_size(spec.batch, channels, spec.patch);
        let told = |cause: crate::ffi::Failure| Cause::from(cause).on(name);
        let up = {
            let host = HostTensor::new(slot.input.bytes_mut(), &size(spec.channels_in), torch_kind(spec.input));
            let host = host.map_err(told)?;
            self.timed(batches, upload, *device, || Ok(copy_without_waiting(input, host.tensor())?))?
        };
        let host = HostTensor::new(slot.output.bytes_mut(), &size(spec.channels_out), torch_kind(spec.output));
        let host = host.map_err(told)?;
        let down = self.timed(batches, download, *device, || Ok(copy_without_waiting(host.tensor(), output)?))?;
        Ok([up, down])
    }

    /// Times `work` on `stream`, which is idle, by the device's events; on the CPU, which has none, by the clock.
    fn timed(
        &self,
        batches: usize,
        stream: &crate::stream::Stream,
        device: Device,
        mut work: impl FnMut() -> Result<(), Cause>,
    ) -> Result<Vec<f64>, EngineError> {
        let mut timing = || -> Result<Vec<f64>, Cause> {
            stream.make_current()?;
            let mut events = vec![Event::new(device, true)?];
            let mut clock = vec![Instant::now()];
            stream.record(&events[0])?;
            for _ in 0..batches {
                work()?;
                let event = Event::new(device, true)?;
                stream.record(&event)?;
                events.push(event);
                clock.push(Instant::now());
            }
            stream.synchronize()?;
            if device == Device::Cpu {
                return Ok(clock.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e3).collect());
            }
            events.windows(2).map(|pair| Ok(pair[1].milliseconds_since(&pair[0])?)).collect()
        };
        let timed = timing();
        let back = self.engine.ring.compute().make_current();
        timed.and_then(|times| back.map(|()| times).map_err(Cause::from)).map_err(|cause| cause.on(&self.engine.name))
    }

    /// What the bare model, without ring, stream order or graph, makes of a whole batch: rows of the spec's output.
    ///
    /// # Errors
    /// What the device failed at.
    pub fn bare_output(&self, input: &[u8]) -> Result<Vec<u8>, EngineError> {
        let StreamedEngine { model, spec, device, name, .. } = &self.engine;
        let run = || -> Result<Vec<u8>, Cause> {
            let mut memory = HeapMemory::zeroed(input.len());
            memory.bytes_mut().copy_from_slice(input);
            let size = tensor_size(spec.batch, spec.channels_in, spec.patch);
            let host = HostTensor::new(memory.bytes_mut(), &size, torch_kind(spec.input))?;
            // A copy on the CPU too: a model may write to its input.
            let given: Tensor =
                model.forward(&host.tensor().f_to_device_(*device, torch_kind(spec.input), false, true)?)?;
            let mut output = HeapMemory::zeroed(spec.batch * spec.output_row_bytes());
            let size = tensor_size(spec.batch, spec.channels_out, spec.patch);
            HostTensor::new(output.bytes_mut(), &size, torch_kind(spec.output))?.fill_from(&given)?;
            Ok(output.bytes().to_vec())
        };
        run().map_err(|cause| cause.on(name))
    }
}

/// Waits for batches in the order they were submitted, and gives their slots back.
fn wait_for_all(
    flights: &Receiver<(usize, Box<dyn Completion>)>,
    give_back: &SyncSender<Slot>,
    mut landed: impl FnMut(usize, &Slot) -> Result<(), String>,
) -> Result<Vec<Instant>, String> {
    let mut times = Vec::new();
    for (batch, completion) in flights {
        let slot = completion.wait().map_err(|rejected| rejected.error.to_string())?;
        times.push(Instant::now());
        landed(batch, &slot)?;
        // The other side has ended if it takes no slots any more.
        drop(give_back.try_send(slot));
    }
    Ok(times)
}
