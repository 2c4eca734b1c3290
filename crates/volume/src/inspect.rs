//! What is stored at a place, as far as it is understood.

use serde::Serialize;

use crate::collection::{images, kind, no_image};
use crate::input::Input;
use crate::node::Node;
use crate::ome::Multiscale;
use crate::spec::Source;
use crate::{Environment, InputDescription, InputOptions, StorageCounters, VolumeError};

/// What a place holds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Inspection {
    /// An image or an array: its levels, the finest first.
    Volume {
        /// One for a bare array.
        levels: Vec<LevelInspection>,
    },
    /// A collection of images.
    Collection {
        /// What kind of collection.
        what: String,
        /// The URLs of the images in it, as far as its metadata tells.
        members: Vec<String>,
    },
}

/// A level of an image, or an array.
#[derive(Clone, Debug, Serialize)]
pub struct LevelInspection {
    /// What its metadata says.
    #[serde(flatten)]
    pub description: InputDescription,
    /// Every codec in the order in which they encode, as stored.
    pub codecs: serde_json::Value,
    /// The value of voxels that are not stored.
    pub fill: f64,
    /// Size of all voxels, bytes.
    pub raw_bytes: u64,
    /// Chunks or shards that are stored.
    pub objects: u64,
    /// Size of these, bytes.
    pub stored_bytes: u64,
    /// Chunks or shards that the array would have if all were stored.
    pub objects_in_all: u64,
}

/// Looks at what is stored at `source`, a URL, a path or a spec. Reads metadata and lists objects.
///
/// # Errors
/// As [`VolumeReader::open`](crate::VolumeReader::open); `Unavailable` too if a store cannot be listed, as web servers cannot.
pub async fn inspect(source: &str, environment: &Environment) -> Result<Inspection, VolumeError> {
    let place = Source::read(source, environment).await?;
    let location = place.location();
    if let (Source::Place(_), Some(Node::Group(attributes))) = (&place, Node::find(location).await?)
        && Multiscale::find(&attributes, &location.url)?.is_none()
    {
        let Some(what) = kind(&attributes) else { return Err(no_image(location, &attributes).await) };
        let images = images(location, &attributes, usize::MAX).await?;
        let members = images.iter().map(|path| location.at(path).url).collect();
        return Ok(Inspection::Collection { what: what.to_owned(), members });
    }
    let mut levels = Vec::new();
    loop {
        let level = level(source, levels.len(), environment).await?;
        let count = level.description.levels;
        levels.push(level);
        if levels.len() >= count {
            return Ok(Inspection::Volume { levels });
        }
    }
}

async fn level(source: &str, level: usize, environment: &Environment) -> Result<LevelInspection, VolumeError> {
    let options = InputOptions {
        source: source.to_owned(),
        level,
        level_given: true,
        t: 0,
        c: vec![0],
        cache_bytes: 0,
        requests: 1,
    };
    let Input { location, layout, description, codecs, .. } =
        Input::open(&options, environment, &StorageCounters::default()).await?;
    let stored = location.list().await?;
    let chunks = stored.iter().filter(|object| !object.is_metadata());
    let (objects, stored_bytes) = chunks.fold((0, 0), |(count, bytes), object| (count + 1, bytes + object.size));
    let grid = layout.shape.iter().zip(&layout.chunk).map(|(size, chunk)| size.div_ceil(*chunk) as u64);
    Ok(LevelInspection {
        codecs,
        fill: layout.element.value(layout.codec.fill_bytes()),
        raw_bytes: (layout.shape.iter().product::<usize>() * layout.element.size()) as u64,
        objects,
        stored_bytes,
        objects_in_all: grid.product(),
        description,
    })
}
