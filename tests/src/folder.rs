//! Folders: what is in them, to see whether anything was touched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Every file below a folder, with its bytes and the time at which it was last changed.
pub type Contents = BTreeMap<PathBuf, (Vec<u8>, SystemTime)>;

/// What is in `folder`; nothing if it does not exist.
#[must_use]
pub fn contents(folder: &Path) -> Contents {
    let mut found = Contents::new();
    collect(folder, &mut found);
    found
}

fn collect(folder: &Path, found: &mut Contents) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else {
            let changed = path.metadata().unwrap().modified().unwrap();
            found.insert(path.clone(), (std::fs::read(&path).unwrap(), changed));
        }
    }
}
