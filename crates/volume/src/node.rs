//! Zarr nodes: the metadata objects of an array or a group.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::VolumeError;
use crate::location::Location;

/// What is stored at a location.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// An array, with the content of `.zarray` or `zarr.json`.
    Array(Value),
    /// A group, with its attributes.
    Group(Value),
}

impl Node {
    /// Reads the node at a location; `None` if there is none. Zarr v3 is preferred where both versions are stored.
    ///
    /// # Errors
    /// `Unavailable` if the store gives no answer; `Data` if the metadata is not JSON, or if this is a file.
    pub(crate) async fn find(location: &Location) -> Result<Option<Self>, VolumeError> {
        if location.is_file() {
            return Err(VolumeError::data(format!(
                "{} is a file: give the folder of a Zarr array or an OME-Zarr image",
                location.url
            )));
        }
        let (v3, array, attributes, group) = futures::future::join4(
            location.get("zarr.json"),
            location.get(".zarray"),
            location.get(".zattrs"),
            location.get(".zgroup"),
        )
        .await;
        // A store may deny what it does not have, so an error counts only if nothing was found.
        let found = |answer: &Result<Option<Bytes>, VolumeError>| answer.as_ref().ok().and_then(Clone::clone);
        if let Some(bytes) = found(&v3) {
            return Ok(Some(Self::of_v3(json_of(&bytes, location, "zarr.json")?)));
        }
        if let Some(bytes) = found(&array) {
            return Ok(Some(Self::Array(json_of(&bytes, location, ".zarray")?)));
        }
        if let Some(bytes) = found(&attributes) {
            return Ok(Some(Self::Group(json_of(&bytes, location, ".zattrs")?)));
        }
        if found(&group).is_some() {
            return Ok(Some(Self::Group(json!({}))));
        }
        for answer in [v3, array, attributes, group] {
            answer?;
        }
        Ok(None)
    }

    fn of_v3(mut metadata: Value) -> Self {
        if metadata["node_type"] == "group" {
            return Self::Group(metadata["attributes"].take());
        }
        Self::Array(metadata)
    }
}

fn json_of(bytes: &Bytes, location: &Location, key: &str) -> Result<Value, VolumeError> {
    serde_json::from_slice(bytes).map_err(|error| {
        VolumeError::data(format!("{} is not valid JSON: {error}", location.url_of(key))).with_source(error)
    })
}
