//! `haloflow verify`.

use std::path::Path;

use haloflow_examples::s3::S3Server;
use haloflow_tests::binary::Haloflow;
use haloflow_tests::ended::Ended;
use haloflow_tests::golden_model;
use haloflow_tests::scene::{Scene, noisy};

const SHAPE: [usize; 3] = [40, 48, 48];

fn verify(place: impl AsRef<Path>) -> Haloflow {
    Haloflow::other("verify").word(place.as_ref())
}

fn smooth(scene: &Scene) -> Haloflow {
    scene.job().key("--model", golden_model("box3"))
}

/// The three figures of a seam.
fn seams(ended: &Ended) -> Vec<f64> {
    let line = ended.stdout.lines().find(|line| line.starts_with("seams")).unwrap();
    let words = line.rsplit_once("inside: ").unwrap().1.split(", ");
    words.map(|word| word[2..].parse().unwrap()).collect()
}

#[test]
fn an_output_is_as_it_was_stored_until_somebody_touches_it() {
    for keys in ["--pyramid 2", "--chunk 8 --shard 16 --zarr-format 3", "--zarr-format 2 --stack-channels"] {
        let scene = Scene::of(SHAPE, &noisy(SHAPE));
        let _ = scene.job().keys(keys).end().well();
        let out = scene.path("out.zarr");
        let told = verify(&out).end().well().stdout;
        assert!(told.contains("blocks      27 of 27 recorded, 27 of them as they were stored"), "{told}");
        let object = match keys {
            "--zarr-format 2 --stack-channels" => out.join("0/0/1/2/0"),
            _ => out.join("0/c/1/2/0"),
        };
        let whole = std::fs::read(&object).unwrap_or_else(|error| panic!("{}: {error}", object.display()));
        let name = object.strip_prefix(&out).unwrap().to_str().unwrap();
        let block = "the first at z 16, y 32, x 0: ";
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        std::fs::write(&object, &changed).unwrap();
        verify(&out).end().refused(65, &["1 of 27 recorded blocks", block, name]);
        std::fs::write(&object, &whole[1..]).unwrap();
        verify(&out).end().refused(65, &[block, "bytes are stored and"]);
        std::fs::remove_file(&object).unwrap();
        verify(&out).end().refused(65, &[block, name, "is missing"]);
        std::fs::write(&object, &whole).unwrap();
        let _ = verify(&out).end().well();
    }
}

#[test]
fn an_output_in_a_bucket_that_was_not_finished_is_told() {
    let scene = Scene::of(SHAPE, &noisy(SHAPE));
    let root = tempfile::tempdir().unwrap();
    let server = S3Server::start(root.path(), "lab").unwrap();
    let out = "s3://lab/out.zarr";
    let _ = scene.job().keys("--out s3://lab/out.zarr --part 1/2").variables(server.variables()).end().well();
    let ended = verify(out).variables(server.variables()).end();
    ended.refused(75, &["s3://lab/out.zarr is not complete: 14 of 27 blocks are stored"]);
    let _ = scene.job().keys("--out s3://lab/out.zarr --part 0/2").variables(server.variables()).end().well();
    let told = verify(out).keys("--json").variables(server.variables()).end().well().stdout;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["outputs"][0]["complete"], &told["outputs"][0]["blocks_recorded"]), (&true.into(), &27.into()));
    verify("s3://lab").variables(server.variables()).end().refused(65, &["has no record of a run"]);
}

#[test]
fn seams_show_in_their_figure_and_in_recomputed_windows() {
    let scene = Scene::of(SHAPE, &noisy(SHAPE));
    let out = scene.path("out.zarr");
    let again = |job: Haloflow| job.instead("verify").keys("--recompute 9");
    let good = smooth(&scene);
    let _ = smooth(&scene).end().well();
    let ended = again(good).end().well();
    assert!(ended.stdout.contains("the mean difference is 0.0000"), "{}", ended.stdout);
    for figure in seams(&ended) {
        assert!((0.9..1.1).contains(&figure), "there is no seam, and noise has no preference: {}", ended.stdout);
    }
    again(scene.job()).end().refused(65, &["was made otherwise: `model` was "]);
    // With nothing trimmed, what the network makes up outside of its patch is seen.
    std::fs::remove_dir_all(&out).unwrap();
    let bad =
        || smooth(&scene).keys("--patch 12 --overlap 2 --trim-voxels 0 --block 16 --chunk 16 --lattice block --halo 0");
    let _ = bad().end().well();
    let ended = again(bad()).keys("--tolerance 0.001").end();
    ended.refused(65, &["recomputed windows differ from", "`tolerance` is 0.001"]);
    assert!(seams(&ended).iter().all(|figure| !(0.7..1.4).contains(figure)), "{}", ended.stdout);
}

#[test]
fn what_cannot_be_verified_is_refused() {
    let scene = Scene::new();
    verify(scene.path("in.zarr")).end().refused(65, &["in.zarr has no record of a run"]);
    Haloflow::other("verify").end().refused(64, &["there is no output"]);
    verify(scene.path("in.zarr")).keys("--tolerance 0.1").end().refused(64, &["`tolerance`", "`--recompute`"]);
}
