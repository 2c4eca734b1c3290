//! Python of the set-up: what exports and compiles, in a process of its own.
//!
//! Its source is carried in this binary and written into a folder that lives as long as the process does.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::checksum::Sha256;
use crate::error::ModelError;

include!(concat!(env!("OUT_DIR"), "/sources.rs"));

const PACKAGE: &str = "haloflow_models";
/// Where the set-up puts its interpreter, in the user's cache.
const INTERPRETER: &str = "torch-2.11.0/bin/python";

/// Hears what Python writes, line by line.
pub type Told<'a> = &'a mut dyn FnMut(&str);

/// An interpreter with torch.
#[derive(Clone, Debug)]
pub struct Python {
    interpreter: PathBuf,
    trial: Option<PathBuf>,
}

impl Python {
    /// `named`, or the set-up's below `user_cache`.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn find(named: Option<&Path>, user_cache: &Path) -> Result<Self, ModelError> {
        let interpreter = named.map_or_else(|| user_cache.join(INTERPRETER), Path::to_owned);
        if interpreter.is_file() {
            return Ok(Self { interpreter, trial: None });
        }
        let what = if named.is_some() { "`python` names" } else { "the set-up's Python would be" };
        Err(ModelError::python(format!(
            "{what} {}, which does not exist: run `cargo xtask setup`, or name an interpreter that has torch with `--python FILE`",
            interpreter.display()
        )))
    }

    /// The same, trying compiled packages with `program`, which understands `model trial`: with what will run them later.
    #[must_use]
    pub fn tried_by(self, program: PathBuf) -> Self {
        Self { trial: Some(program), ..self }
    }

    /// What the source is told apart by: another one may make something else.
    pub(crate) fn source_sum() -> String {
        SOURCES.iter().fold(Sha256::default(), |sum, (name, text)| sum.with(name).with(text)).finish()
    }

    /// Runs `haloflow_models` with these arguments. What it writes is handed on, but for the reason of a failure.
    ///
    /// # Errors
    /// The last line that it wrote, as the cause.
    pub fn run(&self, arguments: &[String], told: Told<'_>) -> Result<(), ModelError> {
        let folder = source_folder()?;
        let failed = |error: std::io::Error| ModelError::file(&self.interpreter, "run", &error);
        let (written, writer) = std::io::pipe().map_err(failed)?;
        let mut command = Command::new(&self.interpreter);
        command.args(["-m", PACKAGE]).args(arguments).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("PYTHONPATH", search_path(folder.path())).env("PYTHONUNBUFFERED", "1");
        // It ends when this process does, however that ends: the other end of its standard input is closed then.
        command.env("HALOFLOW_ENDS_WITH_STDIN", "1").stdin(Stdio::piped());
        command.envs(self.trial.iter().map(|program| ("HALOFLOW_TRIAL", program)));
        command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
        let mut child = command.spawn().map_err(failed)?;
        // It holds the ends that are written to: the reading would never end.
        drop(command);
        let last = listen(written, told);
        // Kept open until now: closed, it would end the child.
        let input = child.stdin.take();
        let status = child.wait().map_err(failed)?;
        drop(input);
        if status.success() {
            if !last.is_empty() {
                told(&last);
            }
            return Ok(());
        }
        let message = if last.is_empty() { format!("Python ended with {status} and no word") } else { last };
        // 2 is a command line without meaning, 3 a model with which something cannot be done.
        match status.code() {
            None => {
                Err(ModelError::python(format!("Python ended with {status}; the last that it said was: {message}")))
            }
            Some(2) => Err(ModelError::usage(message)),
            Some(3) => Err(ModelError::data(message)),
            _ => Err(ModelError::python(format!("Python failed: {message}"))),
        }
    }
}

/// Hands every line on but the last that says something, and gives that.
fn listen(written: impl std::io::Read, told: Told<'_>) -> String {
    let mut last = String::new();
    for line in BufReader::new(written).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if line.is_empty() {
            continue;
        }
        if !last.is_empty() {
            told(&last);
        }
        last = line;
    }
    last
}

/// Writes the source into a new folder.
fn source_folder() -> Result<tempfile::TempDir, ModelError> {
    let write = || {
        let folder = tempfile::Builder::new().prefix("haloflow-python-").tempdir()?;
        let package = folder.path().join(PACKAGE);
        std::fs::create_dir(&package)?;
        for (name, text) in SOURCES {
            std::fs::write(package.join(name), text)?;
        }
        Ok(folder)
    };
    write().map_err(|error: std::io::Error| ModelError::python(format!("Python's source cannot be written: {error}")))
}

/// Our source, then what was set before. Python itself puts the folder that the command was typed in first.
fn search_path(source: &Path) -> std::ffi::OsString {
    let before = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let folders = std::iter::once(source.to_owned()).chain(std::env::split_paths(&before));
    std::env::join_paths(folders).unwrap_or_else(|_| source.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(text: &str) -> (tempfile::TempDir, Python) {
        let folder = tempfile::tempdir().unwrap();
        let interpreter = folder.path().join("python");
        std::fs::write(&interpreter, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&interpreter, std::fs::Permissions::from_mode(0o755)).unwrap();
        let python = Python::find(Some(&interpreter), Path::new("/nowhere")).unwrap();
        (folder, python)
    }

    #[test]
    fn the_last_line_is_the_cause() {
        let (_folder, python) = script("echo one >&2; echo 'weights lack `inc`' >&2; echo; exit 3");
        let mut lines = Vec::new();
        let error = python.run(&[], &mut |line| lines.push(line.to_owned())).unwrap_err();
        assert_eq!(error, ModelError::data("weights lack `inc`"));
        assert_eq!(lines, ["one"]);
        let (_folder, python) = script("echo broken; exit 1");
        assert_eq!(python.run(&[], &mut |_| {}).unwrap_err(), ModelError::python("Python failed: broken"));
        let (_folder, python) = script("echo compiling for cuda:0; kill -9 $$");
        let told = python.run(&[], &mut |_| {}).unwrap_err().message;
        assert!(
            told.contains("signal: 9") && told.ends_with("the last that it said was: compiling for cuda:0"),
            "{told}"
        );
    }

    #[test]
    fn the_source_is_found_and_arguments_arrive() {
        let (_folder, python) =
            script("test -f \"${PYTHONPATH%%:*}/haloflow_models/denoise_net.py\" || exit 3; echo \"$@\" >&2");
        let mut lines = Vec::new();
        python.run(&["export".into(), "-o".into(), "a b".into()], &mut |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(lines, ["-m haloflow_models export -o a b"]);
    }

    #[test]
    fn a_missing_interpreter_is_told_with_what_to_do() {
        let told = Python::find(None, Path::new("/nowhere")).unwrap_err().message;
        assert!(told.contains("/nowhere/torch-2.11.0/bin/python") && told.contains("cargo xtask setup"), "{told}");
        let told = Python::find(Some(Path::new("/nowhere/py")), Path::new("/")).unwrap_err().message;
        assert!(told.starts_with("`python` names /nowhere/py"), "{told}");
    }
}
