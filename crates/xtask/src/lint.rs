//! The command `lint`: everything that is checked without running the code.

use anyhow::{Result, bail};

use crate::{arrows, licences, process, setup, tidy};

/// Runs every check; the quick ones first, and all of these before failing.
pub(crate) fn run(_: &setup::Installed, rest: &[String]) -> Result<()> {
    if let Some(unknown) = rest.first() {
        bail!("lint takes no arguments, but `{unknown}` was given");
    }
    let mut problems = tidy::problems()?;
    problems.extend(arrows::problems()?);
    problems.extend(licences::problems()?);
    for problem in &problems {
        eprintln!("{problem}");
    }
    if !problems.is_empty() {
        bail!("{} to mend", problems.len());
    }
    process::run(process::cargo().args(["fmt", "--all", "--check"]))?;
    process::run(process::cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}
