//! Which chunks of an array are stored: found by listing its objects, and in shards by their indexes, without reading any chunk.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use haloflow_geometry::Box3;

use crate::axes::AxisMap;
use crate::fetch::UnitSource;
use crate::layout::Layout;
use crate::location::Stored;
use crate::{VolumeError, VolumeReader};

/// Indexes of shards that are fetched at one time.
const INDEXES: usize = 16;

/// The chunks (or inner chunks) of an array that are stored.
#[derive(Clone, Debug)]
pub struct Presence {
    /// One bit per chunk of the grid, the last axis innermost.
    bits: Vec<u64>,
    grid: Vec<usize>,
    layout: Arc<Layout>,
    map: AxisMap,
    t: usize,
    c: Vec<usize>,
}

impl VolumeReader {
    /// Finds out which chunks are stored.
    ///
    /// # Errors
    /// `Unavailable` if the store fails; `Data` if the index of a shard is corrupt.
    pub async fn presence(&self) -> Result<Presence, VolumeError> {
        let (source, map) = (self.source(), self.map());
        let layout = Arc::clone(&source.layout);
        let grid: Vec<usize> =
            layout.shape.iter().zip(layout.unit()).map(|(size, unit)| size.div_ceil(*unit)).collect();
        let bits = vec![0; grid.iter().product::<usize>().div_ceil(64)];
        let (t, c) = self.selection();
        let mut presence = Presence { bits, grid, layout, map, t, c: c.to_vec() };
        let objects = source.location().list().await?;
        let found: Vec<Vec<u64>> = objects.iter().filter_map(|object| presence.index_of(object)).collect();
        let of_shards = stream::iter(found).map(|index| inner_chunks(source, index)).buffer_unordered(INDEXES);
        let units: Vec<Vec<Vec<u64>>> = of_shards.try_collect().await?;
        units.iter().flatten().for_each(|unit| presence.set(unit));
        Ok(presence)
    }

    /// The value of a voxel whose chunk is not stored, as a number.
    #[must_use]
    pub fn fill(&self) -> f64 {
        self.element().value(self.source().layout.codec.fill_bytes())
    }
}

/// The units of the object at an index: itself, or the inner chunks that a shard has.
async fn inner_chunks(source: &UnitSource, index: Vec<u64>) -> Result<Vec<Vec<u64>>, VolumeError> {
    let Some(shards) = &source.layout.shards else { return Ok(vec![index]) };
    let Some(entries) = source.index(shards, &index).await? else { return Ok(Vec::new()) };
    let places = entries.iter().enumerate().filter(|(_, entry)| entry.is_some()).map(|(place, _)| place);
    let unit = |mut place: usize| {
        let mut unit = vec![0; index.len()];
        for axis in (0..index.len()).rev() {
            unit[axis] = index[axis] * shards.grid[axis] as u64 + (place % shards.grid[axis]) as u64;
            place /= shards.grid[axis];
        }
        unit
    };
    Ok(places.map(unit).collect())
}

impl Presence {
    /// Whether any chunk that holds voxels of `region`, of the time point and the channels that are read, is stored.
    #[must_use]
    pub fn any(&self, region: Box3) -> bool {
        let unit = self.layout.unit();
        let (per_t, per_c) = (AxisMap::along(self.map.t, unit), AxisMap::along(self.map.c, unit));
        let cells = region.cells(self.map.spatial(unit));
        cells
            .indices()
            .any(|cell| self.c.iter().any(|channel| self.get(&self.map.index(self.t / per_t, channel / per_c, cell))))
    }

    /// The index in the grid of objects that a key stands for, if it is one of a chunk that has voxels.
    fn index_of(&self, object: &Stored) -> Option<Vec<u64>> {
        let digits = object.key.trim_start_matches(['c', '/', '.']);
        let index: Option<Vec<u64>> = digits.split(['/', '.']).map(|part| part.parse().ok()).collect();
        let index = index.filter(|index| index.len() == self.layout.shape.len())?;
        let mut sizes = index.iter().zip(self.layout.shape.iter().zip(&self.layout.chunk));
        let inside = sizes.all(|(index, (size, chunk))| (*index as usize) < size.div_ceil(*chunk));
        (inside && self.layout.key(&index) == object.key).then_some(index)
    }

    fn place(&self, unit: &[u64]) -> Option<usize> {
        unit.iter().zip(&self.grid).try_fold(0, |place, (index, size)| {
            let index = usize::try_from(*index).ok()?;
            (index < *size).then_some(place * size + index)
        })
    }

    fn set(&mut self, unit: &[u64]) {
        if let Some(place) = self.place(unit) {
            self.bits[place / 64] |= 1 << (place % 64);
        }
    }

    fn get(&self, unit: &[u64]) -> bool {
        self.place(unit).is_some_and(|place| self.bits[place / 64] >> (place % 64) & 1 == 1)
    }
}
