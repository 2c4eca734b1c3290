//! Volumes in object storage: reads regions of Zarr v2, Zarr v3 and OME-Zarr arrays, and writes new ones, one whole chunk
//! (or shard) at a time.
//!
//! All bytes move through `object_store`; `zarrs` supplies metadata, chunk keys and codecs. Bytes are fetched and put on the
//! async runtime; chunks are decoded, gathered, assembled and encoded on a [`CpuPool`], never on a runtime worker.
//!
//! Regions and buffers are in axis order z, y, x, C order, sizes in voxels. An array without a z axis has z size 1. Nothing here
//! reads the process environment: variables come in through an [`Environment`]. Every async function needs a Tokio runtime with
//! timers and I/O enabled.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod address;
mod amazon;
mod audit;
mod axes;
mod blueprint;
mod buffer;
pub mod carried;
mod client;
mod collection;
mod confined;
mod counters;
mod credentials;
mod description;
mod documents;
mod element;
mod environment;
mod error;
mod fetch;
mod gate;
mod gather;
mod input;
mod inspect;
mod lattice;
mod layout;
mod ledger;
mod leftovers;
mod load;
mod local;
mod location;
mod network;
mod node;
mod ome;
mod output;
mod place;
mod pool;
mod presence;
mod probe;
mod profile;
mod pyramid;
mod reader;
mod retry;
mod shard;
mod shelf;
mod span;
mod spec;
mod store;
mod target;
mod together;
mod upload;
mod window;
mod writer;

pub use audit::{Flaw, StoredOutput, StoredSelection, no_ledger};
pub use buffer::{AlignedBytes, Brick};
pub use counters::{CounterSnapshot, StorageCounters, StorageObserver, StorageWork};
pub use description::{AxisInfo, AxisKind, InputDescription, ZarrFormat};
pub use element::Element;
pub use environment::Environment;
pub use error::{VolumeError, VolumeErrorKind};
pub use inspect::{Inspection, LevelInspection, inspect};
pub use ledger::{Contents, Ledger, LedgerWriter, Record};
pub use leftovers::{Leftovers, Turn};
pub use location::exists;
pub use network::Network;
pub use output::{Begun, OutputPlan, OutputRequest};
pub use place::{Piece, Place, Wanted};
pub use pool::CpuPool;
pub use presence::Presence;
pub use probe::{Finding, Probed, Purpose, Verdict, probe};
pub use pyramid::Levels;
pub use reader::{InputOptions, VolumeReader};
pub use shelf::{GaveWay, Shelf};
pub use window::Window;
pub use writer::{VolumeWriter, Written};
