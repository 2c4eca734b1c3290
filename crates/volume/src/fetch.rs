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
use crate::{CpuPool, StorageCounters, VolumeError};

/// Memory for the indexes of shards, bytes.
const INDEX_CACHE_BYTES: u64 = 64 << 20;

/// Fetches and decodes single chunks, without remembering them. At most `requests` are in the making at once: the permit is taken
/// before the get and given back after the decoding.
#[derive(Debug)]
pub(crate) struct UnitSource {
    pub(crate) layout: Arc<Layout>,
    location: Location,
    cpu: CpuPool,
    counters: StorageCounters,
    permits: Arc<Semaphore>,
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
        let permits = Arc::new(Semaphore::new(requests.clamp(1, Semaphore::MAX_PERMITS)));
        Self { layout: Arc::new(layout), location, cpu, counters, permits, indexes }
    }

    /// The chunk (or inner chunk) at an index of the grid of units. The object's full name is in every error.
    ///
    /// Cancellation: safe.
    pub(crate) async fn unit(&self, index: &[u64]) -> Result<Arc<Unit>, VolumeError> {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| VolumeError::internal("the reader was closed"))?;
        let (key, encoded) = match &self.layout.shards {
            None => {
                let key = self.layout.key(index);
                let encoded = self.location.get(&key).await?;
                (key, encoded)
            }
            Some(shards) => self.inner_chunk(shards, index).await?,
        };
        let Some(encoded) = encoded else {
            self.counters.absent();
            return Ok(Arc::new(Unit::Fill));
        };
        self.decode(key, encoded, permit).await
    }

    async fn decode(
        &self,
        key: String,
        encoded: Bytes,
        permit: OwnedSemaphorePermit,
    ) -> Result<Arc<Unit>, VolumeError> {
        let (layout, counters) = (Arc::clone(&self.layout), self.counters.clone());
        let decoded = self.cpu.run(move || {
            let _permit = permit;
            let since = Instant::now();
            let decoded = layout.unit_codec().decode(&encoded);
            counters.decoded(since);
            decoded.map_err(|what| (what, encoded.len()))
        });
        let decoded = decoded.await?.map_err(|(what, length)| {
            let url = self.location.url_of(&key);
            VolumeError::data(format!("the chunk {url} ({length} bytes) is truncated or corrupt: {what}"))
        })?;
        Ok(Arc::new(Unit::Voxels(decoded)))
    }

    async fn inner_chunk(&self, shards: &ShardLayout, index: &[u64]) -> Result<(String, Option<Bytes>), VolumeError> {
        let parts = index.iter().zip(&shards.grid);
        let shard: Vec<u64> = parts.clone().map(|(index, count)| index / *count as u64).collect();
        let place = parts.fold(0, |place, (index, count)| place * *count as u64 + index % *count as u64);
        let key = self.layout.key(&shard);
        let load = self.load_index(shards, &key);
        let entries = self.indexes.try_get_with(shard, load).await.map_err(|error| (*error).clone())?;
        let entry = entries.and_then(|entries| entries.get(usize::try_from(place).ok()?).copied().flatten());
        let Some((offset, length)) = entry else { return Ok((key, None)) };
        let name = || format!("the shard {}", self.location.url_of(&key));
        if length == 0 {
            return Err(VolumeError::data(format!("{} is truncated or corrupt: an inner chunk is empty", name())));
        }
        let Some(stop) = offset.checked_add(length) else {
            return Err(VolumeError::data(format!("{} is corrupt: its index points past its end", name())));
        };
        let bytes = self.location.get_range(&key, offset..stop).await?;
        match bytes {
            Some(bytes) if bytes.len() as u64 == length => Ok((key, Some(bytes))),
            Some(bytes) => Err(VolumeError::data(format!(
                "{} is truncated: bytes {offset} to {stop} were asked for and {} came",
                name(),
                bytes.len()
            ))),
            None => Err(VolumeError::data(format!("{} vanished while it was being read", name()))),
        }
    }

    async fn load_index(&self, shards: &ShardLayout, key: &str) -> Result<Option<Arc<ShardIndex>>, VolumeError> {
        let size = shards.index_size;
        let encoded = if shards.index_at_end {
            self.location.get_suffix(key, size).await?
        } else {
            self.location.get_range(key, 0..size).await?
        };
        let Some(encoded) = encoded else { return Ok(None) };
        let index = shards.decode_index(&encoded).map_err(|what| {
            VolumeError::data(format!("the shard {} is truncated or corrupt: {what}", self.location.url_of(key)))
        })?;
        Ok(Some(Arc::new(index)))
    }
}
