//! Which folders of this machine files may lie in, for whoever works for others: a link inside a volume must not lead out of what they may
//! use. What is compared is where a file is when it is used, links followed.

use std::io;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::location::Stored;

/// Folders, links followed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Confined {
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
}

impl Confined {
    /// Whether `file` may be read; one that is not there may.
    pub(crate) async fn reads(&self, file: &Path) -> io::Result<bool> {
        match tokio::fs::canonicalize(file).await {
            Ok(real) => Ok(within(&self.read, &real)),
            // A name that leads nowhere gives nothing.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether something may be written at `file`: what counts is the folder that it will lie in, since a link there is written over.
    pub(crate) async fn writes(&self, file: &Path) -> io::Result<bool> {
        for folder in file.ancestors().skip(1) {
            match tokio::fs::canonicalize(folder).await {
                Ok(real) => return Ok(within(&self.write, &real)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match tokio::fs::symlink_metadata(folder).await {
                        // It leads nowhere yet.
                        Ok(found) if found.is_symlink() => return Ok(false),
                        // Somebody else has made it meanwhile.
                        Ok(_) => return Ok(within(&self.write, &tokio::fs::canonicalize(folder).await?)),
                        // It will be made, below the first that is there.
                        Err(_) => {}
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

impl Confined {
    /// Every file below `directory` that may be read; a folder that links lead out of what may be read is not looked into. Blocks.
    pub(crate) fn files(&self, directory: &Path) -> impl Iterator<Item = io::Result<Stored>> {
        let folders = self.read.clone();
        let stays = move |path: &Path| path.canonicalize().is_ok_and(|real| within(&folders, &real));
        let root = directory.to_owned();
        let entries = WalkDir::new(directory).follow_links(true).into_iter();
        // Only a link leads elsewhere, and the directory itself may be one.
        let entries =
            entries.filter_entry(move |entry| (entry.depth() > 0 && !entry.path_is_symlink()) || stays(entry.path()));
        entries.filter_map(move |entry| {
            let entry = match entry {
                Ok(entry) => entry,
                // A folder that is not there has no files, and a link that leads nowhere, or to where it lies, is none.
                Err(error) if error.loop_ancestor().is_some() => return None,
                Err(error) => {
                    let error = io::Error::from(error);
                    return (error.kind() != io::ErrorKind::NotFound).then_some(Err(error));
                }
            };
            let parts = entry.path().strip_prefix(&root).ok()?.iter().map(|part| part.to_str());
            let key = parts.collect::<Option<Vec<_>>>()?.join("/");
            // As the store names what it has not finished.
            let unfinished = key.rsplit_once('#').is_some_and(|(_, n)| n.bytes().all(|digit| digit.is_ascii_digit()));
            if !entry.file_type().is_file() || unfinished {
                return None;
            }
            Some(entry.metadata().map(|found| Stored { key, size: found.len() }).map_err(io::Error::from))
        })
    }
}

fn within(folders: &[PathBuf], real: &Path) -> bool {
    folders.iter().any(|folder| real.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use crate::address::locate;
    use crate::{Environment, VolumeErrorKind};

    #[tokio::test]
    async fn links_lead_nowhere_that_may_not_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let [inside, outside] = ["inside", "outside"].map(|name| root.join(name));
        for folder in [&inside, &outside] {
            std::fs::create_dir_all(folder.join("c")).unwrap();
            std::fs::write(folder.join("c/0"), "voxels").unwrap();
        }
        symlink(outside.join("c/0"), inside.join("c/link")).unwrap();
        symlink(outside.join("c"), inside.join("folder")).unwrap();
        symlink(outside.join("new"), inside.join("nowhere")).unwrap();
        symlink(inside.join("c/0"), inside.join("c/fine")).unwrap();
        let environment = Environment::empty().confined(vec![inside.clone()], vec![inside.clone()]);
        let place = locate(inside.to_str().unwrap(), &environment).await.unwrap();
        for key in ["c/0", "c/fine"] {
            assert_eq!(place.get(key).await.unwrap().unwrap(), "voxels", "{key}");
        }
        assert!(place.get("c/1").await.unwrap().is_none());
        let error = place.get("c/0/below").await.unwrap_err();
        assert!(error.message.contains("Not a directory"), "{error}");
        symlink(&inside, inside.join("c/round")).unwrap();
        std::fs::write(inside.join("c/0#1"), "half").unwrap();
        let mut listed: Vec<_> = place.list().await.unwrap().into_iter().map(|found| (found.key, found.size)).collect();
        listed.sort_unstable();
        assert_eq!(listed, [("c/0".to_owned(), 6), ("c/fine".to_owned(), 6)]);
        assert!(place.exists().await.unwrap() && place.size("c/link").await.is_err());
        assert!(!place.at("folder").exists().await.unwrap() && place.at("missing").list().await.unwrap().is_empty());
        std::fs::remove_file(inside.join("c/round")).unwrap();
        for key in ["c/link", "folder/0"] {
            let error = place.get(key).await.unwrap_err();
            assert!(error.kind == VolumeErrorKind::Unavailable && error.message.contains("may not be used"), "{error}");
            assert!(place.get_suffix(key, 2).await.is_err() && place.get_range(key, 0..2).await.is_err(), "{key}");
        }
        for key in ["folder/1", "folder/deep/1", "nowhere/1"] {
            for done in [place.put(key, "x".into()).await.is_ok(), place.create(key, "x".into()).await.is_ok()] {
                assert!(!done, "{key}");
            }
        }
        assert!(place.delete("folder/0").await.is_err() && place.at("folder").delete_all().await.is_err());
        assert!(outside.join("c/0").exists() && !outside.join("c/1").exists() && !outside.join("new").exists());
        // A link in the place of an object is written over, and what it led to is not.
        place.put("c/link", "mine".into()).await.unwrap();
        assert_eq!(std::fs::read(outside.join("c/0")).unwrap(), b"voxels");
        place.put("new/deep/0", "mine".into()).await.unwrap();
        assert_eq!(place.get("new/deep/0").await.unwrap().unwrap(), "mine");
        // Many may make a folder at one time.
        for round in 0..20 {
            let puts = (0..32).map(|i| (format!("fresh/{round}/{i}"), &place));
            let puts = puts.map(|(key, place)| async move { place.put(&key, "mine".into()).await });
            futures::future::try_join_all(puts).await.unwrap();
        }
    }
}
