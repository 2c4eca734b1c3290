//! What a person sees: the bar while a run goes on, the report at its end.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use haloflow_pipeline::Report;
use haloflow_pipeline::progress::Snapshot;
use indicatif::{HumanBytes, HumanCount, HumanDuration, MultiProgress, ProgressBar, ProgressStyle};

/// Between two looks at the progress.
pub(crate) const EVERY: Duration = Duration::from_millis(200);

/// Between two lines of progress where no terminal shows a bar.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// A bar on a terminal, now and then a line elsewhere.
pub(crate) struct Shown {
    bar: Option<ProgressBar>,
    /// When the first block was stored, and how many voxels had been by then: what the rate is taken from.
    since: Option<(Instant, u64)>,
    line: Instant,
}

impl Shown {
    pub(crate) fn new(bars: &MultiProgress) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| bars.add(ProgressBar::new(0)));
        if let Some(bar) = &bar {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} blocks  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        }
        Self { bar, since: None, line: Instant::now() }
    }

    /// Shows where the run is.
    pub(crate) fn update(&mut self, seen: &Snapshot, doing: &str) {
        let now = Instant::now();
        if seen.voxels > 0 && self.since.is_none() {
            self.since = Some((now, seen.voxels));
        }
        let message = self.message(seen, doing, now);
        if let Some(bar) = &self.bar {
            bar.set_length(seen.tiles_total);
            bar.set_position(seen.tiles);
            bar.set_message(message);
        } else if now.duration_since(self.line) >= LINE_EVERY {
            self.line = now;
            tracing::info!(blocks = seen.tiles, of = seen.tiles_total, "{message}");
        }
    }

    fn message(&self, seen: &Snapshot, doing: &str, now: Instant) -> String {
        let Some((since, before)) = self.since else {
            let patches =
                (seen.patches_total > 0).then(|| format!(", {} of {} patches", seen.patches, seen.patches_total));
            return format!("{doing}{}", patches.unwrap_or_default());
        };
        // The mean rate since the first block: it settles, where a momentary rate jumps from block to block.
        let rate = (seen.voxels - before) as f64 / now.duration_since(since).as_secs_f64().max(1e-9);
        if rate == 0.0 {
            return doing.to_owned();
        }
        let left = Duration::from_secs_f64(((seen.voxels_total - seen.voxels) as f64 / rate).min(1e9));
        let megabytes = rate * seen.bytes_per_voxel as f64 / 1e6;
        format!("{} voxels/s  {} MB/s  ETA {}", HumanCount(rate as u64), three_digits(megabytes), HumanDuration(left))
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The report as text.
pub(crate) fn report(report: &Report) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = write_report(&mut text, report);
    text
}

fn write_report(text: &mut String, report: &Report) -> std::fmt::Result {
    let [z, y, x] = report.input.shape;
    let work = &report.work;
    writeln!(
        text,
        "input       {}  {z} x {y} x {x} {}, {}",
        report.input.url,
        report.input.element,
        HumanBytes(report.input.raw_bytes)
    )?;
    for url in &report.output.urls {
        writeln!(text, "output      {url}  {}", report.output.element)?;
    }
    for device in &report.devices {
        writeln!(
            text,
            "device      {}: {} (ready after {:.1} s)",
            device.name, device.description, device.start_seconds
        )?;
        if let Some(why) = &device.retired {
            writeln!(text, "            {} retired before the end, and the others did its work: {why}", device.name)?;
        }
    }
    writeln!(
        text,
        "time        {:.2} s in all; {:.2} s streaming, {} MB/s of raw input, {} voxels/s",
        report.seconds.total,
        report.seconds.stream,
        three_digits(report.megabytes_per_second),
        HumanCount(report.voxels_per_second as u64)
    )?;
    writeln!(
        text,
        "work        {} of {} blocks, {} of {} patches ({:.2} x the volume), {} batches, {} short; {} lattice",
        work.blocks,
        work.blocks_total,
        work.patches,
        work.patches_total,
        work.redundancy,
        work.batches,
        work.short_batches,
        work.lattice
    )?;
    let skipped = work.skipped;
    if skipped.empty + skipped.masked > 0 {
        writeln!(text, "            {} blocks skipped as empty, {} as masked", skipped.empty, skipped.masked)?;
    }
    if work.blocks_before > 0 {
        writeln!(text, "            {} more blocks were stored by an earlier run", work.blocks_before)?;
    }
    for block in &report.quarantined {
        let [z, y, x] = block.start;
        writeln!(text, "set aside   the block at z {z}, y {y}, x {x}: {}", block.fault)?;
    }
    for (name, reading) in report.stages.named() {
        let (working, waiting) = (reading.working_seconds, reading.waiting_seconds);
        writeln!(text, "  {name:<9} {working:>9.2} s working {waiting:>9.2} s waiting  {:>8} items", reading.items)?;
    }
    let (read, written) = (&report.storage_read, &report.storage_written);
    writeln!(
        text,
        "storage     {} read in {} requests, {} written in {} objects",
        HumanBytes(read.bytes_read),
        read.requests,
        HumanBytes(written.bytes_written),
        written.objects_written
    )?;
    let (retries, throttled) = (read.retries + written.retries, read.throttled + written.throttled);
    if retries > 0 {
        writeln!(text, "            {retries} requests repeated, {throttled} of them because the store throttled")?;
    }
    let voxels = &report.voxels;
    writeln!(
        text,
        "voxels      {} clipped low, {} clipped high, {} not finite",
        voxels.clipped_low, voxels.clipped_high, voxels.nonfinite
    )?;
    let memory = &report.memory;
    write!(
        text,
        "memory      {} allowed: {} batches, {} cache, {} transfers, {} blocks",
        HumanBytes(memory.total),
        HumanBytes(memory.slots),
        HumanBytes(memory.cache),
        HumanBytes(memory.transfer),
        HumanBytes(memory.leases)
    )?;
    match report.peak_resident_bytes {
        Some(peak) => writeln!(text, "; peak resident {}", HumanBytes(peak)),
        None => writeln!(text),
    }
}

/// A rate with three significant digits, so that slow runs show more than 0.0.
fn three_digits(rate: f64) -> String {
    let digits = 2 - rate.max(1e-9).log10().floor() as i32;
    format!("{rate:.*}", usize::try_from(digits).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_mean_since_the_first_block_so_that_the_time_left_settles() {
        let began = Instant::now();
        let shown = Shown { bar: None, since: Some((began, 1_000)), line: began };
        let at = |seconds: u64, voxels: u64| {
            let seen = Snapshot { voxels, voxels_total: 31_000_000, bytes_per_voxel: 2, ..Snapshot::default() };
            shown.message(&seen, "streaming", began + Duration::from_secs(seconds))
        };
        assert_eq!(at(10, 10_001_000), "1,000,000 voxels/s  2.00 MB/s  ETA 21 seconds");
        // A second in which nothing was stored, and one in which twice as much was, change little.
        assert_eq!(at(11, 10_001_000), "909,090 voxels/s  1.82 MB/s  ETA 23 seconds");
        assert_eq!(at(12, 12_001_000), "1,000,000 voxels/s  2.00 MB/s  ETA 19 seconds");
    }

    #[test]
    fn before_the_first_block_the_patches_are_told() {
        let shown = Shown { bar: None, since: None, line: Instant::now() };
        let seen = Snapshot { patches: 3, patches_total: 8, ..Snapshot::default() };
        assert_eq!(shown.message(&seen, "streaming", Instant::now()), "streaming, 3 of 8 patches");
        assert_eq!(shown.message(&Snapshot::default(), "opening", Instant::now()), "opening");
    }

    #[test]
    fn slow_and_fast_rates_have_three_digits() {
        let shown = [0.0412, 1.0, 31.27, 214.0, 1046.4].map(three_digits);
        assert_eq!(shown, ["0.0412", "1.00", "31.3", "214", "1046"]);
    }
}
