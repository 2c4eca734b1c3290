//! The metadata of an output, as objects to put.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::location::Location;
use crate::ome::group_attributes;
use crate::target::Target;
use crate::{VolumeError, ZarrFormat};

/// An object of metadata.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    location: Location,
    key: &'static str,
    content: Value,
}

impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        (&self.location.url, self.key, &self.content) == (&other.location.url, other.key, &other.content)
    }
}

impl Document {
    pub(crate) async fn put(&self) -> Result<(), VolumeError> {
        self.location.put(self.key, pretty(&self.content)).await
    }
}

/// The metadata of an output that is created. The array's comes before the group's, so that a group never points at an array that
/// is not there.
pub(crate) fn documents(target: &Target, provenance: &Value) -> Vec<Document> {
    let Some(blueprint) = &target.blueprint else { return Vec::new() };
    let mut attributes = if target.is_group {
        let name = target.location.url.rsplit('/').next().unwrap_or_default();
        group_attributes(&blueprint.axes, name, blueprint.format)
    } else {
        json!({})
    };
    attributes["haloflow"] = provenance.clone();
    let array_attributes = if target.is_group { json!({}) } else { attributes.clone() };
    let metadata = blueprint.metadata(&array_attributes);
    let document = |location: &Location, key, content| Document { location: location.clone(), key, content };
    let (root, array) = (&target.location, &target.array);
    match (blueprint.format, target.is_group) {
        (ZarrFormat::V2, is_group) => {
            // The attributes first: a group without them could not be told to be ours, and so not be overwritten.
            let mut documents = vec![document(array, ".zarray", metadata), document(root, ".zattrs", attributes)];
            documents.extend(is_group.then(|| document(root, ".zgroup", json!({"zarr_format": 2}))));
            documents
        }
        (ZarrFormat::V3, false) => vec![document(array, "zarr.json", metadata)],
        (ZarrFormat::V3, true) => {
            let group = json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
            vec![document(array, "zarr.json", metadata), document(root, "zarr.json", group)]
        }
    }
}

/// Puts what is not there yet. What is there was put by the run that this one goes on with.
pub(crate) async fn write_missing(target: &Target, documents: &[Document]) -> Result<(), VolumeError> {
    for document in documents {
        let Some(found) = document.location.get(document.key).await? else {
            document.put().await?;
            continue;
        };
        if document.location.url == target.array.url && document.key != ".zattrs" {
            let found: Value = serde_json::from_slice(&found).unwrap_or_default();
            if essence(&found) != essence(&document.content) {
                return Err(VolumeError::data(format!(
                    "{} was changed since the run began that is to be resumed: start over with --overwrite",
                    document.location.url_of(document.key)
                )));
            }
        }
    }
    Ok(())
}

/// Metadata without what says where it comes from.
fn essence(metadata: &Value) -> Value {
    let mut metadata = metadata.clone();
    if let Some(members) = metadata.as_object_mut() {
        members.remove("attributes");
    }
    metadata
}

fn pretty(value: &Value) -> Bytes {
    Bytes::from(format!("{value:#}\n"))
}
