//! Writing tiles of whole chunks.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use haloflow_geometry::{Box3, Zyx};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::axes::AxisMap;
use crate::carried::carried;
use crate::documents::Seal;
use crate::gather::{Placement, fill_row, scatter};
use crate::layout::Layout;
use crate::ledger::checksum;
use crate::location::Location;
use crate::{AlignedBytes, CounterSnapshot, CpuPool, Record, StorageCounters, StorageObserver, VolumeError, Window};

/// The most units that are encoded and put at once, if they are small.
const MOST_IN_FLIGHT: usize = 32;
/// Decoded bytes of units in flight above which fewer are allowed.
const BYTES_IN_FLIGHT: usize = 256 << 20;

/// An output that is open for writing. Cloning shares counters and limits.
#[derive(Clone, Debug)]
pub struct VolumeWriter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    levels: Vec<Level>,
    seal: Seal,
    cpu: CpuPool,
    counters: StorageCounters,
    in_flight: usize,
    permits: Arc<Semaphore>,
}

/// The arrays of one level: one per channel, or one for all.
#[derive(Debug)]
pub(crate) struct Level {
    arrays: Vec<ArrayTarget>,
    channels: usize,
    shape: Zyx,
    unit: Zyx,
}

/// An array that is open for writing.
#[derive(Debug)]
pub(crate) struct ArrayTarget {
    pub(crate) location: Location,
    pub(crate) layout: Layout,
    pub(crate) map: AxisMap,
    pub(crate) t: usize,
    pub(crate) c: usize,
}

/// What was stored of a tile: length and CRC-32C of each object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written(Vec<(u64, u32)>);

impl Written {
    /// This and what was stored of the tile on the next coarser level.
    #[must_use]
    pub fn and(mut self, coarser: Self) -> Self {
        self.0.extend(coarser.0);
        self
    }

    /// The ledger's record of the tile, whose number this is.
    #[must_use]
    pub fn record(&self, tile: u32) -> Record {
        Record { tile, checksum: checksum(&self.0), bytes: self.0.iter().map(|(length, _)| length).sum() }
    }
}

/// One object to be written: which array, its index in the grid, and what goes into it.
#[derive(Debug)]
struct Job {
    level: usize,
    array: usize,
    index: Vec<u64>,
    placement: Placement,
}

impl Level {
    pub(crate) fn new(arrays: Vec<ArrayTarget>, channels: usize) -> Self {
        let spatial = |full: fn(&Layout) -> &[usize]| {
            arrays.first().map_or([1; 3], |array| array.map.spatial(full(&array.layout)))
        };
        let (shape, unit) = (spatial(|layout| &layout.shape), spatial(|layout| &layout.chunk));
        Self { arrays, channels, shape, unit }
    }
}

impl VolumeWriter {
    /// `in_flight` units are encoded and put at one time, of whatever level: the finest has the largest.
    pub(crate) fn new(
        levels: Vec<Level>,
        in_flight: usize,
        seal: Seal,
        cpu: CpuPool,
        counters: StorageCounters,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(in_flight));
        Self { shared: Arc::new(Shared { levels, seal, cpu, counters, in_flight, permits }) }
    }

    /// What has been written so far.
    #[must_use]
    pub fn counters(&self) -> CounterSnapshot {
        self.shared.counters.snapshot()
    }

    /// Tells `observer` of every fetch, decoding, encoding and put from now on. Only the first that is given is told.
    pub fn observe(&self, observer: StorageObserver) {
        self.shared.counters.observe(observer);
    }

    /// Writes one tile. It starts on the grid of write units and ends on it or at the volume's end, on every axis. `channels` has
    /// one buffer per output channel: `tile.shape()` elements of the output's kind, axes z, y, x, C order. Every unit is put once, whole, and the call
    /// returns after each put was acknowledged, with the length and checksum of what was put.
    ///
    /// Cancellation: some units may have been written. Writing the tile again is safe and changes nothing.
    ///
    /// # Errors
    /// `Usage` if the tile or the buffers do not fit; `Unavailable` if the store refuses; `Transient` if it fails for longer
    /// than its retries last.
    pub async fn write(&self, tile: Box3, channels: Vec<AlignedBytes>) -> Result<Written, VolumeError> {
        self.write_level(0, tile, Arc::new(channels)).await
    }

    /// As [`write`](Self::write), on a level of the pyramid; `tile` is in voxels of that level. 0 is the finest.
    ///
    /// # Errors
    /// As [`write`](Self::write); `Usage` too if there is no such level.
    pub async fn write_level(
        &self,
        level: usize,
        tile: Box3,
        channels: Arc<Vec<AlignedBytes>>,
    ) -> Result<Written, VolumeError> {
        let Some(found) = self.shared.levels.get(level) else {
            return Err(VolumeError::usage(format!(
                "there is no level {level}: the output has {}",
                self.shared.levels.len()
            )));
        };
        found.check(tile, &channels)?;
        let jobs = found.jobs(level, tile);
        let mut objects = vec![(0, 0); jobs.len()];
        let mut waiting = jobs.into_iter().enumerate();
        let mut running = JoinSet::new();
        loop {
            while running.len() < self.shared.in_flight {
                let Some((place, job)) = waiting.next() else { break };
                let put = Arc::clone(&self.shared).write_unit(job, tile, Arc::clone(&channels));
                running.spawn(carried(async move { (place, put.await) }));
            }
            match running.join_next().await {
                None => return Ok(Written(objects)),
                Some(Ok((place, object))) => objects[place] = object?,
                Some(Err(error)) => {
                    return Err(VolumeError::internal(format!("writing a chunk was cut short: {error}")));
                }
            }
        }
    }

    /// Completes the metadata once every tile is stored. Viewers are told the range of values of each channel, in OME-Zarr images;
    /// bare arrays have no place for it. Repeating it changes nothing.
    ///
    /// # Errors
    /// `Usage` if there is not one window per channel; `Unavailable` if the store fails.
    pub async fn seal(&self, windows: &[Window]) -> Result<(), VolumeError> {
        let channels = self.shared.levels.first().map_or(0, |level| level.channels);
        if windows.len() != channels {
            return Err(VolumeError::usage(format!("there are {} windows for {channels} channels", windows.len())));
        }
        self.shared.seal.put(windows).await
    }
}

impl Level {
    fn check(&self, tile: Box3, channels: &[AlignedBytes]) -> Result<(), VolumeError> {
        let (shape, unit) = (self.shape, self.unit);
        let aligned = |axis: usize| {
            let (start, stop) = (tile.start[axis], tile.stop[axis]);
            start < stop
                && stop <= shape[axis]
                && start.is_multiple_of(unit[axis])
                && (stop.is_multiple_of(unit[axis]) || stop == shape[axis])
        };
        if !(0..3).all(aligned) {
            return Err(VolumeError::usage(format!(
                "the tile {tile} does not consist of whole write units of {unit:?} in the volume of shape {shape:?}"
            )));
        }
        let element = self.arrays.first().map_or(1, |array| array.layout.element.size());
        let bytes = tile.voxels() * element;
        if channels.len() != self.channels || channels.iter().any(|channel| channel.len() != bytes) {
            return Err(VolumeError::usage(format!(
                "the tile {tile} needs {} channels of {bytes} bytes, but has {} of {:?} bytes",
                self.channels,
                channels.len(),
                channels.iter().map(|channel| channel.len()).collect::<Vec<_>>()
            )));
        }
        Ok(())
    }

    /// Every object that the tile fills, in the order of its record: where, and under which key.
    pub(crate) fn objects(&self, tile: Box3) -> impl Iterator<Item = (&Location, String)> {
        self.jobs(0, tile).into_iter().map(|job| {
            let array = &self.arrays[job.array];
            (&array.location, array.layout.key(&job.index))
        })
    }

    /// Every object that the tile fills.
    fn jobs(&self, level: usize, tile: Box3) -> Vec<Job> {
        let stacked = self.arrays.len() == 1;
        let mut jobs = Vec::new();
        for (number, array) in self.arrays.iter().enumerate() {
            let buffers = if stacked { 0..self.channels } else { number..number + 1 };
            let chunk = &array.layout.chunk;
            let strides = array.map.strides(chunk);
            let (per_t, per_c) = (AxisMap::along(array.map.t, chunk), AxisMap::along(array.map.c, chunk));
            let first = buffers.start;
            let place = |buffer: usize| array.c + buffer - first;
            let groups = place(buffers.start) / per_c..(place(buffers.end - 1) / per_c) + 1;
            for group in groups {
                let inside = buffers.clone().filter(|&buffer| place(buffer) / per_c == group);
                let base = |buffer: usize| array.t % per_t * strides.t + place(buffer) % per_c * strides.c;
                let planes: Vec<(usize, usize)> = inside.map(|buffer| (buffer, base(buffer))).collect();
                jobs.extend(tile.cells(self.unit).indices().map(|cell| Job {
                    level,
                    array: number,
                    index: array.map.index(array.t / per_t, group, cell),
                    placement: Placement { covers: Box3::of_cell(cell, self.unit), planes: planes.clone() },
                }));
            }
        }
        jobs
    }
}

impl Shared {
    async fn write_unit(
        self: Arc<Self>,
        job: Job,
        tile: Box3,
        channels: Arc<Vec<AlignedBytes>>,
    ) -> Result<(u64, u32), VolumeError> {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| VolumeError::internal("the writer was closed"))?;
        let array = &self.levels[job.level].arrays[job.array];
        let key = array.layout.key(&job.index);
        let shared = Arc::clone(&self);
        let encode = move || {
            let since = Instant::now();
            let encoded = shared.levels[job.level].arrays[job.array].encode(&job.placement, tile, &channels);
            shared.counters.encoded(since);
            // The permit leaves only with the bytes, so a cancelled write cannot exceed the limit.
            (encoded, permit)
        };
        let (encoded, _permit) = self.cpu.run(encode).await?;
        let encoded = encoded.map_err(|what| {
            VolumeError::internal(format!("the chunk {} cannot be encoded: {what}", array.location.url_of(&key)))
        })?;
        let object = (encoded.len() as u64, crc32c::crc32c(&encoded));
        array.location.put(&key, Bytes::from(encoded)).await?;
        Ok(object)
    }
}

impl ArrayTarget {
    fn encode(&self, placement: &Placement, tile: Box3, channels: &[AlignedBytes]) -> Result<Vec<u8>, String> {
        let codec = &self.layout.codec;
        let mut chunk = vec![0; codec.decoded_size()];
        if codec.fill_bytes().iter().any(|byte| *byte != 0) {
            fill_row(&mut chunk, codec.fill_bytes());
        }
        let strides = self.map.strides(&self.layout.chunk);
        scatter(&mut chunk, placement, strides, (tile, channels), codec.fill_bytes().len());
        codec.encode(&chunk)
    }
}

/// How many units of `bytes` decoded bytes may be encoded and put at once.
pub(crate) fn in_flight(bytes: usize, cpu: &CpuPool) -> usize {
    (BYTES_IN_FLIGHT / bytes.max(1)).clamp(cpu.threads() + 1, MOST_IN_FLIGHT.max(cpu.threads() + 1))
}
