//! Sharded input: how many requests it takes, counted at the server, and what happens when ranges do not arrive whole.

use std::num::NonZeroUsize;
use std::path::Path;

use haloflow_examples::faults::Fault;
use haloflow_examples::s3::{S3Counts, S3Server};
use haloflow_examples::volume::input;
use haloflow_geometry::{Box3, Zyx};
use haloflow_tests::image::Image;
use haloflow_tests::scene::{noisy, volume};
use haloflow_tests::zarr::Array;
use haloflow_volume::{CpuPool, Environment, InputOptions, VolumeReader};

const SHAPE: Zyx = [64; 3];

/// Puts a volume of 8 shards with 512 inner chunks where the server finds it.
fn stored(root: &Path) {
    let array = Array { shard: Some(vec![32; 3]), ..Array::new(&SHAPE, &[8; 3], "uint16") };
    Image { array, ..volume(SHAPE) }.write(&root.join("lab/in.zarr"), &noisy(SHAPE));
}

/// Reads the whole volume; what the server did for it, besides metadata.
fn read(server: &S3Server, requests: usize) -> S3Counts {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = InputOptions { requests, ..input("s3://lab/in.zarr") };
        let cpu = CpuPool::new(NonZeroUsize::MIN).unwrap();
        let reader = VolumeReader::open(&options, &Environment::new(server.variables()), &cpu).await.unwrap();
        let before = server.counts();
        let brick = reader.read(Box3::of_shape(SHAPE)).await.unwrap();
        assert_eq!(brick.channels[0].as_slice::<u16>(), noisy(SHAPE));
        let after = server.counts();
        S3Counts { gets: after.gets - before.gets, bytes_sent: after.bytes_sent - before.bytes_sent, ..after }
    })
}

#[test]
fn neighbours_in_a_shard_come_in_one_request() {
    let folder = tempfile::tempdir().unwrap();
    stored(folder.path());
    let server = S3Server::start(folder.path(), "lab").unwrap();
    // Eight requests at one time leave one inner chunk to each.
    let [alone, together] = [8, 64].map(|requests| read(&server, requests));
    println!("{} GETs one by one, {} together", alone.gets, together.gets);
    assert_eq!(alone.gets, 512 + 8);
    assert_eq!(together.gets, 512 / 8 + 8);
    // The server may count the last of the metadata late.
    assert!(together.bytes_sent.abs_diff(alone.bytes_sent) < 4096, "{together:?} {alone:?}");
}

#[test]
fn what_does_not_arrive_whole_is_asked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    stored(folder.path());
    for fault in [Fault::Shorten, Fault::Truncate, Fault::Internal] {
        let first = move |asked: haloflow_examples::faults::Asked<'_>| {
            (asked.path.contains("/0/c/") && asked.before == 0).then_some(fault)
        };
        let server = S3Server::start_faulty(folder.path(), "lab", Box::new(first)).unwrap();
        read(&server, 64);
        assert!(server.injected() >= 512 / 8 + 8, "{fault:?}: {}", server.injected());
    }
}
