//! Outputs that are refused, and that nothing is touched before that is known.

use std::collections::BTreeMap;
use std::path::Path;

use haloflow_volume::{Element, Environment, OutputRequest, VolumeErrorKind, ZarrFormat};
use serde_json::{Value, json};

use crate::support::{check, described, make, open, request};

fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.display().to_string(), std::fs::read(&path).unwrap());
        }
    }
    found
}

async fn refused(change: impl FnOnce(&mut OutputRequest), kind: VolumeErrorKind) -> String {
    let mut request = request("memory://out");
    change(&mut request);
    let error = check(request, &described("tczyx", [10, 20, 30]), &Environment::empty()).await.unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    error.message
}

#[tokio::test]
async fn an_existing_output_stays_untouched_unless_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.zarr");
    let input = described("zyx", [8, 8, 8]);
    let environment = Environment::empty();
    make(request(path.to_str().unwrap()), &input, 1, &environment).await.unwrap();
    std::fs::write(path.join("0/c/stray"), "x").unwrap();
    std::fs::write(folder.path().join("neighbour"), "x").unwrap();
    let before = contents(folder.path());
    let error = check(request(path.to_str().unwrap()), &input, &environment).await.unwrap_err();
    assert_eq!(error.kind, VolumeErrorKind::Exists);
    assert!(error.message.contains("--overwrite"), "{error}");
    let mut overwriting = request(path.to_str().unwrap());
    overwriting.overwrite = true;
    let plan = check(overwriting.clone(), &input, &environment).await.unwrap();
    assert_eq!(plan.create(2, Value::Null).await.unwrap_err().kind, VolumeErrorKind::Data);
    assert_eq!(contents(folder.path()), before);
    make(overwriting, &input, 1, &environment).await.unwrap();
    assert!(!path.join("0/c/stray").exists() && folder.path().join("neighbour").exists());
}

#[tokio::test]
async fn a_folder_that_is_no_zarr_is_not_deleted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("thesis.tex"), "x").unwrap();
    let target = folder.path().to_str().unwrap().to_owned();
    let message = refused(
        |request| {
            request.targets = vec![target];
            request.overwrite = true;
        },
        VolumeErrorKind::Usage,
    );
    assert!(message.await.contains("not deleted"));
    assert!(folder.path().join("thesis.tex").exists());
}

#[tokio::test]
async fn only_images_arrays_and_own_groups_are_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.zarr");
    let attempt = async |name: &str, content: Value| {
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join(name), content.to_string()).unwrap();
        let mut request = request(path.to_str().unwrap());
        request.overwrite = true;
        let checked = check(request, &described("zyx", [8, 8, 8]), &Environment::empty()).await;
        assert!(path.join(name).exists());
        std::fs::remove_dir_all(&path).unwrap();
        checked.map(|_| ()).map_err(|error| (error.kind, error.message))
    };
    let group = |attributes: Value| json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
    let image = json!({"multiscales": [{"datasets": [{"path": "0"}]}]});
    attempt("zarr.json", group(json!({"ome": image}))).await.unwrap();
    attempt("zarr.json", group(json!({"haloflow": {}}))).await.unwrap();
    attempt("zarr.json", json!({"zarr_format": 3, "node_type": "array"})).await.unwrap();
    attempt(".zattrs", image.clone()).await.unwrap();
    attempt(".zarray", json!({"zarr_format": 2})).await.unwrap();
    for (key, value, word) in [
        ("plate", json!({"wells": []}), "plate"),
        ("well", json!({"images": []}), "well"),
        ("bioformats2raw.layout", json!(3), "bioformats2raw"),
        ("comment", json!("all of my data"), "group"),
    ] {
        let marked = key != "comment";
        let mut attributes = if marked { image.clone() } else { json!({}) };
        attributes[key] = value;
        for (name, content) in [(".zattrs", attributes.clone()), ("zarr.json", group(json!({"ome": attributes})))] {
            let (kind, message) = attempt(name, content).await.unwrap_err();
            assert_eq!(kind, VolumeErrorKind::Usage);
            assert!(message.contains(word) && message.contains("not deleted"), "{message}");
        }
    }
    for (name, content) in [(".zgroup", json!({"zarr_format": 2})), ("zarr.json", json!({})), ("notes", json!({}))] {
        assert!(attempt(name, content).await.unwrap_err().1.contains("not deleted"));
    }
}

#[tokio::test]
async fn channel_counts_are_checked_before_anything_is_made() {
    let checked = async |change: fn(&mut OutputRequest)| {
        let mut request = request("memory://out");
        change(&mut request);
        check(request, &described("czyx", [4, 5, 6]), &Environment::empty()).await.unwrap()
    };
    let single = checked(|_| {}).await;
    single.check_channels(1).unwrap();
    let error = single.check_channels(2).unwrap_err();
    assert_eq!(error.kind, VolumeErrorKind::Data);
    assert!(error.message.contains("2 output channels but 1 outputs"), "{error}");
    let stacked = checked(|request| request.stack_channels = true).await;
    stacked.check_channels(5).unwrap();
    assert_eq!(stacked.check_channels(0).unwrap_err().kind, VolumeErrorKind::Data);
    let fixed = checked(|request| {
        request.stack_channels = true;
        let spec = json!({"driver": "zarr3", "kvstore": "memory://out", "metadata": {"shape": [3, 4, 5, 6]}});
        request.targets = vec![spec.to_string()];
    });
    let fixed = fixed.await;
    fixed.check_channels(3).unwrap();
    assert!(fixed.check_channels(2).unwrap_err().message.contains("has 3 along its channel axis"));
}

#[tokio::test]
async fn places_that_collide_are_refused() {
    use VolumeErrorKind::Usage;
    for target in ["memory://elsewhere", "memory://elsewhere/0", "memory://"] {
        let message = refused(|request| request.targets = vec![target.to_owned()], Usage).await;
        assert!(message.contains("memory://elsewhere"), "{message}");
    }
    assert!(
        refused(|request| request.targets.push("memory://out/labels".to_owned()), Usage).await.contains("one place")
    );
    assert!(
        refused(|request| request.targets = vec!["https://host/out".to_owned()], Usage).await.contains("only be read")
    );
    assert!(refused(|request| request.targets.clear(), Usage).await.contains("no output"));
}

#[tokio::test]
async fn values_that_do_not_fit_are_refused_with_what_does() {
    use VolumeErrorKind::Usage;
    let spec = |metadata: Value| json!({"driver": "zarr", "kvstore": "memory://out", "metadata": metadata}).to_string();
    let with = async |metadata: Value| refused(|request| request.targets = vec![spec(metadata)], Usage).await;
    let message = with(json!({"shape": [1, 1, 10, 21, 30], "chunks": [1, 1, 5, 5, 5]})).await;
    assert!(message.contains("21 voxels along y") && message.contains("20"), "{message}");
    assert!(with(json!({"shape": [1, 2, 10, 20, 30], "chunks": [1, 2, 5, 5, 5]})).await.contains("channel axis"));
    assert!(with(json!({"dtype": "|b1"})).await.contains("bool"));
    assert!(with(json!({"dtype": "<c8"})).await.contains("<c8"));
    assert!(with(json!({"compressor": {"id": "nope"}})).await.contains("nope"));
}

#[tokio::test]
async fn chunks_follow_the_block_or_are_refused() {
    use VolumeErrorKind::Usage;
    let blocked = |chunk, block| {
        move |request: &mut OutputRequest| {
            request.chunk = chunk;
            request.block = Some(block);
        }
    };
    let message = refused(blocked(Some([4, 4, 5]), [8, 8, 8]), Usage).await;
    assert!(message.contains("along x") && message.contains('8'), "{message}");
    let mut derived = request("memory://out");
    derived.block = Some([6, 8, 8]);
    let plan = check(derived, &described("tczyx", [10, 20, 30]), &Environment::empty()).await.unwrap();
    assert_eq!(plan.unit(), [6, 4, 4]);
    let sharded = |request: &mut OutputRequest| request.shard = Some([8, 8, 10]);
    assert!(
        refused(
            |request| {
                sharded(request);
                request.chunk = Some([4, 4, 4])
            },
            Usage
        )
        .await
        .contains("multiple")
    );
    assert!(
        refused(
            |request| {
                sharded(request);
                request.format = Some(ZarrFormat::V2)
            },
            Usage
        )
        .await
        .contains("no shards")
    );
    assert!(refused(|request| request.compressor = Some("lzma".to_owned()), Usage).await.contains("zstd"));
    assert!(refused(|request| request.t = Some(1), Usage).await.contains("0 to 0"));
}

#[tokio::test]
async fn an_existing_array_is_opened_and_others_are_kept() {
    let environment = Environment::empty();
    let spec = |extra: Value| {
        let mut spec = json!({"driver": "zarr3", "kvstore": "memory://bare"});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        spec.to_string()
    };
    let input = described("czyx", [4, 5, 6]);
    let created = spec(json!({"create": true, "metadata": {"shape": [2, 4, 5, 6], "data_type": "uint16"}}));
    make(request(&created), &input, 1, &environment).await.unwrap();
    let mut second = request(&spec(json!({"open": true})));
    second.c = Some(1);
    make(second, &input, 1, &environment).await.unwrap();
    let mut options = crate::support::options("memory://bare");
    options.c = vec![0, 1];
    let reader = haloflow_volume::VolumeReader::open(&options, &environment, &crate::support::cpu()).await.unwrap();
    let brick = reader.read(haloflow_geometry::Box3::of_shape([4, 5, 6])).await.unwrap();
    crate::support::assert_holds(&brick, &[0, 0]);
    let mut wrong = request(&spec(json!({"open": true})));
    wrong.element = Some(Element::F32);
    assert!(check(wrong, &input, &environment).await.unwrap_err().message.contains("uint16"));
    let missing = json!({"driver": "zarr3", "kvstore": "memory://missing", "open": true}).to_string();
    assert!(check(request(&missing), &input, &environment).await.unwrap_err().message.contains("create"));
    open("memory://bare", &environment).await.unwrap();
}
