//! Memory does not grow with the volume.

use std::path::Path;

use haloflow_examples::faults::{Asked, Fault, Script};
use haloflow_examples::s3::S3Server;
use haloflow_tests::binary::Haloflow;
use haloflow_tests::ended::json;
use haloflow_tests::own_model;
use haloflow_tests::scene::{Scene, volume};
use haloflow_tests::zarr::Array;
use hyper::Method;

const MIB: u64 = 1 << 20;
/// What a run may use, besides libtorch.
///
/// It is so small that the smaller volume fills it too: a run that has more than it needs takes what helps.
const BUDGET: u64 = 40 * MIB;
/// Peaks may differ by this: allocators keep what they have freed. Raw, the larger volume has 108 MiB, the smaller one 13.5.
const MARGIN: u64 = 24 * MIB;
const CHUNK: usize = 32;

/// A volume of `side` voxels along each axis. Its chunks are links to one file, so it takes no room.
fn large_volume(folder: &Path, side: usize) {
    let mut image = volume([side; 3]);
    image.array = Array::new(&[side; 3], &[CHUNK; 3], "uint16");
    image.write_metadata(folder);
    let chunk: Vec<u16> = (0..CHUNK.pow(3)).map(|i| (i % 1013) as u16).collect();
    let first = folder.join("0").join(image.array.key(&[0, 0, 0]));
    let count = side / CHUNK;
    for place in 0..count.pow(3) {
        let cell = [place / (count * count), place / count % count, place % count];
        let path = folder.join("0").join(image.array.key(&cell));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        if place == 0 {
            std::fs::write(&path, bytemuck::cast_slice(&chunk)).unwrap();
        } else {
            std::fs::hard_link(&first, &path).unwrap();
        }
    }
}

/// The most memory that a run over a volume of `side` voxels along each axis had resident, bytes.
fn peak(side: usize) -> u64 {
    let scene = Scene::empty();
    large_volume(&scene.path("in.zarr"), side);
    peak_of(&scene, scene.job())
}

fn peak_of(scene: &Scene, job: Haloflow) -> u64 {
    let metrics = scene.path("metrics.json");
    let layout = format!("--patch 32 --overlap 6 --trim-voxels 3 --batch 4 --memory {BUDGET}B");
    let _ = job.keys(&layout).key("--metrics-json", &metrics).end().well();
    let report = json(&metrics);
    assert!(report["peak_leased_bytes"].as_u64().unwrap() <= report["memory"]["leases"].as_u64().unwrap(), "{report}");
    report["peak_resident_bytes"].as_u64().unwrap()
}

#[test]
fn a_volume_eight_times_larger_needs_no_more_memory() {
    let (tiny, small, large) = (peak(32), peak(192), peak(384));
    let told = [tiny, small, large].map(|bytes| bytes / MIB);
    assert!(large <= small + MARGIN, "peaks in MiB: {told:?}");
    // A tiny run has all of libtorch and next to nothing of the budget.
    assert!(large <= tiny + BUDGET + MARGIN, "peaks in MiB: {told:?}");
    println!("peaks in MiB for 32, 192 and 384 voxels a side, with a budget of {}: {told:?}", BUDGET / MIB);
}

#[test]
fn a_slow_reader_writer_or_device_fills_no_more_than_the_budget() {
    let tiny = peak(32);
    let late = |method: Method, milliseconds| {
        move |asked: Asked<'_>| (*asked.method == method).then_some(Fault::Late(milliseconds))
    };
    let nothing = |_: Asked<'_>| None;
    let scripts: [(&str, Box<Script>); 3] = [
        ("reader", Box::new(late(Method::GET, 20))),
        ("writer", Box::new(late(Method::PUT, 200))),
        ("device", Box::new(nothing)),
    ];
    for (slow, script) in scripts {
        let scene = Scene::empty();
        let root = scene.path("store");
        large_volume(&root.join("lab/in.zarr"), 128);
        let server = S3Server::start_faulty(&root, "lab", script).unwrap();
        let job = scene.job().keys("--in s3://lab/in.zarr --out s3://lab/out.zarr").variables(server.variables());
        let job = if slow == "device" { job.key("--model", own_model("slow")) } else { job };
        let peak = peak_of(&scene, job);
        assert!(peak <= tiny + BUDGET + MARGIN, "a slow {slow}: {} and {} MiB", peak / MIB, tiny / MIB);
    }
}
