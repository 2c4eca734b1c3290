//! The binary `haloflow`, built once and run as a child process.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::ended::Ended;

/// A run that takes longer than this hangs.
const LONGEST: Duration = Duration::from_secs(300);
/// The same where Python exports or compiles.
const LONGEST_WITH_PYTHON: Duration = Duration::from_secs(900);

/// The path of the binary. The first call has cargo build it, in the profile and the target folder of the test that calls, so
/// that it is never older than its sources.
pub fn path() -> &'static Path {
    static PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
    PATH.get_or_init(build).as_deref().expect("the binary could be built")
}

/// Builds the binary; tells nothing if cargo could not, which has printed why.
fn build() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).expect("a test lies in TARGET/PROFILE/deps");
    let target = folder.parent().expect("a profile's folder lies in the target folder");
    let profile = match folder.file_name().and_then(OsStr::to_str) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Cargo looks for its configuration, which knows where libtorch is, from the working directory upwards.
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command.args(["build", "--quiet", "--package", "haloflow", "--profile", profile, "--target-dir"]).arg(target);
    // Cargo tells a test about the test's own package: a build must not take that for its own.
    let told = std::env::vars_os().map(|(name, _)| name);
    for name in told.filter(|name| is_about_a_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    let status = command.status().expect("cargo can be started");
    status.success().then(|| folder.join("haloflow"))
}

fn is_about_a_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// What the person who tests has set for other programs.
fn is_somebody_elses(name: &str) -> bool {
    name.starts_with("AWS_") || name.starts_with("OTEL_")
}

/// A command line of `haloflow run`.
#[derive(Debug)]
pub struct Haloflow {
    /// Keys and their values, in the order in which they were first named.
    keys: Vec<(String, Vec<OsString>)>,
    command: Command,
    longest: Duration,
}

impl Haloflow {
    /// A command line without keys, with no credentials, in the root folder.
    #[must_use]
    pub fn run() -> Self {
        Self::command(["run"], LONGEST)
    }

    /// A command line of `haloflow model` with these words.
    #[must_use]
    pub fn model<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        Self::command(["model"].into_iter().chain(words), LONGEST_WITH_PYTHON)
    }

    /// A command line of `haloflow` with these words.
    #[must_use]
    pub fn of<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Self {
        Self::command(words, LONGEST)
    }

    /// A command line of another command.
    #[must_use]
    pub fn other(word: &str) -> Self {
        Self::command([word], LONGEST)
    }

    /// Adds a word in front of all keys.
    #[must_use]
    pub fn word(mut self, word: impl AsRef<OsStr>) -> Self {
        self.command.arg(word);
        self
    }

    /// The same keys for another command than `run`, such as `plan`. Before anything but keys is set.
    #[must_use]
    pub fn instead(self, word: &str) -> Self {
        Self { keys: self.keys, ..Self::command([word], self.longest) }
    }

    /// A command line of `haloflow doctor` with these places.
    #[must_use]
    pub fn doctor<W: AsRef<OsStr>>(places: impl IntoIterator<Item = W>) -> Self {
        let places = places.into_iter().map(|place| place.as_ref().to_owned());
        Self::command(std::iter::once("doctor".into()).chain(places), LONGEST)
    }

    /// May take as long as Python needs to export or compile.
    #[must_use]
    pub fn with_python(self) -> Self {
        Self { longest: LONGEST_WITH_PYTHON, ..self }
    }

    fn command<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>, longest: Duration) -> Self {
        let mut command = Command::new(path());
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_somebody_elses(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        command.args(words).current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { keys: Vec::new(), command, longest }
    }

    /// Sets keys, each with the words that follow it. A key that was set before is set anew.
    #[must_use]
    pub fn keys(self, words: &str) -> Self {
        let mut words = words.split_whitespace().peekable();
        let mut line = self;
        while let Some(key) = words.next() {
            let values: Vec<&str> = std::iter::from_fn(|| words.next_if(|word| !word.starts_with("--"))).collect();
            line = line.values(key, values);
        }
        line
    }

    /// Sets a key to one value, spaces and all.
    #[must_use]
    pub fn key(self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.values(key, [value])
    }

    /// Sets a key to several values.
    #[must_use]
    pub fn values<V: AsRef<OsStr>>(mut self, key: &str, values: impl IntoIterator<Item = V>) -> Self {
        let values = values.into_iter().map(|value| value.as_ref().to_owned()).collect();
        match self.keys.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = values,
            None => self.keys.push((key.to_owned(), values)),
        }
        self
    }

    /// Leaves a key out.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.keys.retain(|(known, _)| known != key);
        self
    }

    /// Sets environment variables.
    #[must_use]
    pub fn variables(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.command.envs(variables);
        self
    }

    /// Starts in this folder.
    #[must_use]
    pub fn within(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Gives it this as standard output.
    #[must_use]
    pub fn standard_output(mut self, to: impl Into<Stdio>) -> Self {
        self.command.stdout(to);
        self
    }

    /// Starts it.
    #[must_use]
    pub fn start(mut self) -> Running {
        for (key, values) in self.keys {
            self.command.arg(key).args(values);
        }
        let mut child = self.command.spawn().expect("the binary can be started");
        let output = child.stdout.take().map(Stream::of);
        let errors = child.stderr.take().map(Stream::of);
        Running { child, output, errors, started: Instant::now(), longest: self.longest }
    }

    /// Runs it to its end.
    #[must_use]
    pub fn end(self) -> Ended {
        self.start().end()
    }
}

/// A binary that runs. It is killed if the test drops it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    output: Option<Stream>,
    errors: Option<Stream>,
    started: Instant,
    longest: Duration,
}

impl Running {
    /// Waits until `text` has come on standard output.
    pub fn wait_for_output(&mut self, text: &str) {
        self.output.as_mut().expect("standard output is read").wait_for(text);
    }

    /// Waits until `text` has come on standard error.
    pub fn wait_for_error(&mut self, text: &str) {
        self.errors.as_mut().expect("standard error is read").wait_for(text);
    }

    /// Waits until `text` has come on standard error, and gives the rest of its line.
    #[must_use]
    pub fn wait_for_error_line(&mut self, text: &str) -> String {
        self.errors.as_mut().expect("standard error is read").wait_for_line(text)
    }

    /// Kills it, as a machine does that is taken away.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        let _ = self.child.wait().unwrap();
    }

    /// Sends a signal: `TERM` or `INT`.
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").arg("-c").arg(kill).status().unwrap().success());
    }

    /// Gives it this long to end, then kills it, as a machine does that is taken away. How it ended, if it did by itself.
    #[must_use]
    pub fn killed_after(mut self, moment: Duration) -> Option<Ended> {
        let errors = self.errors.as_mut().expect("standard error is read");
        // The pipe closes at its end.
        if errors.closes_within(moment) {
            return Some(self.end());
        }
        self.child.kill().unwrap();
        let ended = self.end();
        ended.code.is_some().then_some(ended)
    }

    /// Waits for its end.
    #[must_use]
    pub fn end(mut self) -> Ended {
        let deadline = self.started + self.longest;
        let rest = |stream: Option<Stream>| stream.map(|stream| stream.rest(deadline)).unwrap_or_default();
        let (stdout, stderr) = (rest(self.output.take()), rest(self.errors.take()));
        // Both pipes are closed, so it has ended or is about to.
        let code = self.child.wait().unwrap().code();
        Ended { code, stdout, stderr, lasted: self.started.elapsed() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A pipe that a thread reads.
#[derive(Debug)]
struct Stream {
    pieces: Receiver<Vec<u8>>,
    seen: Vec<u8>,
    /// How much of it has been looked at.
    passed: usize,
}

impl Stream {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let (sender, pieces) = channel();
        std::thread::spawn(move || {
            let mut piece = vec![0; 1 << 16];
            while let Ok(length @ 1..) = pipe.read(&mut piece) {
                if sender.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { pieces, seen: Vec::new(), passed: 0 }
    }

    /// Waits until `text` has come after what was waited for before.
    fn wait_for(&mut self, text: &str) {
        loop {
            let new = &self.seen[self.passed..];
            if let Some(at) = new.windows(text.len()).position(|window| window == text.as_bytes()) {
                self.passed += at + text.len();
                return;
            }
            match self.pieces.recv_timeout(LONGEST) {
                Ok(piece) => self.seen.extend(piece),
                Err(error) => panic!("{text:?} did not come ({error}), but this: {}", self.text()),
            }
        }
    }

    /// Whether the pipe is closed before `limit` is over.
    fn closes_within(&mut self, limit: Duration) -> bool {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        let deadline = Instant::now() + limit;
        loop {
            match self.pieces.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(piece) => self.seen.extend(piece),
                Err(Timeout) => return false,
                Err(Disconnected) => return true,
            }
        }
    }

    /// Waits until `text` has come, and gives what stands between it and the end of its line.
    fn wait_for_line(&mut self, text: &str) -> String {
        self.wait_for(text);
        let begin = self.passed;
        self.wait_for("\n");
        String::from_utf8_lossy(&self.seen[begin..self.passed - 1]).into_owned()
    }

    fn rest(mut self, deadline: Instant) -> String {
        use std::sync::mpsc::RecvTimeoutError::Timeout;
        loop {
            match self.pieces.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(piece) => self.seen.extend(piece),
                Err(Timeout) => panic!("the run hangs; so far it said: {}", self.text()),
                Err(_) => return self.text(),
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }
}
