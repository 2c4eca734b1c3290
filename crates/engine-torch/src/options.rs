//! What a caller may choose about a libtorch engine.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use haloflow_engine::{ElementKind, Timeline};

use crate::form::CompiledForm;

/// Where a model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TorchDevice {
    /// The processor, with libtorch's own threads.
    Cpu,
    /// The CUDA device of this index, counted from 0.
    Cuda(usize),
}

impl fmt::Display for TorchDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl FromStr for TorchDevice {
    type Err = String;

    /// Reads `cpu`, `cuda` (the first) or `cuda:N`. The error is a sentence.
    fn from_str(text: &str) -> Result<Self, String> {
        let cuda = |index: &str| index.parse().ok().map(Self::Cuda);
        match text {
            "cpu" => Some(Self::Cpu),
            "cuda" => Some(Self::Cuda(0)),
            other => other.strip_prefix("cuda:").and_then(cuda),
        }
        .ok_or_else(|| format!("`{text}` is no device: allowed are `cpu` and `cuda:N` with N from 0"))
    }
}

/// Everything that decides what a libtorch engine is.
#[derive(Clone, Debug)]
pub struct TorchOptions {
    /// The model's file: a TorchScript module that takes `[batch, channel, z, y, x]`.
    pub model: PathBuf,
    /// A compiled form of it, which is tried first.
    pub compiled: Option<CompiledForm>,
    /// Where it runs.
    pub device: TorchDevice,
    /// Rows of a full batch.
    pub batch: usize,
    /// Patch size in voxels, z y x.
    pub patch: [usize; 3],
    /// Channels of an input row.
    pub channels_in: usize,
    /// Channels that an output row must have; `None` takes what the model gives.
    pub channels_out: Option<usize>,
    /// The kind that rows are given in and that the model computes in.
    pub kind: ElementKind,
    /// Whether the whole batch always runs, so that the model sees one shape only.
    pub pad_short: bool,
    /// Threads of one operation on the processor. Process-wide: the last engine made decides.
    pub intra_op_threads: usize,
    /// Whether CUDA may round the inputs of f32 products and convolutions to TF32. Process-wide.
    pub tf32: bool,
    /// Whether cuDNN tries its algorithms at warm-up and keeps the fastest. Process-wide.
    pub cudnn_benchmark: bool,
    /// Whether the model is captured as a CUDA graph at start-up and replayed. If that fails, it runs without, after a warning.
    pub graph: bool,
    /// Whether the CPU too is run the way that CUDA devices are, over streams and buffers of the device: slower there, and the
    /// same code.
    pub through_ring: bool,
    /// Where a CUDA device tells when it uploaded, computed and downloaded what.
    pub timeline: Option<Arc<Timeline>>,
}

impl TorchOptions {
    /// The module at `model` on `device`, for batches of `batch` patches of `patch` voxels, z y x: one input channel, as many output channels
    /// as the model gives, f32, one thread, and nothing of what is optional.
    #[must_use]
    pub const fn new(model: PathBuf, device: TorchDevice, batch: usize, patch: [usize; 3]) -> Self {
        Self {
            model,
            compiled: None,
            device,
            batch,
            patch,
            channels_in: 1,
            channels_out: None,
            kind: ElementKind::F32,
            pad_short: false,
            intra_op_threads: 1,
            tf32: false,
            cudnn_benchmark: false,
            graph: false,
            through_ring: false,
            timeline: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TorchDevice;

    #[test]
    fn devices_are_read_and_written() {
        for (text, device) in [("cpu", TorchDevice::Cpu), ("cuda:3", TorchDevice::Cuda(3))] {
            assert_eq!(text.parse(), Ok(device));
            assert_eq!(device.to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(TorchDevice::Cuda(0)));
        for wrong in ["", "cuda:", "cuda:-1", "CPU", "cuda:1.5", "gpu"] {
            let error = wrong.parse::<TorchDevice>().unwrap_err();
            assert!(error.contains("cuda:N") && error.contains(wrong), "{error}");
        }
    }
}
