//! The daemon: who gets in, and what jobs may touch.

use haloflow_tests::daemon::{self, Daemon};
use haloflow_tests::golden_model;
use haloflow_tests::image::Image;
use haloflow_tests::scene::{Scene, noisy, volume};
use haloflow_tests::zarr::Array;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn a_wrong_token_is_refused_and_the_right_one_is_never_told() {
    let scene = Scene::empty();
    for (name, token) in [("token", TOKEN), ("wrong", "fedcba9876543210")] {
        std::fs::write(scene.path(name), format!("{token}\n")).unwrap();
    }
    let daemon = Daemon::of(daemon::command(&scene.path("")).key("--token-file", scene.path("token")));
    daemon.client("jobs").end().refused(74, &["this daemon wants a token"]);
    let with = |name: &str| daemon.client("jobs").key("--token-file", scene.path(name)).end();
    with("wrong").refused(74, &["the token is wrong"]);
    let _ = with("token").well();
    daemon.running.signal("TERM");
    let said = daemon.running.end().well();
    assert!(!format!("{said:?}").contains(TOKEN));
}

#[test]
fn an_address_that_others_reach_wants_a_token() {
    let scene = Scene::empty();
    let open = daemon::command(&scene.path("")).keys("--listen 0.0.0.0:0");
    open.end().refused(64, &["`listen` is 0.0.0.0:0", "there is no token"]);
    let short = daemon::command(&scene.path("")).variables([("HALOFLOW_TOKEN".to_owned(), "short".to_owned())]);
    short.end().refused(64, &["HALOFLOW_TOKEN", "at least 16"]);
    for (key, part) in
        [("--models /nowhere", "/nowhere"), ("--read data", "is no root"), ("--connections 0", "`connections` is 0")]
    {
        daemon::command(&scene.path("")).keys(key).end().refused(64, &[part]);
    }
}

#[test]
fn jobs_stay_within_their_roots() {
    let (scene, other) = (Scene::new(), Scene::new());
    std::fs::copy(golden_model("identity"), scene.path("net.pt")).unwrap();
    std::os::unix::fs::symlink(other.path("in.zarr"), scene.path("link.zarr")).unwrap();
    let daemon = Daemon::start(&scene.path(""));
    let tried = |input: std::path::PathBuf, out: std::path::PathBuf, model: std::path::PathBuf| {
        daemon.client("submit").key("--in", input).key("--out", out).key("--model", model).end()
    };
    let [input, out, model] = [scene.path("in.zarr"), scene.path("out.zarr"), golden_model("identity")];
    let no_read = "may not be read: jobs may read";
    tried("/etc/passwd".into(), out.clone(), model.clone()).refused(64, &["/etc/passwd", no_read]);
    tried(scene.path("../../etc/passwd"), out.clone(), model.clone()).refused(64, &["/etc/passwd", no_read]);
    tried(scene.path("link.zarr"), out.clone(), model.clone()).refused(64, &["in.zarr", no_read]);
    tried("s3://other/in.zarr".into(), out.clone(), model.clone()).refused(64, &["s3://other/in.zarr", no_read]);
    tried(input.clone(), other.path("out.zarr"), model).refused(64, &["may not be written: jobs may write"]);
    tried(input.clone(), out.clone(), scene.path("net.pt")).refused(64, &["net.pt may not be used: a model is code"]);
    let spec = r#"{"driver":"zarr3","kvstore":{"driver":"file","path":"/etc/x"}}"#;
    tried(spec.into(), out, golden_model("identity")).refused(64, &["/etc/x", no_read]);
    assert!(daemon.client("jobs --json").end().well().stdout.contains("\"jobs\": []"));
    assert!(!scene.path("out.zarr").exists());
}

#[test]
fn links_inside_a_volume_do_not_lead_out_of_the_roots() {
    let (scene, other) = (Scene::new(), Scene::new());
    let (chunk, secret) = (scene.path("in.zarr/0/c/0/1/0"), other.path("in.zarr/0/c/0/0/0"));
    std::fs::remove_file(&chunk).unwrap();
    std::os::unix::fs::symlink(&secret, &chunk).unwrap();
    let daemon = Daemon::start(&scene.path(""));
    let job = |out: &'static str| {
        daemon.submit(&|line| {
            let line = line.key("--in", scene.path("in.zarr")).key("--out", scene.path(out));
            line.key("--model", golden_model("identity")).keys(
                "--devices cpu --patch 16 --overlap 4 --trim-voxels 2 --normalize false --memory 1GiB --quarantine 0",
            )
        })
    };
    let reading = job("out.zarr");
    daemon.watch(reading).refused(74, &["in.zarr/0/c/0/1/0", "may not be used"]);
    let sides = daemon.get(&format!("/v1/jobs/{reading}/slices")).json();
    let link = sides["neuroglancer"].as_str().unwrap();
    let data = format!("/data/{}/input/0/c/0", link.split("/data/").nth(1).unwrap().split('/').next().unwrap());
    assert_eq!(daemon.get(&format!("{data}/0/0")).status, 200);
    let refused = daemon.get(&format!("{data}/1/0"));
    assert_eq!(refused.status, 502, "{}", refused.text());
    // An output that is a link itself is compared where it leads.
    let elsewhere = other.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, scene.path("linked.zarr")).unwrap();
    let submitted = daemon.client("submit").key("--in", scene.path("in.zarr")).key("--out", scene.path("linked.zarr"));
    let model = golden_model("identity");
    submitted.key("--model", model).end().refused(64, &["elsewhere", "may not be written"]);
    assert_eq!(std::fs::read_dir(elsewhere).unwrap().count(), 0);
}

#[test]
fn a_viewer_of_another_site_gets_what_it_asks_for() {
    let scene = Scene::empty();
    let array = Array { shard: Some(vec![32; 3]), ..Array::new(&[64; 3], &[16; 3], "uint16") };
    Image { array, ..volume([64; 3]) }.write(&scene.path("in.zarr"), &noisy([64; 3]));
    let daemon = Daemon::start(&scene.path(""));
    let id = daemon.submit(&|line| {
        line.key("--in", scene.path("in.zarr"))
            .key("--out", scene.path("out.zarr"))
            .key("--model", golden_model("identity"))
            .keys(
                "--devices cpu --patch 16 --overlap 4 --trim-voxels 2 --normalize false --memory 1GiB --zarr-format 2",
            )
    });
    let _ = daemon.watch(id).well();
    let link = daemon.get(&format!("/v1/jobs/{id}/slices")).json()["neuroglancer"].as_str().unwrap().to_owned();
    let key = link.split("/data/").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let asked = |method: &str, path: &str, more: &str| {
        let head = format!("Origin: https://neuroglancer-demo.appspot.com\r\n{more}");
        let answer = daemon.ask(method, &format!("/data/{key}/{path}"), &head, b"");
        // Without it the viewer's page learns nothing, not even that there is nothing.
        assert!(answer.head.to_lowercase().contains("access-control-allow-origin: *"), "{path}: {}", answer.head);
        answer
    };
    for path in ["input/zarr.json", "input/0/zarr.json", "output/.zattrs", "output/.zgroup", "output/0/.zarray"] {
        assert!(asked("GET", path, "").json().is_object(), "{path}");
    }
    assert!(asked("GET", "output/.zattrs", "").json()["multiscales"].is_array());
    // It tries one format after the other, and chunks that were never stored.
    for path in ["input/.zattrs", "input/0/.zarray", "output/zarr.json", "input/0/c/7/7/7", "input/0/c", "input/0"] {
        assert_eq!(asked("GET", path, "").status, 404, "{path}");
    }
    let shard = std::fs::read(scene.path("in.zarr/0/c/1/0/1")).unwrap();
    let size = shard.len();
    assert_eq!(asked("GET", "input/0/c/1/0/1", "").body, shard);
    let index = 8 * 16 + 4;
    for (range, part) in [
        (format!("bytes=-{index}"), size - index..size),
        ("bytes=0-99".to_owned(), 0..100),
        (format!("bytes={}-", size - 7), size - 7..size),
        (format!("bytes=8192-{}", 16383), 8192..16384),
    ] {
        let answer = asked("GET", "input/0/c/1/0/1", &format!("Range: {range}\r\n"));
        assert_eq!((answer.status, answer.body.as_slice()), (206, &shard[part.clone()]), "{range}");
        let told = format!("content-range: bytes {}-{}/{size}", part.start, part.end - 1);
        assert!(answer.head.to_lowercase().contains(&told), "{range}: {}", answer.head);
    }
    assert_eq!(asked("GET", "input/0/c/1/0/1", &format!("Range: bytes={size}-\r\n")).status, 416);
    let preflight = "Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: range\r\n";
    let allowed = asked("OPTIONS", "input/0/c/1/0/1", preflight);
    let head = allowed.head.to_lowercase();
    assert!(allowed.status == 204 && head.contains("access-control-allow-headers: range"), "{head}");
    assert!(head.contains("access-control-allow-methods: get, head"), "{head}");
}

#[test]
fn a_daemon_that_is_not_there_is_told_of() {
    let scene = Scene::empty();
    let address = Daemon::start(&scene.path("")).address.clone();
    let asked = haloflow_tests::binary::Haloflow::of(["jobs"]).key("--server", format!("http://{address}"));
    asked.end().refused(74, &[address.as_str(), "cannot be reached", "haloflow serve"]);
    haloflow_tests::binary::Haloflow::of(["jobs", "--server", "nonsense"]).end().refused(64, &["`server` is nonsense"]);
}
