//! Conventions that no compiler knows: the length of files, their names, and the paths that documents mention.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process;

const LONGEST: usize = 500;
const SOURCE: &[&str] = &["rs", "py", "cc", "h"];
/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["common", "util", "utils", "helper", "helpers", "manager", "misc"];
/// Folders that hold no source of ours.
const SKIPPED: &[&str] = &["target", "golden", "__pycache__"];

/// Names every breach.
pub(crate) fn problems() -> Result<Vec<String>> {
    let root = process::root();
    let mut files = Vec::new();
    for folder in ["crates", "tests", "examples", "docs"] {
        walk(&root.join(folder), &mut files)?;
    }
    files.extend(["README.md", "CONTRIBUTING.md"].map(|name| root.join(name)).into_iter().filter(|file| file.exists()));
    let mut found = Vec::new();
    for file in &files {
        let name = file.strip_prefix(root).unwrap_or(file);
        let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if SOURCE.contains(&extension) {
            found.extend(source_problems(name, &read(file)?));
        } else if extension == "md" {
            let text = read(file)?;
            let missing = mentioned_paths(&text).into_iter().filter(|path| !root.join(path).exists());
            found.extend(missing.map(|path| format!("{} mentions `{path}`, which does not exist", name.display())));
        }
    }
    Ok(found)
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))
}

/// Collects the files below `folder`, in order; none if there is no such folder.
fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let entries = fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_symlink() || name.starts_with('.') || SKIPPED.contains(&name) {
            continue;
        }
        if path.is_dir() {
            walk(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn source_problems(name: &Path, text: &str) -> Vec<String> {
    let (file, lines) = (name.display(), text.lines().count());
    let mut found = Vec::new();
    if lines > LONGEST {
        found.push(format!("{file} has {lines} lines; {LONGEST} are allowed"));
    }
    let says_nothing = |part: &str| EMPTY_NAMES.contains(&part.split('.').next().unwrap_or(part));
    if name.iter().filter_map(|part| part.to_str()).any(says_nothing) {
        found.push(format!("{file} has a name that says nothing about what is inside"));
    }
    if name.starts_with("crates/pipeline/src") && text.contains("env::var") {
        found.push(format!("{file} reads an environment variable; the pipeline gets its settings from its caller"));
    }
    found
}

/// What a document has in backticks and looks like a path in this repository.
fn mentioned_paths(text: &str) -> Vec<&str> {
    const TOPS: [&str; 7] = ["crates/", "config/", "tests/", "examples/", "docs/", ".ci/", ".cargo/"];
    let spans = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let plain = |span: &&str| !span.contains([' ', '*', '<', '{', '$', '…']);
    spans.filter(plain).filter(|span| TOPS.iter().any(|top| span.starts_with(top))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_and_empty_names_are_named() {
        let found = source_problems(Path::new("crates/volume/src/utils.rs"), &"\n".repeat(LONGEST + 1));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("501 lines"), "{found:?}");
        assert_eq!(source_problems(Path::new("crates/volume/src/chunk.rs"), &"\n".repeat(LONGEST)), [""; 0]);
    }

    #[test]
    fn the_pipeline_reads_no_environment() {
        let text = "let x = std::env::var(\"X\");";
        assert_eq!(source_problems(Path::new("crates/pipeline/src/plan.rs"), text).len(), 1);
        assert_eq!(source_problems(Path::new("crates/cli/src/main.rs"), text).len(), 0);
    }

    #[test]
    fn paths_in_backticks_are_found() {
        let text = "See `crates/engine/src/lib.rs` and `docs/`,\nnot `crates/*/src`, `cargo test` or `a/b`; `.ci/run`.";
        assert_eq!(mentioned_paths(text), ["crates/engine/src/lib.rs", "docs/", ".ci/run"]);
    }
}
