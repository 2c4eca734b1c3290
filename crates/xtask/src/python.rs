//! The Python that makes the virtual environment: its version and pip's.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process;

/// The oldest Python that the libtorch wheel is made for.
const OLDEST_PYTHON: Version = Version(3, 10);
/// The first pip that installs into another interpreter's environment (`--python`).
const OLDEST_PIP: Version = Version(22, 3);

/// The two leading numbers of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Checks that there is a Python 3 with pip, both new enough.
pub(crate) fn check() -> Result<()> {
    let python = process::output(Command::new("python3").arg("--version"))?
        .context("Python 3 is missing: install python3 (3.10 or newer) with pip")?;
    at_least("Python", &String::from_utf8_lossy(&python.stdout), OLDEST_PYTHON)?;
    let pip = process::output(Command::new("python3").args(["-m", "pip", "--version"]))?;
    match pip.filter(|pip| pip.status.success()) {
        Some(pip) => at_least("pip", &String::from_utf8_lossy(&pip.stdout), OLDEST_PIP),
        None => bail!("pip is missing: install it for python3 (on Debian and Ubuntu, the package python3-pip)"),
    }
}

/// Makes a virtual environment in `folder` and installs `requirements`. Needs neither ensurepip nor pip inside it.
pub(crate) fn make_environment(folder: &Path, requirements: &[&str]) -> Result<()> {
    process::read(Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(folder))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--python"]).arg(folder.join("bin/python"));
    pip.args(["--disable-pip-version-check", "--no-input", "install"]).args(requirements);
    let pip = pip.stderr(Stdio::piped()).spawn().context("pip could not be started")?;
    let output = pip.wait_with_output().context("pip could not be waited for")?;
    if !output.status.success() {
        let wanted = requirements.first().copied().unwrap_or_default();
        bail!("pip could not install {wanted}: {}", last_line(&String::from_utf8_lossy(&output.stderr)));
    }
    Ok(())
}

/// The last line that says something.
fn last_line(text: &str) -> &str {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.map_or("it gave no reason", |line| line.strip_prefix("ERROR: ").unwrap_or(line))
}

/// Refuses a program whose `--version` output tells of one older than `oldest`.
fn at_least(program: &str, output: &str, oldest: Version) -> Result<()> {
    let found = version(output).with_context(|| format!("{program} gave no version but `{}`", output.trim()))?;
    if found < oldest {
        bail!("{program} {found} is too old: install {program} {oldest} or newer");
    }
    Ok(())
}

/// The first version number in a text such as `pip 23.2.1 from …`.
fn version(text: &str) -> Option<Version> {
    text.split_whitespace().find_map(|word| {
        let mut numbers = word.split('.').map(|part| part.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
        Some(Version(numbers.next()??, numbers.next()??))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found() {
        assert_eq!(version("Python 3.11.7\n"), Some(Version(3, 11)));
        assert_eq!(version("pip 23.2.1 from /usr/lib/python3/dist-packages/pip (python 3.11)"), Some(Version(23, 2)));
        assert_eq!(version("Python 3.14.0rc1"), Some(Version(3, 14)));
        assert_eq!(version("pip 24.0rc1 from"), Some(Version(24, 0)));
        assert_eq!(version("nothing here"), None);
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(at_least("pip", "pip 22.3 from x", OLDEST_PIP).is_ok());
        assert!(at_least("Python", "Python 3.10.0", OLDEST_PYTHON).is_ok());
        let error = at_least("Python", "Python 3.9.18", OLDEST_PYTHON).unwrap_err().to_string();
        assert_eq!(error, "Python 3.9 is too old: install Python 3.10 or newer");
    }

    #[test]
    fn the_last_line_of_pip_is_the_reason() {
        let text = "ERROR: Could not find a version\nERROR: No matching distribution found for torch==2.11.0\n\n";
        assert_eq!(last_line(text), "No matching distribution found for torch==2.11.0");
        assert_eq!(last_line(""), "it gave no reason");
    }
}
