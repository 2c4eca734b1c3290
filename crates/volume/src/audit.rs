//! Audit: whether what a ledger says is stored is there, byte for byte.

use futures::{StreamExt, TryStreamExt, stream};
use haloflow_geometry::{Box3, Zyx};

use crate::address::locate;
use crate::input::Input;
use crate::ledger::{FOLDER, HEAD, Ledger, checksum};
use crate::writer::{ArrayTarget, Level};
use crate::{Environment, InputOptions, Record, StorageCounters, VolumeError, VolumeErrorKind};

/// Objects of one tile that are fetched at one time.
const FETCHING: usize = 8;

/// An output that is stored, as its arrays are.
#[derive(Debug)]
pub struct StoredOutput {
    levels: Vec<Level>,
    shapes: Vec<Zyx>,
}

/// Which part of which arrays an output is.
#[derive(Clone, Debug)]
pub struct StoredSelection {
    /// Where the arrays or images are: one per channel, or one for all.
    pub places: Vec<String>,
    /// How many channels there are.
    pub channels: usize,
    /// How many levels there are, the finest counted.
    pub levels: usize,
    /// The time point.
    pub t: usize,
    /// The (first) channel of each array.
    pub c: usize,
}

/// What is wrong with a tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// This object is not there.
    Missing(String),
    /// Its objects have so many bytes; that many were recorded.
    Length {
        /// Bytes that are there.
        found: u64,
        /// Bytes that were recorded.
        recorded: u64,
    },
    /// The bytes are not those that were put: one of these objects was changed.
    Changed(Vec<String>),
}

impl std::fmt::Display for Flaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(object) => write!(f, "{object} is missing"),
            Self::Length { found, recorded } => write!(f, "{found} bytes are stored and {recorded} were recorded"),
            Self::Changed(objects) if objects.len() == 1 => write!(f, "{} was changed", objects[0]),
            Self::Changed(objects) => {
                write!(f, "one of {} objects was changed, from {} on", objects.len(), objects[0])
            }
        }
    }
}

impl Ledger {
    /// Every ledger of the output at `place`, a URL or a path: one for each part of it that runs have written.
    ///
    /// # Errors
    /// `Usage` if that is no place; `Unavailable` if the store fails or cannot list.
    pub async fn find(place: &str, environment: &Environment) -> Result<Vec<Self>, VolumeError> {
        let folder = locate(place, environment).await?.at(FOLDER);
        let mut heads: Vec<String> = folder.list().await?.into_iter().map(|object| object.key).collect();
        heads.sort_unstable();
        let folders = heads.iter().filter_map(|key| key.strip_suffix(HEAD)?.strip_suffix('/'));
        Ok(folders.map(|name| Self::new(folder.at(name))).collect())
    }
}

impl StoredOutput {
    /// Reads the metadata of the arrays.
    ///
    /// # Errors
    /// As [`VolumeReader::open`](crate::VolumeReader::open).
    pub async fn open(selection: &StoredSelection, environment: &Environment) -> Result<Self, VolumeError> {
        let (mut levels, mut shapes) = (Vec::new(), Vec::new());
        let each = if selection.places.len() == 1 { selection.channels } else { 1 };
        for level in 0..selection.levels {
            let mut arrays = Vec::new();
            for place in &selection.places {
                let options = InputOptions {
                    source: place.clone(),
                    level,
                    level_given: level > 0,
                    t: selection.t,
                    c: (selection.c..selection.c + each).collect(),
                    cache_bytes: 0,
                    requests: FETCHING,
                };
                let found = Input::open(&options, environment, &StorageCounters::default()).await?;
                let Input { location, layout, map, .. } = found;
                arrays.push(ArrayTarget { location, layout, map, t: selection.t, c: selection.c });
            }
            let Some(first) = arrays.first() else {
                return Err(VolumeError::data("the record names no output"));
            };
            shapes.push(first.map.spatial(&first.layout.shape));
            levels.push(Level::new(arrays, selection.channels));
        }
        Ok(Self { levels, shapes })
    }

    /// Size of the volume on every level, z y x, voxels.
    #[must_use]
    pub fn shapes(&self) -> &[Zyx] {
        &self.shapes
    }

    /// Fetches every object of a tile, whose voxels `regions` gives on every level, and compares them with its record.
    ///
    /// # Errors
    /// `Usage` if the regions are not those of a tile; `Unavailable` or `Transient` if the store fails.
    pub async fn check(&self, regions: &[Box3], record: &Record) -> Result<Option<Flaw>, VolumeError> {
        let mut jobs = Vec::new();
        for (level, region) in regions.iter().enumerate() {
            let Some(found) = self.levels.get(level) else {
                return Err(VolumeError::usage(format!("there is no level {level} to compare with")));
            };
            jobs.extend(found.objects(*region));
        }
        let names: Vec<String> = jobs.iter().map(|(location, key)| location.url_of(key)).collect();
        let fetching = jobs.into_iter().map(|(location, key)| async move {
            let bytes = location.get(&key).await?;
            Ok::<_, VolumeError>(bytes.map(|bytes| (bytes.len() as u64, crc32c::crc32c(&bytes))))
        });
        let found: Vec<_> = stream::iter(fetching).buffered(FETCHING).try_collect().await?;
        if let Some(missing) = found.iter().position(Option::is_none) {
            return Ok(Some(Flaw::Missing(names[missing].clone())));
        }
        let objects: Vec<(u64, u32)> = found.into_iter().flatten().collect();
        let bytes = objects.iter().map(|(length, _)| length).sum();
        Ok(if bytes != record.bytes {
            Some(Flaw::Length { found: bytes, recorded: record.bytes })
        } else if checksum(&objects) != record.checksum {
            Some(Flaw::Changed(names))
        } else {
            None
        })
    }
}

/// The error of a place without a ledger.
#[must_use]
pub fn no_ledger(place: &str) -> VolumeError {
    let message = format!("{place} has no record of a run ({FOLDER}): give the output of a `haloflow run`");
    VolumeError::new(VolumeErrorKind::Data, message)
}
