//! The files that a run writes beside its result: whether they can be written, and cost nobody anything.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::args::RunArgs;

/// What makes a folder part of a Zarr volume.
const ZARR: [&str; 4] = ["zarr.json", ".zarray", ".zgroup", ".zattrs"];

/// Checks `--metrics-json` and `--trace`: better told before the run than after it. What is in the files stays until then.
///
/// # Errors
/// A sentence with the key: two reports would be one file, one would be written over something else or into a volume, or cannot be
/// written.
pub(crate) fn check(args: &RunArgs, config: Option<&Path>) -> Result<(), String> {
    let reports = [("metrics-json", &args.metrics_json), ("trace", &args.trace)];
    if let (Some(metrics), Some(trace)) = (&args.metrics_json, &args.trace)
        && settled(metrics) == settled(trace)
    {
        return Err(format!("`metrics-json` and `trace` are both {}; give each a file of its own", metrics.display()));
    }
    for (key, path) in reports {
        let Some(path) = path else { continue };
        harmless(key, path, args, config)?;
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
        opened.map(drop).map_err(|error| format!("`{key}`: {} cannot be written: {error}", path.display()))?;
    }
    Ok(())
}

/// Whether nothing is lost if the report is written.
fn harmless(key: &str, path: &Path, args: &RunArgs, config: Option<&Path>) -> Result<(), String> {
    let place = settled(path);
    let named = |key: &'static str, path: Option<&Path>| path.map(|path| (key, settled(path)));
    let texts =
        args.output.iter().flatten().map(|text| ("out", text)).chain(args.input.iter().map(|text| ("in", text)));
    let volumes = texts.filter_map(|(key, text)| Some((key, settled(local(text)?))));
    let files = [
        named("config", config),
        named("model", args.model.as_deref()),
        named("registry", args.registry.as_deref()),
        named("python", args.python.as_deref()),
    ];
    if let Some((other, _)) = volumes.chain(files.into_iter().flatten()).find(|(_, other)| place.starts_with(other)) {
        return Err(format!("`{key}` is {}, which is where `{other}` lies; name another file", path.display()));
    }
    let volume = place.ancestors().skip(1).find(|folder| ZARR.iter().any(|name| folder.join(name).exists()));
    if let Some(volume) = volume {
        let (path, volume) = (path.display(), volume.display());
        return Err(format!("`{key}` is {path}, which lies in the Zarr volume {volume}; name another file"));
    }
    if !is_report(&place) {
        return Err(format!(
            "`{key}`: {} exists and is no report of haloflow; name another file, or delete it",
            path.display()
        ));
    }
    Ok(())
}

/// The path that is meant, with links followed as far as they exist.
fn settled(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let known = path.ancestors().find_map(|known| Some((known, known.canonicalize().ok()?)));
    match known.and_then(|(known, settled)| Some(settled.join(path.strip_prefix(known).ok()?))) {
        // Joining nothing would end in a slash.
        Some(settled) => settled.components().collect(),
        None => path,
    }
}

/// The path of a volume on this machine.
fn local(text: &str) -> Option<&Path> {
    let text = text.strip_prefix("file://").unwrap_or(text);
    (!text.contains("://") && !text.trim_start().starts_with('{')).then(|| Path::new(text))
}

/// Whether a file may be written over: there is none, it is empty, or it begins as JSON does.
fn is_report(path: &Path) -> bool {
    let mut first = [0; 1];
    match std::fs::metadata(path) {
        Err(_) => true,
        // A pipe or a terminal takes what it is given.
        Ok(file) if !file.is_file() => !file.is_dir(),
        Ok(file) if file.len() == 0 => true,
        Ok(_) => {
            let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut first));
            read.is_ok_and(|read| read == 0 || first[0] == b'{')
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(folder: &Path, change: impl FnOnce(&mut RunArgs)) -> String {
        let at = |name: &str| folder.join(name);
        let mut args = RunArgs {
            input: Some(at("in.zarr").display().to_string()),
            output: Some(vec![at("out.zarr").display().to_string()]),
            model: Some(at("net.pt")),
            metrics_json: Some(at("metrics.json")),
            ..RunArgs::default()
        };
        change(&mut args);
        check(&args, Some(&at("run.toml"))).err().unwrap_or_default()
    }

    #[test]
    fn a_report_is_written_over_nothing_but_a_report() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("in.zarr/0")).unwrap();
        std::fs::create_dir(at("other.zarr")).unwrap();
        for file in ["in.zarr/zarr.json", "other.zarr/.zarray", "net.pt", "run.toml", "notes.txt"] {
            std::fs::write(at(file), "x").unwrap();
        }
        std::os::unix::fs::symlink(at("net.pt"), at("link")).unwrap();
        let to = |name: &str| told(folder.path(), |args| args.metrics_json = Some(at(name)));
        for (name, part) in [
            ("in.zarr/zarr.json", "where `in` lies"),
            ("in.zarr/0/m.json", "where `in` lies"),
            ("out.zarr", "where `out` lies"),
            ("net.pt", "where `model` lies"),
            ("link", "where `model` lies"),
            ("run.toml", "where `config` lies"),
            ("other.zarr/m.json", "lies in the Zarr volume"),
            ("notes.txt", "no report of haloflow"),
            ("nowhere/m.json", "cannot be written"),
        ] {
            let told = to(name);
            assert!(told.contains("`metrics-json`") && told.contains(part), "{name}: {told}");
        }
        assert!(!at("out.zarr").exists());
        let both = told(folder.path(), |args| args.trace.clone_from(&args.metrics_json));
        assert!(both.contains("`metrics-json` and `trace` are both"), "{both}");
        assert_eq!(to("fresh.json"), "");
        std::fs::write(at("fresh.json"), "{}").unwrap();
        assert_eq!(to("fresh.json"), "");
    }
}
