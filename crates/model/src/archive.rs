//! Zip archives: what one holds, told by the names in it, and unpacking one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use zip::ZipArchive;

use crate::cache::Cache;
use crate::checksum::sha256_of_file;
use crate::error::ModelError;

/// What a file holds. PyTorch's own formats are zip archives too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A module with its code.
    TorchScript,
    /// A program of `torch.export`.
    Program,
    /// An AOTInductor package.
    Package,
    /// Weights, or anything else that was pickled, without code.
    Checkpoint,
    /// A folder of a model.
    Folder,
    /// None of these.
    Unknown,
}

/// Looks at the names in the archive at `path`.
pub(crate) fn content(path: &Path) -> Result<Content, ModelError> {
    let file = File::open(path).map_err(|error| ModelError::file(path, "read", &error))?;
    let Ok(archive) = ZipArchive::new(file) else { return Ok(Content::Unknown) };
    Ok(of_names(archive.file_names()))
}

fn of_names<'a>(names: impl Iterator<Item = &'a str>) -> Content {
    let mut found = Content::Unknown;
    for name in names {
        let file = name.rsplit('/').next().unwrap_or_default();
        let depth = name.matches('/').count();
        found = match found {
            Content::Package | Content::Folder => return found,
            _ if name.contains("/data/aotinductor/") || name.starts_with("data/aotinductor/") => Content::Package,
            _ if depth <= 1 && ["model.toml", "rdf.yaml", "bioimageio.yaml"].contains(&file) => Content::Folder,
            _ if name.contains("models/") && file.ends_with(".json") => Content::Program,
            Content::Unknown | Content::Checkpoint if name.contains("/code/") => Content::TorchScript,
            Content::Unknown if file == "data.pkl" => Content::Checkpoint,
            other => other,
        };
    }
    found
}

/// The folder of the archive at `path`, unpacked once into the cache.
pub(crate) fn unpacked(path: &Path, cache: &Cache) -> Result<PathBuf, ModelError> {
    let sum = sha256_of_file(path)?;
    let folder = cache.entry("unpacked", &sum[..32], |folder| unpack(path, folder))?;
    // A model's files lie at the top, or in the one folder there.
    let entries: Vec<PathBuf> = fs::read_dir(&folder)
        .map_err(|error| ModelError::file(&folder, "read", &error))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    Ok(match entries.as_slice() {
        [only] if only.is_dir() => only.clone(),
        _ => folder,
    })
}

fn unpack(path: &Path, folder: &Path) -> Result<(), ModelError> {
    let told = |error: &dyn std::fmt::Display| ModelError::file(path, "unpacked", error);
    let file = File::open(path).map_err(|error| told(&error))?;
    let mut archive = ZipArchive::new(file).map_err(|error| told(&error))?;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|error| told(&error))?;
        let Some(name) = entry.enclosed_name().map(Path::to_owned) else {
            return Err(told(&format!("it holds `{}`, which would lie outside its folder", entry.name())));
        };
        let to = folder.join(name);
        if entry.is_dir() {
            fs::create_dir_all(&to).map_err(|error| told(&error))?;
            continue;
        }
        fs::create_dir_all(to.parent().unwrap_or(folder)).map_err(|error| told(&error))?;
        let mut out = File::create(&to).map_err(|error| told(&error))?;
        io::copy(&mut entry, &mut out).map_err(|error| told(&error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn zipped(names: &[&str]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut zip = zip::ZipWriter::new(File::create(file.path()).unwrap());
        for name in names {
            zip.start_file(*name, zip::write::FileOptions::default()).unwrap();
            zip.write_all(name.as_bytes()).unwrap();
        }
        zip.finish().unwrap();
        file
    }

    #[test]
    fn formats_are_told_by_what_they_hold() {
        let table: [(&[&str], Content); 7] = [
            (&["net/data.pkl", "net/code/__torch__.py", "net/data/0"], Content::TorchScript),
            (&["archive/data.pkl", "archive/data/0"], Content::Checkpoint),
            (&["p/models/model.json", "p/data/weights/w0"], Content::Program),
            (&["m/archive_format", "m/data/aotinductor/model/a.so"], Content::Package),
            (&["model.toml", "module.ts"], Content::Folder),
            (&["zoo/rdf.yaml", "zoo/weights.pt"], Content::Folder),
            (&["notes.txt"], Content::Unknown),
        ];
        for (names, expected) in table {
            assert_eq!(content(zipped(names).path()).unwrap(), expected, "{names:?}");
        }
        let text = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(content(text.path()).unwrap(), Content::Unknown);
    }

    #[test]
    fn an_archive_is_unpacked_once_and_never_beside_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(folder.path()), |_| None).unwrap();
        let at_top = zipped(&["model.toml", "compiled/a.toml"]);
        let unpacked_to = unpacked(at_top.path(), &cache).unwrap();
        assert_eq!(fs::read_to_string(unpacked_to.join("compiled/a.toml")).unwrap(), "compiled/a.toml");
        assert_eq!(unpacked(at_top.path(), &cache).unwrap(), unpacked_to);
        let inside = unpacked(zipped(&["net/model.toml", "net/module.ts"]).path(), &cache).unwrap();
        assert!(inside.ends_with("net") && inside.join("model.toml").exists());
        let told = unpacked(zipped(&["../escaped"]).path(), &cache).unwrap_err().message;
        assert!(told.contains("../escaped"), "{told}");
    }
}
