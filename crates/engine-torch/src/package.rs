//! AOTInductor packages: whether one was made for this device, and running it.
//!
//! A package is native code. What it says of the machine it was made for is compared with this one before any of it is
//! loaded; shapes and kinds of its inputs it checks itself at every run, in the first of which, at warm-up, a wrong one shows.

use std::path::Path;

use haloflow_engine::EngineErrorKind;
use tch::{Device, Tensor};

use crate::cause::Cause;
use crate::ffi::{self, Package};

/// A package on its device.
pub(crate) struct CompiledModel {
    package: Package,
}

impl CompiledModel {
    /// Loads the package at `path` onto `device`.
    ///
    /// The cause names both sides where the package was made for another kind of device.
    pub(crate) fn load(path: &Path, device: Device) -> Result<Self, Cause> {
        let name = path.display();
        let told = |cause: Cause| cause.during(&format!("the compiled package {name} could not be loaded"));
        let load = |message: String| Cause::new(EngineErrorKind::Load, message);
        let metadata = ffi::metadata(path).map_err(|failure| told(failure.into()))?;
        check(&metadata, &crate::architecture_of(device), device)
            .map_err(|sentence| load(format!("the compiled package {name} {sentence}")))?;
        let package = Package::load(path, device).map_err(|failure| told(failure.into()))?;
        Ok(Self { package })
    }

    /// Runs a batch that is on the model's device.
    pub(crate) fn forward(&self, input: &Tensor) -> Result<Tensor, Cause> {
        Ok(self.package.forward(input)?)
    }
}

/// Compares what a package says of itself with the device that is to run it, `here`.
fn check(metadata: &[(String, String)], here: &str, device: Device) -> Result<(), String> {
    let get = |key: &str| metadata.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    let kind = if device == Device::Cpu { "cpu" } else { "cuda" };
    let Some(made_for) = get("AOTI_DEVICE_KEY") else {
        return Err("says nothing of a device: it is no AOTInductor package".to_owned());
    };
    if made_for != kind {
        return Err(format!("was made for {made_for} and the device is {kind}"));
    }
    let there = match kind {
        "cpu" => {
            let (machine, this) = (get("AOTI_MACHINE").unwrap_or_default(), std::env::consts::ARCH);
            if machine != this {
                return Err(format!("was made for {machine} and this machine is {this}"));
            }
            // Inductor names the best first: `AVX512 AVX512_VNNI`.
            get("AOTI_CPU_ISA").and_then(|names| names.split_whitespace().next()).unwrap_or_default().to_owned()
        }
        _ => format!("sm_{}", get("AOTI_COMPUTE_CAPABILITY").unwrap_or_default()),
    };
    match runs_on(&there, here) {
        true => Ok(()),
        false => Err(format!("was made for {there} and this device is {here}")),
    }
}

/// Whether code for the architecture `there` runs on `here`. An x86 processor runs code for fewer vector instructions too.
pub(crate) fn runs_on(there: &str, here: &str) -> bool {
    let level = |text: &str| ["DEFAULT", "AVX2", "AVX512"].iter().position(|name| *name == text);
    there == here || level(there).zip(level(here)).is_some_and(|(needs, has)| needs <= has)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_package_for_another_device_is_refused_with_both_sides_named() {
        let avx512 = metadata(&[
            ("AOTI_DEVICE_KEY", "cpu"),
            ("AOTI_MACHINE", std::env::consts::ARCH),
            ("AOTI_CPU_ISA", "AVX512 AVX512_VNNI"),
        ]);
        assert_eq!(check(&avx512, "AVX512", Device::Cpu), Ok(()));
        let told = check(&avx512, "AVX2", Device::Cpu).unwrap_err();
        assert_eq!(told, "was made for AVX512 and this device is AVX2");
        let told = check(&avx512, "sm_90", Device::Cuda(0)).unwrap_err();
        assert_eq!(told, "was made for cpu and the device is cuda");
        let other = metadata(&[("AOTI_DEVICE_KEY", "cpu"), ("AOTI_MACHINE", "vax")]);
        assert!(check(&other, "AVX2", Device::Cpu).unwrap_err().starts_with("was made for vax and this machine is "));
        let h100 = metadata(&[("AOTI_DEVICE_KEY", "cuda"), ("AOTI_COMPUTE_CAPABILITY", "90")]);
        assert_eq!(check(&h100, "sm_90", Device::Cuda(1)), Ok(()));
        let told = check(&h100, "sm_86", Device::Cuda(1)).unwrap_err();
        assert_eq!(told, "was made for sm_90 and this device is sm_86");
        assert!(check(&[], "sm_86", Device::Cuda(1)).unwrap_err().contains("no AOTInductor package"));
    }

    #[test]
    fn a_processor_runs_code_for_fewer_instructions() {
        assert!(runs_on("AVX2", "AVX512") && runs_on("ASIMD", "ASIMD"));
        assert!(!runs_on("AVX512", "AVX2") && !runs_on("SVE256", "AVX512"));
    }
}
