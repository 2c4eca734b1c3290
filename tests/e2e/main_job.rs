//! The main job: volumes of every form through a network.

use std::path::Path;

use haloflow_examples::s3::S3Server;
use haloflow_tests::binary::Haloflow;
use haloflow_tests::ended::json;
use haloflow_tests::golden_model;
use haloflow_tests::image::{Axis, Image, multiscale};
use haloflow_tests::readback::{read, read_u16};
use haloflow_tests::scene::{SHAPE, Scene, box3, noisy};
use haloflow_tests::zarr::Array;
use haloflow_volume::{Element, Environment};
use serde_json::{Value, json};

const AXES: [Axis; 5] = [
    ("t", Some("second"), 30.0),
    ("c", None, 1.0),
    ("z", Some("micrometer"), 1.5),
    ("y", Some("micrometer"), 0.4),
    ("x", Some("micrometer"), 0.4),
];

/// Flags for patches whose trimmed seams hide what `box3` sees of a patch's own faces.
const LAYOUT: &str = "--devices cpu --patch 16 --overlap 6 --trim-voxels 2 --normalize false";

/// Two time points and two channels of noise, and what `box3` makes of the last.
fn five_axes(folder: &Path, format: u8) -> Vec<u16> {
    let shape = [&[2, 2][..], &SHAPE].concat();
    let array = Array { format, ..Array::new(&shape, &[1, 1, 16, 16, 16], "uint16") };
    let voxels = noisy([4 * SHAPE[0], SHAPE[1], SHAPE[2]]);
    Image { axes: AXES.to_vec(), array }.write(folder, &voxels);
    let volume = SHAPE.iter().product::<usize>();
    box3(&voxels[3 * volume..], SHAPE)
}

/// Runs `box3` from s3:// to s3:// and gives the folder in which the server keeps the result.
fn from_s3_to_s3(root: &Path, format: u8, more: &str) -> std::path::PathBuf {
    let server = S3Server::start(root, "lab").unwrap();
    let expected = five_axes(&root.join("lab/scans/in.zarr"), format);
    let job = Haloflow::run()
        .keys("--in s3://lab/scans/in.zarr --out s3://lab/results/out.zarr --t 1 --c 1")
        .key("--model", golden_model("box3"))
        .keys(LAYOUT)
        .keys(more)
        .variables(server.variables());
    let ended = job.end().well();
    assert!(ended.stdout.contains("s3://lab/results/out.zarr") && ended.stdout.contains("MB/s"), "{}", ended.stdout);
    let environment = Environment::new(server.variables());
    let result = read::<u16>("s3://lab/results/out.zarr", &environment, Element::U16, [0, 0]);
    assert_eq!(result.shape, SHAPE);
    assert_eq!(result.voxels, expected);
    root.join("lab/results/out.zarr")
}

/// Stops the test unless an image tells of the same axes, units and voxel sizes as the input's.
fn assert_same_axes(image: &Value) {
    let wanted = multiscale(&AXES);
    assert_eq!(image["axes"], wanted["axes"]);
    assert_eq!(image["datasets"], wanted["datasets"]);
}

#[test]
fn an_image_goes_from_s3_through_a_network_to_s3() {
    let root = tempfile::tempdir().unwrap();
    let folder = from_s3_to_s3(root.path(), 3, "--lattice volume");
    let group = json(&folder.join("zarr.json"));
    assert_eq!(group["attributes"]["ome"]["version"], "0.5");
    assert_same_axes(&group["attributes"]["ome"]["multiscales"][0]);
    let array = json(&folder.join("0/zarr.json"));
    assert_eq!(array["shape"], json!([1, 1, SHAPE[0], SHAPE[1], SHAPE[2]]));
    assert_eq!(array["chunk_grid"]["configuration"]["chunk_shape"], json!([1, 1, 16, 16, 16]));
    assert_eq!(array["dimension_names"], json!(["t", "c", "z", "y", "x"]));
}

#[test]
fn zarr_2_goes_in_and_ome_zarr_0_4_comes_out_where_asked() {
    let root = tempfile::tempdir().unwrap();
    let folder = from_s3_to_s3(root.path(), 2, "--zarr-format 2");
    let attributes = json(&folder.join(".zattrs"));
    assert_eq!(attributes["multiscales"][0]["version"], "0.4");
    assert_same_axes(&attributes["multiscales"][0]);
    assert_eq!(json(&folder.join(".zgroup"))["zarr_format"], 2);
    assert_eq!(json(&folder.join("0/.zarray"))["dtype"], "<u2");
}

#[test]
fn every_channel_goes_to_an_output_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    let server = S3Server::start(root.path(), "lab").unwrap();
    let scene = Scene::new();
    let outputs = ["s3://lab/same.zarr", "s3://lab/inverse.zarr"];
    let job = scene.job().values("--out", outputs).key("--model", golden_model("two"));
    let _ = job.keys("--out-dtype int16").variables(server.variables()).end().well();
    let environment = Environment::new(server.variables());
    let [same, inverse] = outputs.map(|output| read::<i16>(output, &environment, Element::I16, [0, 0]).voxels);
    let voxels: Vec<i16> = noisy(SHAPE).into_iter().map(|value| value as i16).collect();
    assert_eq!(same, voxels);
    assert_eq!(inverse, voxels.iter().map(|value| 1 - value).collect::<Vec<_>>());
}

#[test]
fn channels_are_stacked_in_one_array() {
    let scene = Scene::new();
    let _ = scene.job().key("--model", golden_model("two")).keys("--stack-channels --out-dtype int16").end().well();
    let output = scene.path("out.zarr");
    assert_eq!(json(&output.join("0/zarr.json"))["shape"], json!([2, SHAPE[0], SHAPE[1], SHAPE[2]]));
    let channel = |c| read::<i16>(output.to_str().unwrap(), &Environment::empty(), Element::I16, [0, c]).voxels;
    let (same, inverse) = (channel(0), channel(1));
    assert!(same.iter().zip(noisy(SHAPE)).all(|(value, voxel)| *value == voxel as i16));
    assert!(inverse.iter().zip(&same).all(|(inverse, value)| *inverse == 1 - value));
}

#[test]
fn shards_are_read_and_written() {
    let scene = Scene::empty();
    let array = Array { shard: Some(vec![16, 32, 32]), ..Array::new(&SHAPE, &[8, 16, 16], "uint16") };
    array.write(&scene.path("in.zarr"), &noisy(SHAPE));
    let _ = scene.job().keys("--chunk 8 --shard 16 16 24").end().well();
    assert_eq!(read_u16(&scene.path("out.zarr")), noisy(SHAPE));
    let metadata = json(&scene.path("out.zarr/0/zarr.json"));
    assert_eq!(metadata["chunk_grid"]["configuration"]["chunk_shape"], json!([16, 16, 24]));
    assert_eq!(metadata["codecs"][0]["configuration"]["chunk_shape"], json!([8, 8, 8]));
    let shards = std::fs::read_dir(scene.path("out.zarr/0/c/0/0")).unwrap().count();
    assert_eq!(shards, 2, "a shard is one object");
}

#[test]
fn a_bare_array_of_either_format_is_a_volume() {
    for format in [2, 3] {
        let scene = Scene::empty();
        let array = Array { format, ..Array::new(&SHAPE, &[16, 20, 24], "uint16") };
        array.write(&scene.path("in.zarr"), &noisy(SHAPE));
        let _ = scene.job().key("--model", golden_model("box3")).keys(LAYOUT).end().well();
        assert_eq!(read_u16(&scene.path("out.zarr")), box3(&noisy(SHAPE), SHAPE), "Zarr v{format}");
    }
}

#[test]
fn a_plane_is_a_volume_of_one_slice() {
    let scene = Scene::empty();
    let [_, height, width] = [1, 150, 170];
    let voxels = noisy([1, height, width]);
    let axes = AXES[3..].to_vec();
    let array = Array::new(&[height, width], &[64, 64], "uint16");
    Image { axes, array }.write(&scene.path("in.zarr"), &voxels);
    let patches = "--patch 1 64 64 --overlap 0 10 10 --trim-voxels 0 5 5";
    let _ = scene.job().key("--model", golden_model("box3")).keys(patches).end().well();
    assert_eq!(read_u16(&scene.path("out.zarr")), box3(&voxels, [1, height, width]));
    assert_eq!(json(&scene.path("out.zarr/0/zarr.json"))["shape"], json!([height, width]));
}

#[test]
fn the_chosen_channel_of_four_axes_is_read() {
    let scene = Scene::empty();
    let voxels = noisy([3 * SHAPE[0], SHAPE[1], SHAPE[2]]);
    let array = Array::new(&[&[3][..], &SHAPE].concat(), &[3, 16, 16, 16], "uint16");
    Image { axes: AXES[1..].to_vec(), array }.write(&scene.path("in.zarr"), &voxels);
    let _ = scene.job().keys("--c 2").end().well();
    let volume = SHAPE.iter().product::<usize>();
    assert_eq!(read_u16(&scene.path("out.zarr")), voxels[2 * volume..]);
}

#[test]
fn the_result_does_not_depend_on_tiles_batches_or_memory() {
    let scene = Scene::new();
    let results = ["", "--block 16 32 16 --batch 1", "--block 48 --batch 7 --compile", "--memory 80MiB --threads 1"]
        .map(|keys| {
            let job = scene.job().key("--model", golden_model("edge")).keys("--seam-mode blend --chunk 16 --overwrite");
            let _ = job.keys(keys).end().well();
            read_u16(&scene.path("out.zarr"))
        });
    assert!(results[0] != noisy(SHAPE), "the model does something");
    assert!(results.iter().all(|result| *result == results[0]));
}

#[test]
fn relative_paths_start_at_the_working_directory() {
    let scene = Scene::new();
    std::fs::copy(golden_model("identity"), scene.path("net.pt")).unwrap();
    let job = scene.job().keys("--in in.zarr --out results/out.zarr --model net.pt --metrics-json m.json");
    let _ = job.within(&scene.path(".")).end().well();
    assert_eq!(read_u16(&scene.path("results/out.zarr")), noisy(SHAPE));
    assert_eq!(json(&scene.path("m.json"))["complete"], true);
}
