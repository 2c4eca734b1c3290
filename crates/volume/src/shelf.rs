//! Which pieces of chunks are kept for later reads where not all can be.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The index of a chunk in the grid of chunks.
pub(crate) type Chunk = Arc<[u64]>;

/// The books of the pieces that are kept: which, and of what size. It holds no voxels.
///
/// A chunk is cut into one piece for every later read that wants voxels of it. Where they do not fit, the piece gives way that costs most
/// to keep: its bytes times its distance in the order of reads. To lose it costs one fetch, whatever its size is, so this is how the fewest
/// fetches are paid for. With it go the pieces of its chunk that are wanted later still: they are cut anew when the chunk is fetched again.
#[derive(Debug)]
pub struct Shelf {
    limit: u64,
    /// Bytes of what may give way.
    used: u64,
    /// Bytes of what may not.
    held: u64,
    chunks: HashMap<Chunk, BTreeMap<u64, Kept>>,
    by_cost: BTreeSet<(u128, Chunk, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    bytes: u64,
    cost: u128,
}

/// The pieces that gave way: chunk, and order of the read that wants it.
pub type GaveWay = Vec<(Arc<[u64]>, u64)>;

impl Shelf {
    /// An empty shelf for `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { limit, used: 0, held: 0, chunks: HashMap::new(), by_cost: BTreeSet::new() }
    }

    /// Bytes of what is kept: no more than the limit, unless what is held alone is more.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used + self.held
    }

    /// Holds bytes that do not give way until they are released.
    pub fn hold(&mut self, bytes: u64) -> GaveWay {
        self.held += bytes;
        self.make_room()
    }

    /// Releases bytes that were held.
    pub const fn release(&mut self, bytes: u64) {
        self.held -= bytes;
    }

    /// Whether the piece of `chunk` for the read of this order is kept.
    #[must_use]
    pub fn has(&self, chunk: &[u64], order: u64) -> bool {
        self.chunks.get(chunk).is_some_and(|kept| kept.contains_key(&order))
    }

    /// Keeps pieces of a chunk, each the order of the read that wants it and its bytes, beside those of the chunk that are kept already.
    /// `now` is the order of the read that has fetched the chunk.
    pub fn keep(&mut self, chunk: &[u64], now: u64, pieces: impl IntoIterator<Item = (u64, u64)>) -> GaveWay {
        let mut all = BTreeMap::new();
        let chunk: Chunk = match self.chunks.remove_entry(chunk) {
            Some((chunk, kept)) => {
                for (order, Kept { bytes, cost }) in kept {
                    self.by_cost.remove(&(cost, Arc::clone(&chunk), order));
                    self.used -= bytes;
                    all.insert(order, bytes);
                }
                chunk
            }
            None => chunk.into(),
        };
        for (order, bytes) in pieces {
            all.entry(order).or_insert(bytes);
        }
        let mut later = 0;
        let kept = all.into_iter().rev().map(|(order, bytes)| {
            later += bytes;
            let cost = u128::from(later) * (u128::from(order.saturating_sub(now)) + 1);
            self.by_cost.insert((cost, Arc::clone(&chunk), order));
            (order, Kept { bytes, cost })
        });
        let kept: BTreeMap<_, _> = kept.collect();
        self.used += later;
        if !kept.is_empty() {
            self.chunks.insert(chunk, kept);
        }
        self.make_room()
    }

    fn make_room(&mut self) -> GaveWay {
        let mut gave_way = Vec::new();
        while self.used + self.held > self.limit {
            let Some((_, chunk, order)) = self.by_cost.last().cloned() else { break };
            let later = self.chunks.get_mut(&chunk).map(|kept| kept.split_off(&order)).unwrap_or_default();
            for (order, Kept { bytes, cost }) in later {
                self.by_cost.remove(&(cost, Arc::clone(&chunk), order));
                self.used -= bytes;
                gave_way.push((Arc::clone(&chunk), order));
            }
            if self.chunks.get(&chunk).is_some_and(BTreeMap::is_empty) {
                self.chunks.remove(&chunk);
            }
        }
        gave_way
    }

    /// Takes a piece down: its bytes, if it is kept.
    pub fn take(&mut self, chunk: &[u64], order: u64) -> Option<u64> {
        let (chunk, mut kept) = self.chunks.remove_entry(chunk)?;
        let taken = kept.remove(&order);
        if let Some(Kept { bytes, cost }) = taken {
            self.by_cost.remove(&(cost, Arc::clone(&chunk), order));
            self.used -= bytes;
        }
        if !kept.is_empty() {
            self.chunks.insert(chunk, kept);
        }
        taken.map(|kept| kept.bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_costs_most_to_keep_gives_way_and_what_is_wanted_later_with_it() {
        let mut shelf = Shelf::new(100);
        assert!(shelf.keep(&[0], 0, [(1, 30), (9, 10)]).is_empty());
        assert!(shelf.keep(&[1], 0, [(2, 60)]).is_empty());
        // 60 bytes for two reads cost more than 10 for nine.
        assert_eq!(shelf.keep(&[2], 1, [(2, 20)]), [(Chunk::from([1]), 2)]);
        assert_eq!(shelf.used(), 60);
        assert_eq!((shelf.take(&[0], 1), shelf.take(&[0], 1), shelf.has(&[0], 9)), (Some(30), None, true));
        // The chunk is fetched again by a read that comes before: what was kept of it stays beside what is new, and goes with it.
        assert!(shelf.keep(&[0], 4, [(5, 50), (9, 11)]).is_empty());
        assert_eq!(shelf.used(), 80);
        assert_eq!(shelf.keep(&[3], 4, [(5, 30)]), [(Chunk::from([0]), 5), (Chunk::from([0]), 9)]);
        assert_eq!(shelf.used(), 50);
        assert_eq!(shelf.keep(&[4], 4, [(5, 101)]), [(Chunk::from([4]), 5)], "what can never fit");
        // What is held takes its place, even if it is more than there is.
        assert_eq!(shelf.hold(90), [(Chunk::from([3]), 5), (Chunk::from([2]), 2)]);
        assert!(shelf.hold(20).is_empty());
        assert_eq!((shelf.used(), shelf.keep(&[5], 4, [(5, 1)]).len()), (110, 1));
        shelf.release(110);
        assert!(shelf.keep(&[5], 4, [(5, 100)]).is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn the_books_are_right(limit in 0..200_u64, done in prop::collection::vec((0..6_u64, 0..20_u64, 0..90_u64, any::<bool>()), 1..80)) {
            let mut shelf = Shelf::new(limit);
            let mut kept: BTreeMap<(u64, u64), u64> = BTreeMap::new();
            for (now, (chunk, order, bytes, keep)) in done.into_iter().enumerate() {
                if keep {
                    let gave_way = shelf.keep(&[chunk], now as u64, [(order, bytes), (order + 3, bytes / 2)]);
                    kept.entry((chunk, order)).or_insert(bytes);
                    kept.entry((chunk, order + 3)).or_insert(bytes / 2);
                    for (chunk, order) in gave_way {
                        prop_assert!(kept.remove(&(chunk[0], order)).is_some());
                    }
                } else {
                    prop_assert_eq!(shelf.take(&[chunk], order), kept.remove(&(chunk, order)));
                }
                prop_assert_eq!(shelf.used(), kept.values().sum::<u64>());
                prop_assert!(shelf.used() <= limit);
                prop_assert_eq!(shelf.by_cost.len(), kept.len());
                prop_assert!(kept.keys().all(|&(chunk, order)| shelf.has(&[chunk], order)));
            }
        }
    }
}
