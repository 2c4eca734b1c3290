//! What is refused, each with its exit code and one sentence, before any output is created or touched.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use haloflow_examples::s3::S3Server;
use haloflow_tests::binary::Haloflow;
use haloflow_tests::folder::contents;
use haloflow_tests::scene::{SHAPE, Scene, noisy};
use haloflow_tests::zarr::{Array, put_json};
use haloflow_tests::{golden_model, own_model};
use serde_json::{Value, json};

/// Refuses a job twice: into a new output, which must not come to be, and over an existing one that may be deleted, which must stay
/// as it is. `job` gets the output's path.
#[track_caller]
fn refused(scene: &Scene, code: i32, parts: &[&str], job: impl Fn(&Path) -> Haloflow) {
    let (new, old) = (scene.path("new.zarr"), scene.path("old.zarr"));
    let array = Array::new(&SHAPE, &[16; 3], "uint16");
    array.write(&old, &noisy(SHAPE));
    let before = contents(&old);
    job(&new).end().refused(code, parts);
    assert!(!new.exists(), "an output was created");
    job(&old).keys("--overwrite").end().refused(code, parts);
    assert!(contents(&old) == before, "an output was touched");
}

/// A job of the scene that differs from one that works in these keys.
#[track_caller]
fn refused_keys(scene: &Scene, code: i32, keys: &str, parts: &[&str]) {
    refused(scene, code, parts, |out| scene.job().keys(keys).key("--out", out));
}

#[test]
fn patches_overlaps_and_blocks_that_do_not_go_together() {
    let scene = Scene::new();
    refused_keys(&scene, 64, "--overlap 16", &["`overlap` is 16", "`patch` is 16", "smaller"]);
    refused_keys(&scene, 64, "--overlap 4 20 4", &["`overlap` is 20", "axis y"]);
    refused_keys(&scene, 64, "--block 8", &["`block` is 8", "`patch` is 16", "at least"]);
    refused_keys(&scene, 64, "--trim-voxels 3", &["`overlap` is 4", "`trim-voxels` is 3", "at least twice"]);
    refused_keys(&scene, 64, "--patch 0", &["`patch` is 0"]);
    refused_keys(&scene, 64, "--patch 16 16", &["`patch`", "2 values", "three: z y x"]);
    refused_keys(&scene, 64, "--seam-mode blend --overlap 0", &["`overlap` is 0", "blend"]);
    refused_keys(&scene, 64, "--seam-mode blend --min-blend-weight 0", &["`min-blend-weight` is 0"]);
    refused_keys(&scene, 64, "--batch 0", &["`batch` is 0", "at least 1"]);
    refused_keys(&scene, 64, "--threads 18446744073709551615", &["`threads` is 18446744073709551615", "at most 1024"]);
    refused_keys(&scene, 64, "--block 18446744073709551615", &["`block` is 18446744073709551615", "at most 1048576"]);
    refused_keys(&scene, 64, "--patch 100000", &["`patch` is 100000 x 100000 x 100000", "`memory`"]);
    refused_keys(&scene, 64, "--batch 65536 --memory 200MiB", &["`batch` is 65536", "`memory`"]);
    refused_keys(&scene, 64, "--requests 65537", &["`requests` is 65537", "at most 65536"]);
}

#[test]
fn values_out_of_range() {
    let scene = Scene::new();
    refused_keys(&scene, 64, "--normalize global --norm-lower 5 --norm-upper 5", &["`norm-lower` is 5", "below"]);
    refused_keys(&scene, 64, "--normalize percentile --norm-upper 101", &["`norm-upper` is 101", "100"]);
    refused_keys(&scene, 64, "--normalize sometimes", &["`normalize` is sometimes", "percentile", "global"]);
    refused_keys(&scene, 64, "--clip-norm 2 1", &["`clip-norm` is [2.0, 1.0]", "lower one first"]);
    refused_keys(&scene, 64, "--eps 0", &["`eps` is 0", "above 0"]);
    refused_keys(&scene, 64, "--memory 1KiB", &["1024 bytes of `memory`", "give more memory"]);
    refused_keys(&scene, 64, "--memory 40KiB", &["`memory` is 40 KiB", "needs at least", "Give more memory"]);
    refused_keys(&scene, 64, "--memory lots", &["`memory` is lots", "16GiB"]);
    refused_keys(&scene, 64, "--out-dtype complex64", &["`out-dtype` is complex64", "uint16"]);
    refused_keys(&scene, 64, "--log-level loud", &["`log-level` is loud", "debug"]);
}

#[test]
fn unknown_keys_name_the_nearest_known_one() {
    let scene = Scene::new();
    std::fs::write(scene.path("run.toml"), "overlop = 4\n").unwrap();
    refused(&scene, 64, &["run.toml", "`overlop`", "`overlap`"], |out| {
        scene.job().key("--config", scene.path("run.toml")).key("--out", out)
    });
    let spec =
        |place: &Path| json!({"driver": "zarr3", "kvstore": {"driver": "file", "path": place}, "delete_exsting": true});
    refused(&scene, 64, &["delete_exsting", "delete_existing"], |out| scene.job().key("--out", spec(out).to_string()));
    put_json(&scene.path("."), "in.json", &json!({"driver": "zarr3", "kvstor": "memory://x"}));
    refused(&scene, 64, &["in.json", "kvstor", "kvstore"], |out| {
        scene.job().key("--in", scene.path("in.json")).key("--out", out)
    });
    refused_keys(&scene, 64, "--overlop 4", &["--overlop", "--overlap"]);
    refused_keys(&scene, 64, "--overlap -1", &["--overlap", "-1"]);
    refused_keys(&scene, 64, "--batch many", &["--batch", "many"]);
}

#[test]
fn choices_that_the_input_does_not_have() {
    let scene = Scene::new();
    refused_keys(&scene, 64, "--t 1", &["--t 1", "in.zarr has 1 along its time point axis", "0 to 0"]);
    refused_keys(&scene, 64, "--c 7", &["--c 7", "in.zarr has 1 along its channel axis", "0 to 0"]);
    refused_keys(&scene, 64, "--level 3", &["level 3 does not exist", "1 level", "0 to 0"]);
}

#[test]
fn inputs_that_are_none() {
    let scene = Scene::new();
    std::fs::create_dir_all(scene.path("plain/folder")).unwrap();
    std::fs::write(scene.path("note.txt"), "hello").unwrap();
    for (name, parts) in [
        ("nowhere.zarr", ["nowhere.zarr", "no Zarr array or group"]),
        ("plain", ["plain", "no Zarr array or group"]),
        ("note.txt", ["note.txt is a file", "give the folder"]),
    ] {
        refused(&scene, 65, &parts, |out| scene.job().key("--in", scene.path(name)).key("--out", out));
    }
    refused(&scene, 64, &["nothing.json", "spec file"], |out| {
        scene.job().key("--in", scene.path("nothing.json")).key("--out", out)
    });
    refused(&scene, 64, &["`in` is missing", "--in"], |out| scene.job().without("--in").key("--out", out));
}

#[test]
fn an_output_that_exists_stays_as_it_is() {
    let scene = Scene::new();
    let _ = scene.job().end().well();
    let before = contents(&scene.path("out.zarr"));
    scene.job().end().refused(65, &["out.zarr exists already", "--overwrite"]);
    let spec =
        json!({"driver": "zarr3", "kvstore": {"driver": "file", "path": scene.path("out.zarr/0")}, "create": true});
    scene.job().key("--out", spec.to_string()).end().refused(65, &["out.zarr/0 exists already", "delete_existing"]);
    assert!(contents(&scene.path("out.zarr")) == before);
    // What is no Zarr is never deleted.
    std::fs::create_dir(scene.path("photos")).unwrap();
    std::fs::write(scene.path("photos/cat.jpg"), "meow").unwrap();
    let job = scene.job().key("--out", scene.path("photos")).keys("--overwrite");
    job.end().refused(64, &["photos", "not deleted"]);
    let job = scene.job().key("--out", scene.path("photos/cat.jpg")).keys("--overwrite");
    job.end().refused(64, &["cat.jpg", "not deleted"]);
    assert_eq!(std::fs::read(scene.path("photos/cat.jpg")).unwrap(), b"meow");
    let _ = scene.job().keys("--overwrite").end().well();
}

/// A spec of a new v2 array whose metadata differs in one key from one that works.
fn spec_with(place: &Path, key: &str, value: Value) -> String {
    let mut metadata = json!({"shape": SHAPE, "chunks": [16, 16, 16], "dtype": "<u2"});
    metadata[key] = value;
    json!({"driver": "zarr", "kvstore": {"driver": "file", "path": place}, "metadata": metadata, "create": true,
        "delete_existing": true})
    .to_string()
}

#[test]
fn outputs_that_cannot_hold_the_result() {
    let scene = Scene::new();
    let wrong = |key: &'static str, value: Value, more: &'static str, parts: &[&str]| {
        refused(&scene, 64, parts, |out| scene.job().key("--out", spec_with(out, key, value.clone())).keys(more));
    };
    wrong("shape", json!([24, 33, 41]), "", &["41 voxels along x", "the input has 40", "must be equal"]);
    wrong("shape", json!([24]), "", &["shape", "2 to 5"]);
    wrong("dtype", json!("<c8"), "", &["<c8", "uint16"]);
    wrong("dtype", json!("|b1"), "", &["bool", "uint8"]);
    wrong("dtype", json!("<u2"), "--out-dtype uint8", &["uint16", "uint8", "must agree"]);
    wrong("chunks", json!([16, 16, 24]), "--block 16 16 32", &["24 voxels along x", "block of 32"]);
    wrong("shape", json!([2, 24, 33, 40]), "", &["chunk"]);
    refused(&scene, 64, &["out", "is missing"], |_| scene.job().without("--out"));
    let inside = scene.path("in.zarr/inside.zarr");
    let before = contents(&scene.path("in.zarr"));
    for place in [&scene.path("in.zarr"), &inside, &scene.path(".")] {
        let job = scene.job().key("--out", place).keys("--overwrite");
        job.end().refused(64, &["in.zarr", "choose another place"]);
    }
    assert!(contents(&scene.path("in.zarr")) == before, "the input was touched");
}

#[test]
fn an_output_that_is_opened_must_fit() {
    let scene = Scene::new();
    let place = scene.path("there");
    let job = || {
        let spec = json!({"driver": "zarr", "kvstore": {"driver": "file", "path": place}, "open": true});
        scene.job().key("--out", spec.to_string())
    };
    job().end().refused(65, &["there does not exist", "create"]);
    let array = Array { format: 2, ..Array::new(&[24, 33, 41], &[16; 3], "uint16") };
    array.write_metadata(&place);
    let before = contents(&place);
    job().end().refused(64, &["41 voxels along x", "the input has 40"]);
    assert!(contents(&place) == before);
    Array { shape: SHAPE.to_vec(), element: "uint8", ..array }.write_metadata(&place);
    let before = contents(&place);
    job().keys("--out-dtype uint16").end().refused(64, &["uint8", "uint16", "must agree"]);
    assert!(contents(&place) == before);
}

#[test]
fn models_that_do_not_fit() {
    let scene = Scene::new();
    let wrong = |code: i32, model: &Path, parts: &[&str]| {
        refused(&scene, code, parts, |out| scene.job().key("--model", model).key("--out", out));
    };
    wrong(65, &golden_model("two"), &["gives 2 channels", "`out` names 1 output;", "--stack-channels"]);
    wrong(65, &own_model("halves"), &["8 x 8 x 8", "16 x 16 x 16"]);
    wrong(65, &scene.path("in.zarr/zarr.json"), &["zarr.json", "TorchScript"]);
    wrong(65, &scene.path("nowhere.pt"), &["nowhere.pt"]);
    wrong(65, &scene.path("in.zarr"), &["in.zarr", "neither model.toml nor rdf.yaml"]);
    std::fs::write(scene.path("empty.pt"), "").unwrap();
    wrong(65, &scene.path("empty.pt"), &["empty.pt", "TorchScript"]);
    let whole = std::fs::read(golden_model("box3")).unwrap();
    std::fs::write(scene.path("cut.pt"), &whole[..whole.len() / 2]).unwrap();
    wrong(65, &scene.path("cut.pt"), &["cut.pt", "TorchScript"]);
    let out = |out: &Path| [out.to_owned(), scene.path("second.zarr")];
    refused(&scene, 65, &["gives 1 channel and `out` names 2 outputs"], |place| {
        scene.job().values("--out", out(place))
    });
    refused(&scene, 64, &["`model` is missing"], |out| scene.job().without("--model").key("--out", out));
}

#[test]
fn devices_that_do_not_exist() {
    let scene = Scene::new();
    refused_keys(&scene, 64, "--devices cuda:99", &["`devices`", "cuda:99", "cpu"]);
    refused_keys(&scene, 64, "--devices tpu", &["`devices`", "tpu", "cpu"]);
    refused_keys(&scene, 64, "--devices cpu cpu", &["`devices`", "cpu twice"]);
}

#[test]
fn a_bucket_that_cannot_be_reached() {
    let scene = Scene::new();
    // A port that was free a moment ago: nobody answers.
    let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let variables = [
        ("AWS_ENDPOINT", format!("http://{closed}")),
        ("AWS_ACCESS_KEY_ID", "key".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    let read = scene.job().key("--in", "s3://lab/in.zarr").variables(variables.clone()).start();
    let written = scene.job().key("--out", "s3://lab/out.zarr").variables(variables).start();
    for (run, url) in [(read, "s3://lab/in.zarr"), (written, "s3://lab/out.zarr")] {
        let ended = run.end();
        ended.refused(74, &[url]);
        assert!(ended.lasted < Duration::from_secs(25), "{:?}", ended.lasted);
    }
    assert!(!scene.path("out.zarr").exists());
}

#[test]
fn a_bucket_that_does_not_let_us_in_or_does_not_exist() {
    let scene = Scene::new();
    std::fs::create_dir(scene.path("store")).unwrap();
    let server = S3Server::start(scene.path("store"), "lab").unwrap();
    let wrong = server.variables().into_iter().map(|(name, value)| match name.as_str() {
        "AWS_SECRET_ACCESS_KEY" => (name, "wrong".to_owned()),
        _ => (name, value),
    });
    let job = scene.job().key("--out", "s3://lab/out.zarr");
    job.variables(wrong).end().refused(74, &["s3://lab/out.zarr", "permission was denied, check the credentials"]);
    let job = scene.job().key("--in", "s3://lab/none.zarr").variables(server.variables());
    job.end().refused(65, &["no Zarr array or group at s3://lab/none.zarr"]);
    let job = scene.job().key("--out", "s3://nowhere/out.zarr").variables(server.variables());
    job.end().refused(74, &["s3://nowhere/out.zarr"]);
    assert_eq!(std::fs::read_dir(scene.path("store/lab")).unwrap().count(), 0);
}
