//! What a run tells of itself at its end.

use haloflow_geometry::Zyx;
use haloflow_volume::CounterSnapshot;
use serde::Serialize;

use crate::cast::CastCounts;
use crate::fault::Fault;
use crate::memory::MemorySplit;
use crate::meter::{Meters, Reading};
use crate::quarantine::SetAside;
use crate::skip::SkippedReport;

/// The report of a run, complete or not. What was not reached is empty or zero.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Version of haloflow.
    pub version: String,
    /// Whether every block was stored.
    pub complete: bool,
    /// Why the run ended early.
    pub fault: Option<Fault>,
    /// The input.
    pub input: InputReport,
    /// The outputs.
    pub output: OutputReport,
    /// Tiles, patches and batches.
    pub work: WorkReport,
    /// The devices, in the order they were given.
    pub devices: Vec<DeviceReport>,
    /// Seconds by the clock.
    pub seconds: SecondsReport,
    /// Raw input in MB (10^6 bytes) per second, over the time from the first read to the last write.
    pub megabytes_per_second: f64,
    /// Voxels of the result per second, over the same time.
    pub voxels_per_second: f64,
    /// Time that each stage worked and waited, summed over its tasks.
    pub stages: StagesReport,
    /// Requests and bytes of the input's store.
    pub storage_read: CounterSnapshot,
    /// Requests and bytes of the outputs' stores.
    pub storage_written: CounterSnapshot,
    /// Blocks that were set aside because they failed, try after try.
    pub quarantined: Vec<SetAside>,
    /// Voxels that the cast changed.
    pub voxels: CastCounts,
    /// How the memory was split.
    pub memory: MemorySplit,
    /// Most bytes that steps and tiles leased at one time.
    pub peak_leased_bytes: u64,
    /// Most memory that the process ever had resident, bytes, libtorch's included; absent where the system does not tell.
    pub peak_resident_bytes: Option<u64>,
    /// Processor time of the process, all threads, from its start; absent where the system does not tell.
    pub cpu_seconds: Option<CpuSeconds>,
    /// The numbers of the whole volume's normalisation, one pair per input channel.
    pub normalisation: Vec<[f64; 2]>,
}

impl Report {
    /// The report of a run that ended with `fault` before it began.
    #[must_use]
    pub fn failed(fault: &Fault) -> Self {
        Self { version: env!("CARGO_PKG_VERSION").into(), fault: Some(fault.clone()), ..Self::default() }
    }
}

/// The input.
#[derive(Clone, Debug, Default, Serialize)]
pub struct InputReport {
    /// Where it is.
    pub url: String,
    /// Size, z y x.
    pub shape: Zyx,
    /// Kind of number.
    pub element: String,
    /// Bytes of the raw voxels that the run goes over.
    pub raw_bytes: u64,
}

/// The outputs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OutputReport {
    /// Where they are.
    pub urls: Vec<String>,
    /// Kind of number.
    pub element: String,
    /// The unit of writing: chunk or shard, z y x.
    pub unit: Zyx,
    /// Levels of the pyramid, the finest counted.
    pub levels: usize,
}

/// Tiles, patches and batches.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WorkReport {
    /// `volume` or `block`.
    pub lattice: String,
    /// Size of a patch.
    pub patch: Zyx,
    /// Size of a block (tile).
    pub block: Zyx,
    /// Blocks of a column along y and x.
    pub column: [usize; 2],
    /// Blocks that the run stored.
    pub blocks: u64,
    /// Blocks that the run had to store.
    pub blocks_total: u64,
    /// Blocks that the run skipped, by the reason.
    pub skipped: SkippedReport,
    /// Blocks that an earlier run had stored or skipped.
    pub blocks_before: u64,
    /// Patches merged.
    pub patches: u64,
    /// Patches of the whole run.
    pub patches_total: u64,
    /// Voxels of all patches over voxels of all blocks of the run.
    pub redundancy: f64,
    /// Batches merged.
    pub batches: u64,
    /// Batches with fewer patches than a full one.
    pub short_batches: u64,
}

/// A device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// What ran on it.
    pub description: String,
    /// Seconds until it was warm.
    pub start_seconds: f64,
    /// Why it stopped before the end and left its work to the others, if it did.
    pub retired: Option<String>,
}

/// Seconds by the clock.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SecondsReport {
    /// The whole run.
    pub total: f64,
    /// Opening the input and checking the outputs.
    pub open: f64,
    /// Starting the devices.
    pub devices: f64,
    /// Statistics of the whole volume.
    pub statistics: f64,
    /// From the first read to the last write.
    pub stream: f64,
}

/// Processor time, seconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CpuSeconds {
    /// In the process.
    pub user: f64,
    /// In the system on its behalf.
    pub system: f64,
}

/// Every stage's clock.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct StagesReport {
    /// Fetching and decoding.
    pub read: Reading,
    /// Normalising and cutting.
    pub prepare: Reading,
    /// Forming batches.
    pub batch: Reading,
    /// Running the network.
    pub device: Reading,
    /// Merging overlaps.
    pub merge: Reading,
    /// Casting, encoding, storing.
    pub write: Reading,
}

impl StagesReport {
    pub(crate) fn of(meters: &Meters) -> Self {
        Self {
            read: meters.read.reading(),
            prepare: meters.prepare.reading(),
            batch: meters.batch.reading(),
            device: meters.device.reading(),
            merge: meters.merge.reading(),
            write: meters.write.reading(),
        }
    }

    /// The stages by name, in the order of the data's way.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, Reading); 6] {
        [
            ("read", self.read),
            ("prepare", self.prepare),
            ("batch", self.batch),
            ("device", self.device),
            ("merge", self.merge),
            ("write", self.write),
        ]
    }
}

/// Most memory that this process ever had resident, bytes, where Linux tells.
pub(crate) fn peak_resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Processor time of this process so far, where Linux tells.
pub(crate) fn cpu_seconds() -> Option<CpuSeconds> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in brackets, may hold anything. Behind it the times are the twelfth and thirteenth field, in
    // hundredths of a second (proc_pid_stat(5); the unit has been this on every architecture since Linux 2.6).
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / 100.0);
    Some(CpuSeconds { user: seconds()?, system: seconds()? })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn work_shows_in_the_processor_time() {
        let before = cpu_seconds().unwrap();
        let began = Instant::now();
        // Ten ticks of this thread's own work: other threads only add to them.
        let mut sum = 0_u64;
        while cpu_seconds().unwrap().user + cpu_seconds().unwrap().system < before.user + before.system + 0.1 {
            sum = std::hint::black_box(sum + 1);
            assert!(began.elapsed().as_secs() < 60, "{:?}", cpu_seconds());
        }
    }
}
