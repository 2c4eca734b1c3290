//! The cache: what was made once and is kept. An entry is a folder that appears whole or not at all.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::ModelError;

/// A folder of entries.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The cache in `folder`, or else in the user's: `$XDG_CACHE_HOME/haloflow` or `~/.cache/haloflow`. `variable` looks a
    /// variable of the environment up.
    ///
    /// # Errors
    /// If none is named and neither variable tells where the user's is.
    pub fn new(
        folder: Option<&Path>,
        variable: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Result<Self, ModelError> {
        if let Some(folder) = folder {
            return Ok(Self { folder: folder.to_owned() });
        }
        // The XDG specification wants relative paths to be ignored.
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let user = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
        match user {
            Some(user) => Ok(Self { folder: user.join("haloflow") }),
            None => Err(ModelError::usage(
                "there is no folder for the cache: name one with `--cache FOLDER`, or set HOME or XDG_CACHE_HOME",
            )),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The entry `group`/`key`, made by `make` in an empty folder if there is none yet. Two callers at once, also of two
    /// processes, make it once: the other waits. What a failure or a crash leaves is never seen as an entry.
    ///
    /// # Errors
    /// What `make` fails with, or that the folder cannot be written to.
    pub fn entry(
        &self,
        group: &str,
        key: &str,
        make: impl FnOnce(&Path) -> Result<(), ModelError>,
    ) -> Result<PathBuf, ModelError> {
        let entry = self.folder.join(group).join(key);
        if entry.is_dir() {
            return Ok(entry);
        }
        let parent = self.folder.join(group);
        fs::create_dir_all(&parent).map_err(|error| ModelError::file(&parent, "made", &error))?;
        let lock = lock(&parent.join(format!("{key}.lock")))?;
        if !entry.is_dir() {
            self.fill(&entry, &parent.join(format!("{key}.part")), make)?;
        }
        drop(lock);
        Ok(entry)
    }

    /// Makes an entry, the lock being held.
    fn fill(
        &self,
        entry: &Path,
        part: &Path,
        make: impl FnOnce(&Path) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        if part.exists() {
            // Left by a process that ended early.
            fs::remove_dir_all(part).map_err(|error| ModelError::file(part, "removed", &error))?;
        }
        fs::create_dir(part).map_err(|error| ModelError::file(part, "made", &error))?;
        let made = make(part)
            .and_then(|()| fs::rename(part, entry).map_err(|error| ModelError::file(entry, "put in place", &error)));
        if made.is_err() {
            // The failure is what is to be told; the rest is removed by the next who tries, at the latest.
            drop(fs::remove_dir_all(part));
        }
        made
    }

    /// Removes an entry that turned out to be unsound.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn discard(&self, entry: &Path) -> Result<(), ModelError> {
        match fs::remove_dir_all(entry) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(ModelError::file(entry, "removed", &error))
            }
            _ => Ok(()),
        }
    }
}

/// Holds a lock until dropped; the system lets go of it when the process ends, however it does.
fn lock(path: &Path) -> Result<File, ModelError> {
    let told = |error: std::io::Error| ModelError::file(path, "locked", &error);
    let file = File::options().create(true).truncate(false).write(true).open(path).map_err(told)?;
    if let Err(fs::TryLockError::WouldBlock) = file.try_lock() {
        tracing::info!("waiting for another run that makes {}", path.with_extension("").display());
    }
    file.lock().map_err(told)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn write(folder: &Path, text: &str) -> Result<(), ModelError> {
        fs::write(folder.join("text"), text).map_err(|error| ModelError::file(folder, "written", &error))
    }

    #[test]
    fn many_at_once_make_an_entry_once() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { folder: folder.path().to_owned() };
        let made = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let entry = cache.entry("things", "a", |folder| {
                        made.fetch_add(1, Ordering::Relaxed);
                        write(folder, "whole")
                    });
                    assert_eq!(fs::read_to_string(entry.unwrap().join("text")).unwrap(), "whole");
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
    }

    #[test]
    fn a_failure_and_a_crash_leave_no_entry() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache { folder: folder.path().to_owned() };
        let failed = cache.entry("things", "a", |folder| {
            write(folder, "half")?;
            Err(ModelError::python("no compiler"))
        });
        assert_eq!(failed.unwrap_err().message, "no compiler");
        // As a process that was killed leaves it.
        fs::create_dir_all(folder.path().join("things/a.part")).unwrap();
        write(&folder.path().join("things/a.part"), "half").unwrap();
        let entry = cache.entry("things", "a", |folder| {
            assert!(!folder.join("text").exists());
            write(folder, "whole")
        });
        assert_eq!(fs::read_to_string(entry.unwrap().join("text")).unwrap(), "whole");
    }

    #[test]
    fn the_folder_follows_the_key_then_xdg_then_home() {
        let of = |key: Option<&str>, xdg: Option<&str>, home: Option<&str>| {
            let variable = |name: &str| if name == "HOME" { home } else { xdg }.map(Into::into);
            Cache::new(key.map(Path::new), variable).map(|cache| cache.folder.display().to_string())
        };
        assert_eq!(of(Some("here"), Some("/x"), Some("/h")).unwrap(), "here");
        assert_eq!(of(None, Some("/x"), Some("/h")).unwrap(), "/x/haloflow");
        assert_eq!(of(None, Some("relative"), Some("/h")).unwrap(), "/h/.cache/haloflow");
        assert!(of(None, None, None).unwrap_err().message.contains("--cache"));
    }
}
