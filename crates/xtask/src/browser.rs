//! The browser that the page is tested in: Debian's Chromium and its driver.

use std::process::Command;

use anyhow::{Result, bail};

use crate::process;

const PROGRAMS: [&str; 2] = ["chromium", "chromedriver"];
const PACKAGES: [&str; 2] = ["chromium", "chromium-driver"];

/// Installs the browser if it is missing.
pub(crate) fn ensure() -> Result<()> {
    if missing().is_empty() {
        return Ok(());
    }
    let install = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        process::run(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    let tried = install(&["update", "--quiet"])
        .and_then(|()| install(&[&["install", "--yes", "--quiet", "--no-install-recommends"], &PACKAGES[..]].concat()));
    match (tried, missing().as_slice()) {
        (Ok(()), []) => Ok(()),
        (_, missing) => bail!(
            "{} cannot be installed, which the test of the page needs: install Chromium and its driver ({} on Debian)",
            missing.join(" and "),
            PACKAGES.join(" and ")
        ),
    }
}

fn missing() -> Vec<&'static str> {
    PROGRAMS.into_iter().filter(|program| process::on_path(program).is_none()).collect()
}
