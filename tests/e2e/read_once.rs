//! How much of a volume is fetched to work through it, measured at the server.
//!
//! Everything is a quarter of the real size along each axis, so that memory is a sixty-fourth: chunks of 128 and 64 voxels become 32 and
//! 16, blocks of 256 become 64, 4 GiB become 64 MiB and 512 MiB become 8. A halo of 5 would be 1.25 voxels: with much memory it stays at 5,
//! with little it is 2, the least that can be trimmed.

use std::path::Path;

use haloflow_examples::s3::S3Server;
use haloflow_geometry::Zyx;
use haloflow_tests::folder::contents;
use haloflow_tests::image::Image;
use haloflow_tests::scene::{Scene, volume};
use haloflow_tests::zarr::Array;

/// Puts a volume where the server finds it; gives the bytes of its chunks.
fn stored(root: &Path, shape: Zyx, chunk: usize, shard: Option<usize>) -> u64 {
    let shard = shard.map(|shard| vec![shard; 3]);
    let array = Array { shard, ..Array::new(&shape, &[chunk; 3], "uint16") };
    let voxels: Vec<u16> = (0..shape.iter().product::<usize>()).map(|i| (i % 997) as u16).collect();
    Image { array, ..volume(shape) }.write(&root.join("lab/in.zarr"), &voxels);
    contents(&root.join("lab/in.zarr/0/c")).values().map(|(bytes, _)| bytes.len() as u64).sum()
}

/// Bytes that the server sent for a run, over bytes of the stored chunks.
fn amplification(shape: Zyx, chunk: usize, shard: Option<usize>, (memory, halo): (&str, &str)) -> f64 {
    let scene = Scene::empty();
    let stored = stored(&scene.path("store"), shape, chunk, shard);
    let server = S3Server::start(scene.path("store"), "lab").unwrap();
    let job = scene.job().keys("--in s3://lab/in.zarr --normalize percentile --block 64 --patch 16 --overlap 4");
    let job = job.keys("--trim-voxels 2 --requests 32 --compressor none --metrics-json /dev/null");
    let job = job.key("--memory", memory).key("--halo", halo);
    let _ = job.variables(server.variables()).end().well();
    server.counts().bytes_sent as f64 / stored as f64
}

#[test]
fn a_volume_is_fetched_once() {
    let mut told = Vec::new();
    let (large, small, wide, cube) = ([128, 512, 384], [512, 64, 64], [512, 128, 128], [256, 256, 256]);
    // The indexes of shards may take 16 MiB, however small the volume is.
    let (much, little) = (("64MiB", "5"), ("8MiB", "2"));
    for (shape, chunk, shard, given, limit) in [
        (large, 32, None, much, 1.05),
        (large, 16, None, much, 1.05),
        (large, 16, Some(64), much, 1.05),
        (small, 32, None, little, 1.3),
        (small, 16, None, little, 1.3),
        (wide, 32, None, little, 1.3),
        (wide, 16, None, little, 1.3),
        // The slabs of a halo of 2 are 1.6 times as thick as they should be, and steps that are read at one time overtake each other.
        (cube, 32, None, little, 1.4),
        (cube, 16, None, little, 1.3),
    ] {
        let amplification = amplification(shape, chunk, shard, given);
        println!("{shape:?} in chunks of {chunk}, shards {shard:?}, {given:?}: {amplification:.3}");
        told.push((amplification, limit));
    }
    assert!(told.iter().all(|(amplification, limit)| amplification <= limit), "{told:?}");
}
