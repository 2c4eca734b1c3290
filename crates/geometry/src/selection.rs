//! Which tiles a run computes.

use crate::{Box3, Zyx};

/// A set of a plan's tiles: those that are left to do, a shard's, those that are not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    tiles: Zyx,
    /// By number; `None` if all are.
    chosen: Option<Vec<bool>>,
    count: usize,
}

impl Selection {
    /// The tiles of a grid of `tiles` tiles for which `chosen` is true.
    #[must_use]
    pub fn new(tiles: Zyx, chosen: impl FnMut(Zyx) -> bool) -> Self {
        let chosen: Vec<bool> = Box3::of_shape(tiles).indices().map(chosen).collect();
        let count = chosen.iter().filter(|chosen| **chosen).count();
        let some = count < chosen.len();
        Self { tiles, chosen: some.then_some(chosen), count }
    }

    /// Every tile of a grid of `tiles` tiles.
    #[must_use]
    pub const fn all(tiles: Zyx) -> Self {
        let count = tiles[0].saturating_mul(tiles[1]).saturating_mul(tiles[2]);
        Self { tiles, chosen: None, count }
    }

    /// Part `index` of `count` equal parts of a grid: the parts hold every tile once, their sizes differ by at most one, and the
    /// tiles of a part lie together: they follow each other along the shortest axis first and along the longest last.
    #[must_use]
    pub fn shard(tiles: Zyx, index: usize, count: usize) -> Self {
        let mut axes = [0, 1, 2];
        axes.sort_by_key(|&axis: &usize| tiles[axis]);
        let [short, middle, long] = axes;
        let all = Self::all(tiles).count as u128;
        let bound = |index: usize| (all * index as u128 / count.max(1) as u128) as usize;
        let range = bound(index)..bound(index + 1);
        Self::new(tiles, |tile| {
            range.contains(&((tile[long] * tiles[middle] + tile[middle]) * tiles[short] + tile[short]))
        })
    }

    /// The tiles of this selection for which `stays` is true.
    #[must_use]
    pub fn filter(&self, mut stays: impl FnMut(Zyx) -> bool) -> Self {
        Self::new(self.tiles, |tile| self.contains(tile) && stays(tile))
    }

    /// Whether `tile` is selected. It must lie in the grid.
    #[must_use]
    pub fn contains(&self, tile: Zyx) -> bool {
        self.chosen.as_ref().is_none_or(|chosen| chosen[number(self.tiles, tile)])
    }

    /// The selected tiles, x innermost.
    pub fn iter(&self) -> impl Iterator<Item = Zyx> + '_ {
        Box3::of_shape(self.tiles).indices().filter(|&tile| self.contains(tile))
    }

    /// Number of selected tiles.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether no tile is selected.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether every tile is selected.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.chosen.is_none()
    }

    /// Size of the grid.
    #[must_use]
    pub const fn tiles(&self) -> Zyx {
        self.tiles
    }
}

/// The number of `tile` when the tiles of a grid of `tiles` tiles are counted, x innermost.
#[must_use]
pub const fn number(tiles: Zyx, tile: Zyx) -> usize {
    (tile[0] * tiles[1] + tile[1]) * tiles[2] + tile[2]
}

/// The tile of that [`number`].
#[must_use]
pub const fn numbered(tiles: Zyx, number: usize) -> Zyx {
    [number / (tiles[1] * tiles[2]), number / tiles[2] % tiles[1], number % tiles[2]]
}
