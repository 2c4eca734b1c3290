//! A model captured once as a CUDA graph, with an input and an output buffer that never move.
//!
//! One graph per device: each keeps the model's whole working memory for itself. The buffers are copied to and from on the
//! compute stream, so that replay n+1 cannot overwrite what is still being downloaded of batch n.

use haloflow_engine::EngineSpec;
use tch::{Device, Tensor};

use crate::cause::Cause;
use crate::ffi::copy_without_waiting;
use crate::model::Model;
use crate::shape::{tensor_size, torch_kind};
use crate::stream::{RecordedWork, Stream};

/// A captured model. It stays on the thread that captured it.
pub(crate) struct Graph {
    // Dropped before the buffers that it works on.
    work: RecordedWork,
    input: Tensor,
    output: Tensor,
}

impl Graph {
    /// Captures `model`, which is warm, on `compute`, the calling thread's current stream.
    pub(crate) fn capture(model: &Model, device: Device, spec: &EngineSpec, compute: &Stream) -> Result<Self, Cause> {
        let buffer =
            |channels, kind| Tensor::f_zeros(tensor_size(spec.batch, channels, spec.patch), (torch_kind(kind), device));
        let input = buffer(spec.channels_in, spec.input)?;
        let output = buffer(spec.channels_out, spec.output)?;
        compute.synchronize()?;
        let work = RecordedWork::capture(device, || -> Result<(), Cause> {
            Ok(copy_without_waiting(&output, &model.forward(&input)?)?)
        })?;
        let graph = Self { work, input, output };
        // The first replay brings the graph to the device.
        graph.replay()?;
        compute.synchronize()?;
        Ok(graph)
    }

    /// Runs the model on `input`, a full batch. The result is overwritten by the next run.
    pub(crate) fn run(&self, input: &Tensor) -> Result<Tensor, Cause> {
        copy_without_waiting(&self.input, input)?;
        self.replay()?;
        Ok(self.output.shallow_clone())
    }

    /// The input buffer.
    pub(crate) const fn input(&self) -> &Tensor {
        &self.input
    }

    /// Runs the model on what is in the input buffer.
    pub(crate) fn replay(&self) -> Result<(), Cause> {
        Ok(self.work.replay()?)
    }
}
