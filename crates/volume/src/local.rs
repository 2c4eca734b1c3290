//! What only the local disk needs of a location: that an object is a file, and that it lies where it may be used.

use std::io;
use std::path::{Path, PathBuf};

use object_store::Error;
use object_store::path::PathPart;

use crate::VolumeError;
use crate::location::{Location, Stored};
use crate::retry::Failed;

/// What is said of a file that a link puts elsewhere.
const OUTSIDE: &str = "links followed, it lies in a folder that may not be used";

impl Location {
    /// Whether there is a file under `key`, or might be one: only the local disk is looked at. What is there and is no file is an error:
    /// a link that leads nowhere stands for data that was not fetched, a folder or a pipe for a mistake, and none for a chunk that was
    /// never written.
    pub(crate) async fn is_regular(&self, key: &str) -> Result<bool, Failed> {
        let Some(directory) = &self.directory else { return Ok(true) };
        let file = below(directory, key);
        if let Some(confined) = &self.confined
            && !confined.reads(&file).await.map_err(|error| unsettled(&error))?
        {
            return Err(refused(OUTSIDE));
        }
        let what = match tokio::fs::metadata(&file).await {
            Ok(found) if found.is_file() => return Ok(true),
            Ok(found) if found.is_dir() => "it is a folder and should be a file",
            Ok(_) => "it is no ordinary file",
            // Whatever else is wrong the store tells.
            Err(_) => match tokio::fs::symlink_metadata(&file).await {
                Ok(_) => "it is a link to something that does not exist or cannot be read",
                Err(error) => return Ok(error.kind() != std::io::ErrorKind::NotFound),
            },
        };
        Err(refused(what))
    }

    /// Refuses to write or delete what lies, links followed, where nothing may be written.
    pub(crate) async fn stays(&self, key: &str) -> Result<(), VolumeError> {
        let (Some(directory), Some(confined)) = (&self.directory, &self.confined) else { return Ok(()) };
        match confined.writes(&below(directory, key)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.failed("write", key, refused(OUTSIDE))),
            Err(error) => Err(self.failed("write", key, unsettled(&error))),
        }
    }

    /// What `look` makes of the files below this location; none if they need not be looked at one by one.
    pub(crate) async fn found<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut dyn Iterator<Item = io::Result<Stored>>) -> io::Result<T> + Send + 'static,
    ) -> Option<Result<T, VolumeError>> {
        let (confined, directory) = (self.confined.clone()?, self.directory.clone()?);
        let looked = tokio::task::spawn_blocking(move || look(&mut confined.files(&directory))).await;
        let looked = looked.unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
        Some(looked.map_err(|error| self.failed("list", "", unsettled(&error))))
    }
}

/// The file that the store opens for `key`: it writes characters that URLs do not have in their encoded form.
pub(crate) fn below(directory: &Path, key: &str) -> PathBuf {
    key.split('/').fold(directory.to_owned(), |place, part| place.join(PathPart::from(part).as_ref()))
}

fn refused(what: &'static str) -> Failed {
    let error = Error::Generic { store: "LocalFileSystem", source: what.into() };
    Failed { error, effort: String::new(), transient: false }
}

/// It could not be found out where something lies: another try may help, unless permission is missing.
fn unsettled(error: &io::Error) -> Failed {
    let transient = error.kind() != io::ErrorKind::PermissionDenied;
    let error = Error::Generic { store: "LocalFileSystem", source: error.to_string().into() };
    Failed { error, effort: String::new(), transient }
}

#[cfg(test)]
mod tests {
    use super::below;

    #[tokio::test]
    async fn the_file_that_is_looked_at_is_the_one_that_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().to_str().unwrap();
        let location = crate::address::locate(place, &crate::Environment::empty()).await.unwrap();
        for key in ["c/0", "a~b", "x/[1]", "d%7E"] {
            let file = below(folder.path(), key);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, key).unwrap();
            assert_eq!(location.get(key).await.unwrap().as_deref(), Some(key.as_bytes()), "{key}");
        }
        // What has such a name itself is another file.
        std::fs::write(folder.path().join("b~"), "other").unwrap();
        assert_eq!(location.get("b~").await.unwrap(), None);
    }
}
