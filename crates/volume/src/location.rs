//! A place in a store: the only module through which bytes come and go.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use crate::{StorageCounters, VolumeError, VolumeErrorKind};

/// How long the first answer of a store may take.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_secs(15);

/// How often a get is repeated whose body broke off; what fails before the body is retried by `object_store`.
const BODY_RETRIES: usize = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// A prefix in a store. Keys are relative to it. Cloning shares store and counters.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// The prefix in the store.
    pub(crate) root: Path,
    /// The prefix as a URL or an absolute local path, without a slash at its end.
    pub(crate) url: String,
    /// The directory, if the store is the local file system.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) read_only: bool,
    pub(crate) counters: StorageCounters,
}

/// The address at which clouds tell their machines which credentials to use.
const MACHINE_METADATA: &str = "169.254.169.254";

const DENIED: &str = "permission was denied, check the credentials";

/// Where a get failed: before its body came, or within it.
enum Failure {
    Head(object_store::Error),
    Body(object_store::Error),
}

impl Location {
    /// The location at `child`, a relative key of one or more parts.
    pub(crate) fn at(&self, child: &str) -> Self {
        let mut location = self.clone();
        for part in child.split('/').filter(|part| !part.is_empty()) {
            location.root = location.root.clone().join(part);
            location.url = location.url_of(part);
            location.directory = location.directory.map(|directory| directory.join(part));
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
        self.get_with(key, None).await
    }

    /// A range of bytes of an object; shorter than asked for if the object ends before.
    pub(crate) async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>, VolumeError> {
        let answer = self.get_with(key, Some(GetRange::Bounded(range.clone()))).await;
        // A store refuses a range that starts past the end, which would look like a store that is out of order.
        match (&answer, if answer.is_err() { self.size(key).await? } else { None }) {
            (Err(_), Some(size)) if size <= range.start => Ok(Some(Bytes::new())),
            _ => answer,
        }
    }

    /// The last `length` bytes of an object; all of it if it is shorter.
    pub(crate) async fn get_suffix(&self, key: &str, length: u64) -> Result<Option<Bytes>, VolumeError> {
        if let Ok(answer) = self.get_with(key, Some(GetRange::Suffix(length))).await {
            return Ok(answer);
        }
        // Some stores have no suffix ranges, and none has one of an empty object.
        let Some(size) = self.size(key).await? else { return Ok(None) };
        if size == 0 {
            return Ok(Some(Bytes::new()));
        }
        self.get_range(key, size.saturating_sub(length)..size).await
    }

    /// Size of an object in bytes, or `None` if there is none.
    pub(crate) async fn size(&self, key: &str) -> Result<Option<u64>, VolumeError> {
        self.counters.asked();
        match self.store.head(&self.path(key)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("read", key, error)),
        }
    }

    /// The store's tag of an object's content. None on a local disk, where a tag changes when a file is copied.
    pub(crate) async fn tag(&self, key: &str) -> Result<Option<String>, VolumeError> {
        if self.directory.is_some() {
            return Ok(None);
        }
        self.counters.asked();
        // A web server may know gets only.
        let answer = self.store.get_opts(&self.path(key), GetOptions::default()).await;
        answer.map(|result| result.meta.e_tag).map_err(|error| self.failed("read", key, error))
    }

    /// Puts a whole object, replacing what was there.
    pub(crate) async fn put(&self, key: &str, bytes: Bytes) -> Result<(), VolumeError> {
        let since = Instant::now();
        let length = bytes.len();
        self.store
            .put(&self.path(key), PutPayload::from_bytes(bytes))
            .await
            .map_err(|error| self.failed("write", key, error))?;
        self.counters.put(length, since);
        Ok(())
    }

    /// Puts an object that must not exist yet; `false` if it does.
    pub(crate) async fn create(&self, key: &str, bytes: Bytes) -> Result<bool, VolumeError> {
        let (since, length) = (Instant::now(), bytes.len());
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.store.put_opts(&self.path(key), PutPayload::from_bytes(bytes), options).await {
            Ok(_) => {
                self.counters.put(length, since);
                Ok(true)
            }
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(self.failed("create", key, error)),
        }
    }

    /// The keys of all objects here.
    pub(crate) async fn list(&self) -> Result<Vec<String>, VolumeError> {
        self.counters.asked();
        let key = |meta: object_store::ObjectMeta| {
            let parts = meta.location.prefix_match(&self.root)?;
            Some(parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/"))
        };
        let keys = self.store.list(Some(&self.root)).try_filter_map(|meta| async move { Ok(key(meta)) });
        match keys.try_collect().await {
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            keys => keys.map_err(|error| self.failed("list", "", error)),
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
        self.counters.asked();
        let mut objects = self.store.list(Some(&self.root));
        match objects.next().await {
            None | Some(Err(object_store::Error::NotFound { .. })) => Ok(false),
            Some(Ok(_)) => Ok(true),
            Some(Err(error)) => Err(self.failed("list", "", error)),
        }
    }

    /// Deletes everything below this location, and nothing else.
    pub(crate) async fn delete_all(&self) -> Result<(), VolumeError> {
        self.counters.asked();
        let Some(directory) = self.directory.clone() else {
            let objects = self.store.list(Some(&self.root)).map_ok(|meta| meta.location).boxed();
            let deleted = self.store.delete_stream(objects).try_for_each(|_| async { Ok(()) }).await;
            return deleted.map_err(|error| self.failed("delete", "", error));
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

    /// Whether the two are one place, or one lies inside the other.
    pub(crate) fn overlaps(&self, other_url: &str) -> bool {
        let [one, other] = [&self.url, other_url].map(|url| format!("{}/", url.trim_end_matches('/')));
        one.starts_with(&other) || other.starts_with(&one)
    }

    async fn get_with(&self, key: &str, range: Option<GetRange>) -> Result<Option<Bytes>, VolumeError> {
        let mut pause = FIRST_PAUSE;
        for _ in 0..BODY_RETRIES {
            match self.get_once(key, range.clone()).await {
                Err(Failure::Body(_)) => tokio::time::sleep(pause).await,
                Err(Failure::Head(error)) => return Err(self.failed("read", key, error)),
                Ok(bytes) => return Ok(bytes),
            }
            pause *= 2;
        }
        let last = self.get_once(key, range).await;
        last.map_err(|(Failure::Head(error) | Failure::Body(error))| self.failed("read", key, error))
    }

    async fn get_once(&self, key: &str, range: Option<GetRange>) -> Result<Option<Bytes>, Failure> {
        let since = Instant::now();
        let options = GetOptions { range, ..GetOptions::default() };
        let answer = match self.store.get_opts(&self.path(key), options).await {
            Ok(result) => result.bytes().await.map(Some).map_err(Failure::Body),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Failure::Head(error)),
        };
        let length = answer.as_ref().ok().and_then(Option::as_ref).map_or(0, Bytes::len);
        self.counters.fetched(length, since);
        answer
    }

    fn path(&self, key: &str) -> Path {
        key.split('/').filter(|part| !part.is_empty()).fold(self.root.clone(), |path, part| path.join(part))
    }

    fn failed(&self, verb: &str, key: &str, error: object_store::Error) -> VolumeError {
        use object_store::Error::{InvalidPath, PermissionDenied, Unauthenticated};
        let name = if key.is_empty() { self.url.clone() } else { self.url_of(key) };
        let kind = match error {
            InvalidPath { .. } => VolumeErrorKind::Usage,
            _ => VolumeErrorKind::Unavailable,
        };
        let text = one_line(&error);
        let advice = match error {
            PermissionDenied { .. } | Unauthenticated { .. } => DENIED,
            // A refused listing comes as an error of no kind.
            _ if [" 401 Unauthorized", " 403 Forbidden"].iter().any(|status| text.contains(status)) => DENIED,
            // Without credentials the client asks the cloud machine it may run on for some.
            _ if text.contains(MACHINE_METADATA) => {
                "no credentials were found, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket"
            }
            _ => "the store gave an error",
        };
        VolumeError::new(kind, format!("cannot {verb} {name}: {advice}: {text}")).with_source(error)
    }
}

/// Waits for the first answer of a store, but not for ever.
pub(crate) async fn first_answer<T>(
    url: &str,
    answer: impl Future<Output = Result<T, VolumeError>>,
) -> Result<T, VolumeError> {
    tokio::time::timeout(FIRST_ANSWER, answer).await.unwrap_or_else(|_| {
        let seconds = FIRST_ANSWER.as_secs();
        Err(VolumeError::new(
            VolumeErrorKind::Unavailable,
            format!("{url} gave no answer within {seconds} s: check that the endpoint is reachable and that credentials are set"),
        ))
    })
}

fn one_line(error: &object_store::Error) -> String {
    let text = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars().take(600).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_the_object_and_what_to_do() {
        let location = crate::address::locate("memory://a/b", &crate::Environment::empty()).unwrap();
        let generic = |text: &str| object_store::Error::Generic { store: "S3", source: text.to_owned().into() };
        let error = location.failed("read", "c/0", generic("PUT http://169.254.169.254/latest/api/token failed"));
        assert_eq!(error.kind, VolumeErrorKind::Unavailable);
        assert!(error.message.contains("memory://a/b/c/0") && error.message.contains("AWS_SKIP_SIGNATURE"), "{error}");
        assert!(!location.failed("list", "", generic("reset")).message.contains("AWS_"));
        let denied = location.failed("list", "", generic("status code: 403 Forbidden: <Error/>"));
        assert!(denied.message.contains("check the credentials"), "{denied}");
    }
}
