//! Processes that are killed at random moments: the next one goes on, and the bytes are those of an undisturbed run.
//!
//! `HALOFLOW_KILLS=200` makes as many rounds; a few are made without.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use haloflow_examples::s3::S3Server;
use haloflow_tests::binary::Haloflow;
use haloflow_tests::ended::Ended;
use haloflow_tests::folder::contents;
use haloflow_tests::golden_model;
use haloflow_tests::scene::{Scene, noisy};

const SHAPE: [usize; 3] = [48, 64, 64];

/// What a run leaves: every object of the arrays and their metadata, by its name.
fn result(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = contents(folder).into_iter().filter_map(|(path, (bytes, _))| {
        let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
        // Neither the ledger nor what a local disk keeps of a put that was cut short is part of the result.
        (!name.starts_with(".haloflow") && !name.contains('#')).then_some((name, bytes))
    });
    files.collect()
}

fn rounds(otherwise: usize) -> usize {
    std::env::var("HALOFLOW_KILLS").map_or(otherwise, |typed| typed.parse().unwrap())
}

/// A number from 0 to 1 that differs from one call to the next.
fn next(seed: &mut u64) -> f64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 11) as f64 / (1_u64 << 53) as f64
}

fn job(job: Haloflow) -> Haloflow {
    job.key("--model", golden_model("box3")).keys(
        "--devices cpu --patch 16 --overlap 6 --trim-voxels 2 --normalize volume --norm-lower 1 --norm-upper 99 --batch 3",
    )
}

/// Kills `rounds` runs of `job` that write to `out`; one that ends before it is killed is compared and begun anew.
#[expect(clippy::print_stdout, reason = "tells the seed and the rounds of a test")]
fn kill(rounds: usize, expected: &BTreeMap<String, Vec<u8>>, out: &Path, whole: Duration, job: impl Fn() -> Haloflow) {
    let mut seed = u64::from(std::process::id());
    println!("{rounds} rounds, seed {seed}, an undisturbed run takes {whole:?}");
    let (mut killed, mut done) = (0, 0);
    while killed < rounds {
        if let Some(ended) = job().start().killed_after(whole.mul_f64(1.1 * next(&mut seed))) {
            all_is_stored(&ended);
            assert!(result(out) == *expected, "after {killed} kills");
            std::fs::remove_dir_all(out).unwrap();
            done += 1;
        } else {
            killed += 1;
        }
    }
    all_is_stored(&job().end());
    assert!(result(out) == *expected, "after {killed} kills");
    println!("{killed} kills, {} results, every one as undisturbed", done + 1);
}

/// The run went well, or found that the one before it was killed after its last word.
fn all_is_stored(ended: &Ended) {
    let found = ended.code == Some(65) && ended.stderr.contains("out.zarr exists already");
    assert!(ended.code == Some(0) || found, "{}", ended.stderr);
}

#[test]
fn a_run_that_is_killed_again_and_again_gives_the_same_bytes_on_disk() {
    let scene = Scene::of(SHAPE, &noisy(SHAPE));
    let out = scene.path("out.zarr");
    let make = || job(scene.job());
    let undisturbed = make().end().well();
    let expected = result(&out);
    std::fs::remove_dir_all(&out).unwrap();
    kill(rounds(3), &expected, &out, undisturbed.lasted, make);
}

#[test]
fn a_run_that_is_killed_again_and_again_gives_the_same_bytes_in_s3() {
    let scene = Scene::of(SHAPE, &noisy(SHAPE));
    let root = tempfile::tempdir().unwrap();
    let server = S3Server::start(root.path(), "lab").unwrap();
    let out = root.path().join("lab/out.zarr");
    let make = || job(scene.job()).key("--out", "s3://lab/out.zarr").variables(server.variables());
    let undisturbed = make().end().well();
    let expected = result(&out);
    std::fs::remove_dir_all(&out).unwrap();
    kill(rounds(2), &expected, &out, undisturbed.lasted, make);
}

#[test]
fn three_shards_at_once_one_of_them_killed_and_restarted() {
    let scene = Scene::of(SHAPE, &noisy(SHAPE));
    let out = scene.path("out.zarr");
    let whole = job(scene.job()).end().well();
    let expected = result(&out);
    std::fs::remove_dir_all(&out).unwrap();
    let part = |index: usize| job(scene.job()).key("--shard", format!("{index}/3"));
    let [first, second, third] = [0, 1, 2].map(|index| part(index).start());
    let survived = second.killed_after(whole.lasted / 2);
    let _ = (first.end().well(), third.end().well());
    let _ = survived.unwrap_or_else(|| part(1).end()).well();
    assert!(result(&out) == expected);
    part(2).end().well().stdout.contains("stored by an earlier run").then_some(()).unwrap();
    job(scene.job()).end().refused(65, &["out.zarr exists already"]);
}

#[test]
fn an_interrupted_run_tells_what_is_left_and_refuses_another_recipe() {
    let scene = Scene::of(SHAPE, &noisy(SHAPE));
    let make = || job(scene.job());
    let whole = make().end().well().lasted;
    std::fs::remove_dir_all(scene.path("out.zarr")).unwrap();
    let mut moments = (4..=9).map(|tenths| whole * tenths / 10);
    // Machines differ: kill later and later until something is there to go on with.
    let begun = moments
        .find(|moment| make().start().killed_after(*moment).is_none() && scene.path("out.zarr/.haloflow").exists());
    assert!(begun.is_some(), "no run could be killed in its midst");
    let before = contents(&scene.path("out.zarr"));
    let explained = make().keys("--resume explain").end().well();
    assert!(explained.stdout.contains("blocks are recorded and stay"), "{}", explained.stdout);
    let other = make().keys("--overlap 8 --resume");
    other.end().refused(65, &["out.zarr was begun otherwise: `overlap` was 6 6 6 and is 8 8 8"]);
    let other = make().key("--model", golden_model("affine"));
    other.end().refused(65, &["out.zarr was begun otherwise: `model` was "]);
    make().keys("--resume false").end().refused(65, &["out.zarr exists already"]);
    assert!(contents(&scene.path("out.zarr")) == before);
    let _ = make().keys("--resume").end().well();
    let _ = make().keys("--overwrite").end().well();
}
