//! The licences of everything that is built in.

use anyhow::Result;

use crate::{process, spdx};

/// Licences whose terms a binary under MIT or Apache-2.0 can meet. Nothing that asks for our own source.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "bzip2-1.0.6",
];

/// Names every package whose licence is not allowed.
pub(crate) fn problems() -> Result<Vec<String>> {
    let tree = ["tree", "--workspace", "--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}|{l}|"];
    Ok(refused(&process::read(process::cargo().args(tree))?))
}

/// Reads lines `package|licence|`, which may repeat.
fn refused(tree: &str) -> Vec<String> {
    let mut lines: Vec<&str> = tree.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    lines.dedup();
    let packages = lines.into_iter().filter_map(|line| {
        let mut parts = line.split('|');
        Some((parts.next()?, parts.next().unwrap_or_default()))
    });
    let mut found: Vec<String> = packages
        .filter(|(_, licence)| !spdx::allows(licence, ALLOWED))
        .map(|(package, licence)| {
            format!("{package} has the licence `{licence}`, which is not in crates/xtask/src/licences.rs")
        })
        .collect();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::refused;

    #[test]
    fn only_what_is_not_allowed_is_named() {
        let tree =
            "good v1.0.0|MIT OR Apache-2.0|\n\nbad v2.0.0|GPL-3.0-only|\nbad v2.0.0|GPL-3.0-only| (*)\nnone v1.0.0||\n";
        let found = refused(tree);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("bad v2.0.0 has the licence `GPL-3.0-only`"), "{found:?}");
        assert!(found[1].starts_with("none v1.0.0 has the licence ``"), "{found:?}");
    }
}
