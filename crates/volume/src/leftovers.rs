//! What later reads want of the chunks that earlier ones fetch.
//!
//! The reads of a run are known beforehand, in their order. When a chunk has been decoded it is cut into a piece for every read that still
//! wants voxels of it, and a read takes its pieces instead of fetching their chunks. Pieces and not chunks are kept, since blocks share thin
//! slabs only: a whole chunk for five of its voxels would take all the memory. What does not fit is chosen by [`Shelf`].
//!
//! The shelf holds what reads to come want. Pieces of a read under way are in the memory of its own voxels, which are not there yet: however
//! many reads are ahead of each other, they fetch nothing twice.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haloflow_geometry::{Box3, Read};
use moka::future::Cache;

use crate::gather::Unit;
use crate::shelf::{Chunk, Shelf};

/// The reads that want voxels of a box, which may reach past the volume.
type ReadsOf = Box<dyn Fn(&Box3) -> Vec<Read> + Send + Sync>;

/// The pieces that are kept for the reads of one run. Cloning shares them.
#[derive(Clone)]
pub struct Leftovers {
    shared: Arc<Shared>,
}

struct Shared {
    reads_of: ReadsOf,
    /// Keeps nothing: whoever asks for a chunk that is being loaded waits for it here.
    loading: Cache<Vec<u64>, Arc<Unit>>,
    state: Mutex<State>,
}

struct State {
    shelf: Shelf,
    /// By the order of the read that wants them. A piece is on the shelf before it is cut.
    pieces: HashMap<u64, HashMap<Chunk, Arc<Unit>>>,
    /// The last read that has begun.
    begun: Option<u64>,
    /// Those under way, by order, each with the chunks that it has.
    reading: HashMap<u64, HashSet<Chunk>>,
}

impl State {
    fn is_to_come(&self, order: u64) -> bool {
        self.begun.is_none_or(|begun| order > begun)
    }

    /// Whether the read of this order is under way and has not got the chunk.
    fn lacks(&self, order: u64, chunk: &[u64]) -> bool {
        let has_piece = self.pieces.get(&order).is_some_and(|pieces| pieces.contains_key(chunk));
        !has_piece && self.reading.get(&order).is_some_and(|has| !has.contains(chunk))
    }
}

impl Leftovers {
    /// Keeps at most `bytes` of the chunks that reads share; `reads_of` gives the reads of the run that want voxels of a box.
    pub fn new(bytes: u64, reads_of: impl Fn(&Box3) -> Vec<Read> + Send + Sync + 'static) -> Self {
        let (pieces, reading) = Default::default();
        let state = Mutex::new(State { shelf: Shelf::new(bytes), pieces, begun: None, reading });
        let loading = Cache::builder().max_capacity(0).build();
        Self { shared: Arc::new(Shared { reads_of: Box::new(reads_of), loading, state }) }
    }

    /// Bytes that are kept for reads to come.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.shared.lock().shelf.used()
    }

    /// A read begins, and there is memory for its voxels: to be told in order. Nothing is kept for a read that was left out.
    #[must_use]
    pub fn begin(&self, read: Read) -> Turn {
        let State { shelf, pieces, begun, reading } = &mut *self.shared.lock();
        *begun = (*begun).max(Some(read.order));
        reading.insert(read.order, HashSet::new());
        for chunk in pieces.get(&read.order).into_iter().flat_map(HashMap::keys) {
            shelf.take(chunk, read.order);
        }
        Turn { shared: Arc::new(InTurn { leftovers: self.clone(), read }) }
    }
}

impl fmt::Debug for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Leftovers({} bytes)", self.used())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A read that is under way. When all clones are dropped nothing is kept for it any more.
#[derive(Clone, Debug)]
pub struct Turn {
    shared: Arc<InTurn>,
}

#[derive(Debug)]
struct InTurn {
    leftovers: Leftovers,
    read: Read,
}

impl Drop for InTurn {
    fn drop(&mut self) {
        let mut state = self.leftovers.shared.lock();
        state.reading.remove(&self.read.order);
        drop(state.pieces.remove(&self.read.order));
    }
}

impl Turn {
    /// The voxels of this read.
    #[must_use]
    pub fn region(&self) -> Box3 {
        self.shared.read.region
    }

    fn order(&self) -> u64 {
        self.shared.read.order
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.leftovers.shared.lock()
    }

    pub(crate) fn loading(&self) -> &Cache<Vec<u64>, Arc<Unit>> {
        &self.shared.leftovers.shared.loading
    }

    /// This read's piece of a chunk, if there is one.
    pub(crate) fn take(&self, chunk: &[u64]) -> Option<Arc<Unit>> {
        let mut state = self.lock();
        let (chunk, piece) = state.pieces.get_mut(&self.order())?.remove_entry(chunk)?;
        if let Some(has) = state.reading.get_mut(&self.order()) {
            has.insert(chunk);
        }
        Some(piece)
    }

    /// This read has a whole chunk: nothing needs to be kept of it for this one.
    pub(crate) fn has(&self, chunk: &[u64]) {
        drop(self.take(chunk));
        if let Some(has) = self.lock().reading.get_mut(&self.order()) {
            has.insert(chunk.into());
        }
    }

    /// Keeps of a chunk, which covers `cell`, what other reads want, `voxel_bytes` for each voxel: `cut` gives the piece of a box. Takes as
    /// long as it takes to copy a chunk, and holds the chunk and its pieces meanwhile.
    pub(crate) fn keep(&self, chunk: &[u64], cell: &Box3, voxel_bytes: usize, cut: impl Fn(&Box3) -> Arc<Unit>) {
        let reads = (self.shared.leftovers.shared.reads_of)(cell);
        let part = |read: &Read| (read.order, read.region.intersect(cell));
        let mut wanted: Vec<(u64, Box3)> = Vec::new();
        {
            let mut state = self.lock();
            let to_come = reads.iter().filter(|read| state.is_to_come(read.order));
            let to_come = to_come.map(part).filter(|(order, _)| !state.shelf.has(chunk, *order)).collect::<Vec<_>>();
            let sizes = to_come.iter().map(|(order, part)| (*order, (voxel_bytes * part.voxels()) as u64));
            for (chunk, order) in state.shelf.keep(chunk, self.order(), sizes) {
                if let Some(pieces) = state.pieces.get_mut(&order) {
                    pieces.remove(&chunk);
                }
            }
            let under_way = reads.iter().filter(|read| read.order != self.order() && state.lacks(read.order, chunk));
            wanted.extend(under_way.map(part));
            wanted.extend(to_come.into_iter().filter(|(order, _)| state.shelf.has(chunk, *order)));
        }
        for (order, part) in wanted {
            let piece = cut(&part);
            let mut state = self.lock();
            let is_kept = if state.is_to_come(order) {
                state.shelf.has(chunk, order)
            } else {
                // It may have begun since, or ended.
                state.shelf.take(chunk, order);
                state.lacks(order, chunk)
            };
            if is_kept {
                state.pieces.entry(order).or_default().insert(chunk.into(), piece);
            }
        }
    }
}
