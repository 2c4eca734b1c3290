//! A headless Chromium, driven over WebDriver: the few commands of it that the tests need, as the standard has them
//! (https://www.w3.org/TR/webdriver2/). Crates that speak it bring two dozen others, several of them in versions of years ago.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::daemon::{Answer, read};

/// The checker of accessibility, as its npm package has it. It is fetched once, and never part of haloflow.
const AXE: &str = "axe-core@4.10.3";

/// The name under which the standard has an element's identity.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser. It is ended when the test drops it.
#[derive(Debug)]
pub struct Browser {
    address: String,
    session: String,
    driver: Child,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browser with the session, and would leave it behind if it were killed.
        let end =
            format!("DELETE /session/{} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.session, self.address);
        if let Ok(mut socket) = TcpStream::connect(&self.address) {
            drop(socket.write_all(end.as_bytes()));
            // It answers when the browser has ended.
            drop(socket.read(&mut [0; 1]));
        }
        drop(self.driver.kill());
        drop(self.driver.wait());
    }
}

impl Browser {
    /// Starts a browser.
    #[must_use]
    pub fn start() -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver can be started; `cargo xtask test` installs it");
        let lines = BufReader::new(driver.stdout.take().expect("its output is read")).lines();
        let port = lines
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("successfully on port ")?.1.trim_end_matches('.').to_owned()))
            .expect("chromedriver tells its port");
        let mut browser = Self { address: format!("127.0.0.1:{port}"), session: String::new(), driver };
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let told = browser.send("/session", &wanted);
        browser.session = told["sessionId"].as_str().expect("a session has a name").to_owned();
        browser
    }

    /// Opens an address.
    pub fn open(&self, url: &str) {
        let _ = self.command("url", &json!({ "url": url }));
    }

    /// Runs a script in the page and gives what it returns.
    #[must_use]
    pub fn run(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Clicks the element of a CSS selector, as a person would: it has to be in sight, and nothing in front of it.
    pub fn click(&self, selector: &str) {
        let _ = self.command(&format!("element/{}/click", self.find(selector)), &json!({}));
    }

    /// Types into the element of a CSS selector.
    pub fn type_into(&self, selector: &str, keys: &str) {
        let _ = self.command(&format!("element/{}/value", self.find(selector)), &json!({ "text": keys }));
    }

    /// Sets the size of the page, in pixels, and whether it is dark.
    pub fn look(&self, width: u32, dark: bool) {
        self.devtools("Emulation.setDeviceMetricsOverride", &size(width, 900));
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", &features);
    }

    /// A picture of the whole page, a PNG in base 64, as the browser gives it.
    #[must_use]
    pub fn picture(&self, width: u32) -> String {
        let height = self.run("return document.documentElement.scrollHeight").as_u64().unwrap_or(900);
        self.devtools("Emulation.setDeviceMetricsOverride", &size(width, height));
        let answer = self.ask("GET", &format!("/session/{}/screenshot", self.session), "").json();
        answer["value"].as_str().expect("a picture").to_owned()
    }

    /// What the page has logged since it was last asked.
    #[must_use]
    pub fn log(&self) -> Vec<Value> {
        self.command("se/log", &json!({ "type": "browser" })).as_array().cloned().unwrap_or_default()
    }

    /// What axe finds of serious or critical weight, a line each.
    #[must_use]
    pub fn serious_faults(&self) -> Vec<String> {
        let _ = self.run(&std::fs::read_to_string(axe()).unwrap());
        let script = "const done = arguments[arguments.length - 1]; axe.run().then((told) => done(told.violations.flatMap((fault) => \
                      ['serious', 'critical'].includes(fault.impact) ? fault.nodes.map((node) => `${fault.id}: ${node.html}: \
                      ${node.failureSummary}`) : [])), (error) => done([String(error)]))";
        let told = self.command("execute/async", &json!({ "script": script, "args": [] }));
        told.as_array().unwrap().iter().map(|fault| fault.as_str().unwrap_or_default().to_owned()).collect()
    }

    fn find(&self, selector: &str) -> String {
        let found = self.command("element", &json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().expect("an element has an identity").to_owned()
    }

    fn devtools(&self, command: &str, parameters: &Value) {
        let _ = self.command("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }));
    }

    fn command(&self, path: &str, body: &Value) -> Value {
        self.send(&format!("/session/{}/{path}", self.session), body)
    }

    fn send(&self, path: &str, body: &Value) -> Value {
        let answer = self.ask("POST", path, &body.to_string());
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()["value"].clone()
    }

    /// The driver does not understand the older form of HTTP.
    fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let (address, length) = (&self.address, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n"
        );
        socket.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes()).unwrap();
        read(socket)
    }
}

fn size(width: u32, height: u64) -> Value {
    json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 })
}

/// The checker's file in the user's cache folder.
fn axe() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let folder = cache.or_else(home).expect("HOME or XDG_CACHE_HOME is set").join("haloflow").join(AXE);
    let file = folder.join("package/axe.min.js");
    if !file.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        let fetch = format!("cd \"$1\" && npm pack --silent {AXE} && tar -xzf axe-core-*.tgz");
        let status = Command::new("sh").args(["-c", &fetch, "sh"]).arg(&folder).status().unwrap();
        assert!(status.success(), "{AXE} cannot be fetched: is npm installed?");
    }
    file
}
