//! A place in a store: the only module through which bytes come and go.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use reqwest::StatusCode;

use crate::client::Failure;
use crate::confined::Confined;
use crate::local::below;
use crate::retry::{Failed, persist};
use crate::store::Store;
use crate::upload::upload;
use crate::{Piece, StorageCounters, VolumeError, VolumeErrorKind};

/// A prefix in a store. Keys are relative to it. Cloning shares store and counters.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    pub(crate) store: Store,
    /// The prefix in the store.
    pub(crate) root: Path,
    /// The prefix as a URL or an absolute local path, without a slash at its end.
    pub(crate) url: String,
    /// The directory, if the store is the local file system.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) read_only: bool,
    /// Which folders its files may lie in; any if none, and where it is no folder of this machine.
    pub(crate) confined: Option<Arc<Confined>>,
    pub(crate) counters: StorageCounters,
}

/// An object below a location.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// Relative to the location.
    pub(crate) key: String,
    /// Bytes.
    pub(crate) size: u64,
}

impl Stored {
    /// Whether it describes an array or a group rather than holding voxels.
    pub(crate) fn is_metadata(&self) -> bool {
        let name = self.key.rsplit('/').next().unwrap_or_default();
        [".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json"].contains(&name)
    }
}

/// The address at which clouds tell their machines which credentials to use.
const MACHINE_METADATA: &str = "169.254.169.254";

impl Location {
    /// The location at `child`, a relative key of one or more parts.
    pub(crate) fn at(&self, child: &str) -> Self {
        let mut location = self.clone();
        for part in child.split('/').filter(|part| !part.is_empty()) {
            location.root = location.root.clone().join(part);
            location.url = location.url_of(part);
            location.directory = location.directory.map(|directory| below(&directory, part));
        }
        location
    }

    /// The same location, counted by other counters.
    pub(crate) fn with_counters(mut self, counters: &StorageCounters) -> Self {
        self.counters = counters.clone();
        self
    }

    /// The object's full name, for messages.
    pub(crate) fn url_of(&self, key: &str) -> String {
        let slash = if self.url.ends_with('/') { "" } else { "/" };
        format!("{}{slash}{key}", self.url)
    }

    /// A whole object, or `None` if there is none.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Bytes>, VolumeError> {
        self.get_with(key, None).await.map_err(|failed| self.failed("read", key, failed))
    }

    /// A range of bytes of an object; shorter than asked for if the object ends before.
    pub(crate) async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>, VolumeError> {
        match self.get_with(key, Some(GetRange::Bounded(range.clone()))).await {
            Ok(bytes) => Ok(bytes),
            // A store refuses a range that starts past the end, which would look like a store that is out of order.
            Err(failed) if refuses_ranges(&failed.error) => match self.size(key).await? {
                Some(size) if size <= range.start => Ok(Some(Bytes::new())),
                _ => Err(self.failed("read", key, failed)),
            },
            Err(failed) => Err(self.failed("read", key, failed)),
        }
    }

    /// The last `length` bytes of an object; all of it if it is shorter.
    pub(crate) async fn get_suffix(&self, key: &str, length: u64) -> Result<Option<Bytes>, VolumeError> {
        match self.get_with(key, Some(GetRange::Suffix(length))).await {
            Ok(bytes) => return Ok(bytes),
            // Some stores have no suffix ranges, and none has one of an empty object.
            Err(failed) if refuses_ranges(&failed.error) => {}
            Err(failed) => return Err(self.failed("read", key, failed)),
        }
        let Some(size) = self.size(key).await? else { return Ok(None) };
        if size == 0 {
            return Ok(Some(Bytes::new()));
        }
        self.get_range(key, size.saturating_sub(length)..size).await
    }

    /// Bytes of an object and where they lie in it, unless they are more than `most`; or `None` if there is no object.
    pub(crate) async fn piece(
        &self,
        key: &str,
        range: Option<GetRange>,
        most: u64,
    ) -> Result<Option<Piece>, VolumeError> {
        // A folder is no object, as it is none elsewhere.
        if let Some(directory) = &self.directory
            && tokio::fs::metadata(below(directory, key)).await.is_ok_and(|found| found.is_dir())
        {
            return Ok(None);
        }
        if !self.is_regular(key).await.map_err(|failed| self.failed("read", key, failed))? {
            return Ok(None);
        }
        let (path, range) = (&self.path(key), &range);
        let fetched = persist(&self.store, &self.counters, || async move {
            let since = Instant::now();
            let options = GetOptions { range: range.clone(), ..GetOptions::default() };
            let answer = match self.store.objects.get_opts(path, options).await {
                Ok(answer) => answer,
                Err(object_store::Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let (at, size) = (answer.range.clone(), answer.meta.size);
            let fits = at.end.saturating_sub(at.start) <= most;
            let bytes = if fits { answer.bytes().await? } else { Bytes::new() };
            self.counters.fetched(bytes.len(), since);
            Ok(Some(Piece { bytes, start: at.start, stop: at.end, size }))
        });
        match fetched.await {
            Ok(piece) => Ok(piece),
            // A store refuses ranges of which an object has nothing, which would look like a store that is out of order.
            Err(failed) if range.is_some() && refuses_ranges(&failed.error) => match (self.size(key).await?, range) {
                (None, _) => Ok(None),
                (Some(0), _) => Ok(Some(Piece { bytes: Bytes::new(), start: 0, stop: 0, size: 0 })),
                (Some(size), Some(GetRange::Bounded(range))) if size <= range.start => {
                    Ok(Some(Piece { bytes: Bytes::new(), start: size, stop: size, size }))
                }
                (Some(size), Some(GetRange::Offset(start))) if size <= *start => {
                    Ok(Some(Piece { bytes: Bytes::new(), start: size, stop: size, size }))
                }
                _ => Err(self.failed("read", key, failed)),
            },
            Err(failed) => Err(self.failed("read", key, failed)),
        }
    }

    /// Size of an object in bytes, or `None` if there is none.
    pub(crate) async fn size(&self, key: &str) -> Result<Option<u64>, VolumeError> {
        if !self.is_regular(key).await.map_err(|failed| self.failed("read", key, failed))? {
            return Ok(None);
        }
        let path = &self.path(key);
        let head = persist(&self.store, &self.counters, || async move {
            self.counters.asked();
            match self.store.objects.head(path).await {
                Ok(meta) => Ok(Some(meta.size)),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        });
        head.await.map_err(|failed| self.failed("read", key, failed))
    }

    /// The store's tag of an object's content. None on a local disk, where a tag changes when a file is copied.
    pub(crate) async fn tag(&self, key: &str) -> Result<Option<String>, VolumeError> {
        if self.directory.is_some() {
            return Ok(None);
        }
        let path = &self.path(key);
        let answer = persist(&self.store, &self.counters, || async move {
            self.counters.asked();
            // A web server may know gets only.
            let answer = self.store.objects.get_opts(path, GetOptions::default()).await;
            answer.map(|result| result.meta.e_tag)
        });
        answer.await.map_err(|failed| self.failed("read", key, failed))
    }

    /// Puts a whole object, replacing what was there.
    pub(crate) async fn put(&self, key: &str, bytes: Bytes) -> Result<(), VolumeError> {
        self.stays(key).await?;
        let since = Instant::now();
        let (path, bytes) = (&self.path(key), &bytes);
        let put = persist(&self.store, &self.counters, || upload(&self.store, path, bytes.clone()));
        put.await.map_err(|failed| self.failed("write", key, failed))?;
        self.counters.put(bytes.len(), since);
        Ok(())
    }

    /// Puts an object that must not exist yet; `false` if it does, which may be from a try of this call whose answer was lost.
    pub(crate) async fn create(&self, key: &str, bytes: Bytes) -> Result<bool, VolumeError> {
        self.stays(key).await?;
        let since = Instant::now();
        let (path, bytes) = (&self.path(key), &bytes);
        let created = persist(&self.store, &self.counters, || async move {
            let payload = PutPayload::from_bytes(bytes.clone());
            self.store.objects.put_opts(path, payload, PutMode::Create.into()).await
        });
        match created.await {
            Ok(_) => {
                self.counters.put(bytes.len(), since);
                Ok(true)
            }
            Err(Failed { error: object_store::Error::AlreadyExists { .. }, .. }) => Ok(false),
            Err(failed) => Err(self.failed("create", key, failed)),
        }
    }

    /// Waits until everything that was put is on the disk, where this is one; other stores acknowledge only then.
    pub(crate) async fn sync(&self) -> Result<(), VolumeError> {
        let Some(directory) = self.directory.clone() else { return Ok(()) };
        let synced = tokio::task::spawn_blocking(move || {
            // The folder itself may not be there yet, but one around it is.
            let found = directory.ancestors().find_map(|folder| std::fs::File::open(folder).ok());
            found.map_or(Ok(()), |folder| rustix::fs::syncfs(folder).map_err(std::io::Error::from))
        });
        match synced.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                let message = format!("what was written to {} cannot be brought onto the disk: {error}", self.url);
                Err(VolumeError::new(VolumeErrorKind::Unavailable, message).with_source(error))
            }
            Err(error) => Err(VolumeError::internal(format!("syncing {} was cut short: {error}", self.url))),
        }
    }

    /// Whether this is a file on the local disk, where there should be a folder.
    pub(crate) fn is_file(&self) -> bool {
        self.directory.as_ref().is_some_and(|directory| directory.is_file())
    }

    /// Whether anything is stored here.
    pub(crate) async fn exists(&self) -> Result<bool, VolumeError> {
        if self.is_file() {
            return Ok(true);
        }
        if let Some(found) = self.found(|files| files.next().transpose().map(|file| file.is_some())).await {
            return found;
        }
        let found = persist(&self.store, &self.counters, || async move {
            self.counters.asked();
            match self.store.objects.list(Some(&self.root)).next().await {
                None | Some(Err(object_store::Error::NotFound { .. })) => Ok(false),
                Some(Ok(_)) => Ok(true),
                Some(Err(error)) => Err(error),
            }
        });
        found.await.map_err(|failed| self.failed("list", "", failed))
    }

    /// Every object below this location.
    ///
    /// # Errors
    /// `Unavailable` if the store fails, or cannot list, as web servers cannot.
    pub(crate) async fn list(&self) -> Result<Vec<Stored>, VolumeError> {
        if self.read_only {
            return Err(VolumeError::new(
                VolumeErrorKind::Unavailable,
                format!("{} is on a web server, which does not list what it has", self.url),
            ));
        }
        if let Some(listed) = self.found(|files| files.collect()).await {
            return listed;
        }
        let listed = persist(&self.store, &self.counters, || async move {
            self.counters.asked();
            let objects = self.store.objects.list(Some(&self.root)).map_ok(|meta| {
                let parts: Vec<String> = meta
                    .location
                    .prefix_match(&self.root)
                    .into_iter()
                    .flatten()
                    .map(|part| part.as_ref().to_owned())
                    .collect();
                Stored { key: parts.join("/"), size: meta.size }
            });
            match objects.try_collect().await {
                Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
                listed => listed,
            }
        });
        listed.await.map_err(|failed| self.failed("list", "", failed))
    }

    /// Deletes everything below this location, and nothing else.
    pub(crate) async fn delete_all(&self) -> Result<(), VolumeError> {
        self.stays("what lies in it").await?;
        let Some(directory) = self.directory.clone() else {
            let deleted = persist(&self.store, &self.counters, || async move {
                self.counters.asked();
                let objects = self.store.objects.list(Some(&self.root)).map_ok(|meta| meta.location).boxed();
                self.store.objects.delete_stream(objects).try_for_each(|_| async { Ok(()) }).await
            });
            return deleted.await.map_err(|failed| self.failed("delete", "", failed));
        };
        let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(directory)).await;
        match removed {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                Err(VolumeError::new(VolumeErrorKind::Unavailable, format!("cannot delete {}: {error}", self.url))
                    .with_source(error))
            }
            Err(error) => Err(VolumeError::internal(format!("deleting {} was cut short: {error}", self.url))),
        }
    }

    /// Deletes one object. None there is none the less well deleted.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), VolumeError> {
        self.stays(key).await?;
        let path = &self.path(key);
        let deleted = persist(&self.store, &self.counters, || async move {
            self.counters.asked();
            match self.store.objects.delete(path).await {
                Err(object_store::Error::NotFound { .. }) => Ok(()),
                deleted => deleted,
            }
        });
        deleted.await.map_err(|failed| self.failed("delete", key, failed))
    }

    /// Whether the two are one place, or one lies inside the other.
    pub(crate) fn overlaps(&self, other_url: &str) -> bool {
        let [one, other] = [&self.url, other_url].map(|url| format!("{}/", url.trim_end_matches('/')));
        one.starts_with(&other) || other.starts_with(&one)
    }

    async fn get_with(&self, key: &str, range: Option<GetRange>) -> Result<Option<Bytes>, Failed> {
        if !self.is_regular(key).await? {
            return Ok(None);
        }
        let (path, range) = (&self.path(key), &range);
        persist(&self.store, &self.counters, || async move {
            let since = Instant::now();
            let options = GetOptions { range: range.clone(), ..GetOptions::default() };
            let answer = match self.store.objects.get_opts(path, options).await {
                Ok(result) => result.bytes().await.map(Some),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            };
            let length = answer.as_ref().ok().and_then(Option::as_ref).map_or(0, Bytes::len);
            self.counters.fetched(length, since);
            answer
        })
        .await
    }

    fn path(&self, key: &str) -> Path {
        key.split('/').filter(|part| !part.is_empty()).fold(self.root.clone(), |path, part| path.join(part))
    }

    pub(crate) fn failed(&self, verb: &str, key: &str, Failed { error, effort, transient }: Failed) -> VolumeError {
        let name = if key.is_empty() { self.url.clone() } else { self.url_of(key) };
        let kind = match error {
            object_store::Error::InvalidPath { .. } => VolumeErrorKind::Usage,
            _ if transient => VolumeErrorKind::Transient,
            _ => VolumeErrorKind::Unavailable,
        };
        let denied = |status| matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let text = match cause(&error) {
            Some(Failure::Refused(refusal)) if denied(refusal.status) => {
                format!("permission was denied, check the credentials: {refusal}")
            }
            Some(failure) => format!("the store does not do it: {failure}"),
            None => told(&error),
        };
        VolumeError::new(kind, format!("cannot {verb} {name}: {text}{effort}")).with_source(error)
    }
}

/// What the client found, if the error comes from there.
pub(crate) fn cause(error: &object_store::Error) -> Option<&Failure> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(failure) = cause.downcast_ref() {
            return Some(failure);
        }
        source = cause.source();
    }
    None
}

/// Whether there is an object at `place`, a URL or a path.
///
/// # Errors
/// `Usage` if it names no place; `Unavailable` if the store cannot be reached.
pub async fn exists(place: &str, environment: &crate::Environment) -> Result<bool, VolumeError> {
    let (folder, key) = match place.trim_end_matches('/').rsplit_once('/') {
        Some(("", key)) => ("/", key),
        Some(parts) => parts,
        None => (".", place),
    };
    Ok(crate::address::locate(folder, environment).await?.get(key).await?.is_some())
}

/// Whether the range is what the store did not like.
fn refuses_ranges(error: &object_store::Error) -> bool {
    match cause(error) {
        Some(Failure::Refused(refusal)) => {
            matches!(refusal.status, StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::NOT_IMPLEMENTED)
                || refusal.status == StatusCode::BAD_REQUEST
        }
        // The object store's own code, or the local disk.
        None => true,
        Some(_) => false,
    }
}

/// An error that is not the client's, in one line.
fn told(error: &object_store::Error) -> String {
    let text = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let text: String = text.chars().take(600).collect();
    // Without credentials the client asks the cloud machine it may run on for some.
    let advice = if text.contains(MACHINE_METADATA) { "no credentials were found" } else { "the store gave an error" };
    format!("{advice}: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn failures_name_the_object_and_what_to_do() {
        let location = crate::address::locate("memory://a/b", &crate::Environment::empty()).await.unwrap();
        let source = format!("PUT http://{MACHINE_METADATA}/latest/api/token failed");
        let error = object_store::Error::Generic { store: "S3", source: source.into() };
        let error = location.failed("read", "c/0", Failed { error, effort: "; given up".to_owned(), transient: false });
        assert_eq!(error.kind, VolumeErrorKind::Unavailable);
        assert!(error.message.starts_with("cannot read memory://a/b/c/0: no credentials were found"), "{error}");
        assert!(error.message.ends_with("; given up"), "{error}");
    }
}
