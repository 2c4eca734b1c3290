//! What is deployed: the container and the manifests pass their linters, and the API is as it describes itself.

use std::path::Path;
use std::process::Command;

use haloflow_tests::daemon::Daemon;
use haloflow_tests::scene::Scene;

/// Runs the tools from PyPI, which are installed once.
fn tools(arguments: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("deployment/tools.py");
    let output = Command::new("python3").arg(script).args(arguments).output().unwrap();
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", told(&output.stdout), told(&output.stderr));
}

#[test]
fn the_container_and_the_manifests_pass_their_linters() {
    tools(&["lint"]);
}

#[test]
fn the_dashboard_asks_for_numbers_that_there_are() {
    let scene = Scene::empty();
    let daemon = Daemon::start(&scene.path(""));
    let numbers = daemon.get("/metrics").text();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/grafana/haloflow.json");
    let board = std::fs::read_to_string(file).unwrap();
    let names =
        board.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|name| name.starts_with("haloflow_"));
    let names: std::collections::BTreeSet<&str> = names.collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(numbers.contains(&format!("# TYPE {} ", name.trim_end_matches("_bucket"))), "there is no {name}");
    }
}

#[test]
fn whatever_is_sent_no_answer_is_a_fault_of_the_daemon() {
    let scene = Scene::new();
    let daemon = Daemon::start(&scene.path(""));
    tools(&["fuzz", &format!("http://{}", daemon.address)]);
    assert_eq!(daemon.get("/health/live").status, 200);
}
