//! Many, large and slow.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use haloflow_service::settings::Limits;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::fake::{FakeRunner, job};
use crate::scene::{LONGEST, Scene, answer};

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_submissions_are_ten_thousand_jobs() {
    let scene = Scene::with(|settings| settings.limits.requests = 64).await;
    let first = scene.submitted(job("wait")).await;
    scene.wait_for(first, "running").await;
    let began = Instant::now();
    let submitting = (0..16).map(|_| async {
        for _ in 0..625 {
            assert_eq!(scene.submit(job("end")).await.status, 201);
        }
    });
    futures::future::join_all(submitting).await;
    let took = began.elapsed();
    println!("10000 submissions in {took:.2?}: {:.0} per second", 10_000.0 / took.as_secs_f64());
    let counts = scene.get("/v1/jobs?limit=1").await.json()["counts"].clone();
    assert_eq!((&counts["queued"], &counts["running"]), (&json!(10_000), &json!(1)));
    let mut latencies = Vec::new();
    for id in 1..=500 {
        let began = Instant::now();
        assert_eq!(scene.get(&format!("/v1/jobs/{id}")).await.status, 200);
        latencies.push(began.elapsed());
    }
    latencies.sort_unstable();
    println!("status of a job: median {:.2?}, p99 {:.2?}", latencies[250], latencies[495]);
}

#[tokio::test]
async fn jobs_beyond_the_limit_of_the_queue_are_refused() {
    let scene = Scene::with(|settings| settings.limits.waiting = 2).await;
    let first = scene.submitted(job("wait")).await;
    scene.wait_for(first, "running").await;
    for _ in 0..2 {
        scene.submitted(job("end")).await;
    }
    let refused = scene.submit(job("end")).await;
    assert!(refused.problem(503, "not-now")["detail"].as_str().unwrap().contains("`queue-limit`"));
    assert_eq!(refused.headers["retry-after"], "60");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_listeners_hear_how_a_job_ends() {
    let scene = Scene::new().await;
    let id = scene.submitted(job("wait")).await;
    scene.wait_for(id, "running").await;
    let mut listening = Vec::new();
    for _ in 0..1000 {
        let mut stream = scene.request(Method::GET, &format!("/v1/jobs/{id}/events")).send().await.unwrap();
        assert!(stream.chunk().await.unwrap().is_some());
        listening.push(stream);
    }
    // Others are served meanwhile.
    assert_eq!(scene.get("/v1/jobs").await.status, 200);
    scene.runner.ends.add_permits(1);
    let heard = listening.into_iter().map(|mut stream| async move {
        let mut told = String::new();
        while let Some(piece) = stream.chunk().await.unwrap() {
            told.push_str(&String::from_utf8_lossy(&piece));
        }
        told.contains("\"state\":\"succeeded\"")
    });
    let heard = tokio::time::timeout(LONGEST, futures::future::join_all(heard)).await.unwrap();
    assert!(heard.into_iter().all(|heard| heard));
}

#[tokio::test]
async fn a_body_of_a_gibibyte_is_refused_before_it_is_read() {
    let scene = Scene::new().await;
    let mut socket = TcpStream::connect(scene.address).await.unwrap();
    let head = |length: &str| {
        format!("POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{length}\r\n\r\n")
    };
    socket.write_all(head("Content-Length: 1073741824").as_bytes()).await.unwrap();
    assert!(first_line(&mut socket).await.starts_with("HTTP/1.1 413"));
    // The same where the length is not told before: it stops taking long before the end.
    let mut socket = TcpStream::connect(scene.address).await.unwrap();
    socket.write_all(head("Transfer-Encoding: chunked").as_bytes()).await.unwrap();
    let piece = [b"10000\r\n".to_vec(), vec![b' '; 1 << 16], b"\r\n".to_vec()].concat();
    let (mut reading, mut writing) = socket.split();
    let sent = async {
        let mut sent = 0_u64;
        while sent < 1 << 30 && writing.write_all(&piece).await.is_ok() {
            sent += 1 << 16;
        }
        sent
    };
    let refused = async {
        let mut line = [0; 12];
        // The connection may be reset before the answer is read.
        let read = reading.read_exact(&mut line).await;
        read.is_err() || line == *b"HTTP/1.1 413"
    };
    let (sent, refused) = futures::future::join(sent, refused).await;
    assert!(refused && sent < 1 << 28, "{sent} bytes were taken");
    assert_eq!(scene.get("/v1/jobs").await.status, 200);
}

async fn first_line(socket: &mut TcpStream) -> String {
    let mut answer = vec![0; 4096];
    let length = tokio::time::timeout(LONGEST, socket.read(&mut answer)).await.unwrap().unwrap();
    String::from_utf8_lossy(&answer[..length]).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn slow_clients_are_given_up_and_hold_nobody_up() {
    let limits = Limits { patience: Duration::from_millis(300), connections: 8, ..Limits::default() };
    let scene = Scene::with(|settings| settings.limits = limits).await;
    let head = "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    // Heads and bodies that never end.
    let mut slow = Vec::new();
    for text in [head.to_owned(), format!("{head}Content-Length: 10\r\n\r\n{{"), "GET".into()] {
        let mut socket = TcpStream::connect(scene.address).await.unwrap();
        socket.write_all(text.as_bytes()).await.unwrap();
        slow.push(socket);
    }
    assert_eq!(scene.get("/v1/jobs").await.status, 200);
    for mut socket in slow {
        let mut answer = Vec::new();
        // Closed, with or without a word.
        drop(tokio::time::timeout(LONGEST, socket.read_to_end(&mut answer)).await.unwrap());
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_room_comes_back() {
    let limits = Limits { connections: 4, ..Limits::default() };
    let scene = Scene::with(|settings| settings.limits = limits).await;
    let open = futures::future::join_all((0..8).map(|_| TcpStream::connect(scene.address))).await;
    let closed = open.into_iter().map(|socket| async {
        let mut socket = socket.unwrap();
        drop(socket.write_all(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await);
        let mut answer = Vec::new();
        drop(socket.read_to_end(&mut answer).await);
        answer.is_empty()
    });
    let closed = futures::future::join_all(closed).await.into_iter().filter(|closed| *closed).count();
    assert!((1..=4).contains(&closed), "{closed} of 8 were closed");
    // The places are free again once the others are done.
    let asked = answer(scene.request(Method::GET, "/health/live"));
    assert_eq!(tokio::time::timeout(LONGEST, asked).await.unwrap().status, 200);
}

#[tokio::test]
async fn only_a_few_slices_are_read_at_one_time() {
    let runner = FakeRunner { slices: Semaphore::new(0), ..FakeRunner::default() };
    let scene = Scene::within(tempfile::tempdir().unwrap(), runner, |_| {}).await;
    let id = scene.submitted(job("end")).await;
    scene.wait_for(id, "succeeded").await;
    let [now, most] = &scene.runner.reading;
    let path = format!("/v1/jobs/{id}/slices/input?z=1");
    let slices = (0..20).map(|_| scene.get(&path));
    let steering = async {
        while now.load(Ordering::SeqCst) < 4 {
            tokio::task::yield_now().await;
        }
        // Meanwhile all the others have come, and wait.
        for _ in 0..40 {
            assert_eq!(scene.get("/v1/jobs").await.status, 200);
        }
        scene.runner.slices.add_permits(20);
    };
    let (answers, ()) = futures::future::join(futures::future::join_all(slices), steering).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(most.load(Ordering::SeqCst), 4);
}
