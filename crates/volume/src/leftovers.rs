//! What later reads want of the chunks that earlier ones fetch.
//!
//! The reads of a run are known beforehand, in their order. When a chunk has been decoded it is cut into a piece for every read that still
//! wants voxels of it, and a read takes its pieces instead of fetching their chunks. Pieces and not chunks are kept, since blocks share thin
//! slabs only: a whole chunk for five of its voxels would take all the memory. What does not fit is chosen by [`Shelf`].
//!
//! What reads to come want may give way; the pieces of a read under way do not, but count as well.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haloflow_geometry::{Box3, Read};
use tokio::sync::watch;

use crate::VolumeError;
use crate::gather::Unit;
use crate::shelf::{Chunk, GaveWay, Shelf};

/// The reads that want voxels of a box, which may reach past the volume.
type ReadsOf = Box<dyn Fn(&Box3) -> Vec<Read> + Send + Sync>;

/// The pieces that are kept for the reads of one run. Cloning shares them.
#[derive(Clone)]
pub struct Leftovers {
    shared: Arc<Shared>,
}

struct Shared {
    reads_of: ReadsOf,
    state: Mutex<State>,
}

struct State {
    shelf: Shelf,
    /// By the order of the read that wants them. A piece is on the shelf before it is cut.
    pieces: HashMap<u64, HashMap<Chunk, Piece>>,
    /// The last read that has begun.
    begun: Option<u64>,
    /// Those under way, by order, each with the chunks that it has.
    reading: HashMap<u64, HashSet<Chunk>>,
    /// The chunks that are being loaded, to wait for: closed when one is there, or nobody loads it any more.
    loading: HashMap<Chunk, watch::Receiver<Option<VolumeError>>>,
}

struct Piece {
    unit: Arc<Unit>,
    bytes: u64,
}

/// The books of one piece, bytes: its key, and its places in maps and trees.
const BOOKS: u64 = 256;

impl State {
    fn is_to_come(&self, order: u64) -> bool {
        self.begun.is_none_or(|begun| order > begun)
    }

    /// Whether the read of this order is under way and has not got the chunk.
    fn lacks(&self, order: u64, chunk: &[u64]) -> bool {
        let has_piece = self.pieces.get(&order).is_some_and(|pieces| pieces.contains_key(chunk));
        !has_piece && self.reading.get(&order).is_some_and(|has| !has.contains(chunk))
    }

    /// Bytes that do not give way: of a read under way.
    fn hold(&mut self, bytes: u64) {
        let gave_way = self.shelf.hold(bytes);
        self.drop_pieces(gave_way);
    }

    fn drop_pieces(&mut self, gave_way: GaveWay) {
        for (chunk, order) in gave_way {
            let Some(pieces) = self.pieces.get_mut(&order) else { continue };
            pieces.remove(&chunk);
            if pieces.is_empty() {
                self.pieces.remove(&order);
            }
        }
    }
}

impl Leftovers {
    /// Keeps at most `bytes` of the chunks that reads share, unless the reads that are under way at one time want more of each other's;
    /// `reads_of` gives the reads of the run that want voxels of a box.
    pub fn new(bytes: u64, reads_of: impl Fn(&Box3) -> Vec<Read> + Send + Sync + 'static) -> Self {
        let (pieces, reading, loading) = Default::default();
        let state = Mutex::new(State { shelf: Shelf::new(bytes), pieces, begun: None, reading, loading });
        Self { shared: Arc::new(Shared { reads_of: Box::new(reads_of), state }) }
    }

    /// Bytes that are kept, with their books.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.shared.lock().shelf.used()
    }

    /// Whether nothing is kept for anyone, and no read is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let state = self.shared.lock();
        state.shelf.used() == 0 && state.pieces.is_empty() && state.reading.is_empty() && state.loading.is_empty()
    }

    /// A read begins: to be told in order. Nothing is kept for a read that was left out.
    #[must_use]
    pub fn begin(&self, read: Read) -> Turn {
        let mut state = self.shared.lock();
        state.begun = state.begun.max(Some(read.order));
        state.reading.insert(read.order, HashSet::new());
        let State { shelf, pieces, .. } = &mut *state;
        let own = pieces.get(&read.order).into_iter().flat_map(HashMap::keys);
        let bytes = own.filter_map(|chunk| shelf.take(chunk, read.order)).sum();
        state.hold(bytes);
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
        let pieces = state.pieces.remove(&self.read.order).unwrap_or_default();
        state.shelf.release(pieces.values().map(|piece| piece.bytes).sum());
    }
}

/// What a read finds of a chunk.
pub(crate) enum Found {
    Piece(Arc<Unit>),
    /// Nobody has it: this read is to load it, and leave what others want before it drops this.
    Ours(Loading),
    /// Another read is loading it. When this closes look again; an error is that read's.
    Theirs(watch::Receiver<Option<VolumeError>>),
}

/// The chunk that a read is loading.
pub(crate) struct Loading {
    turn: Turn,
    chunk: Chunk,
    failed: watch::Sender<Option<VolumeError>>,
}

impl Loading {
    /// Whoever waits for the chunk fails too.
    pub(crate) fn fail(self, error: &VolumeError) {
        self.failed.send_replace(Some(error.clone()));
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.turn.lock().loading.remove(&self.chunk);
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

    /// This read's piece of a chunk, or whose it is to load it.
    pub(crate) fn find(&self, chunk: &[u64]) -> Found {
        let mut state = self.lock();
        let State { shelf, pieces, reading, loading, .. } = &mut *state;
        if let Some((chunk, piece)) = pieces.get_mut(&self.order()).and_then(|pieces| pieces.remove_entry(chunk)) {
            shelf.release(piece.bytes);
            reading.entry(self.order()).or_default().insert(chunk);
            return Found::Piece(piece.unit);
        }
        if let Some(loading) = loading.get(chunk) {
            return Found::Theirs(loading.clone());
        }
        let (failed, waiting) = watch::channel(None);
        let chunk: Chunk = chunk.into();
        loading.insert(Arc::clone(&chunk), waiting);
        Found::Ours(Loading { turn: self.clone(), chunk, failed })
    }

    /// Keeps of a chunk, which covers `cell` and which this read has, what others want, `voxel_bytes` for each voxel: `cut` gives the piece
    /// of a box. Takes as long as it takes to copy a chunk, and holds the chunk and its pieces meanwhile.
    pub(crate) fn keep(&self, chunk: &[u64], cell: &Box3, voxel_bytes: usize, cut: impl Fn(&Box3) -> Arc<Unit>) {
        let reads = (self.shared.leftovers.shared.reads_of)(cell);
        let part = |read: &Read| {
            let part = read.region.intersect(cell);
            (read.order, part, (voxel_bytes * part.voxels()) as u64 + BOOKS)
        };
        let mut wanted: Vec<(u64, Box3, u64)> = Vec::new();
        {
            let mut state = self.lock();
            if let Some(has) = state.reading.get_mut(&self.order()) {
                has.insert(chunk.into());
            }
            let to_come = reads.iter().filter(|read| state.is_to_come(read.order));
            let to_come = to_come.map(part).filter(|(order, ..)| !state.shelf.has(chunk, *order)).collect::<Vec<_>>();
            let sizes = to_come.iter().map(|(order, _, bytes)| (*order, *bytes));
            let gave_way = state.shelf.keep(chunk, self.order(), sizes);
            state.drop_pieces(gave_way);
            wanted.extend(reads.iter().filter(|read| state.lacks(read.order, chunk)).map(part));
            wanted.extend(to_come.into_iter().filter(|(order, ..)| state.shelf.has(chunk, *order)));
        }
        for (order, part, bytes) in wanted {
            let unit = cut(&part);
            let mut state = self.lock();
            let is_kept = if state.is_to_come(order) {
                state.shelf.has(chunk, order)
            } else {
                // It may have begun since, or ended.
                state.shelf.take(chunk, order);
                let lacks = state.lacks(order, chunk);
                state.hold(if lacks { bytes } else { 0 });
                lacks
            };
            if is_kept {
                state.pieces.entry(order).or_default().insert(chunk.into(), Piece { unit, bytes });
            }
        }
    }
}
