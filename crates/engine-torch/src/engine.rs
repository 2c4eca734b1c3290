//! A libtorch engine: one model on one device.

use haloflow_engine::{Completed, Completion, Engine, EngineError, EngineSpec, Rejected, Slot, check_submission};
use tch::{Device, Tensor};

use crate::cause::Cause;
use crate::factory::Warm;
use crate::ffi::HostTensor;
use crate::model::Model;
use crate::shape::{check_channels, output_channels, tensor_size, torch_kind};

/// One model on one device. A batch is computed inside [`Engine::submit`], whatever the device.
pub(crate) struct TorchEngine {
    pub(crate) model: Model,
    pub(crate) device: Device,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) warm: Warm,
}

impl Engine for TorchEngine {
    fn spec(&self) -> &EngineSpec {
        &self.warm.spec
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn allocate(&mut self) -> Result<Slot, EngineError> {
        Ok(self.warm.spec.heap_slot())
    }

    fn submit(&mut self, mut slot: Slot, rows: usize) -> Result<Box<dyn Completion>, Rejected> {
        let done = check_submission(self.spec(), &self.name, &slot, rows)
            .and_then(|()| self.run(&mut slot, rows).map_err(|cause| cause.on(&self.name)));
        match done {
            Ok(()) => Ok(Box::new(Completed(slot))),
            Err(error) => Err(Rejected { slot, error }),
        }
    }
}

impl TorchEngine {
    /// Runs `rows` rows of `slot` and writes as many to its output.
    fn run(&self, slot: &mut Slot, rows: usize) -> Result<(), Cause> {
        let spec = &self.warm.spec;
        let run_rows = if spec.pad_short { spec.batch } else { rows };
        let memory = &mut slot.input.bytes_mut()[..run_rows * spec.input_row_bytes()];
        let size = tensor_size(run_rows, spec.channels_in, spec.patch);
        let input = HostTensor::new(memory, &size, torch_kind(spec.input))?;
        // May share the input's memory, so it is copied to the slot's output while that is still borrowed.
        let output = self.forward(input.tensor())?;
        check_channels(output_channels(&output.size(), run_rows, spec.patch)?, spec.channels_out)?;
        let memory = &mut slot.output.bytes_mut()[..rows * spec.output_row_bytes()];
        let size = tensor_size(rows, spec.channels_out, spec.patch);
        HostTensor::new(memory, &size, torch_kind(spec.output))?.fill_from(&output.f_narrow(0, 0, size[0])?)?;
        Ok(())
    }

    /// Brings `input` to the device and runs the model on it.
    fn forward(&self, input: &Tensor) -> Result<Tensor, Cause> {
        match self.device {
            Device::Cpu if self.warm.writes_to_input => {
                self.model.forward(&input.f_to_dtype(torch_kind(self.warm.spec.input), false, true)?)
            }
            Device::Cpu => self.model.forward(input),
            device => self.model.forward(&input.f_to_device(device)?),
        }
    }
}
