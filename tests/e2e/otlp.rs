//! Traces over OTLP, through the real binary and a collector that takes them off the wire.

use std::collections::HashMap;
use std::net::TcpListener;

use haloflow_tests::binary::Haloflow;
use haloflow_tests::collector::{Collector, attribute};
use haloflow_tests::daemon::{self, Daemon};
use haloflow_tests::golden_model;
use haloflow_tests::readback::read_u16;
use haloflow_tests::scene::{SHAPE, Scene, noisy};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

/// Spans by the span that they stand below.
struct Tree {
    below: HashMap<Vec<u8>, Vec<Span>>,
}

impl Tree {
    fn of(spans: Vec<Span>) -> Self {
        let mut below: HashMap<Vec<u8>, Vec<Span>> = HashMap::new();
        for span in spans {
            below.entry(span.parent_span_id.clone()).or_default().push(span);
        }
        Self { below }
    }

    fn roots(&self) -> Vec<&Span> {
        self.below.get(&Vec::new()).into_iter().flatten().collect()
    }

    /// Those of this name below a span. They are of its trace and lie within it.
    fn below(&self, parent: &Span, name: &str) -> Vec<&Span> {
        let found: Vec<&Span> =
            self.below.get(&parent.span_id).into_iter().flatten().filter(|span| span.name == name).collect();
        for span in &found {
            assert_eq!(span.trace_id, parent.trace_id);
            let within = parent.start_time_unix_nano <= span.start_time_unix_nano
                && span.start_time_unix_nano <= span.end_time_unix_nano
                && span.end_time_unix_nano <= parent.end_time_unix_nano;
            assert!(within, "{span:?} does not lie within {parent:?}");
        }
        found
    }

    /// Checks that every block of a run has all of its way, and gives the number of blocks.
    fn blocks(&self, root: &Span) -> usize {
        let blocks = self.below(root, "block");
        let mut fetched = 0;
        for block in &blocks {
            for name in ["read", "prepare", "device", "merge", "write"] {
                let work = self.below(block, name);
                assert!(!work.is_empty(), "no {name} of {block:?}");
                assert_eq!(name == "device", attribute(&work[0].attributes, "haloflow.device").is_some());
            }
            let [write] = self.below(block, "write")[..] else { panic!("a block is written once: {block:?}") };
            assert!(!self.below(write, "encode").is_empty() && !self.below(write, "put").is_empty(), "{write:?}");
            for read in self.below(block, "read") {
                let (fetches, decodes) = (self.below(read, "fetch").len(), self.below(read, "decode").len());
                // What another block has fetched is told there, and in the cache.
                assert!(fetches + decodes == 0 || read.links.is_empty(), "{read:?}");
                fetched += decodes;
            }
            assert_eq!(block.status.as_ref().map(|status| status.code()), Some(StatusCode::Ok));
        }
        assert!(fetched > 0, "no block has fetched anything");
        blocks.len()
    }
}

#[test]
fn a_run_sends_the_way_of_every_block() {
    let (scene, collector) = (Scene::new(), Collector::start());
    let report = scene.path("report.json");
    let _ = scene
        .job()
        .keys("--block 16")
        .key("--metrics-json", &report)
        .key("--otlp-endpoint", collector.url())
        .end()
        .well();
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let tree = Tree::of(collector.spans());
    let [root] = tree.roots()[..] else { panic!("there is one root: {:?}", tree.roots()) };
    assert_eq!((root.name.as_str(), collector.service().as_str()), ("run", "haloflow"));
    assert!(attribute(&root.attributes, "haloflow.input").unwrap().ends_with("in.zarr"), "{root:?}");
    assert_eq!(tree.blocks(root) as u64, report["work"]["blocks"].as_u64().unwrap());
}

#[test]
fn a_run_that_fails_says_so_in_its_spans() {
    let (scene, collector) = (Scene::new(), Collector::start());
    std::fs::write(scene.path("in.zarr/0/c/0/1/0"), "").unwrap();
    let _ = scene.job().keys("--block 16").key("--otlp-endpoint", collector.url()).end();
    let tree = Tree::of(collector.spans());
    let root = tree.roots()[0];
    assert_eq!(root.status.as_ref().unwrap().code(), StatusCode::Error);
    let told = |span: &&Span| span.status.as_ref().is_some_and(|status| status.message.contains("c/0/1/0"));
    assert!(tree.below(root, "block").iter().any(told), "no block was set aside");
}

#[test]
fn jobs_of_a_daemon_have_traces_of_their_own_by_the_standard_variables() {
    let (scene, collector) = (Scene::new(), Collector::start());
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()), ("OTEL_SERVICE_NAME", "lab".to_owned())];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    let daemon = Daemon::of(daemon::command(&scene.path("")).variables(variables));
    for out in ["a.zarr", "b.zarr"] {
        let id = daemon.submit(&|line: Haloflow| {
            line.key("--in", scene.path("in.zarr"))
                .key("--out", scene.path(out))
                .key("--model", golden_model("identity"))
                .keys("--devices cpu --patch 16 --overlap 4 --trim-voxels 2 --normalize false --memory 1GiB")
        });
        let _ = daemon.watch(id).well();
    }
    daemon.running.signal("TERM");
    let _ = daemon.running.end().well();
    let tree = Tree::of(collector.spans());
    let mut roots = tree.roots();
    roots.sort_by_key(|root| root.start_time_unix_nano);
    let jobs: Vec<_> = roots.iter().map(|root| attribute(&root.attributes, "haloflow.job").unwrap()).collect();
    assert_eq!((jobs, collector.service().as_str()), (vec!["1".to_owned(), "2".to_owned()], "lab"));
    assert!(roots.iter().all(|root| root.name == "job" && tree.blocks(root) > 0));
    assert_ne!(roots[0].trace_id, roots[1].trace_id);
}

#[test]
fn a_collector_that_is_not_there_or_says_nothing_costs_one_warning() {
    let gone = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    // It takes connections, by the system's own queue, and never answers.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    for address in [gone, silent.local_addr().unwrap()] {
        let scene = Scene::new();
        let ended = scene.job().key("--otlp-endpoint", format!("http://{address}")).end().well();
        let warnings = ended.stderr.matches("traces cannot be sent to").count();
        assert_eq!(warnings, 1, "{}", ended.stderr);
        assert_eq!(ended.stderr.matches(" WARN ").count(), 1, "{}", ended.stderr);
        assert_eq!(read_u16(&scene.path("out.zarr")), noisy(SHAPE));
    }
}

#[test]
fn an_address_that_is_none_is_refused_before_anything_is_made() {
    let scene = Scene::new();
    scene.job().keys("--otlp-endpoint localhost:4318").end().refused(64, &["`otlp-endpoint` is no address"]);
    assert!(!scene.path("out.zarr").exists());
    let serve = daemon::command(&scene.path("")).keys("--otlp-endpoint nonsense");
    serve.end().refused(64, &["`otlp-endpoint` is no address"]);
}
