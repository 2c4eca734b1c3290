//! Who gets in, and who does not.

use haloflow_service::settings::{Limits, Token};
use reqwest::Method;
use serde_json::json;

use crate::fake::{FakeRunner, job};
use crate::scene::{Scene, answer, settings};

const TOKEN: &str = "0123456789abcdef";

#[tokio::test]
async fn a_token_is_wanted_for_all_but_health_and_the_page() {
    let scene = Scene::with(|settings| settings.token = Some(Token::new(TOKEN).unwrap())).await;
    let with = |path: &'static str, header: &'static str| {
        answer(scene.request(Method::GET, path).header("authorization", header))
    };
    for path in ["/v1/jobs", "/v1/devices", "/v1/events", "/v1/jobs/1/logs"] {
        let told = scene.get(path).await;
        told.problem(401, "no-token");
        assert_eq!(told.headers["www-authenticate"], "Bearer");
        with(path, "Bearer 0123456789abcdee").await.problem(401, "wrong-token");
        with(path, "Bearer ").await.problem(401, "no-token");
        with(path, "Basic MDEyMzQ1Njc4OWFiY2RlZg==").await.problem(401, "no-token");
    }
    scene.submit(job("end")).await.problem(401, "no-token");
    assert_eq!(with("/v1/jobs", "bearer 0123456789abcdef").await.status, 200);
    assert_eq!(scene.get("/health/live").await.status, 200);
}

#[test]
fn an_address_that_others_reach_wants_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = settings(&folder);
    wrong.listen = "0.0.0.0:8080".parse().unwrap();
    wrong.capacity.jobs = 0;
    let told = wrong.check().unwrap_err();
    assert!(told.len() == 2 && told[0].contains("0.0.0.0:8080") && told[0].contains("token"), "{told:?}");
    wrong.capacity.jobs = 1;
    wrong.token = Some(Token::new(TOKEN).unwrap());
    assert_eq!(wrong.check(), Ok(()));
    for local in ["127.0.0.1:1", "[::1]:1", "127.8.0.1:1"] {
        let local = local.parse().unwrap();
        assert_eq!(
            haloflow_service::ServiceSettings { listen: local, token: None, ..settings(&folder) }.check(),
            Ok(())
        );
    }
}

#[tokio::test]
async fn a_name_that_somebody_else_chose_is_refused() {
    let scene = Scene::with(|settings| settings.hosts = vec!["lab.example.org".into()]).await;
    let port = scene.address.port();
    let asked = |host: String| answer(scene.request(Method::GET, "/v1/jobs").header("host", host));
    for good in [format!("localhost:{port}"), "127.0.0.1".into(), "[::1]:80".into(), "Lab.Example.org:8080".into()] {
        assert_eq!(asked(good.clone()).await.status, 200, "{good}");
    }
    for bad in ["evil.org", "evil.org:80", "127.0.0.1.evil.org", "localhost.evil.org", "lab.example.org.evil.org"] {
        asked(bad.to_owned()).await.problem(403, "wrong-host");
    }
}

#[tokio::test]
async fn pages_of_other_sites_can_do_nothing() {
    let scene = Scene::new().await;
    let own = format!("http://{}", scene.address);
    for (origin, good) in
        [(own.as_str(), true), ("http://evil.org", false), ("null", false), ("http://localhost:1", false)]
    {
        let body = json!({ "config": job("end") });
        let submitted = answer(scene.submission(body).header("origin", origin)).await;
        let read = answer(scene.request(Method::GET, "/v1/jobs").header("origin", origin)).await;
        if good {
            assert_eq!((submitted.status, read.status), (201, 200));
        } else {
            submitted.problem(403, "wrong-origin");
            read.problem(403, "wrong-origin");
        }
        assert!(!read.headers.contains_key("access-control-allow-origin"));
    }
    let id = scene.submitted(job("wait")).await;
    for (site, status) in [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)] {
        let paused = scene.request(Method::POST, &format!("/v1/jobs/{id}/pause")).header("sec-fetch-site", site);
        assert_eq!(answer(paused).await.status, status, "{site}");
    }
    // What a browser asks before it sends JSON across sites.
    let asked = scene.request(Method::OPTIONS, "/v1/jobs").header("origin", "http://evil.org");
    assert_eq!(answer(asked).await.status, 403);
    // A form can be sent across sites without an origin by old browsers, but not as JSON.
    let form = scene.request(Method::POST, "/v1/jobs").header("content-type", "application/x-www-form-urlencoded");
    answer(form.body("config=x")).await.problem(415, "not-json");
}

#[tokio::test]
async fn every_answer_is_protected() {
    let scene = Scene::new().await;
    for path in ["/v1/jobs", "/nothing", "/health/live"] {
        let headers = scene.get(path).await.headers;
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert!(headers["content-security-policy"].to_str().unwrap().contains("frame-ancestors 'none'"));
        assert_eq!(headers["cross-origin-resource-policy"], "same-origin");
    }
}

#[tokio::test]
async fn whoever_asks_too_often_is_told_when_to_ask_again() {
    let limits = Limits { rate: 1.0, ..Limits::default() };
    let scene = Scene::with(|settings| settings.limits = limits).await;
    let mut refused = None;
    for _ in 0..20 {
        let answer = scene.get("/health/live").await;
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.unwrap();
    refused.problem(429, "too-many-requests");
    assert_eq!(refused.headers["retry-after"], "1");
}

#[tokio::test]
async fn the_daemon_is_ready_only_after_its_warm_up() {
    let ready = Scene::new().await;
    let id = ready.submitted(job("end")).await;
    ready.wait_for(id, "succeeded").await;
    assert_eq!(ready.get("/health/ready").await.status, 200);
    let runner = FakeRunner { cold: Some("there is no libtorch".into()), ..FakeRunner::default() };
    let cold = Scene::within(tempfile::tempdir().unwrap(), runner, |_| {}).await;
    let told = cold.get("/health/ready").await.problem(503, "not-now");
    let told = told["detail"].as_str().unwrap();
    assert!(told.contains("no libtorch") || told.contains("warming up"), "{told}");
    assert_eq!(cold.get("/health/live").await.status, 200);
}
