//! Makes an engine: device, model, warm-up, in this order, on the thread that will own it.

use haloflow_engine::{ElementKind, Engine, EngineError, EngineErrorKind, EngineFactory, EngineSpec};
use tch::{Device, Tensor};

use crate::cause::Cause;
use crate::engine::TorchEngine;
use crate::ffi;
use crate::form::{self, Ready};
use crate::model::Model;
use crate::options::{TorchDevice, TorchOptions};
use crate::shape::{check_channels, check_positive, output_channels, output_kind, plural, tensor_size, torch_kind};
use crate::streamed::StreamedEngine;

/// Makes a libtorch engine from its options.
pub struct TorchFactory {
    options: TorchOptions,
}

impl TorchFactory {
    /// A factory for an engine of these options. Nothing is checked or loaded before [`EngineFactory::make`].
    #[must_use]
    pub fn new(options: TorchOptions) -> Self {
        Self { options }
    }
}

impl EngineFactory for TorchFactory {
    fn device(&self) -> String {
        self.options.device.to_string()
    }

    fn make(self: Box<Self>) -> Result<Box<dyn Engine>, EngineError> {
        let name = self.device();
        let streamed = self.options.through_ring || self.options.device != TorchDevice::Cpu;
        let made = if streamed {
            make_streamed(&self.options).map(|engine| Box::new(engine) as Box<dyn Engine>)
        } else {
            make(&self.options, &name).map(|engine| Box::new(engine) as Box<dyn Engine>)
        };
        made.map_err(|cause| cause.on(&name))
    }
}

fn make(options: &TorchOptions, name: &str) -> Result<TorchEngine, Cause> {
    let (device, asked) = prepare(options)?;
    let Ready { model, warm, not_compiled } = form::ready(options, device, |model| warm_up(model, device, &asked))?;
    check_wanted_channels(&warm.spec, options)?;
    let description = describe(&model, options, not_compiled.as_deref());
    tracing::debug!(device = name, model = %options.model.display(), %description, "engine ready");
    Ok(TorchEngine { model, device, name: name.to_owned(), description, warm })
}

/// Makes an engine whose batches go over the device's streams.
pub(crate) fn make_streamed(options: &TorchOptions) -> Result<StreamedEngine, Cause> {
    let (device, asked) = prepare(options)?;
    let (mut engine, not_compiled) = StreamedEngine::make(options, device, &asked)?;
    check_wanted_channels(&engine.spec, options)?;
    let graph = if engine.graph.is_some() { ", CUDA graph" } else { "" };
    engine.description = format!("{}{graph}", describe(&engine.model, options, not_compiled.as_deref()));
    tracing::debug!(device = engine.name, model = %options.model.display(), description = engine.description, "engine ready");
    Ok(engine)
}

/// Checks what can be checked before the model is there, and sets libtorch's switches.
fn prepare(options: &TorchOptions) -> Result<(Device, EngineSpec), Cause> {
    let asked = asked_spec(options);
    check_positive(&asked)?;
    let device = existing_device(options.device)?;
    ffi::configure(options.intra_op_threads, options.tf32, options.cudnn_benchmark)?;
    Ok((device, asked))
}

pub(crate) fn load(options: &TorchOptions, device: Device) -> Result<Model, Cause> {
    Model::load(&options.model, device, options.kind)
}

fn check_wanted_channels(spec: &EngineSpec, options: &TorchOptions) -> Result<(), Cause> {
    options.channels_out.map_or(Ok(()), |expected| check_channels(spec.channels_out, expected))
}

/// The spec as far as the options know it: the output's channels and kind are the model's to tell.
pub(crate) fn asked_spec(options: &TorchOptions) -> EngineSpec {
    EngineSpec {
        batch: options.batch,
        patch: options.patch,
        channels_in: options.channels_in,
        channels_out: options.channels_out.unwrap_or(1),
        input: options.kind,
        output: ElementKind::F32,
        // cuDNN tunes for a shape and a graph has one: on CUDA a short batch, the last one of a run, is padded.
        pad_short: options.pad_short || options.graph || options.device != TorchDevice::Cpu,
    }
}

pub(crate) fn existing_device(device: TorchDevice) -> Result<Device, Cause> {
    let TorchDevice::Cuda(index) = device else { return Ok(Device::Cpu) };
    let count = crate::cuda_devices();
    if index < count {
        return Ok(Device::Cuda(index));
    }
    let there_are = match count {
        0 => "libtorch sees no CUDA device on this machine".to_owned(),
        1 => "libtorch sees 1 CUDA device, cuda:0".to_owned(),
        _ => format!("libtorch sees {count} CUDA devices, cuda:0 to cuda:{}", count - 1),
    };
    Err(Cause::new(EngineErrorKind::NoSuchDevice, format!("there is no such device: {there_are}")))
}

/// What a warm-up finds out.
pub(crate) struct Warm {
    pub(crate) spec: EngineSpec,
    /// Whether the model writes to its input. It then gets a copy: a slot's input must stay as it was submitted.
    pub(crate) writes_to_input: bool,
}

/// Runs one full batch of zeros and learns from it what the model gives.
pub(crate) fn warm_up(model: &Model, device: Device, asked: &EngineSpec) -> Result<Warm, Cause> {
    let size = tensor_size(asked.batch, asked.channels_in, asked.patch);
    let run = || {
        let input = Tensor::f_zeros(size, (torch_kind(asked.input), device))?;
        let version = input.f_internal_version()?;
        let output = model.forward(&input)?;
        let channels_out = output_channels(&output.size(), asked.batch, asked.patch)?;
        let output_kind = output_kind(asked.input, output.f_kind()?);
        // Waits for the device, which reports here at the latest what went wrong.
        drop(corner(&output)?.f_to_device(Device::Cpu)?);
        let writes_to_input = input.f_internal_version()? != version;
        Ok(Warm { spec: EngineSpec { channels_out, output: output_kind, ..asked.clone() }, writes_to_input })
    };
    run().map_err(|cause: Cause| {
        let cause = cause.during(&format!("the model cannot be run on a batch of {size:?} (batch, channels, z, y, x)"));
        match cause.kind {
            // It would fail on every batch: it does not fit what is asked of it.
            EngineErrorKind::Run => Cause { kind: EngineErrorKind::Shape, ..cause },
            _ => cause,
        }
    })
}

/// The first element: whoever has it has waited for all, and a large output need not cross over.
fn corner(tensor: &Tensor) -> Result<Tensor, Cause> {
    let mut corner = tensor.f_detach()?;
    for dim in 0..tensor.dim() {
        corner = corner.f_narrow(dim as i64, 0, 1)?;
    }
    Ok(corner)
}

fn describe(model: &Model, options: &TorchOptions, not_compiled: Option<&str>) -> String {
    let runs = match options.device {
        TorchDevice::Cpu => format!("{} intra-op thread{}", options.intra_op_threads, plural(options.intra_op_threads)),
        TorchDevice::Cuda(_) => format!("TF32 {}", if options.tf32 { "on" } else { "off" }),
    };
    let why = not_compiled.map(|why| format!(" (not compiled: {why})")).unwrap_or_default();
    format!("{}{why}, {}, {}, {runs}", model.form(), options.kind, crate::versions())
}
