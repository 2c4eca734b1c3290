//! What can be looked at: the page, slices, objects, stages, numbers.

use reqwest::Method;
use serde_json::json;

use crate::fake::job;
use crate::scene::{Scene, answer};

#[tokio::test]
async fn the_page_comes_whole_from_the_daemon() {
    let scene = Scene::with(|settings| {
        settings.token = Some(haloflow_service::settings::Token::new("0123456789abcdef").unwrap());
    })
    .await;
    // A person has no token before the page asks for it.
    for (path, kind, part) in [
        ("/", "text/html; charset=utf-8", "<main>"),
        ("/app.js", "text/javascript; charset=utf-8", "fetch("),
        ("/plots.js", "text/javascript; charset=utf-8", "polyline"),
        ("/numbers.js", "text/javascript; charset=utf-8", "export"),
        ("/style.css", "text/css; charset=utf-8", "prefers-color-scheme"),
        ("/icon.svg", "image/svg+xml", "<svg"),
    ] {
        let page = scene.get(path).await;
        assert_eq!((page.status, page.headers["content-type"].to_str().unwrap()), (200, kind), "{path}");
        assert!(page.text.contains(part), "{path}");
        let elsewhere = page.text.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("http://") && !elsewhere.contains("https://"), "{path} needs another server");
    }
}

#[tokio::test]
async fn slices_are_pictures_and_what_is_not_there_is_told() {
    let scene = Scene::new().await;
    let id = scene.submitted(job("end")).await;
    let sides = scene.get(&format!("/v1/jobs/{id}/slices")).await.json();
    assert_eq!((&sides["input"]["shape"], &sides["output"]), (&json!([3, 2, 4]), &json!(null)));
    assert_eq!(sides["output_told"], "there is no output yet");
    let link = sides["neuroglancer"].as_str().unwrap();
    assert!(link.starts_with("https://neuroglancer-demo.appspot.com/#!%7B") && !link.contains('"'), "{link}");
    let proxied = scene.request(Method::GET, &format!("/v1/jobs/{id}/slices")).header("x-forwarded-proto", "https");
    let proxied = answer(proxied).await.json()["neuroglancer"].as_str().unwrap().to_owned();
    assert!(link.contains("zarr://http://") && proxied.contains("zarr://https://"), "{link} {proxied}");
    let picture = scene.request(Method::GET, &format!("/v1/jobs/{id}/slices/input?z=1")).send().await.unwrap();
    assert_eq!(picture.headers()["content-type"], "image/png");
    let mut reader = png::Decoder::new(std::io::Cursor::new(picture.bytes().await.unwrap())).read_info().unwrap();
    let mut pixels = vec![0; 8];
    reader.next_frame(&mut pixels).unwrap();
    assert_eq!((reader.info().width, reader.info().height, pixels[0], pixels[7]), (4, 2, 0, 255));
    scene.get(&format!("/v1/jobs/{id}/slices/other?z=1")).await.problem(404, "nothing-to-see");
    scene.get(&format!("/v1/jobs/{id}/slices/input")).await.problem(400, "bad-query");
    scene.get(&format!("/v1/jobs/{id}/slices/input?z=0&pixels=9999")).await.problem(400, "bad-query");
    scene.get("/v1/jobs/99/slices/input?z=1").await.problem(404, "no-such-job");
}

#[tokio::test]
async fn a_slice_of_the_output_is_another_once_a_block_that_touches_it_is_stored() {
    let scene = Scene::new().await;
    let id = scene.submitted(job("wait")).await;
    scene.wait_for(id, "running").await;
    let store = |z| {
        let region = haloflow_geometry::Box3::new([z, 0, 0], [z + 2, 2, 4]);
        scene.runner.progress.lock().unwrap().tile_stored(region, &Default::default());
    };
    let asked = |side: &str, known: &str| {
        let request = scene.request(Method::GET, &format!("/v1/jobs/{id}/slices/{side}?z=1"));
        request.header("if-none-match", known).send()
    };
    let tag = |answer: &reqwest::Response| answer.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned());
    store(0);
    let first = asked("output", "").await.unwrap();
    let known = tag(&first).unwrap();
    assert_eq!(first.status(), 200);
    store(2);
    assert_eq!(asked("output", &known).await.unwrap().status(), 304);
    store(0);
    let second = asked("output", &known).await.unwrap();
    assert_eq!(second.status(), 200);
    assert_ne!(tag(&second).unwrap(), known);
    // The input stays as it is, and nothing is known of a job that does not run.
    assert_eq!(tag(&asked("input", "").await.unwrap()), None);
    let known = tag(&second).unwrap();
    scene.runner.ends.add_permits(1);
    scene.wait_for(id, "succeeded").await;
    let last = asked("output", &known).await.unwrap();
    assert_eq!((last.status().as_u16(), tag(&last)), (200, None));
}

#[tokio::test]
async fn a_viewer_of_another_site_gets_objects_with_the_key_and_nothing_without() {
    let scene = Scene::new().await;
    let id = scene.submitted(job("end")).await;
    let sides = scene.get(&format!("/v1/jobs/{id}/slices")).await.json();
    let link = sides["neuroglancer"].as_str().unwrap();
    let key = link.split("/data/").nth(1).unwrap().split('/').next().unwrap().to_owned();
    assert_eq!(key.len(), 32, "{link}");
    let asked = |path: String, range: &'static str| {
        let request = scene.request(Method::GET, &path).header("origin", "https://viewer.org");
        answer(if range.is_empty() { request } else { request.header("range", range) })
    };
    let whole = asked(format!("/data/{key}/input/0/zarr.json"), "").await;
    assert_eq!((whole.status, whole.text.as_str()), (200, "Input 0/zarr.json"));
    assert_eq!(whole.headers["access-control-allow-origin"], "*");
    assert_eq!(whole.headers["cross-origin-resource-policy"], "cross-origin");
    for (range, text, content) in [
        ("bytes=2-4", "put", "bytes 2-4/17"),
        ("bytes=12-", ".json", "bytes 12-16/17"),
        ("bytes=-5", ".json", "bytes 12-16/17"),
    ] {
        let part = asked(format!("/data/{key}/input/0/zarr.json"), range).await;
        assert_eq!((part.status, part.text.as_str()), (206, text), "{range}");
        assert_eq!(part.headers["content-range"], content);
    }
    asked(format!("/data/{key}/input/0/zarr.json"), "bytes=99-").await.problem(416, "no-such-range");
    asked(format!("/data/{key}/input/missing"), "").await.problem(404, "no-such-object");
    asked(format!("/data/{key}/input/huge"), "").await.problem(413, "object-too-large");
    asked(format!("/data/{key}/input/huge"), "bytes=5-").await.problem(413, "object-too-large");
    for wrong in [
        format!("/data/{}/input/0/zarr.json", "0".repeat(32)),
        format!("/data/{key}/input/%2e%2e/secret"),
        format!("/data/{key}/input/a%2f..%2fsecret"),
        format!("/data/{key}/input/.haloflow/head.json"),
        format!("/data/{key}/other/x"),
    ] {
        assert_eq!(asked(wrong.clone(), "").await.status, 404, "{wrong}");
    }
    let asked = scene.request(Method::OPTIONS, &format!("/data/{key}/input/x")).header("origin", "https://viewer.org");
    let allowed = answer(asked).await;
    assert_eq!((allowed.status, &allowed.headers["access-control-allow-headers"]), (204, &"range".parse().unwrap()));
    assert_eq!(allowed.headers["access-control-allow-private-network"], "true");
}

#[tokio::test]
async fn stages_and_numbers_are_told() {
    let scene = Scene::with(|settings| settings.capacity.jobs = 2).await;
    let id = scene.submitted(job("wait")).await;
    scene.wait_for(id, "running").await;
    let stages = scene.get(&format!("/v1/jobs/{id}/stages")).await.json();
    assert!(stages["samples"].is_array() && stages["limit"].is_null(), "{stages}");
    let numbers = scene.get("/metrics").await;
    assert!(numbers.headers["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
    for line in [
        "haloflow_jobs{state=\"running\"} 1",
        "haloflow_budget_bytes 100",
        "haloflow_budget_held_bytes 10",
        "haloflow_device_memory_used_bytes{device=\"fake:0\"} 40",
        "haloflow_device_utilisation_ratio{device=\"fake:0\"} 0.5",
        "haloflow_stage_queue_seconds_bucket{stage=\"device\",le=\"+Inf\"} 0",
        "haloflow_stage_work_seconds_count{stage=\"write\"} 0",
        "haloflow_storage_retries_total{side=\"input\"} 0",
        "# TYPE haloflow_stage_work_seconds histogram",
    ] {
        assert!(numbers.text.lines().any(|told| told == line), "{line} is not in {}", numbers.text);
    }
    scene.runner.ends.add_permits(1);
    scene.wait_for(id, "succeeded").await;
    assert!(scene.get("/metrics").await.text.contains("haloflow_budget_held_bytes 0\n"));
}
