//! Fetching and decoding chunks.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use moka::future::Cache;
use moka::policy::EvictionPolicy;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::gather::Unit;
use crate::layout::Layout;
use crate::location::Location;
use crate::shard::{ShardIndex, ShardLayout};
use crate::span::GAP_PART;
use crate::{CpuPool, StorageCounters, VolumeError};

/// Memory for the indexes of shards, bytes.
const INDEX_CACHE_BYTES: u64 = 16 << 20;

/// Memory for chunks in the making, encoded and decoded, bytes; only [`FEWEST_REQUESTS`] large chunks may need more.
const TRANSFER_BYTES: u64 = 256 << 20;
const FEWEST_REQUESTS: usize = 4;

/// The right to hold a chunk in the making, or a group of them, which share it.
pub(crate) type Permit = Arc<OwnedSemaphorePermit>;

/// A chunk, with the permit that stands for its memory.
pub(crate) type Permitted = (Arc<Unit>, Permit);

/// Fetches and decodes single chunks, without remembering them. At most `requests` are in the making at once: the permit is taken
/// before the get and comes back with the chunk, to be held until the chunk has been copied.
#[derive(Debug)]
pub(crate) struct UnitSource {
    pub(crate) layout: Arc<Layout>,
    location: Location,
    cpu: CpuPool,
    counters: StorageCounters,
    requests: usize,
    pub(crate) permits: Arc<Semaphore>,
    indexes: Cache<Vec<u64>, Option<Arc<ShardIndex>>>,
}

impl UnitSource {
    pub(crate) fn new(layout: Layout, location: Location, cpu: CpuPool, requests: usize) -> Self {
        let indexes = Cache::builder()
            .max_capacity(INDEX_CACHE_BYTES)
            .eviction_policy(EvictionPolicy::lru())
            .weigher(|_: &Vec<u64>, index: &Option<Arc<ShardIndex>>| {
                let entries = index.as_ref().map_or(1, |index| index.len());
                u32::try_from(entries * size_of::<Option<(u64, u64)>>()).unwrap_or(u32::MAX)
            })
            .build();
        let counters = location.counters.clone();
        let requests = requests_within_memory(requests, &layout);
        let permits = Arc::new(Semaphore::new(requests));
        Self { layout: Arc::new(layout), location, cpu, counters, requests, permits, indexes }
    }

    pub(crate) fn location(&self) -> &Location {
        &self.location
    }

    /// The same source with at most so many requests, but at least one.
    pub(crate) fn with_requests(&self, requests: usize) -> Self {
        let requests = requests_within_memory(requests, &self.layout);
        Self {
            layout: Arc::clone(&self.layout),
            location: self.location.clone(),
            cpu: self.cpu.clone(),
            counters: self.counters.clone(),
            requests,
            permits: Arc::new(Semaphore::new(requests)),
            indexes: self.indexes.clone(),
        }
    }

    /// How many chunks are in the making at once at most.
    pub(crate) fn requests(&self) -> usize {
        self.requests
    }

    /// Memory of the chunks in the making and of the indexes of shards, bytes.
    pub(crate) fn transfer_bytes(&self) -> u64 {
        let indexes = if self.layout.shards.is_some() { INDEX_CACHE_BYTES } else { 0 };
        (self.requests as u64).saturating_mul(bytes_per_request(&self.layout)).saturating_add(indexes)
    }

    /// The chunk (or inner chunk) at an index of the grid of units. The object's full name is in every error.
    ///
    /// No other permit is needed between the taking of one and the return of its chunk, so whoever holds chunks must only copy
    /// them for others to go on.
    ///
    /// Cancellation: safe.
    pub(crate) async fn unit(&self, index: &[u64]) -> Result<Permitted, VolumeError> {
        let permit = self.permit(1).await?;
        self.unit_of(index, None, permit).await
    }

    /// Waits until so many chunks may be in the making. `count` must not exceed [`requests`](Self::requests).
    pub(crate) async fn permit(&self, count: usize) -> Result<Permit, VolumeError> {
        let closed = |_| VolumeError::internal("the reader was closed");
        let count = u32::try_from(count).map_err(|_| VolumeError::internal("a group of chunks is too large"))?;
        Arc::clone(&self.permits).acquire_many_owned(count).await.map(Arc::new).map_err(closed)
    }

    /// The unit at an index. Its encoded bytes are fetched if they are not given, and once more if they do not decode.
    pub(crate) async fn unit_of(
        &self,
        index: &[u64],
        given: Option<Bytes>,
        permit: Permit,
    ) -> Result<Permitted, VolumeError> {
        let encoded = match given {
            Some(given) => Some(given),
            None => self.encoded(index).await?,
        };
        let Some(encoded) = encoded else {
            self.counters.absent();
            return Ok((Arc::new(Unit::Fill), permit));
        };
        let (mut decoded, mut permit) = self.decode(encoded.clone(), permit).await?;
        if decoded.is_err()
            && let Some(again) = self.encoded(index).await?
            && again != encoded
        {
            // It had been cut short or garbled on its way, without the connection breaking.
            (decoded, permit) = self.decode(again, permit).await?;
        }
        let voxels = decoded.map_err(|what| {
            let (url, length) = (self.location.url_of(&self.key(index)), encoded.len());
            VolumeError::data(format!("the chunk {url} ({length} bytes) is truncated or corrupt: {what}"))
        })?;
        Ok((Arc::new(Unit::Voxels(voxels)), permit))
    }

    /// The key of the object that holds a unit.
    fn key(&self, index: &[u64]) -> String {
        let shards = self.layout.shards.as_ref();
        shards.map_or_else(|| self.layout.key(index), |shards| self.layout.key(&shards.home(index).0))
    }

    /// The encoded bytes of a chunk, if it is there.
    async fn encoded(&self, index: &[u64]) -> Result<Option<Bytes>, VolumeError> {
        match &self.layout.shards {
            None => self.location.get(&self.layout.key(index)).await,
            Some(shards) => self.inner_chunk(shards, index).await,
        }
    }

    async fn decode(&self, encoded: Bytes, permit: Permit) -> Result<(Result<Vec<u8>, String>, Permit), VolumeError> {
        let (layout, counters) = (Arc::clone(&self.layout), self.counters.clone());
        let work = move || {
            let since = Instant::now();
            let decoded = layout.unit_codec().decode(&encoded);
            counters.decoded(since);
            // The permit leaves only with the bytes, so a cancelled read cannot exceed the limit.
            (decoded, permit)
        };
        self.cpu.run(work).await
    }

    async fn inner_chunk(&self, shards: &ShardLayout, index: &[u64]) -> Result<Option<Bytes>, VolumeError> {
        let (shard, place) = shards.home(index);
        let key = self.layout.key(&shard);
        let entries = self.index(shards, &shard).await?;
        let entry = entries.and_then(|entries| entries.get(place).copied().flatten());
        let Some((offset, length)) = entry else { return Ok(None) };
        let name = || format!("the shard {}", self.location.url_of(&key));
        if length == 0 {
            return Err(VolumeError::data(format!("{} is truncated or corrupt: an inner chunk is empty", name())));
        }
        let Some(stop) = offset.checked_add(length) else {
            return Err(VolumeError::data(format!("{} is corrupt: its index points past its end", name())));
        };
        let mut bytes = self.location.get_range(&key, offset..stop).await?;
        if bytes.as_ref().is_some_and(|bytes| (bytes.len() as u64) < length) {
            bytes = self.location.get_range(&key, offset..stop).await?;
        }
        match bytes {
            Some(bytes) if bytes.len() as u64 == length => Ok(Some(bytes)),
            Some(bytes) => Err(VolumeError::data(format!(
                "{} is truncated: bytes {offset} to {stop} were asked for and {} came",
                name(),
                bytes.len()
            ))),
            None => Err(VolumeError::data(format!("{} vanished while it was being read", name()))),
        }
    }

    /// The index of a shard, which is fetched once while the cache keeps it; `None` if there is no such shard.
    pub(crate) async fn index(
        &self,
        shards: &ShardLayout,
        shard: &[u64],
    ) -> Result<Option<Arc<ShardIndex>>, VolumeError> {
        let key = self.layout.key(shard);
        let load = self.load_index(shards, &key);
        self.indexes.try_get_with(shard.to_vec(), load).await.map_err(|error| (*error).clone())
    }

    async fn load_index(&self, shards: &ShardLayout, key: &str) -> Result<Option<Arc<ShardIndex>>, VolumeError> {
        let mut decoded = Ok(None);
        for _ in 0..2 {
            let Some(encoded) = self.encoded_index(shards, key).await? else { return Ok(None) };
            let layout = Arc::clone(&self.layout);
            let decode = move || layout.shards.as_ref().map(|shards| shards.decode_index(&encoded));
            decoded = self.cpu.run(decode).await?.transpose();
            if decoded.is_ok() {
                break;
            }
        }
        let index = decoded.map_err(|what| {
            VolumeError::data(format!("the shard {} is truncated or corrupt: {what}", self.location.url_of(key)))
        })?;
        Ok(index.map(Arc::new))
    }

    async fn encoded_index(&self, shards: &ShardLayout, key: &str) -> Result<Option<Bytes>, VolumeError> {
        let size = shards.index_size;
        if shards.index_at_end {
            self.location.get_suffix(key, size).await
        } else {
            self.location.get_range(key, 0..size).await
        }
    }
}

/// As many requests as were asked for, but no more than there are chunks, nor than memory suits.
fn requests_within_memory(asked: usize, layout: &Layout) -> usize {
    let suited = usize::try_from(TRANSFER_BYTES / bytes_per_request(layout)).unwrap_or(usize::MAX);
    asked.min(layout.units()).min(suited.max(FEWEST_REQUESTS)).clamp(1, Semaphore::MAX_PERMITS)
}

/// Memory of one chunk in the making, encoded and decoded, with its part of the gaps that are fetched along with what lies in a shard; or
/// of the index of its shard if that is larger.
fn bytes_per_request(layout: &Layout) -> u64 {
    let index = layout.shards.as_ref().map_or(0, |shards| shards.index_size);
    let decoded = layout.unit_codec().decoded_size() as u64;
    let gap = layout.shards.as_ref().map_or(0, |_| decoded / GAP_PART);
    decoded.max(index).saturating_add(decoded.saturating_add(gap).max(index)).max(2)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use serde_json::{Value, json};

    use super::*;
    use crate::{Environment, VolumeErrorKind};

    fn v3(shape: &[u64], chunk: &[u64], codecs: &Value) -> Layout {
        let metadata = json!({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint8", "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}}, "codecs": codecs,
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}});
        Layout::read(&metadata, "x").unwrap()
    }

    fn sharded() -> Layout {
        let codecs = json!([{"name": "sharding_indexed", "configuration": {"chunk_shape": [4, 4], "index_location": "end",
            "codecs": [{"name": "bytes"}],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]}}]);
        v3(&[8, 8], &[8, 8], &codecs)
    }

    #[test]
    fn requests_follow_the_array_and_the_size_of_its_chunks() {
        let bytes = json!([{"name": "bytes"}]);
        for (asked, shape, chunk, requests) in [
            (64, [4096, 4096], [64, 64], 64),
            (usize::MAX, [100, 100], [64, 64], 4),
            (usize::MAX, [1 << 25, 1 << 25], [1024, 1024], 128),
            (64, [1 << 20, 1 << 20], [8192, 8192], 4),
            (2, [1 << 20, 1 << 20], [8192, 8192], 2),
            (0, [8, 8], [8, 8], 1),
        ] {
            assert_eq!(requests_within_memory(asked, &v3(&shape, &chunk, &bytes)), requests, "{shape:?} {chunk:?}");
        }
        assert_eq!(requests_within_memory(usize::MAX, &sharded()), 4);
    }

    #[tokio::test]
    async fn indexes_are_decoded_on_the_pool_and_count_as_memory() {
        let location = crate::address::locate("memory://v", &Environment::empty()).await.unwrap();
        location.put("c/0/0", Bytes::from_static(&[7; 100])).await.unwrap();
        let cpu = CpuPool::new(NonZeroUsize::MIN).unwrap();
        let source = UnitSource::new(sharded(), location, cpu.clone(), 64);
        assert_eq!(source.transfer_bytes(), 4 * 2 * (4 * 16 + 4) + INDEX_CACHE_BYTES);
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let busy = tokio::spawn(async move { cpu.run(move || gate.recv()).await });
        tokio::task::yield_now().await;
        let mut unit = std::pin::pin!(source.unit(&[0, 0]));
        assert!(futures::poll!(&mut unit).is_pending());
        release.send(()).unwrap();
        busy.await.unwrap().unwrap().unwrap();
        assert_eq!(unit.await.unwrap_err().kind, VolumeErrorKind::Data);
        assert_eq!(source.permits.available_permits(), 4);
    }
}
