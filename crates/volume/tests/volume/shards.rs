//! Inner chunks of shards: side by side they are fetched together, and each once.

use std::time::Duration;

use haloflow_geometry::{Box3, Zyx};
use haloflow_volume::{CounterSnapshot, Environment, VolumeErrorKind, VolumeReader};
use proptest::prelude::*;

use crate::support::{assert_holds, check, cpu, described, make, options, request};

/// Writes a sharded volume without compression.
async fn stored(target: &str, shape: Zyx, chunk: Zyx, shard: Zyx, environment: &Environment) {
    let mut request = request(target);
    (request.chunk, request.shard, request.compressor) = (Some(chunk), Some(shard), Some("none".to_owned()));
    drop(make(request, &described("zyx", shape), 1, environment).await.unwrap());
}

async fn opened(source: &str, requests: usize, cache_bytes: u64, environment: &Environment) -> VolumeReader {
    let options = haloflow_volume::InputOptions { requests, cache_bytes, ..options(source) };
    VolumeReader::open(&options, environment, &cpu()).await.unwrap()
}

fn since(reader: &VolumeReader, before: CounterSnapshot) -> (u64, u64, u64) {
    let now = reader.counters();
    (now.requests - before.requests, now.bytes_read - before.bytes_read, now.chunks_decoded - before.chunks_decoded)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_comes_in_few_requests_and_no_more_bytes() {
    let environment = Environment::empty();
    stored("memory://v", [16, 16, 32], [4; 3], [16; 3], &environment).await;
    // Eight requests leave one chunk to each, sixty-four eight.
    let mut told = Vec::new();
    for requests in [8, 64] {
        let reader = opened("memory://v", requests, 1 << 24, &environment).await;
        let before = reader.counters();
        assert_holds(&reader.read(Box3::of_shape([16, 16, 32])).await.unwrap(), &[0]);
        told.push(since(&reader, before));
    }
    let bytes = 128 * 128 + 2 * (64 * 16 + 4);
    assert_eq!(told, [(128 + 2, bytes, 128), (128 / 8 + 2, bytes, 128)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_reads_of_a_shard_fetch_each_chunk_once() {
    let environment = Environment::empty();
    stored("memory://v", [16; 3], [4; 3], [16; 3], &environment).await;
    let reader = opened("memory://v", 64, 1 << 24, &environment).await;
    let before = reader.counters();
    let reads = (0..6).map(|i| {
        let reader = reader.clone();
        tokio::spawn(async move { reader.read(Box3::new([0, i, 0], [16, i + 9, 16])).await })
    });
    for brick in futures::future::try_join_all(reads).await.unwrap() {
        assert_holds(&brick.unwrap(), &[0]);
    }
    let (requests, bytes, decoded) = since(&reader, before);
    assert_eq!((bytes, decoded), (64 * 128 + 64 * 16 + 4, 64));
    // How many come together depends on which read is first where.
    assert!(requests < 64 + 1, "{requests}");
}

#[tokio::test]
async fn a_damaged_chunk_among_others_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v");
    let spec = serde_json::json!({"driver": "zarr3", "kvstore": {"driver": "file", "path": path}, "metadata": {
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [16, 16, 16]}},
        "codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [4, 4, 4], "index_location": "start",
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]}}]}});
    let environment = Environment::empty();
    make(request(&spec.to_string()), &described("zyx", [16; 3]), 1, &environment).await.unwrap();
    let shard = path.join("c/0/0/0");
    let whole = std::fs::read(&shard).unwrap();
    let read = async || opened(path.to_str().unwrap(), 64, 0, &environment).await.read(Box3::of_shape([16; 3])).await;
    assert_holds(&read().await.unwrap(), &[0]);
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for (damaged, what) in
        [(&flipped[..], "corrupt"), (&whole[..whole.len() / 2], "truncated"), (&whole[..1100], "truncated")]
    {
        std::fs::write(&shard, damaged).unwrap();
        let error = read().await.unwrap_err();
        assert_eq!(error.kind, VolumeErrorKind::Data, "{error}");
        assert!(error.message.contains(what) && error.message.contains(shard.to_str().unwrap()), "{error}");
    }
}

#[tokio::test]
async fn an_output_says_what_shards_it_has() {
    let mut request = request("memory://v");
    (request.chunk, request.shard) = (Some([4; 3]), Some([6; 3]));
    let error = check(request, &described("zyx", [16; 3]), &Environment::empty()).await.unwrap_err();
    assert_eq!(error.kind, VolumeErrorKind::Usage, "{error}");
}

fn zyx(range: std::ops::Range<usize>) -> impl Strategy<Value = Zyx> {
    [range.clone(), range.clone(), range]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reads_at_one_time_end_and_are_right_whatever_the_limits(
        shape in zyx(4..18),
        chunk in zyx(1..4),
        count in zyx(1..5),
        corners in prop::collection::vec((zyx(0..18), zyx(0..18)), 1..7),
        requests in prop::sample::select(vec![1, 15, 16, 17, 40, 64, 300]),
        cache_bytes in prop::sample::select(vec![0, 300, 3000, 1 << 20]),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let environment = Environment::empty();
            let shard: Zyx = std::array::from_fn(|axis| chunk[axis] * count[axis]);
            stored("memory://v", shape, chunk, shard, &environment).await;
            let reader = opened("memory://v", requests, cache_bytes, &environment).await;
            let reads = corners.into_iter().map(|(one, other)| {
                let start: Zyx = std::array::from_fn(|axis| one[axis].min(other[axis]).min(shape[axis]));
                let stop: Zyx = std::array::from_fn(|axis| one[axis].max(other[axis]).min(shape[axis]));
                let reader = reader.clone();
                tokio::spawn(async move { reader.read(Box3::new(start, stop)).await })
            });
            let all = futures::future::try_join_all(reads.collect::<Vec<_>>());
            let bricks = tokio::time::timeout(Duration::from_secs(60), all).await.expect("reads hang").unwrap();
            for brick in bricks {
                assert_holds(&brick.unwrap(), &[0]);
            }
        });
    }
}
