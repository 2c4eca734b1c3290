//! Groups that are no image themselves but hold images: plates and wells of high-content screening, and what bioformats2raw writes, in
//! OME-Zarr 0.4 and 0.5.

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use crate::VolumeError;
use crate::location::Location;
use crate::node::Node;

/// Wells, or images, that are asked what they are at one time.
const AT_ONE_TIME: usize = 16;

/// Images that an error names.
const TOLD: usize = 8;

/// What kind of collection a group is, by its attributes; `None` if it is none.
pub(crate) fn kind(attributes: &Value) -> Option<&'static str> {
    let ome = ome(attributes);
    // A plate may have been written by bioformats2raw too, and then its wells are what matters.
    let kinds = [
        ("plate", "a plate of images"),
        ("well", "a well of images"),
        ("bioformats2raw.layout", "a bioformats2raw collection of images"),
    ];
    kinds.iter().find(|(key, _)| !ome[key].is_null()).map(|(_, what)| *what)
}

/// The paths of the images in a collection, at most `most`, relative to it.
///
/// # Errors
/// `Unavailable` if the store fails; `Data` if metadata is not valid.
pub(crate) async fn images(location: &Location, attributes: &Value, most: usize) -> Result<Vec<String>, VolumeError> {
    let ome = ome(attributes);
    let mut images = if ome["plate"].is_object() {
        let wells = paths(&ome["plate"]["wells"]);
        let of_well = |well: String| async move {
            let images = fields(&location.at(&well)).await?;
            Ok::<_, VolumeError>(images.into_iter().map(|image| format!("{well}/{image}")).collect::<Vec<_>>())
        };
        let found: Vec<Vec<String>> =
            stream::iter(wells.into_iter().take(most)).map(of_well).buffered(AT_ONE_TIME).try_collect().await?;
        found.concat()
    } else if ome["well"].is_object() {
        paths(&ome["well"]["images"])
    } else {
        series(location, most).await?
    };
    images.truncate(most);
    Ok(images)
}

/// Why a group without `multiscales` cannot be opened, and what to open instead.
pub(crate) async fn no_image(location: &Location, attributes: &Value) -> VolumeError {
    let url = &location.url;
    let Some(what) = kind(attributes) else {
        return VolumeError::data(format!(
            "{url} is a Zarr group without OME-Zarr metadata (multiscales): give an OME-Zarr image or the path of an array"
        ));
    };
    // What is wrong with an image in it is told when that is opened.
    let images = images(location, attributes, TOLD + 1).await.unwrap_or_default();
    let urls: Vec<String> = images.iter().take(TOLD).map(|image| location.at(image).url).collect();
    let more = if images.len() > TOLD { " and more, which `haloflow inspect` lists" } else { "" };
    if urls.is_empty() {
        return VolumeError::data(format!("{url} is {what}, but none is found in it"));
    }
    VolumeError::data(format!("{url} is {what}: open one of them, which are {}{more}", urls.join(", ")))
}

/// The images of a well; the first field alone if the well does not tell.
async fn fields(well: &Location) -> Result<Vec<String>, VolumeError> {
    let Some(Node::Group(attributes)) = Node::find(well).await? else { return Ok(vec!["0".to_owned()]) };
    let images = paths(&ome(&attributes)["well"]["images"]);
    Ok(if images.is_empty() { vec!["0".to_owned()] } else { images })
}

/// The images that bioformats2raw wrote: those that the group `OME` names, else those called 0, 1 and so on.
async fn series(location: &Location, most: usize) -> Result<Vec<String>, VolumeError> {
    if let Some(Node::Group(attributes)) = Node::find(&location.at("OME")).await? {
        let named = ome(&attributes)["series"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let named: Vec<String> = named.map(str::to_owned).collect();
        if !named.is_empty() {
            return Ok(named);
        }
    }
    let mut found = Vec::new();
    while found.len() < most && Node::find(&location.at(&found.len().to_string())).await?.is_some() {
        found.push(found.len().to_string());
    }
    Ok(found)
}

fn paths(list: &Value) -> Vec<String> {
    let members = list.as_array().into_iter().flatten();
    members.filter_map(|member| member["path"].as_str()).map(str::to_owned).collect()
}

/// The attributes that OME-Zarr defines: version 0.5 has them in a key of their own.
fn ome(attributes: &Value) -> &Value {
    if attributes["ome"].is_object() { &attributes["ome"] } else { attributes }
}
