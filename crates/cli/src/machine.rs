//! What the machine, or the container, allows.

/// The limits that defaults are taken from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// Processor cores that this process may use.
    pub(crate) cores: usize,
    /// Bytes of memory that this process may use.
    pub(crate) memory: u64,
    /// CUDA devices that libtorch sees.
    pub(crate) cuda_devices: usize,
}

/// Bytes that are assumed where the system does not tell.
const ASSUMED_MEMORY: u64 = 4 << 30;

impl Machine {
    /// Looks at this machine.
    pub(crate) fn here() -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory(),
            cuda_devices: haloflow_engine_torch::cuda_devices(),
        }
    }
}

/// The least of the machine's memory and the limits of the control groups that this process is in.
fn memory() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().filter_map(|line| line.split_once("::")).flat_map(|(_, path)| ancestors(path));
    let limits = limits
        .map(|path| format!("/sys/fs/cgroup{path}/memory.max"))
        .chain(["/sys/fs/cgroup/memory/memory.limit_in_bytes".into()]);
    let limits = limits.filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok());
    limits.chain(total()).min().unwrap_or(ASSUMED_MEMORY)
}

/// Bytes of memory that could be had now without another process giving any up, where Linux tells.
pub(crate) fn available() -> Option<u64> {
    of_meminfo("MemAvailable:")
}

/// A control group and those around it.
fn ancestors(path: &str) -> Vec<String> {
    std::path::Path::new(path).ancestors().map(|path| path.to_string_lossy().trim_end_matches('/').to_owned()).collect()
}

/// The machine's memory, bytes, where Linux tells.
fn total() -> Option<u64> {
    of_meminfo("MemTotal:")
}

fn of_meminfo(name: &str) -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
