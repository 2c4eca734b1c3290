//! `haloflow model trial`: runs a package on one batch, in a process that it may end. The compiler asks for it, so that what is compared
//! with the program is what will run later.

use std::path::Path;

use haloflow_engine::EngineFactory;
use haloflow_engine_torch::{CompiledForm, TorchFactory, TorchOptions};
use haloflow_model::ModelError;

use crate::machine::Machine;
use crate::model_args::TrialCommand;
use crate::model_command::{device, element_kind, kind};

/// Reads the batch, runs it and writes the result.
pub(crate) fn run(command: &TrialCommand) -> Result<(), ModelError> {
    let patch = <[usize; 3]>::try_from(command.patch.as_slice())
        .map_err(|_| ModelError::usage("`patch` has not three values"))?;
    let options = TorchOptions {
        compiled: Some(CompiledForm { package: Ok(command.package.clone()), required: true }),
        channels_in: command.channels,
        kind: element_kind(kind(&command.kind)?),
        pad_short: true,
        intra_op_threads: Machine::here().cores,
        ..TorchOptions::new(command.package.clone(), device(&command.device)?, command.rows, patch)
    };
    let failed = |path: &Path, error: &std::io::Error| ModelError::data(format!("{}: {error}", path.display()));
    let input = std::fs::read(&command.input).map_err(|error| failed(&command.input, &error))?;
    let output = one_batch(options, &input)?;
    std::fs::write(&command.output, output).map_err(|error| failed(&command.output, &error))
}

/// What the package makes of a batch.
fn one_batch(options: TorchOptions, input: &[u8]) -> Result<Vec<u8>, ModelError> {
    let rows = options.batch;
    let cannot = |error: haloflow_engine::EngineError| ModelError::data(error.message);
    let mut engine = Box::new(TorchFactory::new(options)).make().map_err(cannot)?;
    let mut slot = engine.allocate().map_err(cannot)?;
    let wanted = slot.input.bytes().len();
    if input.len() != wanted {
        return Err(ModelError::data(format!("the batch has {} bytes and {wanted} are wanted", input.len())));
    }
    slot.input.bytes_mut().copy_from_slice(input);
    let done = engine.submit(slot, rows).and_then(|completion| completion.wait());
    let slot = done.map_err(|rejected| cannot(rejected.error))?;
    Ok(slot.output.bytes().to_vec())
}
