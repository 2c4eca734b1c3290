//! Runs a network with libtorch. The only crate that names it.
//!
//! [`TorchFactory`] makes an engine from [`TorchOptions`]: it finds the device, loads the model onto it in evaluation mode
//! with its weights in the wanted kind, freezes it and runs one batch of zeros. What the model gives for that batch is the
//! engine's [spec](haloflow_engine::EngineSpec), and everything that does not fit is found there, before any data is read.
//!
//! # What never happens after warm-up
//!
//! TorchScript's default executor profiles the first runs of a graph, compiles on the second and may compile again when it
//! sees another shape. It is switched off, for the process: the plain executor runs the frozen graph operation by operation,
//! so that nothing compiles once an engine is ready and equal batches give equal bits. The gain of its fusion is small
//! beside that of the libraries' convolutions. A compiler's gain is to be had from compiled models, not from this executor.
//!
//! # Threads
//!
//! libtorch has two pools. The *intra-op* pool splits one operation; its size is [`TorchOptions::intra_op_threads`]. The
//! *inter-op* pool runs branches of a graph at once; it is of no use to a thread that submits one batch at a time, and is
//! set to 1. Both are process-wide, so all engines of a process should ask for the same.
//!
//! On a CPU device the network is by far the most work, so the intra-op pool is given every core and the pipeline's own
//! CPU pool (decode, normalise, merge, encode) shares them: its work is short and the scheduler fits it in between. On CUDA
//! devices the intra-op pool has next to nothing to do and 1 is enough, which leaves the cores to the pipeline.
//!
//! # CUDA
//!
//! A CUDA engine's thread owns three streams, two buffers for a batch on the device and, if asked for, one CUDA graph:
//! `ring.rs` says how a batch goes over them. Slots are pinned host memory of exact size. [`haloflow_engine::Engine::submit`]
//! only puts work on the streams; a completion holds an event, and whoever waits for it sleeps. Whatever fails at an event
//! happened earlier and cannot be told apart any more, so it is reported as a lost device.
//!
//! # Forms
//!
//! An AOTInductor package ([`CompiledForm`]) is tried first where there is one; where it does not load or fails its warm-up the
//! TorchScript module runs instead, with one warning, and [`describe`](haloflow_engine::Engine::describe) says so.
//!
//! # Numbers
//!
//! Rows go in, and the model computes, in [`TorchOptions::kind`]. For f32 the output comes back in f32, whatever the model
//! gives; for f16 and bf16 it stays in the model's own kind. Only floating-point weights are converted.
//! TF32 is off unless asked for, for convolutions too.

mod bench;
mod cause;
mod check;
mod clock;
mod engine;
mod factory;
#[expect(unsafe_code, reason = "the boundary to C++")]
mod ffi;
mod fit;
mod form;
mod graph;
mod message;
mod model;
mod options;
mod package;
mod ring;
mod shape;
#[expect(unsafe_code, reason = "the boundary to C++")]
mod stream;
mod streamed;
mod system;

pub use bench::DeviceBench;
pub use check::check_devices;
pub use factory::TorchFactory;
pub use fit::fitting_batch;
pub use form::CompiledForm;
pub use options::{TorchDevice, TorchOptions};
pub use system::{CudaSystem, Gpu, TorchSystem};

/// The number of CUDA devices that libtorch can use, 0 where there is none or no driver.
#[must_use]
pub fn cuda_devices() -> usize {
    ffi::cuda_devices().unwrap_or(0)
}

/// libtorch's version and, where it has CUDA, the runtime's: `libtorch 2.11.0, CUDA 13.0`.
#[must_use]
pub fn versions() -> String {
    match ffi::versions() {
        Ok((libtorch, Some((major, minor)))) => format!("libtorch {libtorch}, CUDA {major}.{minor}"),
        Ok((libtorch, None)) => format!("libtorch {libtorch}"),
        Err(_) => "libtorch of unknown version".to_owned(),
    }
}

/// libtorch's version without what follows a `+`: `2.11.0`.
#[must_use]
pub fn libtorch_version() -> String {
    let version = ffi::versions().map_or_else(|_| "unknown".to_owned(), |(libtorch, _)| libtorch);
    version.split('+').next().unwrap_or_default().to_owned()
}

/// What native code for `device` is made for: the processor's vector instructions as libtorch names them (`AVX512`), or `sm_90`.
#[must_use]
pub fn architecture(device: TorchDevice) -> String {
    architecture_of(match device {
        TorchDevice::Cpu => tch::Device::Cpu,
        TorchDevice::Cuda(index) => tch::Device::Cuda(index),
    })
}

/// Whether native code that was made for `there` runs where [`architecture`] is `here`.
#[must_use]
pub fn runs_on(there: &str, here: &str) -> bool {
    package::runs_on(there, here)
}

fn architecture_of(device: tch::Device) -> String {
    let name = ffi::architecture(device).unwrap_or_default();
    match device {
        tch::Device::Cpu => name,
        _ => format!("sm_{name}"),
    }
}
