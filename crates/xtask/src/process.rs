//! Other programs: run them, or run them and read what they print.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// The clone's top folder.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// Cargo, in the clone's top folder.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    cargo.current_dir(root());
    cargo
}

/// Builds the program and the examples, with one set of features for both: built one by one, what they share is built twice.
/// `profile` is `debug` or `release`. Gives the folder that they are in.
pub(crate) fn build(profile: &str) -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--package", "haloflow", "--package", "haloflow-examples"]);
    run(build.args((profile == "release").then_some("--release")))?;
    let here = std::env::current_exe().context("xtask does not know where it is")?;
    let target = here.ancestors().nth(2).context("xtask lies in no target folder")?;
    Ok(target.join(profile))
}

/// Runs a program, its output going to the terminal.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line_of(command);
    eprintln!("$ {line}");
    let status = command.status().with_context(|| format!("`{line}` could not be started"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs a program and gives what it printed; `None` where there is no such program.
pub(crate) fn output(command: &mut Command) -> Result<Option<Output>> {
    match command.stdin(Stdio::null()).output() {
        Ok(output) => Ok(Some(output)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("`{}` could not be started", line_of(command))),
    }
}

/// Runs a program that must succeed and gives what it printed on its standard output.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let line = line_of(command);
    let output = output(command)?.with_context(|| format!("`{line}`: there is no such program"))?;
    if !output.status.success() {
        bail!("`{line}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where a program of this name is found, if anywhere.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A command as one would type it.
fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program).chain(command.get_args()).map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
