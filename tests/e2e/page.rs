//! The page of the daemon in a real browser: every control used, no error on its console, nothing that keeps people out.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use haloflow_tests::browser::Browser;
use haloflow_tests::daemon::Daemon;
use haloflow_tests::golden_model;
use haloflow_tests::scene::{Scene, volume};

/// What takes longer than this does not come.
const LONGEST: Duration = Duration::from_secs(60);

const SHAPE: [usize; 3] = [128, 192, 192];

/// Voxels in which something can be seen: rings, and noise.
fn rings() -> Vec<u16> {
    let [depth, height, width] = SHAPE;
    let voxel = |i: usize| {
        let [z, y, x] = [i / (height * width), i / width % height, i % width].map(|place| place as f64);
        let away =
            ((z - depth as f64 / 2.0).powi(2) + (y - height as f64 / 2.0).powi(2) + (x - width as f64 / 2.0).powi(2))
                .sqrt();
        (1000.0 + 400.0 * (away / 6.0).sin()) as u16 + (haloflow_tests::golden::noise(3, i) % 300) as u16
    };
    (0..SHAPE.iter().product()).map(voxel).collect()
}

/// Where pictures are kept.
fn pictures() -> PathBuf {
    let target = std::env::current_exe().unwrap();
    let folder = target.ancestors().nth(3).unwrap().join("pictures");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn submit(daemon: &Daemon, scene: &Scene, input: &str, out: &str) -> i64 {
    daemon.submit(&|line| {
        line.key("--in", scene.path(input))
            .key("--out", scene.path(out))
            .key("--model", golden_model("box3"))
            .keys("--devices cpu --patch 16 --overlap 8 --trim-voxels 2 --normalize false --block 32 --memory 1GiB")
    })
}

/// The page, and what a person does with it.
struct Page {
    browser: Browser,
}

impl Page {
    fn text(&self, id: &str) -> String {
        let text = self.browser.run(&format!("return document.getElementById('{id}').textContent"));
        text.as_str().unwrap_or_default().to_owned()
    }

    fn truth(&self, script: &str) -> bool {
        self.browser.run(&format!("return Boolean({script})")) == true
    }

    /// Waits until something is true on the page; each look is a round through the browser.
    fn until(&self, script: &str) {
        let began = Instant::now();
        while !self.truth(script) {
            if began.elapsed() > LONGEST {
                panic!("{script} did not become true on {}; console: {:?}", self.text("job"), self.browser.log());
            }
        }
    }

    fn has(&self, id: &str, text: &str) {
        self.until(&format!("document.getElementById('{id}').textContent.includes('{text}')"));
    }

    /// Keeps pictures of the page, and looks whether people can use it, in every size and shade.
    fn keep(&self, name: &str) {
        for (width, dark) in [(1280, false), (1280, true), (390, false), (390, true)] {
            self.browser.look(width, dark);
            let fits = self.truth("document.documentElement.scrollWidth <= window.innerWidth");
            assert!(fits, "the page is wider than {width} pixels");
            let shade = if dark { "dark" } else { "light" };
            assert_eq!(self.browser.serious_faults(), [""; 0], "{name} at {width}, {shade}");
            let file = pictures().join(format!("{name}-{width}-{shade}.png"));
            let mut decode = Command::new("base64")
                .arg("-d")
                .stdin(Stdio::piped())
                .stdout(File::create(file).unwrap())
                .spawn()
                .unwrap();
            decode.stdin.take().unwrap().write_all(self.browser.picture(width).as_bytes()).unwrap();
            assert!(decode.wait().unwrap().success());
        }
        self.browser.look(1280, false);
    }
}

#[test]
fn a_person_looks_at_jobs_and_steers_them() {
    let scene = Scene::of(SHAPE, &rings());
    let daemon = Daemon::start(&scene.path(""));
    let failed = submit(&daemon, &scene, "nothing.zarr", "a.zarr");
    let _ = daemon.watch(failed);
    let running = submit(&daemon, &scene, "in.zarr", "b.zarr");
    let waiting = submit(&daemon, &scene, "in.zarr", "c.zarr");
    let page = Page { browser: Browser::start() };
    page.browser.look(1280, false);
    page.browser.open(&format!("http://{}/", daemon.address));
    page.has("state", "connected");
    page.until("document.querySelectorAll('#list li').length === 3");
    assert!(page.text("counts").contains("1 failed"));

    // The keyboard alone: the row of the running job has a button.
    let row = format!("#list li[data-id='{running}'] button");
    page.browser.type_into(&row, "\u{E007}");
    page.has("job-title", &format!("Job {running}: running"));
    let _ = daemon.wait_for(running, |status| status["progress"]["blocks"].as_u64() > Some(0));
    page.until("document.querySelectorAll('#plots figure').length >= 6");
    page.has("limit", "limits it");
    page.until("!document.getElementById('input').hidden && document.getElementById('input').naturalWidth > 0");
    page.browser.click("#look");
    page.until("!document.getElementById('output').hidden && document.getElementById('output').naturalWidth > 0");
    page.until("document.getElementById('neuroglancer').href.includes('neuroglancer')");
    names_what_the_daemon_serves(&page, &daemon);
    let before = page.text("z-value");
    page.browser.type_into("#z", "\u{E014}");
    assert_ne!(page.text("z-value"), before);
    page.keep("running");

    page.browser.click("#pause");
    page.has("job-title", "paused");
    page.browser.click("#resume");
    page.until("/queued|running/.test(document.getElementById('job-title').textContent)");
    for (summary, shown, part) in [("config-box", "config", "box3.pt"), ("log-box", "log", "")] {
        page.browser.click(&format!("#{summary} summary"));
        page.has(shown, part);
    }
    page.browser.click("#cancel");
    page.has("job-title", "cancelled");
    assert!(page.truth("document.getElementById('cancel').disabled"));

    page.browser.type_into("#filter", "failed");
    page.until("document.querySelectorAll('#list li').length === 1");
    page.browser.click("#list li button");
    page.has("fault", "nothing.zarr");
    page.browser.type_into("#filter", "all");
    page.until("document.querySelectorAll('#list li').length === 3");
    let _ = daemon.client(&format!("cancel {waiting}")).end().well();
    page.has("counts", "2 cancelled");
    page.keep("failed");
    // A volume that is not there is an answer, and the browser logs every answer that is none of success.
    let errors: Vec<_> = page.browser.log().into_iter().filter(|line| line["level"] == "SEVERE").collect();
    assert!(errors.is_empty(), "{errors:?}");
}

/// Looks into the link to Neuroglancer, and fetches what its sources name.
fn names_what_the_daemon_serves(page: &Page, daemon: &Daemon) {
    let state = "return JSON.parse(decodeURIComponent(document.getElementById('neuroglancer').href.split('#!')[1]))";
    let state = page.browser.run(state);
    let layers: Vec<_> = state["layers"].as_array().unwrap().iter().collect();
    let names: Vec<_> = layers.iter().map(|layer| layer["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["input", "output"], "{state}");
    for layer in layers {
        let source = layer["source"].as_str().unwrap();
        let base = source.strip_prefix(&format!("zarr://http://{}", daemon.address)).unwrap();
        for key in ["zarr.json", "0/zarr.json"] {
            let origin = "Origin: https://neuroglancer-demo.appspot.com\r\n";
            let found = daemon.ask("GET", &format!("{base}{key}"), origin, b"");
            assert!(found.status == 200 && found.json()["zarr_format"] == 3, "{source}{key}: {}", found.head);
            assert!(found.head.to_lowercase().contains("access-control-allow-origin: *"), "{}", found.head);
        }
    }
}

#[test]
fn the_output_shows_by_itself_what_is_stored() {
    let scene = Scene::empty();
    volume([256; 3]).write_metadata(&scene.path("in.zarr"));
    let daemon = Daemon::start(&scene.path(""));
    let job = submit(&daemon, &scene, "in.zarr", "out.zarr");
    let page = Page { browser: Browser::start() };
    page.browser.look(1280, false);
    page.browser.open(&format!("http://{}/", daemon.address));
    page.until("document.querySelectorAll('#list li').length === 1");
    page.browser.click("#list li button");
    // Nothing is touched from here on. The job is half done when it comes to the slice in the middle.
    page.until("!document.getElementById('output').hidden && document.getElementById('output').naturalWidth > 0");
    let shown = "document.getElementById('output').src";
    let first = page.browser.run(&format!("return {shown}"));
    let running = "document.getElementById('job-title').textContent.includes('running')";
    page.until(&format!("{shown} !== {first} && {running}"));
    let _ = daemon.client(&format!("cancel {job}")).end().well();
    page.has("job-title", "cancelled");
    let errors: Vec<_> = page.browser.log().into_iter().filter(|line| line["level"] == "SEVERE").collect();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn the_page_asks_for_the_token() {
    let scene = Scene::empty();
    let token = [("HALOFLOW_TOKEN".to_owned(), "0123456789abcdef".to_owned())];
    let daemon = Daemon::of(haloflow_tests::daemon::command(&scene.path("")).variables(token));
    let page = Page { browser: Browser::start() };
    page.browser.open(&format!("http://{}/", daemon.address));
    page.until("!document.getElementById('access').hidden");
    for (typed, told) in [("wrong-wrong-wrong", "the token is wrong"), ("0123456789abcdef", "")] {
        page.browser.type_into("#token", typed);
        page.browser.click("#access button");
        page.has("access-told", told);
    }
    page.has("state", "connected");
    assert!(page.truth("document.getElementById('access').hidden"));
}
