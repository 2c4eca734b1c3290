//! How far a run is, for whoever shows it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use haloflow_geometry::Box3;

use crate::cast::CastCounts;
use crate::live::{Live, Window};

/// Counters that a run moves and anybody may read.
#[derive(Debug, Default)]
pub struct Progress {
    tiles: AtomicU64,
    tiles_total: AtomicU64,
    voxels: AtomicU64,
    voxels_total: AtomicU64,
    bytes_per_voxel: AtomicU64,
    patches: AtomicU64,
    patches_total: AtomicU64,
    batches: AtomicU64,
    short_batches: AtomicU64,
    counts: Mutex<CastCounts>,
    /// Tiles stored, by the voxels along z that they cover.
    layers: Mutex<BTreeMap<[usize; 2], u64>>,
    doing: Mutex<String>,
    pub(crate) window: Window,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Tiles stored.
    pub tiles: u64,
    /// Tiles of the run.
    pub tiles_total: u64,
    /// Voxels stored.
    pub voxels: u64,
    /// Voxels of the run.
    pub voxels_total: u64,
    /// Bytes of raw input per voxel, over all channels that are read.
    pub bytes_per_voxel: u64,
    /// Patches merged.
    pub patches: u64,
    /// Patches of the run.
    pub patches_total: u64,
    /// Batches merged.
    pub batches: u64,
    /// Batches with fewer rows than a full one.
    pub short_batches: u64,
}

impl Progress {
    /// The counters now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            tiles: load(&self.tiles),
            tiles_total: load(&self.tiles_total),
            voxels: load(&self.voxels),
            voxels_total: load(&self.voxels_total),
            bytes_per_voxel: load(&self.bytes_per_voxel),
            patches: load(&self.patches),
            patches_total: load(&self.patches_total),
            batches: load(&self.batches),
            short_batches: load(&self.short_batches),
        }
    }

    /// Voxels that the cast changed, so far.
    #[must_use]
    pub fn cast_counts(&self) -> CastCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the stages, storage and memory show now; once the run has ended, what they showed then.
    #[must_use]
    pub fn live(&self) -> Live {
        self.window.live()
    }

    /// What the run is doing, in a few words.
    #[must_use]
    pub fn doing(&self) -> String {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_doing(&self, what: &str) {
        what.clone_into(&mut self.doing.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn set_totals(&self, tiles: u64, voxels: u64, bytes_per_voxel: u64, patches: u64) {
        self.tiles_total.store(tiles, Ordering::Relaxed);
        self.voxels_total.store(voxels, Ordering::Relaxed);
        self.bytes_per_voxel.store(bytes_per_voxel, Ordering::Relaxed);
        self.patches_total.store(patches, Ordering::Relaxed);
    }

    pub(crate) fn batch_merged(&self, rows: usize, full: usize) {
        self.patches.fetch_add(rows as u64, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.short_batches.fetch_add(u64::from(rows < full), Ordering::Relaxed);
    }

    /// Counts a tile that was stored, with what the cast changed in it.
    pub fn tile_stored(&self, region: Box3, counts: &CastCounts) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).add(counts);
        let layer = [region.start[0], region.stop[0]];
        *self.layers.lock().unwrap_or_else(PoisonError::into_inner).entry(layer).or_default() += 1;
        self.voxels.fetch_add(region.voxels() as u64, Ordering::Relaxed);
        self.tiles.fetch_add(1, Ordering::Relaxed);
    }

    /// Tiles stored that cover the slice at `z`: as long as it stays the same, so does the slice.
    #[must_use]
    pub fn stored_at(&self, z: usize) -> u64 {
        let layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        layers.iter().filter(|([start, stop], _)| (start..stop).contains(&&z)).map(|(_, tiles)| tiles).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_touched_by_the_tiles_that_cover_it() {
        let progress = Progress::default();
        for z in [0, 0, 8] {
            progress.tile_stored(Box3::new([z, 0, 0], [z + 8, 4, 4]), &CastCounts::default());
        }
        assert_eq!([0, 7, 8, 15, 16].map(|z| progress.stored_at(z)), [2, 2, 1, 1, 0]);
        assert_eq!((progress.snapshot().tiles, progress.snapshot().voxels), (3, 3 * 128));
    }
}
