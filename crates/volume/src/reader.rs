//! Reading regions of a volume.

use std::collections::VecDeque;
use std::sync::Arc;

use haloflow_geometry::{Box3, Zyx};
use moka::future::Cache;
use moka::policy::EvictionPolicy;
use tokio::task::{JoinError, JoinSet};

use crate::axes::{AxisMap, Strides};
use crate::carried::carried;
use crate::fetch::{Permit, Permitted, UnitSource};
use crate::gather::{Placement, Unit, gather};
use crate::input::Input;
use crate::leftovers::{Found, Turn};
use crate::{
    AlignedBytes, Brick, CounterSnapshot, CpuPool, Element, Environment, InputDescription, StorageCounters,
    StorageObserver, VolumeError,
};

/// What to read, and how.
#[derive(Clone, Debug)]
pub struct InputOptions {
    /// A URL or path of a Zarr array or an OME-Zarr group, a TensorStore spec as inline JSON (it starts with `{`), or the path of
    /// a file that holds one (it ends in `.json`).
    pub source: String,
    /// Resolution level of a group; 0 is the finest. A bare array has only 0.
    pub level: usize,
    /// Whether the user asked for the level.
    pub level_given: bool,
    /// Time point.
    pub t: usize,
    /// Channels, in the order in which they shall come back; at least one.
    pub c: Vec<usize>,
    /// Capacity of the cache of decoded chunks, bytes.
    pub cache_bytes: u64,
    /// How many chunks may be fetched and decoded at once, at least 1; 64 suits object stores. Fewer are if the array has fewer
    /// chunks, or if those in the making would take more than 256 MiB (encoded and decoded), but not fewer than 4 for that.
    pub requests: usize,
}

/// A volume that is open for reading: one level, one time point, one or more channels. Cloning shares cache and counters.
#[derive(Clone, Debug)]
pub struct VolumeReader {
    shared: Arc<Shared>,
    cache: Cache<Vec<u64>, Arc<Unit>>,
}

type Permits = Vec<Permit>;

/// A unit that a read needs: its index in the grid of units, and where it goes.
pub(crate) type Needed = (Vec<u64>, Placement);

/// A unit that can be copied.
pub(crate) type Arrived = (Needed, Held);

/// A chunk that waits to be copied, with its permit if this read fetched it and neither the cache nor another read did; or this read's
/// piece of it. A read copies what has arrived without needing further permits, so reads that hold some never wait for each other in a circle.
#[derive(Debug)]
pub(crate) struct Held {
    unit: Arc<Unit>,
    permit: Option<Permit>,
}

impl AsRef<Unit> for Held {
    fn as_ref(&self) -> &Unit {
        &self.unit
    }
}

#[derive(Debug)]
struct Shared {
    source: UnitSource,
    map: AxisMap,
    description: InputDescription,
    identity: String,
    counters: StorageCounters,
    cpu: CpuPool,
    t: usize,
    c: Vec<usize>,
}

impl VolumeReader {
    /// Reads the metadata and checks that level, time point and channels exist. No chunk is read.
    ///
    /// # Errors
    /// `Usage` for a bad spec, level, time point or channel; `Data` if there is no volume or it is of an unsupported form;
    /// `Unavailable` if the store cannot be reached.
    pub async fn open(options: &InputOptions, environment: &Environment, cpu: &CpuPool) -> Result<Self, VolumeError> {
        let counters = StorageCounters::default();
        let Input { location, layout, map, description, identity, .. } =
            Input::open(options, environment, &counters).await?;
        let source = UnitSource::new(layout, location, cpu.clone(), options.requests);
        let (t, c) = (options.t, options.c.clone());
        let shared = Shared { source, map, description, identity, counters, cpu: cpu.clone(), t, c };
        Ok(Self { shared: Arc::new(shared), cache: cache(options.cache_bytes) })
    }

    /// The same volume with an empty cache of `bytes` capacity, for a caller that sizes the cache after it has seen the shape.
    #[must_use]
    pub fn with_cache(self, bytes: u64) -> Self {
        Self { cache: cache(bytes), ..self }
    }

    /// The same volume with at most so many chunks fetched and decoded at one time, and at least one.
    #[must_use]
    pub fn with_requests(self, requests: usize) -> Self {
        let Shared { source, map, description, identity, counters, cpu, t, c } = &*self.shared;
        let source = source.with_requests(requests);
        let (description, identity) = (description.clone(), identity.clone());
        let (counters, cpu) = (counters.clone(), cpu.clone());
        let shared = Shared { source, map: *map, description, identity, counters, cpu, t: *t, c: c.clone() };
        Self { shared: Arc::new(shared), ..self }
    }

    /// How many chunks are fetched and decoded at one time at most.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.shared.source.requests()
    }

    /// Size of the volume z, y, x, voxels.
    #[must_use]
    pub fn shape(&self) -> Zyx {
        self.shared.map.spatial(&self.shared.source.layout.shape)
    }

    /// The kind of number.
    #[must_use]
    pub fn element(&self) -> Element {
        self.shared.source.layout.element
    }

    /// Spatial shape of the smallest part that can be read alone, z, y, x, voxels: the chunk, or the inner chunk of a shard.
    #[must_use]
    pub fn unit(&self) -> Zyx {
        self.shared.map.spatial(self.shared.source.layout.unit())
    }

    /// How many parts of that shape the volume has, over all channels that are read.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        let cells = Box3::of_shape(self.shape()).cells(self.unit()).voxels() as u64;
        let per_chunk = AxisMap::along(self.shared.map.c, self.shared.source.layout.unit()).max(1);
        let mut groups: Vec<usize> = self.shared.c.iter().map(|channel| channel / per_chunk).collect();
        groups.sort_unstable();
        groups.dedup();
        cells * groups.len() as u64
    }

    /// How many channels a [`Brick`] holds: as many as [`InputOptions::c`] names.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.shared.c.len()
    }

    /// What the volume is.
    #[must_use]
    pub fn description(&self) -> &InputDescription {
        &self.shared.description
    }

    /// What tells the volume from another: the SHA-256 of its metadata, and the store's tag of that where there is one.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.shared.identity
    }

    /// What has been read so far.
    #[must_use]
    pub fn counters(&self) -> CounterSnapshot {
        self.shared.counters.snapshot()
    }

    /// Tells `observer` of every fetch, decoding, encoding and put from now on. Only the first that is given is told.
    pub fn observe(&self, observer: StorageObserver) {
        self.shared.counters.observe(observer);
    }

    /// The most bytes that reading holds outside the cache and the returned bricks: encoded and decoded chunks that are not yet
    /// copied into bricks, if no encoded chunk is larger than a decoded one, and the indexes of shards.
    #[must_use]
    pub fn transfer_bytes(&self) -> u64 {
        self.shared.source.transfer_bytes()
    }

    /// Reads a region that lies inside the volume. Chunks in the cache are not fetched again, and concurrent reads that need the
    /// same chunk fetch it once. A chunk that the store does not have holds the fill value.
    ///
    /// Cancellation: safe; chunks that have arrived stay in the cache.
    ///
    /// # Errors
    /// `Usage` if the region reaches outside; `Data` naming the object if a chunk is empty, truncated or corrupt; `Unavailable` if the store
    /// fails for longer than its retries last.
    pub async fn read(&self, region: Box3) -> Result<Brick, VolumeError> {
        self.read_with(region, None).await
    }

    /// As [`read`](Self::read), one of the reads of a run that are known beforehand: takes what earlier ones left for it, and leaves what
    /// later ones want. Uses no cache.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn read_in_turn(&self, turn: &Turn) -> Result<Brick, VolumeError> {
        self.read_with(turn.region(), Some(turn)).await
    }

    /// What [`read`](Self::read) would give of `region` if every voxel were 0.
    #[must_use]
    pub fn zeros(&self, region: Box3) -> Brick {
        let element = self.element();
        let bytes = region.voxels() * element.size();
        let channels = self.shared.c.iter().map(|_| AlignedBytes::zeroed(bytes)).collect();
        Brick { region, element, channels }
    }

    async fn read_with(&self, region: Box3, turn: Option<&Turn>) -> Result<Brick, VolumeError> {
        let shape = self.shape();
        if (0..3).any(|axis| region.start[axis] > region.stop[axis] || region.stop[axis] > shape[axis]) {
            return Err(VolumeError::usage(format!(
                "the region {region} reaches outside the volume of shape {shape:?}"
            )));
        }
        if region.is_empty() {
            return Ok(self.zeros(region));
        }
        let placements = self.shared.placements(region);
        if let [needed] = &placements[..]
            && self.shared.is_laid_out_as(region, needed)
        {
            return self.read_chunk(region, needed, turn).await;
        }
        let mut brick = self.zeros(region);
        let mut waiting = VecDeque::from(self.shared.source.groups(placements).await?);
        let mut running = JoinSet::new();
        loop {
            while running.len() < self.shared.source.requests() {
                let Some(group) = waiting.pop_front() else { break };
                let (reader, turn) = (self.clone(), turn.cloned());
                running.spawn(carried(async move { reader.load(group, turn.as_ref()).await }));
            }
            let Some(first) = running.join_next().await else { return Ok(brick) };
            let (mut arrived, mut elsewhere) = settled(first)?;
            while let Some(next) = running.try_join_next() {
                let (more, others) = settled(next)?;
                arrived.extend(more);
                elsewhere.extend(others);
            }
            waiting.extend(elsewhere.into_iter().map(|unit| vec![unit]));
            let permits;
            (brick, permits) = self.copy(brick, arrived).await?;
            // The cache evicts lazily; memory is bounded only if it does so before others may go on.
            self.cache.run_pending_tasks().await;
            drop(permits);
        }
    }

    /// Reads a region that is one whole chunk, whose bytes become the brick's where nobody else needs them.
    async fn read_chunk(&self, region: Box3, needed: &Needed, turn: Option<&Turn>) -> Result<Brick, VolumeError> {
        let mut held = self.kept(needed, turn).await?;
        self.cache.run_pending_tasks().await;
        match Arc::try_unwrap(held.unit) {
            Ok(Unit::Voxels(bytes)) => match AlignedBytes::adopt(bytes) {
                Ok(adopted) => return Ok(Brick { region, element: self.element(), channels: vec![adopted] }),
                Err(bytes) => held.unit = Arc::new(Unit::Voxels(bytes)),
            },
            Ok(unit) => held.unit = Arc::new(unit),
            Err(shared) => held.unit = shared,
        }
        let (brick, _permits) = self.copy(self.zeros(region), vec![(needed.clone(), held)]).await?;
        Ok(brick)
    }

    pub(crate) fn source(&self) -> &UnitSource {
        &self.shared.source
    }

    pub(crate) fn map(&self) -> AxisMap {
        self.shared.map
    }

    /// The time point and the channels that are read.
    pub(crate) fn selection(&self) -> (usize, &[usize]) {
        (self.shared.t, &self.shared.c)
    }

    /// A unit, from what is kept, from whoever is loading it already, or from the store.
    pub(crate) async fn kept(&self, needed: &Needed, turn: Option<&Turn>) -> Result<Held, VolumeError> {
        self.kept_or(needed, turn, self.shared.source.unit(&needed.0)).await
    }

    /// A unit, from the cache or what earlier reads left, from whoever is loading it already, or from `load`.
    pub(crate) async fn kept_or(
        &self,
        needed: &Needed,
        turn: Option<&Turn>,
        load: impl Future<Output = Result<Permitted, VolumeError>>,
    ) -> Result<Held, VolumeError> {
        let Some(turn) = turn else { return self.cached_or(&needed.0, load).await };
        loop {
            match turn.find(&needed.0) {
                Found::Piece(unit) => return Ok(Held { unit, permit: None }),
                Found::Theirs(mut loading) => {
                    if loading.changed().await.is_ok()
                        && let Some(error) = &*loading.borrow()
                    {
                        return Err(error.clone());
                    }
                }
                Found::Ours(loading) => {
                    let left = async { self.leave(needed, turn.clone(), load.await?).await };
                    return match left.await {
                        Ok((unit, permit)) => Ok(Held { unit, permit: Some(permit) }),
                        Err(error) => {
                            loading.fail(&error);
                            Err(error)
                        }
                    };
                }
            }
        }
    }

    async fn cached_or(
        &self,
        index: &[u64],
        load: impl Future<Output = Result<Permitted, VolumeError>>,
    ) -> Result<Held, VolumeError> {
        let mut permit = None;
        let load = async {
            let (unit, taken) = load.await?;
            permit = Some(taken);
            Ok(unit)
        };
        let unit = self.cache.try_get_with(index.to_vec(), load).await;
        let unit = unit.map_err(|error: Arc<VolumeError>| (*error).clone())?;
        Ok(Held { unit, permit })
    }

    /// Leaves of a chunk what later reads want. The permit comes back with the chunk, so that a cancelled read cannot exceed the limit.
    async fn leave(
        &self,
        (index, placement): &Needed,
        turn: Turn,
        (unit, permit): Permitted,
    ) -> Result<Permitted, VolumeError> {
        let (shared, index, placement) = (Arc::clone(&self.shared), index.clone(), placement.clone());
        let work = move || {
            let size = shared.source.layout.codec.fill_bytes().len();
            let voxel_bytes = if matches!(*unit, Unit::Fill) { 0 } else { placement.planes.len() * size };
            let cut = |part: &Box3| unit.part(part, &placement, shared.strides(), size);
            turn.keep(&index, &placement.covers, voxel_bytes, cut);
            (unit, permit)
        };
        self.shared.cpu.run(work).await
    }

    /// Copies chunks into the brick and lets go of them. Gives their permits back with the brick; work that outlives a cancelled read
    /// keeps them until it ends.
    async fn copy(&self, mut brick: Brick, units: Vec<Arrived>) -> Result<(Brick, Permits), VolumeError> {
        let shared = Arc::clone(&self.shared);
        let units: Vec<_> = units.into_iter().map(|((_, placement), held)| (placement, held)).collect();
        let work = move || {
            gather(&mut brick, &units, shared.strides(), shared.source.layout.codec.fill_bytes());
            (brick, units.into_iter().filter_map(|(_, held)| held.permit).collect())
        };
        self.shared.cpu.run(work).await
    }
}

impl Shared {
    fn strides(&self) -> Strides {
        self.map.strides(self.source.layout.unit())
    }

    /// Whether the bytes of a unit are those of a brick of this region.
    fn is_laid_out_as(&self, region: Box3, (_, placement): &Needed) -> bool {
        let [_, height, width] = region.shape();
        let (layout, is_one) = (&self.source.layout, self.c.len() == 1);
        let has_no_other = layout.unit().iter().product::<usize>() == region.voxels();
        is_one && has_no_other && placement.covers == region && self.strides().zyx == [height * width, width, 1]
    }

    /// Every unit that a region needs, with its index in the grid of units.
    fn placements(&self, region: Box3) -> Vec<(Vec<u64>, Placement)> {
        let unit = self.source.layout.unit();
        let (space, strides) = (self.map.spatial(unit), self.strides());
        let (per_t, per_c) = (AxisMap::along(self.map.t, unit), AxisMap::along(self.map.c, unit));
        let mut groups: Vec<(usize, Vec<(usize, usize)>)> = Vec::new();
        for (buffer, channel) in self.c.iter().enumerate() {
            let plane = (buffer, self.t % per_t * strides.t + channel % per_c * strides.c);
            match groups.iter_mut().find(|(group, _)| *group == channel / per_c) {
                Some((_, planes)) => planes.push(plane),
                None => groups.push((channel / per_c, vec![plane])),
            }
        }
        let cells = region.cells(space);
        let placed = groups.iter().flat_map(|(group, planes)| {
            cells.indices().map(move |cell| {
                let placement = Placement { covers: Box3::of_cell(cell, space), planes: planes.clone() };
                (self.map.index(self.t / per_t, *group, cell), placement)
            })
        });
        placed.collect()
    }
}

fn cache(bytes: u64) -> Cache<Vec<u64>, Arc<Unit>> {
    Cache::builder()
        .max_capacity(bytes)
        .eviction_policy(EvictionPolicy::lru())
        .weigher(|_: &Vec<u64>, unit: &Arc<Unit>| u32::try_from(unit.weight()).unwrap_or(u32::MAX))
        .build()
}

fn settled<T>(joined: Result<Result<T, VolumeError>, JoinError>) -> Result<T, VolumeError> {
    joined.unwrap_or_else(|error| Err(VolumeError::internal(format!("reading a chunk was cut short: {error}"))))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use serde_json::json;

    use haloflow_geometry::Read;

    use super::*;
    use crate::Leftovers;

    async fn reader(requests: usize) -> VolumeReader {
        let environment = Environment::empty();
        let location = crate::address::locate("memory://v", &environment).await.unwrap();
        let metadata = json!({"zarr_format": 2, "shape": [4, 8, 8], "chunks": [2, 2, 2], "dtype": "|u1", "compressor": null,
            "fill_value": 3, "filters": null, "order": "C"});
        location.put(".zarray", metadata.to_string().into()).await.unwrap();
        for z in 0..2 {
            location.put(&format!("{z}.0.0"), vec![9; 8].into()).await.unwrap();
        }
        let options = InputOptions {
            source: "memory://v".to_owned(),
            level: 0,
            level_given: false,
            t: 0,
            c: vec![0],
            cache_bytes: 1 << 20,
            requests,
        };
        VolumeReader::open(&options, &environment, &CpuPool::new(NonZeroUsize::MIN).unwrap()).await.unwrap()
    }

    fn needed(cell: Zyx) -> Needed {
        let covers = Box3::of_cell(cell, [2; 3]);
        (cell.map(|place| place as u64).to_vec(), Placement { covers, planes: vec![(0, 0)] })
    }

    #[tokio::test]
    async fn a_permit_lasts_until_its_chunk_is_copied() {
        let reader = reader(2).await;
        let permits = &reader.shared.source.permits;
        let (one, same) =
            futures::future::join(reader.kept(&needed([0; 3]), None), reader.kept(&needed([0; 3]), None)).await;
        let (one, same) = (one.unwrap(), same.unwrap());
        assert!(one.permit.is_some() && same.permit.is_none());
        let absent = reader.kept(&needed([0, 1, 1]), None).await.unwrap();
        assert_eq!(permits.available_permits(), 0);
        drop((one, same, absent));
        assert_eq!(permits.available_permits(), 2);
    }

    #[tokio::test]
    async fn the_bytes_of_a_chunk_that_is_a_whole_region_become_its_brick() {
        let reader = reader(2).await;
        let read = |order: u64, x: usize| Read { order, region: Box3::new([0, 0, x], [2, 2, x + 2]) };
        let leftovers = Leftovers::new(0, move |_| vec![read(0, 0)]);
        for (order, x, adopted) in [(0, 0, true), (1, 1, false)] {
            let brick = reader.read_in_turn(&leftovers.begin(read(order, x))).await.unwrap();
            assert_eq!((brick.channels[0].is_adopted(), brick.channels[0][0]), (adopted, 9));
        }
    }

    #[tokio::test]
    async fn reads_of_the_same_chunks_go_on_with_one_permit() {
        for cache_bytes in [0, 1 << 20] {
            let reader = reader(1).await.with_cache(cache_bytes);
            let reads = (0..6).map(|i| reader.read(Box3::new([0, i % 3, 0], [4, 8, 8])));
            for brick in futures::future::try_join_all(reads).await.unwrap() {
                assert_eq!(brick.channels[0].as_slice::<u8>().last(), Some(&3));
            }
            assert_eq!(reader.shared.source.permits.available_permits(), 1);
            assert_eq!(reader.transfer_bytes(), 2 * 8);
        }
    }
}
