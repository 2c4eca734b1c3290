//! The ledger of an output: which tiles are stored, what range their values have, and what made them.
//!
//! It lies in the output's own folder, beside its arrays, so that whoever moves or deletes the output takes it along. Its **head** is
//! created once and says what makes the tiles. Every process that writes has **segments** of its own, which nobody else touches:
//! it puts a segment again and again while it fills, then begins the next. So there are few objects, a put may be repeated, and
//! whoever reads sees a subset of what is stored, never more. A segment that is torn counts as not written.

mod segment;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use crate::location::Location;
use crate::window::widen;
use crate::{VolumeError, VolumeErrorKind, Window};
pub use segment::Record;
pub(crate) use segment::checksum;

/// The folder, in the output's.
pub(crate) const FOLDER: &str = ".haloflow";

pub(crate) const HEAD: &str = "run.json";
const COMPLETE: &str = "complete.json";
const SEGMENT: &str = "tiles-";

/// Records of a full segment: one mebibyte. A process rewrites no more than this at one time.
const SEGMENT_RECORDS: usize = 1 << 16;

/// Segments that are fetched at one time.
const FETCHING: usize = 16;

/// The ledger of one output. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Ledger {
    folder: Location,
}

/// What a ledger's segments hold.
#[derive(Debug, Default)]
pub struct Contents {
    /// In no order; a tile that was stored twice is there twice.
    pub records: Vec<Record>,
    /// For each channel, the range of the values of all these tiles.
    pub windows: Vec<Window>,
    /// Segments that are torn, by their full names.
    pub damaged: Vec<String>,
}

impl Ledger {
    pub(crate) const fn new(folder: Location) -> Self {
        Self { folder }
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.folder.url
    }

    /// The head; `None` if no run was ever begun here.
    ///
    /// # Errors
    /// `Data` if it cannot be read as JSON; `Unavailable` if the store fails.
    pub async fn head(&self) -> Result<Option<Value>, VolumeError> {
        self.json(HEAD).await
    }

    /// Creates the head; `false` if there is one already. The one who creates it is the one.
    ///
    /// # Errors
    /// `Unavailable` if the store fails, or cannot create what must not exist.
    pub async fn create(&self, head: &Value) -> Result<bool, VolumeError> {
        self.folder.create(HEAD, Bytes::from(format!("{head:#}\n"))).await
    }

    /// Deletes the ledger.
    pub(crate) async fn clear(&self) -> Result<(), VolumeError> {
        self.folder.delete_all().await
    }

    /// Whether every tile of the output was stored.
    ///
    /// # Errors
    /// As [`head`](Self::head).
    pub async fn is_complete(&self) -> Result<bool, VolumeError> {
        Ok(self.json(COMPLETE).await?.is_some())
    }

    /// Records that every tile of the output is stored. Repeating it changes nothing.
    ///
    /// # Errors
    /// `Unavailable` if the store fails.
    pub async fn complete(&self, told: &Value) -> Result<(), VolumeError> {
        self.folder.sync().await?;
        self.folder.put(COMPLETE, Bytes::from(format!("{told:#}\n"))).await
    }

    /// Everything that was recorded, by whomever.
    ///
    /// # Errors
    /// `Unavailable` if the store fails.
    pub async fn load(&self) -> Result<Contents, VolumeError> {
        let names = self.folder.list().await?;
        let segments = names.into_iter().map(|object| object.key).filter(|name| name.starts_with(SEGMENT));
        let parts = stream::iter(segments).map(|name| async move {
            let bytes = self.folder.get(&name).await?;
            Ok::<_, VolumeError>((name, bytes.unwrap_or_default()))
        });
        parts
            .buffer_unordered(FETCHING)
            .try_fold(Contents::default(), |mut contents, (name, bytes)| async move {
                match segment::decode(&bytes) {
                    Some((records, windows)) => {
                        contents.records.extend(records);
                        widen(&mut contents.windows, &windows);
                    }
                    None => contents.damaged.push(self.folder.url_of(&name)),
                }
                Ok(contents)
            })
            .await
    }

    /// A writer with segments of its own.
    #[must_use]
    pub fn writer(&self) -> LedgerWriter {
        let id = uuid::Uuid::new_v4().simple().to_string();
        LedgerWriter { folder: self.folder.clone(), id, segment: 0, records: Vec::new(), windows: Vec::new(), kept: 0 }
    }

    async fn json(&self, key: &str) -> Result<Option<Value>, VolumeError> {
        let Some(bytes) = self.folder.get(key).await? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            let name = self.folder.url_of(key);
            let message = format!("{name} is damaged ({error}): start over with --overwrite");
            VolumeError::new(VolumeErrorKind::Data, message).with_source(error)
        })
    }
}

/// Adds records to a ledger. Dropping it loses what was not flushed.
#[derive(Debug)]
pub struct LedgerWriter {
    folder: Location,
    id: String,
    /// The number of the segment that fills.
    segment: usize,
    /// What is in it, and what waits to be.
    records: Vec<Record>,
    /// The range of the values of every tile that was added, for each channel.
    windows: Vec<Window>,
    /// How many of them are stored.
    kept: usize,
}

impl LedgerWriter {
    /// Adds a tile, all of whose outputs have been acknowledged, and the range of its values for each channel. It is stored by the
    /// next [`flush`](Self::flush).
    pub fn add(&mut self, record: Record, windows: &[Window]) {
        self.records.push(record);
        widen(&mut self.windows, windows);
    }

    /// Records that are not stored yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.records.len() - self.kept
    }

    /// Stores all records. On a local disk, what they speak of is brought onto the disk before them. After an error it may be
    /// called again.
    ///
    /// Cancellation: records may or may not have been stored; calling again stores them.
    ///
    /// # Errors
    /// `Unavailable` if the store fails for longer than its retries last.
    pub async fn flush(&mut self) -> Result<(), VolumeError> {
        if self.waiting() == 0 {
            return Ok(());
        }
        self.folder.sync().await?;
        while self.waiting() > 0 {
            let end = self.records.len().min(SEGMENT_RECORDS);
            let name = format!("{SEGMENT}{}-{}", self.id, self.segment);
            self.folder.put(&name, segment::encode(&self.records[..end], &self.windows)).await?;
            self.kept = end;
            if end == SEGMENT_RECORDS {
                self.records.drain(..end);
                (self.kept, self.segment) = (0, self.segment + 1);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
