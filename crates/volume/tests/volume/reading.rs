//! How often the store is asked, and what selections are refused.

use std::path::Path;

use haloflow_geometry::Box3;
use haloflow_volume::{Environment, VolumeErrorKind, VolumeReader};
use serde_json::json;

use crate::support::{assert_holds, cpu, described, make, open, options, request};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_overlapping_reads_fetch_each_chunk_once() {
    let environment = Environment::empty();
    make(request("memory://v"), &described("zyx", [16, 16, 16]), 1, &environment).await.unwrap();
    let reader = open("memory://v", &environment).await.unwrap();
    let before = reader.counters().requests;
    let reads = (0..6).map(|i| reader.read(Box3::new([i, i, 0], [i + 8, i + 8, 16])));
    for brick in futures::future::try_join_all(reads).await.unwrap() {
        assert_holds(&brick, &[0]);
    }
    // z and y 0..13 touch 4 x 4 chunks but the corners (0, 12) and (12, 0) are in no read; x touches 4.
    assert_eq!(reader.counters().chunks_decoded, reader.counters().requests - before);
    let touched = (0..4).flat_map(|z| (0..4).map(move |y| (z, y)));
    let touched =
        touched.filter(|(z, y)| (0..6).any(|i| i / 4 <= *z && *z <= (i + 7) / 4 && i / 4 <= *y && *y <= (i + 7) / 4));
    assert_eq!(reader.counters().chunks_decoded, 4 * touched.count() as u64);
    let again = reader.clone().with_cache(1 << 20);
    again.read(Box3::new([0; 3], [1; 3])).await.unwrap();
    assert_eq!(again.counters().chunks_decoded, reader.counters().chunks_decoded);
}

#[tokio::test]
async fn a_full_cache_forgets_but_a_large_one_does_not() {
    let environment = Environment::empty();
    make(request("memory://v"), &described("zyx", [4, 4, 32]), 1, &environment).await.unwrap();
    for (cache_bytes, decoded) in [(1 << 20, 8), (300, 16)] {
        let reader = open("memory://v", &environment).await.unwrap().with_cache(cache_bytes);
        for _ in 0..2 {
            for i in 0..8 {
                reader.read(Box3::new([0, 0, i * 4], [4, 4, i * 4 + 4])).await.unwrap();
            }
        }
        assert_eq!(reader.counters().chunks_decoded, decoded);
    }
}

#[tokio::test]
async fn a_shard_index_is_read_once_and_only_needed_chunks_come() {
    let environment = Environment::empty();
    let mut sharded = request("memory://v");
    (sharded.chunk, sharded.shard, sharded.compressor) = (Some([4, 4, 4]), Some([16, 16, 16]), Some("none".to_owned()));
    make(sharded, &described("zyx", [16, 16, 16]), 1, &environment).await.unwrap();
    let reader = open("memory://v", &environment).await.unwrap();
    let before = reader.counters();
    assert_holds(&reader.read(Box3::new([0, 0, 0], [4, 5, 4])).await.unwrap(), &[0]);
    let after = reader.counters();
    // The index, then two inner chunks of 128 bytes.
    assert_eq!(after.requests - before.requests, 3);
    assert_eq!(after.bytes_read - before.bytes_read, 64 * 16 + 4 + 2 * 128);
    reader.read(Box3::new([12, 12, 12], [16, 16, 16])).await.unwrap();
    assert_eq!(reader.counters().requests - after.requests, 1);
}

#[tokio::test]
async fn absent_chunks_and_absent_inner_chunks_hold_the_fill_value() {
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::empty();
    let metadata = json!({"zarr_format": 2, "shape": [4, 6], "chunks": [2, 3], "dtype": "<f4", "compressor": null,
        "fill_value": "NaN", "filters": null, "order": "C"});
    std::fs::write(folder.path().join(".zarray"), metadata.to_string()).unwrap();
    let stored: Vec<u8> = (0..6u8).flat_map(|value| f32::from(value).to_le_bytes()).collect();
    std::fs::write(folder.path().join("1.0"), stored).unwrap();
    let reader = open(folder.path().to_str().unwrap(), &environment).await.unwrap();
    let brick = reader.read(Box3::new([0, 1, 1], [1, 4, 4])).await.unwrap();
    let values = brick.channels[0].as_slice::<f32>();
    assert!([0, 1, 2, 5, 8].iter().all(|&i: &usize| values[i].is_nan()), "{values:?}");
    assert_eq!([values[3], values[4], values[6], values[7]], [1.0, 2.0, 4.0, 5.0]);
    assert_eq!(reader.counters().chunks_absent, 3);
}

#[tokio::test]
async fn selections_out_of_range_say_what_is_allowed() {
    let environment = Environment::empty();
    make(request("memory://v"), &described("tczyx", [4, 4, 4]), 1, &environment).await.unwrap();
    let refused = async |change: fn(&mut haloflow_volume::InputOptions)| {
        let mut options = options("memory://v");
        change(&mut options);
        let error = VolumeReader::open(&options, &environment, &cpu()).await.unwrap_err();
        assert_eq!(error.kind, VolumeErrorKind::Usage, "{error}");
        error.message
    };
    assert!(refused(|options| options.t = 3).await.contains("--t 3"));
    assert!(refused(|options| options.c = vec![0, 1]).await.contains("0 to 0"));
    assert!(refused(|options| options.level = 2).await.contains("has 1 levels"));
    let level_of_bare = refused(|options| {
        options.source = "memory://v/0".to_owned();
        options.level = 1;
    });
    assert!(level_of_bare.await.contains("bare array"));
    let reader = open("memory://v", &environment).await.unwrap();
    assert_eq!(reader.read(Box3::new([0; 3], [4, 4, 5])).await.unwrap_err().kind, VolumeErrorKind::Usage);
    assert_eq!(open("memory://nothing", &environment).await.unwrap_err().kind, VolumeErrorKind::Data);
}

#[tokio::test]
async fn collections_and_plain_groups_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
    write(&folder.path().join(".zgroup"), r#"{"zarr_format": 2}"#);
    let open = async || open(folder.path().to_str().unwrap(), &Environment::empty()).await.unwrap_err();
    assert!(open().await.message.contains("multiscales"));
    write(&folder.path().join(".zattrs"), r#"{"bioformats2raw.layout": 3}"#);
    assert!(open().await.message.contains("a bioformats2raw collection of images, but none is found in it"));
    write(&folder.path().join(".zattrs"), "{");
    assert!(open().await.message.contains(".zattrs is not valid JSON"));
}
