//! What is measured: each device alone, then all at once.

use std::sync::{Arc, Barrier, Mutex};
use std::time::Instant;

use anyhow::{Result, anyhow};
use haloflow_engine::{Timeline, fill_fixed};
use haloflow_engine_torch::{DeviceBench, TorchOptions};
use serde::Serialize;

/// Batches before the measurement begins.
const WARM_UP: usize = 5;

/// All figures.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    /// Every device alone.
    pub(crate) devices: Vec<DeviceFigures>,
    /// All at once, if there are several.
    pub(crate) together: Option<Together>,
    batch: usize,
    patch: [usize; 3],
    kind: String,
    batches: usize,
    slots: usize,
    graph: bool,
}

/// A device alone.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeviceFigures {
    pub(crate) name: String,
    pub(crate) description: String,
    /// Through the ring, mean.
    pub(crate) ring_ms: f64,
    /// The bare model on resident data on the same stream, mean.
    pub(crate) bare_ms: f64,
    pub(crate) bare_median_ms: f64,
    /// An upload, and a download, of a batch with nothing else going on.
    pub(crate) upload_ms: f64,
    pub(crate) download_ms: f64,
    /// The ring's rate over the bare model's.
    pub(crate) ring_over_bare: f64,
    /// The ring's time over the bare model's.
    pub(crate) overlap: f64,
    /// What that would be if nothing overlapped.
    pub(crate) serial: f64,
    pub(crate) megavoxels_per_second: f64,
}

/// All devices at once.
#[derive(Debug, Serialize)]
pub(crate) struct Together {
    /// Through the ring, mean, each device.
    pub(crate) ring_ms: Vec<f64>,
    pub(crate) megavoxels_per_second: f64,
    /// The sum of the rates over the first device's alone.
    pub(crate) scaling: f64,
}

/// Measures the devices of `options`: made one after the other, each measured alone, then all at once.
pub(crate) fn measure(
    options: &[TorchOptions],
    batches: usize,
    slots: usize,
    timeline: Option<&Arc<Timeline>>,
) -> Result<Figures> {
    let alone = Mutex::new(());
    let together = Barrier::new(options.len());
    let outcomes: Vec<Result<(DeviceFigures, f64)>> = std::thread::scope(|scope| {
        let threads = options.iter().map(|options| {
            let options = TorchOptions { timeline: timeline.map(Arc::clone), ..options.clone() };
            let (alone, together) = (&alone, &together);
            scope.spawn(move || {
                let measured = {
                    let _lock = alone.lock();
                    DeviceBench::new(&options).map_err(anyhow::Error::from).and_then(|mut bench| {
                        let figures = of_device(&mut bench, &options, batches, slots)?;
                        Ok((bench, figures))
                    })
                };
                // Whoever failed comes here too, or the others wait for ever.
                together.wait();
                let (mut bench, figures) = measured?;
                let ring_ms = ring(&mut bench, batches, slots)?;
                Ok((figures, ring_ms))
            })
        });
        let threads: Vec<_> = threads.collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|joined| joined.unwrap_or_else(|_| Err(anyhow!("a device's thread panicked")))).collect()
    });
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>>>()?;
    let (devices, ring_ms): (Vec<DeviceFigures>, Vec<f64>) = outcomes.into_iter().unzip();
    let first = &options[0];
    let voxels = (first.batch * first.patch.iter().product::<usize>()) as f64;
    let together = (devices.len() > 1).then(|| {
        let rate = ring_ms.iter().map(|milliseconds| voxels / milliseconds / 1e3).sum::<f64>();
        Together { scaling: rate / devices[0].megavoxels_per_second, megavoxels_per_second: rate, ring_ms }
    });
    let (batch, patch, kind) = (first.batch, first.patch, first.kind.to_string());
    Ok(Figures { devices, together, batch, patch, kind, batches, slots, graph: first.graph })
}

fn of_device(bench: &mut DeviceBench, options: &TorchOptions, batches: usize, slots: usize) -> Result<DeviceFigures> {
    // Before and after, since a card grows warm and slows down.
    let before = ring(bench, batches, slots)?;
    let mut input = vec![0; bench.spec().batch * bench.spec().input_row_bytes()];
    fill_fixed(bench.spec().input, 0, &mut input);
    let mut bare = bench.bare(&input, WARM_UP + batches)?.split_off(WARM_UP);
    let after = ring(bench, batches, slots)?;
    let mut slot = bench.engine().allocate()?;
    let [upload, download] = bench.copies(&mut slot, WARM_UP + 20)?.map(|times| mean(&times[WARM_UP..]));
    let (ring_ms, bare_ms) = (f64::midpoint(before, after), mean(&bare));
    bare.sort_by(f64::total_cmp);
    let voxels = (options.batch * options.patch.iter().product::<usize>()) as f64;
    Ok(DeviceFigures {
        name: options.device.to_string(),
        description: bench.engine().describe(),
        ring_ms,
        bare_ms,
        bare_median_ms: bare[bare.len() / 2],
        upload_ms: upload,
        download_ms: download,
        ring_over_bare: bare_ms / ring_ms,
        overlap: ring_ms / bare_ms,
        serial: (upload + bare_ms + download) / bare_ms,
        megavoxels_per_second: voxels / ring_ms / 1e3,
    })
}

/// Milliseconds per batch through the ring, mean, once it is full.
fn ring(bench: &mut DeviceBench, batches: usize, slots: usize) -> Result<f64> {
    let rows = bench.spec().batch;
    let back: Vec<Instant> =
        bench.stream(slots, WARM_UP + batches, |_, _| rows, |_, _| Ok(())).map_err(anyhow::Error::msg)?;
    let (first, last) = (back[WARM_UP - 1], back[back.len() - 1]);
    Ok((last - first).as_secs_f64() * 1e3 / batches as f64)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
