//! A place that is not opened as a volume: where it is, and its objects as they are stored.

use bytes::Bytes;
use object_store::GetRange;

use crate::location::Location;
use crate::spec::Source;
use crate::{Environment, VolumeError};

/// The folder of a volume in a store.
#[derive(Clone, Debug)]
pub struct Place {
    location: Location,
}

impl Place {
    /// The place that was typed as an input or output: a URL, a path, or a TensorStore spec. Nothing is asked of the store.
    ///
    /// # Errors
    /// `Usage` for anything that is not understood.
    pub async fn find(source: &str, environment: &Environment) -> Result<Self, VolumeError> {
        Ok(Self { location: Source::read(source, environment).await?.location().clone() })
    }

    /// Its URL, or its absolute path with links followed and no `.` or `..` in it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.location.url
    }

    /// Bytes of an object below it; `None` if there is none. No more than these bytes are fetched, and none if they are more than `most`.
    ///
    /// # Errors
    /// `Unavailable` if the store fails.
    pub async fn object(&self, key: &str, wanted: Wanted, most: u64) -> Result<Option<Piece>, VolumeError> {
        let range = match wanted {
            Wanted::All => None,
            Wanted::Between(start, stop) => Some(GetRange::Bounded(start..stop)),
            Wanted::From(start) => Some(GetRange::Offset(start)),
            Wanted::Last(count) => Some(GetRange::Suffix(count)),
        };
        self.location.piece(key, range, most).await
    }
}

/// Which bytes of an object are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of them.
    All,
    /// Those from the first number on, up to the second.
    Between(u64, u64),
    /// Those from this one on.
    From(u64),
    /// So many at its end.
    Last(u64),
}

/// Bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The bytes. None if the object has none there, or if they would be too many.
    pub bytes: Bytes,
    /// Where they begin in the object.
    pub start: u64,
    /// Where they end, or would end.
    pub stop: u64,
    /// Size of the object.
    pub size: u64,
}
