//! Plates, wells and what bioformats2raw writes, in OME-Zarr 0.4 and 0.5: any image in them is an input, and they tell which they have.

use std::path::Path;

use haloflow_geometry::Box3;
use haloflow_volume::{Environment, Inspection, VolumeErrorKind, ZarrFormat, inspect};
use serde_json::{Value, json};

use crate::support::{assert_holds, described, make, open, request};

/// Writes the attributes of a group, as one version has them.
fn group(folder: &Path, attributes: &Value, format: ZarrFormat) {
    std::fs::create_dir_all(folder).unwrap();
    let write = |name: &str, content: &Value| std::fs::write(folder.join(name), content.to_string()).unwrap();
    if format == ZarrFormat::V2 {
        write(".zgroup", &json!({"zarr_format": 2}));
        write(".zattrs", attributes);
        return;
    }
    let mut ome = attributes.clone();
    ome["version"] = json!("0.5");
    write("zarr.json", &json!({"zarr_format": 3, "node_type": "group", "attributes": {"ome": ome}}));
}

async fn image(folder: &Path, format: ZarrFormat) {
    let mut request = request(folder.to_str().unwrap());
    request.format = Some(format);
    make(request, &described("zyx", [5, 6, 7]), 1, &Environment::empty()).await.unwrap();
}

/// Checks that a place is no input, says of what kind it is, and names exactly these images, each of which is an input.
async fn names(folder: &Path, what: &str, images: &[&str]) {
    let environment = Environment::empty();
    let error = open(folder.to_str().unwrap(), &environment).await.unwrap_err();
    assert_eq!(error.kind, VolumeErrorKind::Data);
    assert!(error.message.contains(what), "{error}");
    let urls: Vec<String> = images.iter().map(|image| folder.join(image).to_str().unwrap().to_owned()).collect();
    let told = error.message.split("which are ").nth(1).unwrap();
    assert_eq!(told.split(", ").collect::<Vec<_>>(), urls);
    let Inspection::Collection { members, .. } = inspect(folder.to_str().unwrap(), &environment).await.unwrap() else {
        panic!("{} is no collection", folder.display());
    };
    assert_eq!(members, urls);
    for url in urls {
        let reader = open(&url, &environment).await.unwrap();
        assert_holds(&reader.read(Box3::of_shape([5, 6, 7])).await.unwrap(), &[0]);
        assert_eq!(reader.description().axes[0].scale, 0.5);
    }
}

#[tokio::test]
async fn every_image_of_a_plate_is_an_input() {
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        let folder = tempfile::tempdir().unwrap();
        let plate = folder.path().join("plate.ome.zarr");
        let wells =
            json!([{"path": "A/1", "rowIndex": 0, "columnIndex": 0}, {"path": "B/2", "rowIndex": 1, "columnIndex": 1}]);
        let plate_of = json!({"columns": [{"name": "1"}, {"name": "2"}], "rows": [{"name": "A"}, {"name": "B"}], "wells": wells,
            "field_count": 2, "name": "screen"});
        // What bioformats2raw writes of a plate says both.
        group(&plate, &json!({"plate": plate_of, "bioformats2raw.layout": 3}), format);
        for (well, images) in [("A/1", &["0", "1"][..]), ("B/2", &["0"])] {
            let listed: Vec<Value> = images.iter().map(|path| json!({"path": path, "acquisition": 0})).collect();
            group(&plate.join(well), &json!({"well": {"images": listed}}), format);
            for path in images {
                image(&plate.join(well).join(path), format).await;
            }
            names(&plate.join(well), "a well of images", images).await;
        }
        names(&plate, "a plate of images", &["A/1/0", "A/1/1", "B/2/0"]).await;
    }
}

#[tokio::test]
async fn every_image_of_a_bioformats2raw_collection_is_an_input() {
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("slides.zarr");
        group(&root, &json!({"bioformats2raw.layout": 3}), format);
        for path in ["0", "1", "macro"] {
            image(&root.join(path), format).await;
        }
        names(&root, "a bioformats2raw collection", &["0", "1"]).await;
        group(&root.join("OME"), &json!({"series": ["0", "macro"]}), format);
        names(&root, "a bioformats2raw collection", &["0", "macro"]).await;
    }
}

#[tokio::test]
async fn of_many_images_an_error_names_a_few() {
    let folder = tempfile::tempdir().unwrap();
    let wells: Vec<Value> = (1..=24).map(|column| json!({"path": format!("A/{column}")})).collect();
    group(folder.path(), &json!({"plate": {"wells": wells}}), ZarrFormat::V2);
    let source = folder.path().to_str().unwrap();
    let error = open(source, &Environment::empty()).await.unwrap_err();
    assert!(error.message.contains("A/8/0 and more, which `haloflow inspect` lists"), "{error}");
    assert!(!error.message.contains("A/9/0"), "{error}");
    let Inspection::Collection { members, .. } = inspect(source, &Environment::empty()).await.unwrap() else {
        panic!()
    };
    assert_eq!((members.len(), members[23].ends_with("A/24/0")), (24, true));
}
