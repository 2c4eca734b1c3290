//! The devices and their load. NVML is loaded at run time: where it is missing, memory and load are not told.

use haloflow_service::runner::DeviceState;
use nvml_wrapper::Nvml;

/// What tells about GPUs, if anything does.
#[derive(Debug)]
pub(super) struct Gpus {
    nvml: Option<Nvml>,
    devices: usize,
}

impl Gpus {
    /// Looks for the driver's library.
    pub(super) fn find() -> Self {
        let devices = haloflow_engine_torch::cuda_devices();
        let nvml = match Nvml::init() {
            Ok(nvml) => Some(nvml),
            Err(error) => {
                if devices > 0 {
                    tracing::warn!("NVML cannot be used, so that no load of GPUs is told: {error}");
                }
                None
            }
        };
        Self { nvml, devices }
    }

    /// The processor and every GPU that libtorch sees.
    pub(super) fn states(&self) -> Vec<DeviceState> {
        let description = format!("{}, {}", haloflow_engine_torch::versions(), std::env::consts::ARCH);
        let (memory_total_bytes, memory_used_bytes, utilisation) = (None, None, None);
        let cpu = DeviceState { name: "cpu".into(), description, memory_total_bytes, memory_used_bytes, utilisation };
        std::iter::once(cpu).chain((0..self.devices).map(|index| self.state(index))).collect()
    }

    fn state(&self, index: usize) -> DeviceState {
        let device = self.nvml.as_ref().and_then(|nvml| nvml.device_by_index(u32::try_from(index).ok()?).ok());
        let memory = device.as_ref().and_then(|device| device.memory_info().ok());
        let load = device.as_ref().and_then(|device| device.utilization_rates().ok());
        DeviceState {
            name: format!("cuda:{index}"),
            description: device
                .as_ref()
                .and_then(|device| device.name().ok())
                .unwrap_or_else(|| "a CUDA device".into()),
            memory_total_bytes: memory.as_ref().map(|memory| memory.total),
            memory_used_bytes: memory.as_ref().map(|memory| memory.used),
            utilisation: load.map(|load| f64::from(load.gpu) / 100.0),
        }
    }
}
