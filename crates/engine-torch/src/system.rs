//! What this process has of libtorch and CUDA, for a person who wants to know why something does not run.

use crate::cause::Cause;
use crate::ffi::{self, Failure};
use crate::options::TorchDevice;

/// libtorch as it was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchSystem {
    /// Version of the library that was loaded, without what follows a `+`.
    pub version: String,
    /// Version that haloflow was built with; another one may not work.
    pub built_with: String,
    /// CUDA, if this libtorch has it.
    pub cuda: Option<CudaSystem>,
}

/// CUDA as libtorch has it, and the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaSystem {
    /// Version of libtorch's runtime, major and minor.
    pub runtime: (i64, i64),
    /// What libtorch holds native code for: `sm_90`.
    pub architectures: Vec<String>,
    /// Whether the driver's library, libcuda, is found.
    pub driver_is_found: bool,
    /// The newest CUDA that the driver can do, major and minor.
    pub driver_cuda: Option<(i64, i64)>,
    /// What the runtime says where it gives no devices.
    pub problem: Option<String>,
    /// The devices that may be used, or why one cannot be.
    pub gpus: Vec<Result<Gpu, String>>,
}

/// A CUDA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its index, from 0.
    pub index: usize,
    /// Its name, such as `NVIDIA H100`.
    pub name: String,
    /// What native code for it is made for: `sm_90`.
    pub architecture: String,
    /// Bytes of memory that nobody uses.
    pub free: u64,
    /// Bytes of memory.
    pub total: u64,
}

impl TorchSystem {
    /// Looks at this process and its devices. Looking at a GPU's memory takes some of it, as long as the process lives.
    ///
    /// # Errors
    /// A sentence, if libtorch does not even tell its version.
    pub fn here() -> Result<Self, String> {
        let told = |failure: Failure| Cause::from(failure).message;
        let (built_with, runtime) = ffi::versions().map_err(told)?;
        let build = ffi::build().map_err(told)?;
        let version = setting(&build, "TORCH_VERSION=").unwrap_or(&built_with);
        let cuda = runtime.map(|runtime| {
            let driver = ffi::driver().unwrap_or_default();
            let number = |key| value(&driver, key).and_then(|number| number.parse::<i64>().ok());
            let count = number("devices").and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
            CudaSystem {
                runtime,
                architectures: architectures(&build),
                driver_is_found: value(&driver, "library") == Some("1"),
                driver_cuda: number("cuda").filter(|cuda| *cuda > 0).map(|cuda| (cuda / 1000, cuda % 1000 / 10)),
                problem: value(&driver, "problem").map(str::to_owned),
                gpus: (0..count).map(Gpu::at).collect(),
            }
        });
        Ok(Self { version: plain(version), built_with: plain(&built_with), cuda })
    }
}

impl CudaSystem {
    /// Whether libtorch's own code runs on a device of `architecture`: code runs on the same major version, from its minor on.
    #[must_use]
    pub fn has_code_for(&self, architecture: &str) -> bool {
        let number = |text: &str| text.strip_prefix("sm_").and_then(|digits| digits.parse::<u32>().ok());
        let Some(here) = number(architecture) else { return false };
        let runs = |there: u32| there / 10 == here / 10 && there <= here;
        self.architectures.is_empty() || self.architectures.iter().filter_map(|name| number(name)).any(runs)
    }
}

impl Gpu {
    fn at(index: usize) -> Result<Self, String> {
        let facts = ffi::device(index).map_err(|failure| format!("cuda:{index}: {}", Cause::from(failure).message))?;
        let bytes = |key| value(&facts, key).and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        let architecture = crate::architecture(TorchDevice::Cuda(index));
        let name = value(&facts, "name").unwrap_or_default().to_owned();
        Ok(Self { index, name, architecture, free: bytes("free"), total: bytes("total") })
    }
}

/// The value of a `key=value` line.
fn value<'a>(lines: &'a str, key: &str) -> Option<&'a str> {
    lines.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
}

/// What follows `name` up to the next comma, in libtorch's description of itself.
fn setting<'a>(build: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = build.split_once(name)?;
    Some(rest.split([',', ' ', '\n']).next().unwrap_or(rest))
}

/// The architectures that the build names: `-gencode;arch=compute_90,code=sm_90`.
fn architectures(build: &str) -> Vec<String> {
    let named = build.split("code=").skip(1).filter_map(|rest| rest.split([';', ',', '\n', ' ']).next());
    let mut found: Vec<String> = named.filter(|name| name.starts_with("sm_")).map(str::to_owned).collect();
    found.dedup();
    found
}

fn plain(version: &str) -> String {
    version.split('+').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILD: &str = "PyTorch built with:\n  - GCC 13.3\n  - CUDA Runtime 13.0\n  - NVCC architecture flags: \
        -gencode;arch=compute_75,code=sm_75;-gencode;arch=compute_86,code=sm_86;-gencode;arch=compute_120,code=compute_120\n  \
        - Build settings: BLAS_INFO=mkl, TORCH_VERSION=2.11.0, USE_CUDA=1, ";

    #[test]
    fn the_build_tells_version_and_architectures() {
        assert_eq!(setting(BUILD, "TORCH_VERSION="), Some("2.11.0"));
        assert_eq!(architectures(BUILD), ["sm_75", "sm_86"]);
        let cuda = CudaSystem {
            runtime: (13, 0),
            architectures: architectures(BUILD),
            driver_is_found: true,
            driver_cuda: None,
            problem: None,
            gpus: Vec::new(),
        };
        for (architecture, runs) in [("sm_75", true), ("sm_89", true), ("sm_80", false), ("sm_90", false), ("x", false)]
        {
            assert_eq!(cuda.has_code_for(architecture), runs, "{architecture}");
        }
    }

    #[test]
    fn this_process_knows_its_libtorch() {
        let here = TorchSystem::here().unwrap();
        assert_eq!(here.version, here.built_with);
        assert!(here.version.starts_with(|c: char| c.is_ascii_digit()), "{here:?}");
        // Without a GPU nothing is found, and nothing fails.
        let gpus = here.cuda.map_or(0, |cuda| cuda.gpus.len());
        assert_eq!(gpus, crate::cuda_devices());
    }
}
