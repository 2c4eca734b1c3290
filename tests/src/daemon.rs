//! A daemon, and a client that knows no more of HTTP than it needs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::binary::{Haloflow, Running};
use crate::ended::Ended;
use crate::golden;

/// An answer that takes longer than this hangs.
const LONGEST: Duration = Duration::from_secs(300);

/// A daemon that listens. It is killed if the test drops it.
#[derive(Debug)]
pub struct Daemon {
    /// The process.
    pub running: Running,
    /// Where it listens.
    pub address: String,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The head, a line each.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The command line of a daemon whose jobs may use everything in `folder`, and the golden models.
#[must_use]
pub fn command(folder: &Path) -> Haloflow {
    Haloflow::of(["serve"])
        .keys("--listen 127.0.0.1:0 --rate 0")
        .key("--state", folder.join("state"))
        .key("--write", folder)
        .values("--models", [golden::file("models"), crate::own_model("speaks").with_file_name("")])
}

impl Daemon {
    /// A daemon whose jobs may use everything in `folder`, and the golden models.
    #[must_use]
    pub fn start(folder: &Path) -> Self {
        Self::of(command(folder))
    }

    /// A daemon of this command line.
    #[must_use]
    pub fn of(command: Haloflow) -> Self {
        let mut running = command.start();
        let address = running.wait_for_error_line("listening on http://").trim().to_owned();
        Self { running, address }
    }

    /// The words of a command that talks to it.
    #[must_use]
    pub fn client(&self, words: &str) -> Haloflow {
        Haloflow::of(words.split(' ')).key("--server", format!("http://{}", self.address))
    }

    /// Submits the job of a `haloflow run` and gives its number.
    #[must_use]
    pub fn submit(&self, job: &dyn Fn(Haloflow) -> Haloflow) -> i64 {
        job(self.client("submit")).end().well().stdout.trim().parse().unwrap()
    }

    /// Watches a job to its end.
    #[must_use]
    pub fn watch(&self, id: i64) -> Ended {
        self.client(&format!("watch {id}")).end()
    }

    /// Asks for an address.
    #[must_use]
    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", b"")
    }

    /// Sends a request. `head` is further lines, each with its end.
    #[must_use]
    pub fn ask(&self, method: &str, path: &str, head: &str, body: &[u8]) -> Answer {
        ask(&self.address, method, path, head, body)
    }

    /// Follows the events of a job until one is as wanted.
    #[must_use]
    pub fn wait_for(&self, id: i64, wanted: impl Fn(&Value) -> bool) -> Value {
        let socket = send(&self.address, "GET", &format!("/v1/jobs/{id}/events"), "", b"");
        for line in BufReader::new(socket).lines() {
            let line = line.unwrap();
            let Some(data) = line.strip_prefix("data: ") else { continue };
            let status: Value = serde_json::from_str(data).unwrap();
            if wanted(&status) {
                return status;
            }
        }
        panic!("the events of job {id} ended before one was as wanted: {}", self.get(&format!("/v1/jobs/{id}")).text());
    }
}

/// Sends a request to `address`. `head` is further lines, each with its end.
#[must_use]
pub fn ask(address: &str, method: &str, path: &str, head: &str, body: &[u8]) -> Answer {
    read(send(address, method, path, head, body))
}

/// Reads an answer whose length is told, or that ends with its connection.
pub(crate) fn read(socket: TcpStream) -> Answer {
    let mut reader = BufReader::new(socket);
    let (mut head, mut length) = (String::new(), None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some((_, value)) = line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
            length = value.trim().parse::<u64>().ok();
        }
        head.push_str(&line);
    }
    let mut body = Vec::new();
    // Some keep the connection open although they were asked not to.
    reader.take(length.unwrap_or(u64::MAX)).read_to_end(&mut body).unwrap();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("an answer has a status");
    Answer { status, head, body }
}

/// The older form of HTTP: the answer ends with the connection, and is in one piece.
fn send(address: &str, method: &str, path: &str, head: &str, body: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(LONGEST)).unwrap();
    let first = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n{head}\r\n", body.len());
    socket.write_all(&[first.as_bytes(), body].concat()).unwrap();
    socket
}
