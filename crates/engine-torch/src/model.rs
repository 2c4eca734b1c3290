//! What a model is: the one place that knows the forms it may come in.
//!
//! A TorchScript module, traced or scripted, or an AOTInductor package. Another form is another variant here and nothing
//! elsewhere.

use std::path::Path;

use haloflow_engine::{ElementKind, EngineErrorKind};
use tch::{Device, Tensor};

use crate::cause::Cause;
use crate::ffi::ScriptModule;
use crate::message::first_sentence;
use crate::package::CompiledModel;
use crate::shape::{real_and_dense, with_channel_axis};

/// A model on its device, ready to run.
pub(crate) enum Model {
    /// A TorchScript module.
    TorchScript(ScriptModule),
    /// An AOTInductor package.
    Compiled(CompiledModel),
}

impl Model {
    /// Loads the AOTInductor package at `path` onto `device`. What it computes in was settled when it was made.
    pub(crate) fn compiled(path: &Path, device: Device) -> Result<Self, Cause> {
        CompiledModel::load(path, device).map(Self::Compiled)
    }

    /// Loads the TorchScript module at `path` onto `device`, to compute in `kind`.
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
        let output = match self {
            Self::TorchScript(module) => module.forward(input)?,
            Self::Compiled(package) => package.forward(input)?,
        };
        real_and_dense(&output)?;
        with_channel_axis(output)
    }

    /// The form's name, for reports.
    pub(crate) fn form(&self) -> &'static str {
        match self {
            Self::TorchScript(_) => "TorchScript",
            Self::Compiled(_) => "AOTInductor package",
        }
    }
}
