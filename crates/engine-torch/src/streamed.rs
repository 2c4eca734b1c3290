//! An engine whose batches stream through a [`Ring`]: what every CUDA device runs.

use haloflow_engine::{Completion, Engine, EngineError, EngineErrorKind, EngineSpec, Rejected, Slot, check_submission};
use tch::{Device, Tensor};

use crate::cause::Cause;
use crate::clock::Marks;
use crate::factory::warm_up;
use crate::fit;
use crate::form::{self, Ready};
use crate::graph::Graph;
use crate::model::Model;
use crate::options::TorchOptions;
use crate::ring::{Ring, lost};
use crate::stream::{Event, PinnedMemory};

/// One model on one device, behind a ring.
pub(crate) struct StreamedEngine {
    // Dropped first: it waits until nothing of the rest is in use.
    pub(crate) ring: Ring,
    pub(crate) graph: Option<Graph>,
    pub(crate) model: Model,
    pub(crate) device: Device,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) spec: EngineSpec,
}

impl StreamedEngine {
    /// Warms the model up on a compute stream of its own, makes the ring and, if asked to, captures the graph. Says too why the
    /// model is not the compiled form, where that was asked for.
    pub(crate) fn make(
        options: &TorchOptions,
        device: Device,
        asked: &EngineSpec,
    ) -> Result<(Self, Option<String>), Cause> {
        let name = options.device.to_string();
        let streams = Ring::streams(device)?;
        let Ready { model, warm, not_compiled } = form::ready(options, device, |model| {
            warm_up(model, device, asked).map_err(|cause| {
                fit::with_advice(cause, device, asked.batch, |batch| {
                    warm_up(model, device, &EngineSpec { batch, ..asked.clone() }).map(drop)
                })
            })
        })?;
        let spec = warm.spec;
        let ring = Ring::new(device, spec.clone(), streams, options.timeline.clone(), &name)?;
        // The first run tuned and compiled, and the ring has taken memory since: this one finds what all others will.
        warm_up(&model, device, asked)?;
        let graph = if options.graph { captured(&model, device, &spec, &ring, &name) } else { None };
        Ok((Self { ring, graph, model, device, name, description: String::new(), spec }, not_compiled))
    }

    /// What runs between two buffers of the device.
    pub(crate) fn forward(model: &Model, graph: Option<&Graph>, input: &Tensor) -> Result<Tensor, Cause> {
        match graph {
            Some(graph) => graph.run(input),
            None => model.forward(input),
        }
    }
}

/// The graph, or a word about why there is none.
fn captured(model: &Model, device: Device, spec: &EngineSpec, ring: &Ring, name: &str) -> Option<Graph> {
    match Graph::capture(model, device, spec, ring.compute()) {
        Ok(graph) => Some(graph),
        Err(cause) => {
            tracing::warn!(
                device = name,
                "the model could not be captured as a CUDA graph, and runs without one: {}",
                cause.message
            );
            None
        }
    }
}

impl Engine for StreamedEngine {
    fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn allocate(&mut self) -> Result<Slot, EngineError> {
        if self.device == Device::Cpu {
            return Ok(self.spec.heap_slot());
        }
        let half = |bytes: usize| {
            PinnedMemory::zeroed(self.device, bytes).map_err(|failure| {
                let what = format!("{bytes} bytes of pinned host memory could not be had");
                Cause { kind: EngineErrorKind::OutOfMemory, ..Cause::from(failure).during(&what) }.on(&self.name)
            })
        };
        let input = half(self.spec.batch * self.spec.input_row_bytes())?;
        let output = half(self.spec.batch * self.spec.output_row_bytes())?;
        Ok(Slot { input: Box::new(input), output: Box::new(output) })
    }

    fn submit(&mut self, mut slot: Slot, rows: usize) -> Result<Box<dyn Completion>, Rejected> {
        if let Err(error) = check_submission(&self.spec, &self.name, &slot, rows) {
            return Err(Rejected { slot, error });
        }
        if cfg!(debug_assertions) {
            // Whoever reads before the copy has come reads no number.
            slot.output.bytes_mut().fill(POISON);
        }
        let (model, graph) = (&self.model, self.graph.as_ref());
        match self.ring.pass(&mut slot, rows, |input| Self::forward(model, graph, input)) {
            Ok(passage) => {
                slot.set_in_flight(true);
                let (done, marks) = (passage.done, passage.marks);
                Ok(Box::new(Flight { slot: Some(slot), done, marks, device: self.name.clone() }))
            }
            Err(cause) => Err(Rejected { slot, error: cause.on(&self.name) }),
        }
    }
}

/// What stands in memory that nobody may read: not a number, in every kind.
const POISON: u8 = 0xFF;

/// A batch between the host and the device. It owns its slot until the device is done with both halves.
struct Flight {
    slot: Option<Slot>,
    done: Event,
    marks: Option<Marks>,
    device: String,
}

impl Flight {
    /// Sleeps until the device is done with the slot, and takes it.
    fn land(&mut self) -> (Option<Slot>, Result<(), Cause>) {
        let landed = self.done.synchronize().map_err(|failure| lost(failure.into()));
        let mut slot = self.slot.take();
        if let Some(slot) = &mut slot {
            // A device that is lost does not come back to it either.
            slot.set_in_flight(false);
            if cfg!(debug_assertions) && landed.is_ok() {
                slot.input.bytes_mut().fill(POISON);
            }
        }
        (slot, landed)
    }
}

impl Completion for Flight {
    fn wait(mut self: Box<Self>) -> Result<Slot, Rejected> {
        let (slot, landed) = self.land();
        let Some(slot) = slot else { unreachable!("a flight lands once") };
        match landed {
            Ok(()) => {
                if let Some(marks) = &self.marks
                    && let Err(cause) = marks.tell()
                {
                    tracing::warn!(device = self.device, "the time line has a gap: {}", cause.message);
                }
                Ok(slot)
            }
            Err(cause) => Err(Rejected { slot, error: cause.on(&self.device) }),
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.slot.is_some() {
            drop(self.land());
        }
    }
}
