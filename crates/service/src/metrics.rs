//! The numbers of the daemon and its jobs, in Prometheus' text format. Counters go on over the ends of jobs, not over that of the process.

use std::fmt::Write;

use haloflow_pipeline::histogram::{BOUNDS, HistogramReading};
use haloflow_pipeline::live::{Live, STAGES};
use haloflow_pipeline::progress::Snapshot;

use crate::job::JobState;
use crate::runner::DeviceState;

/// What jobs have done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    worked: [HistogramReading; STAGES.len()],
    queued: [HistogramReading; STAGES.len()],
    items: [u64; STAGES.len()],
    waiting_seconds: [f64; STAGES.len()],
    bytes_read: u64,
    bytes_written: u64,
    requests: [u64; 2],
    retries: [u64; 2],
    throttled: [u64; 2],
    blocks: u64,
    voxels: u64,
    patches: u64,
    batches: u64,
}

impl Totals {
    /// Adds what a job has done.
    pub(crate) fn add(&mut self, live: &Live, seen: &Snapshot) {
        for (place, stage) in live.stages.iter().enumerate() {
            self.worked[place] += stage.worked;
            self.queued[place] += stage.queued;
            self.items[place] += stage.reading.items;
            self.waiting_seconds[place] += stage.reading.waiting_seconds;
        }
        self.bytes_read += live.storage_read.bytes_read;
        self.bytes_written += live.storage_written.bytes_written;
        for (place, storage) in [live.storage_read, live.storage_written].into_iter().enumerate() {
            self.requests[place] += storage.requests;
            self.retries[place] += storage.retries;
            self.throttled[place] += storage.throttled;
        }
        self.blocks += seen.tiles;
        self.voxels += seen.voxels;
        self.patches += seen.patches;
        self.batches += seen.batches;
    }
}

/// Everything that is told.
pub(crate) struct Told<'a> {
    pub(crate) totals: &'a Totals,
    pub(crate) jobs: &'a [(JobState, u64)],
    pub(crate) devices: &'a [DeviceState],
    /// Bytes of the memory budget that running jobs hold, and all of it.
    pub(crate) budget: [u64; 2],
    /// Bytes that their steps and tiles lease.
    pub(crate) leased: u64,
    pub(crate) ready: bool,
}

/// The numbers as text.
pub(crate) fn text(told: &Told<'_>) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = write(&mut text, told);
    text
}

fn write(text: &mut String, told: &Told<'_>) -> std::fmt::Result {
    head(text, "haloflow_info", "gauge", "The version that runs.")?;
    writeln!(text, "haloflow_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"))?;
    head(text, "haloflow_ready", "gauge", "Whether jobs can run.")?;
    writeln!(text, "haloflow_ready {}", u8::from(told.ready))?;
    head(text, "haloflow_jobs", "gauge", "Jobs in the table, by state.")?;
    for (state, count) in told.jobs {
        writeln!(text, "haloflow_jobs{{state=\"{}\"}} {count}", state.name())?;
    }
    stages(text, told.totals)?;
    storage(text, told.totals)?;
    let totals = told.totals;
    for (name, count, help) in [
        ("haloflow_blocks_total", totals.blocks, "Blocks stored."),
        ("haloflow_voxels_total", totals.voxels, "Voxels stored."),
        ("haloflow_patches_total", totals.patches, "Patches merged."),
        ("haloflow_batches_total", totals.batches, "Batches merged."),
    ] {
        head(text, name, "counter", help)?;
        writeln!(text, "{name} {count}")?;
    }
    head(text, "haloflow_budget_bytes", "gauge", "Memory that all jobs share.")?;
    writeln!(text, "haloflow_budget_bytes {}", told.budget[1])?;
    head(text, "haloflow_budget_held_bytes", "gauge", "Memory that running jobs hold of it.")?;
    writeln!(text, "haloflow_budget_held_bytes {}", told.budget[0])?;
    head(text, "haloflow_leased_bytes", "gauge", "Memory that steps and blocks of running jobs lease.")?;
    writeln!(text, "haloflow_leased_bytes {}", told.leased)?;
    devices(text, told.devices)
}

fn stages(text: &mut String, totals: &Totals) -> std::fmt::Result {
    histogram(text, "haloflow_stage_work_seconds", "How long a stage worked on an item.", &totals.worked)?;
    histogram(text, "haloflow_stage_queue_seconds", "How long an item waited in front of a stage.", &totals.queued)?;
    head(text, "haloflow_stage_items_total", "counter", "Items that a stage has finished.")?;
    for (stage, items) in STAGES.iter().zip(totals.items) {
        writeln!(text, "haloflow_stage_items_total{{stage=\"{stage}\"}} {items}")?;
    }
    head(
        text,
        "haloflow_stage_idle_seconds_total",
        "counter",
        "Time that the tasks of a stage waited for items or for room.",
    )?;
    for (stage, seconds) in STAGES.iter().zip(totals.waiting_seconds) {
        writeln!(text, "haloflow_stage_idle_seconds_total{{stage=\"{stage}\"}} {seconds}")?;
    }
    Ok(())
}

fn histogram(text: &mut String, name: &str, help: &str, readings: &[HistogramReading]) -> std::fmt::Result {
    head(text, name, "histogram", help)?;
    for (stage, reading) in STAGES.iter().zip(readings) {
        let mut sum = 0;
        for (bound, count) in BOUNDS.iter().map(f64::to_string).chain(["+Inf".into()]).zip(reading.counts) {
            sum += count;
            writeln!(text, "{name}_bucket{{stage=\"{stage}\",le=\"{bound}\"}} {sum}")?;
        }
        writeln!(text, "{name}_sum{{stage=\"{stage}\"}} {}", reading.seconds)?;
        writeln!(text, "{name}_count{{stage=\"{stage}\"}} {sum}")?;
    }
    Ok(())
}

fn storage(text: &mut String, totals: &Totals) -> std::fmt::Result {
    for (name, count, help) in [
        ("haloflow_read_bytes_total", totals.bytes_read, "Encoded bytes read."),
        ("haloflow_written_bytes_total", totals.bytes_written, "Encoded bytes written."),
    ] {
        head(text, name, "counter", help)?;
        writeln!(text, "{name} {count}")?;
    }
    for (name, counts, help) in [
        ("haloflow_storage_requests_total", totals.requests, "Requests to stores."),
        ("haloflow_storage_retries_total", totals.retries, "Requests that were repeated."),
        ("haloflow_storage_throttles_total", totals.throttled, "Answers that asked for fewer requests."),
    ] {
        head(text, name, "counter", help)?;
        for (side, count) in ["input", "output"].iter().zip(counts) {
            writeln!(text, "{name}{{side=\"{side}\"}} {count}")?;
        }
    }
    Ok(())
}

fn devices(text: &mut String, devices: &[DeviceState]) -> std::fmt::Result {
    type Number = fn(&DeviceState) -> Option<f64>;
    let numbers: [(&str, &str, Number); 3] = [
        ("haloflow_device_memory_bytes", "Memory of a device.", |device| {
            device.memory_total_bytes.map(|bytes| bytes as f64)
        }),
        ("haloflow_device_memory_used_bytes", "Memory of a device in use.", |device| {
            device.memory_used_bytes.map(|bytes| bytes as f64)
        }),
        ("haloflow_device_utilisation_ratio", "Share of time in which a device computed.", |device| device.utilisation),
    ];
    for (name, help, number) in numbers {
        head(text, name, "gauge", help)?;
        for device in devices {
            if let Some(number) = number(device) {
                writeln!(text, "{name}{{device=\"{}\"}} {number}", device.name)?;
            }
        }
    }
    Ok(())
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) -> std::fmt::Result {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")
}
