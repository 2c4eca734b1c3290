//! What a model is: the one place that knows the forms it may come in.
//!
//! Today that is a TorchScript module, traced or scripted. Another form is another variant here and nothing elsewhere.

use std::path::Path;

use haloflow_engine::{ElementKind, EngineErrorKind};
use tch::{Device, Tensor};

use crate::cause::Cause;
use crate::ffi::ScriptModule;
use crate::message::first_sentence;

/// A model on its device, ready to run.
pub(crate) enum Model {
    /// A TorchScript module.
    TorchScript(ScriptModule),
}

impl Model {
    /// Loads the model at `path` onto `device`, to compute in `kind`.
    ///
    /// The cause is of kind [`EngineErrorKind::Load`] unless the file is sound and the device is not.
    pub(crate) fn load(path: &Path, device: Device, kind: ElementKind) -> Result<Self, Cause> {
        let load = |message: String| Cause::new(EngineErrorKind::Load, message);
        let name = path.display();
        let file =
            std::fs::metadata(path).map_err(|error| load(format!("the model {name} cannot be read: {error}")))?;
        if !file.is_file() {
            return Err(load(format!("the model {name} is not a file")));
        }
        let module = ScriptModule::load(path, device, kind).map_err(|failure| {
            let cause = Cause::from(failure);
            match cause.kind {
                EngineErrorKind::Run => {
                    load(format!("the model {name} is not a TorchScript module: {}", first_sentence(&cause.message)))
                }
                _ => cause.during(&format!("the model {name} could not be loaded")),
            }
        })?;
        Ok(Self::TorchScript(module))
    }

    /// Runs a batch, `[row, channel, z, y, x]`, that is on the model's device. The result may share its memory.
    pub(crate) fn forward(&self, input: &Tensor) -> Result<Tensor, Cause> {
        match self {
            Self::TorchScript(module) => Ok(module.forward(input)?),
        }
    }

    /// The form's name, for reports.
    pub(crate) fn form(&self) -> &'static str {
        match self {
            Self::TorchScript(_) => "TorchScript",
        }
    }
}
