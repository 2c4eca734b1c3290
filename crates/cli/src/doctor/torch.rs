//! libtorch, CUDA, the driver and the GPUs.

use std::path::Path;

use haloflow_engine_torch::{CudaSystem, Gpu, TorchDevice, TorchSystem};
use indicatif::HumanBytes;

use super::check::{Check, Told};
use crate::args::RunArgs;
use crate::exit;

/// Looks at what `devices` need. Where nobody asked for GPUs it is no failure that there is none.
pub(super) fn look(args: &RunArgs, devices: &[TorchDevice], told: &mut Told) {
    let wanted = args.devices.iter().flatten().any(|device| device.starts_with("cuda"));
    match TorchSystem::here() {
        Err(sentence) => told.tell(Check::failed("libtorch", "process", sentence, SETUP, exit::SOFTWARE)),
        Ok(system) => judge(&system, wanted, has_gpu(), devices).into_iter().for_each(|check| told.tell(check)),
    }
}

const SETUP: &str = "install it again (`cargo xtask setup`) and build again";

/// Whether the system has the kernel's part of a driver, or a GPU was handed to this container.
fn has_gpu() -> bool {
    ["/proc/driver/nvidia/version", "/dev/nvidia0", "/dev/dxg"].iter().any(|path| Path::new(path).exists())
}

fn judge(system: &TorchSystem, wanted: bool, has_gpu: bool, devices: &[TorchDevice]) -> Vec<Check> {
    let TorchSystem { version, built_with, cuda } = system;
    let with = cuda.as_ref().map_or("without CUDA".to_owned(), |cuda| format!("with CUDA {}", dotted(cuda.runtime)));
    let mut checks = vec![if version == built_with {
        Check::ok("libtorch", version, format!("loaded, {with}"))
    } else {
        let found = format!("loaded, {with}, but haloflow was built with {built_with}");
        Check::warning("libtorch", version, found, SETUP)
    }];
    let Some(cuda) = cuda else {
        if wanted {
            let found = "this libtorch has no CUDA, and `devices` names a GPU";
            checks.push(Check::failed(
                "cuda",
                "libtorch",
                found,
                "install a libtorch with CUDA, or use cpu",
                exit::USAGE,
            ));
        }
        return checks;
    };
    checks.push(driver(cuda, wanted, has_gpu));
    checks.extend(cuda.gpus.iter().enumerate().map(|(index, found)| match found {
        Ok(found) => gpu(found, cuda, devices.contains(&TorchDevice::Cuda(index))),
        Err(sentence) => {
            let fix = "see what else uses it, or leave it out of `devices`";
            Check::warning("gpu", format!("cuda:{index}"), sentence, fix)
        }
    }));
    checks
}

fn driver(cuda: &CudaSystem, wanted: bool, has_gpu: bool) -> Check {
    let bad = |found: String, fix: String| match wanted {
        true => Check::failed("driver", "CUDA", found, fix, exit::USAGE),
        false => Check::warning("driver", "CUDA", found, fix),
    };
    let needed = dotted(cuda.runtime);
    match (cuda.driver_is_found, cuda.driver_cuda, &cuda.problem) {
        (false, ..) if has_gpu => bad(
            "there is a GPU, and the driver's library libcuda.so.1 is not found".to_owned(),
            "start the container with its GPUs (`--gpus all`), or install the driver".to_owned(),
        ),
        (false, ..) if wanted => {
            bad("no driver is installed".to_owned(), "install NVIDIA's driver, or use cpu".to_owned())
        }
        (false, ..) => Check::ok("driver", "CUDA", "none, so that the processor computes"),
        (true, Some(newest), _) if newest.0 < cuda.runtime.0 => bad(
            format!("it can do CUDA {}, and libtorch needs {needed}", dotted(newest)),
            format!("install a driver for CUDA {needed} or newer"),
        ),
        (true, _, Some(problem)) => bad(
            format!("it is installed and gives no device: {problem}"),
            "see whether nvidia-smi lists one and CUDA_VISIBLE_DEVICES hides none".to_owned(),
        ),
        (true, newest, None) => {
            let newest = newest.map_or("unknown version".to_owned(), dotted);
            Check::ok("driver", "CUDA", format!("it can do CUDA {newest}, and gives {} devices", cuda.gpus.len()))
        }
    }
}

fn gpu(gpu: &Gpu, cuda: &CudaSystem, is_used: bool) -> Check {
    let Gpu { index, name, architecture, free, total } = gpu;
    let subject = format!("cuda:{index}");
    let found = format!("{name} ({architecture}), {} of {} free", HumanBytes(*free), HumanBytes(*total));
    if !cuda.has_code_for(architecture) {
        let found = format!("{found}; libtorch has code for {} only", cuda.architectures.join(", "));
        let fix = "leave it out of `devices`, or use a libtorch made for it";
        return match is_used {
            true => Check::failed("gpu", subject, found, fix, exit::USAGE),
            false => Check::warning("gpu", subject, found, fix),
        };
    }
    match is_used && *free < *total / 2 {
        true => Check::warning("gpu", subject, found, "end what else uses it, or set `batch` lower"),
        false => Check::ok("gpu", subject, found),
    }
}

fn dotted((major, minor): (i64, i64)) -> String {
    format!("{major}.{minor}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(driver_cuda: Option<(i64, i64)>, problem: Option<&str>, gpus: Vec<Result<Gpu, String>>) -> TorchSystem {
        let cuda = CudaSystem {
            runtime: (13, 0),
            architectures: vec!["sm_80".into(), "sm_90".into()],
            driver_is_found: driver_cuda.is_some(),
            driver_cuda,
            problem: problem.map(str::to_owned),
            gpus,
        };
        TorchSystem { version: "2.11.0".into(), built_with: "2.11.0".into(), cuda: Some(cuda) }
    }

    fn card(architecture: &str, free: u64) -> Result<Gpu, String> {
        Ok(Gpu { index: 0, name: "H".into(), architecture: architecture.into(), free, total: 100 })
    }

    fn words(system: &TorchSystem, wanted: bool, has_gpu: bool) -> Vec<String> {
        let checks = judge(system, wanted, has_gpu, &[TorchDevice::Cuda(0)]);
        let json = checks.iter().map(|check| serde_json::to_value(check).unwrap());
        json.map(|json| format!("{} {}", json["check"].as_str().unwrap(), json["verdict"].as_str().unwrap())).collect()
    }

    #[test]
    fn a_machine_without_a_gpu_is_well_unless_one_is_wanted() {
        let none = system(None, None, Vec::new());
        assert_eq!(words(&none, false, false), ["libtorch ok", "driver ok"]);
        assert_eq!(words(&none, true, false), ["libtorch ok", "driver failed"]);
        assert_eq!(words(&none, false, true), ["libtorch ok", "driver warning"]);
        let without = TorchSystem { cuda: None, ..none.clone() };
        assert_eq!(words(&without, false, false), ["libtorch ok"]);
        assert_eq!(words(&without, true, false), ["libtorch ok", "cuda failed"]);
        let other = TorchSystem { built_with: "2.10.0".into(), ..without };
        assert_eq!(words(&other, false, false), ["libtorch warning"]);
    }

    #[test]
    fn a_driver_that_is_too_old_or_gives_nothing_is_told() {
        assert_eq!(
            words(&system(Some((12, 8)), Some("driver is insufficient"), Vec::new()), true, true)[1],
            "driver failed"
        );
        assert_eq!(words(&system(Some((13, 1)), Some("no device"), Vec::new()), false, true)[1], "driver warning");
    }

    #[test]
    fn a_gpu_is_held_against_libtorch_and_its_memory() {
        let of = |architecture, free| words(&system(Some((13, 0)), None, vec![card(architecture, free)]), true, true);
        assert_eq!(of("sm_90", 90)[1..], ["driver ok", "gpu ok"]);
        assert_eq!(of("sm_86", 90)[2], "gpu ok");
        assert_eq!(of("sm_90", 40)[2], "gpu warning");
        assert_eq!(of("sm_61", 90)[2], "gpu failed");
    }
}
