//! A place that is not opened as a volume: where it is, and its objects as they are stored.

use std::ops::Range;

use bytes::Bytes;

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

    /// An object below it, or a range of its bytes; `None` if there is none.
    ///
    /// # Errors
    /// `Unavailable` if the store fails.
    pub async fn object(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>, VolumeError> {
        match range {
            Some(range) => self.location.get_range(key, range).await,
            None => self.location.get(key).await,
        }
    }
}
