//! The metadata of an output, as objects to put: once when it is created, and once more when all of it is stored.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::location::Location;
use crate::ome::{group_attributes, omero};
use crate::target::Target;
use crate::{VolumeError, Window, ZarrFormat};

/// An object of metadata.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    location: Location,
    key: &'static str,
    content: Value,
}

/// The metadata of an output once every tile is stored.
#[derive(Debug, Default)]
pub(crate) struct Seal {
    /// Those of each target that are not yet as they will be.
    pub(crate) documents: Vec<Vec<Document>>,
    /// The input's `omero` metadata, and the number of its channel that the first output channel goes with.
    pub(crate) omero: Option<Value>,
    pub(crate) first: usize,
}

impl Document {
    async fn put(&self) -> Result<(), VolumeError> {
        self.location.put(self.key, pretty(&self.content)).await
    }

    fn is_array(&self) -> bool {
        self.key == ".zarray" || self.content["node_type"] == "array"
    }

    /// Where an image keeps its `omero` metadata; bare arrays have no place for it.
    fn image(&mut self) -> Option<&mut Value> {
        match self.key {
            "zarr.json" => self.content.get_mut("attributes")?.get_mut("ome"),
            ".zattrs" => Some(&mut self.content).filter(|attributes| attributes.get("multiscales").is_some()),
            _ => None,
        }
    }
}

impl Seal {
    /// Puts them, with the range of each channel's values for viewers.
    pub(crate) async fn put(&self, windows: &[Window]) -> Result<(), VolumeError> {
        let stacked = self.documents.len() == 1;
        for (number, documents) in self.documents.iter().enumerate() {
            let (own, first) = if stacked { (windows, 0) } else { (&windows[number..=number], number) };
            for mut document in documents.iter().cloned() {
                if let Some(image) = document.image() {
                    image["omero"] = omero(own, self.omero.as_ref(), self.first + first);
                }
                document.put().await?;
            }
        }
        Ok(())
    }
}

/// The metadata of an output that is created. The arrays' come before the group's, so that a group never points at an array that
/// is not there.
pub(crate) fn documents(target: &Target, provenance: &Value) -> Vec<Document> {
    let Some(blueprint) = &target.blueprint else { return Vec::new() };
    let (format, root) = (blueprint.format, &target.location);
    let document = |location: &Location, key, content| Document { location: location.clone(), key, content };
    let key = if format == ZarrFormat::V2 { ".zarray" } else { "zarr.json" };
    let mut attributes = json!({});
    let mut documents = Vec::new();
    if target.is_group {
        let levels = std::iter::once((&target.array, blueprint));
        let levels = levels.chain(target.coarser.iter().map(|level| (&level.array, &level.blueprint)));
        let mut axes = Vec::new();
        for (array, blueprint) in levels {
            documents.push(document(array, key, blueprint.metadata(&json!({}))));
            axes.push(&*blueprint.axes);
        }
        let name = root.url.rsplit('/').next().unwrap_or_default();
        attributes = group_attributes(&axes, name, format);
    }
    attributes["haloflow"] = provenance.clone();
    if !target.is_group {
        documents.push(document(&target.array, key, blueprint.metadata(&attributes)));
    }
    match (format, target.is_group) {
        (ZarrFormat::V2, is_group) => {
            // The attributes first: a group without them could not be told to be ours, and so not be overwritten.
            documents.push(document(root, ".zattrs", attributes));
            documents.extend(is_group.then(|| document(root, ".zgroup", json!({"zarr_format": 2}))));
        }
        (ZarrFormat::V3, true) => {
            let group = json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
            documents.push(document(root, "zarr.json", group));
        }
        (ZarrFormat::V3, false) => {}
    }
    documents
}

/// Puts what is not there yet. What is there was put by the run that this one goes on with.
pub(crate) async fn write_missing(documents: &[Document]) -> Result<(), VolumeError> {
    for document in documents {
        let Some(found) = document.location.get(document.key).await? else {
            document.put().await?;
            continue;
        };
        let found: Value = serde_json::from_slice(&found).unwrap_or_default();
        if document.is_array() && essence(&found) != essence(&document.content) {
            return Err(VolumeError::data(format!(
                "{} was changed since the run began that is to be resumed: start over with --overwrite",
                document.location.url_of(document.key)
            )));
        }
    }
    Ok(())
}

/// Those of `complete` that differ from `now`, and those that will tell the windows.
pub(crate) fn unsealed(now: &[Document], complete: Vec<Document>) -> Vec<Document> {
    let pairs = complete.into_iter().zip(now);
    let changing = pairs.filter_map(|(mut document, now)| {
        let changes = document.image().is_some() || document.content != now.content;
        changes.then_some(document)
    });
    changing.collect()
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
