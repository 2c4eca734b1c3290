//! Lists the Python files that are carried in the binary.

use std::fmt::Write;
use std::path::Path;
use std::process::exit;

const SOURCE: &str = "../engine-torch/python/haloflow_models";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    if let Err(error) = list() {
        println!("cargo::error=the Python files in {SOURCE} cannot be listed: {error}");
        exit(1);
    }
}

/// Writes `SOURCES`: name and text of every file, in order of their names.
fn list() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(SOURCE);
    let mut files: Vec<_> = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "py" || extension == "toml"));
    files.sort();
    let mut text = String::from("pub(crate) const SOURCES: &[(&str, &str)] = &[\n");
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Writing into a string cannot fail.
        let _ = writeln!(text, "    ({name:?}, include_str!({:?})),", file.display().to_string());
    }
    text.push_str("];\n");
    std::fs::write(Path::new(&std::env::var("OUT_DIR").unwrap_or_default()).join("sources.rs"), text)
}
