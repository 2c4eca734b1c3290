//! Damaged objects and stores that do not answer.

use std::path::{Path, PathBuf};

use haloflow_geometry::Box3;
use haloflow_volume::{Environment, VolumeErrorKind, ZarrFormat};

use serde_json::json;

use crate::support::{assert_holds, described, make, open, request};

async fn stored(folder: &Path, compressor: &str, format: ZarrFormat, sharded: bool) -> PathBuf {
    let path = folder.join(format!("{compressor}-{format:?}-{sharded}"));
    let mut request = request(path.to_str().unwrap());
    request.compressor = Some(compressor.to_owned());
    request.format = Some(format);
    request.chunk = Some([4; 3]);
    request.shard = sharded.then_some([8; 3]);
    make(request, &described("zyx", [8, 8, 8]), 1, &Environment::empty()).await.unwrap();
    path
}

#[tokio::test]
async fn damaged_chunks_are_errors_that_name_the_object() {
    let folder = tempfile::tempdir().unwrap();
    for compressor in ["blosc", "zstd", "gzip", "none"] {
        for (format, sharded) in [(ZarrFormat::V2, false), (ZarrFormat::V3, false), (ZarrFormat::V3, true)] {
            let path = stored(folder.path(), compressor, format, sharded).await;
            let chunk = path.join(if format == ZarrFormat::V2 { "0/0/0/0" } else { "0/c/0/0/0" });
            let whole = std::fs::read(&chunk).unwrap();
            for length in [0, 1, whole.len() / 2, whole.len() - 1] {
                std::fs::write(&chunk, &whole[..length]).unwrap();
                let reader = open(path.to_str().unwrap(), &Environment::empty()).await.unwrap();
                let error = reader.read(Box3::of_shape([8; 3])).await.unwrap_err();
                assert_eq!(error.kind, VolumeErrorKind::Data, "{compressor} {format:?} {length}: {error}");
                assert!(error.message.contains(chunk.to_str().unwrap()), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_there_and_is_no_file_is_no_missing_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let path = stored(folder.path(), "none", ZarrFormat::V3, false).await;
    let chunk = path.join("0/c/0/0/0");
    let whole = std::fs::read(&chunk).unwrap();
    let read = async || {
        let reader = open(path.to_str().unwrap(), &Environment::empty()).await.unwrap();
        reader.read(Box3::of_shape([8; 3])).await
    };
    let assert_named = |read: Result<_, haloflow_volume::VolumeError>, what: &str| {
        let error = read.map(|_: haloflow_volume::Brick| ()).unwrap_err();
        assert_eq!(error.kind, VolumeErrorKind::Unavailable, "{error}");
        assert!(error.message.contains(chunk.to_str().unwrap()) && error.message.contains(what), "{error}");
    };
    std::fs::remove_file(&chunk).unwrap();
    std::os::unix::fs::symlink("/nowhere/content", &chunk).unwrap();
    assert_named(read().await, "a link to something that does not exist");
    std::fs::remove_file(&chunk).unwrap();
    std::fs::create_dir(&chunk).unwrap();
    assert_named(read().await, "a folder");
    std::fs::remove_dir(&chunk).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&chunk).status().unwrap().success());
    assert_named(read().await, "no ordinary file");
    std::fs::remove_file(&chunk).unwrap();
    std::fs::write(folder.path().join("elsewhere"), whole).unwrap();
    std::os::unix::fs::symlink(folder.path().join("elsewhere"), &chunk).unwrap();
    assert_holds(&read().await.unwrap(), &[0]);
}

#[tokio::test]
async fn a_shard_that_ends_early_is_an_error_wherever_its_index_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shards");
    let spec = json!({"driver": "zarr3", "kvstore": {"driver": "file", "path": path}, "metadata": {
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8, 8, 8]}},
        "codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [4, 4, 4], "index_location": "start",
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]}}]}});
    make(request(&spec.to_string()), &described("zyx", [8, 8, 8]), 1, &Environment::empty()).await.unwrap();
    let shard = path.join("c/0/0/0");
    let whole = std::fs::read(&shard).unwrap();
    let read = async || {
        let reader = open(path.to_str().unwrap(), &Environment::empty()).await.unwrap();
        reader.read(Box3::of_shape([8; 3])).await
    };
    assert_holds(&read().await.unwrap(), &[0]);
    for length in [0, 1, 131, 132, 200, whole.len() - 1] {
        std::fs::write(&shard, &whole[..length]).unwrap();
        let error = read().await.unwrap_err();
        assert_eq!(error.kind, VolumeErrorKind::Data, "{length}: {error}");
        assert!(error.message.contains(shard.to_str().unwrap()), "{error}");
    }
}

#[tokio::test]
async fn a_refused_connection_is_an_error_within_the_limit() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let variables =
        [("AWS_ENDPOINT_URL", endpoint.as_str()), ("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s")];
    let environment = Environment::new(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let since = std::time::Instant::now();
    let error = open("s3://bucket/volume.zarr", &environment).await.unwrap_err();
    assert_eq!(error.kind, VolumeErrorKind::Transient);
    assert!(error.message.contains("s3://bucket/volume.zarr"), "{error}");
    assert!(since.elapsed().as_secs() < 20);
}
