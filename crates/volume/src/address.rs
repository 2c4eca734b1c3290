//! From a URL, a path or a kvstore to a [`Location`].

use std::path::PathBuf;
use std::sync::Arc;

use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore};

use crate::amazon::{AmazonSettings, amazon};
use crate::client::PatientClient;
use crate::gate::Gate;
use crate::location::Location;
use crate::store::{Store, once};
use crate::{Environment, StorageCounters, VolumeError};

const SCHEMES: &str = "s3://, gs://, az://, abfs://, http://, https:// (read only), file://, memory:// or a plain path";

/// The location of a URL or a plain path. In a URL, percent escapes are decoded; spaces and `+` stand for themselves.
pub(crate) async fn locate(text: &str, environment: &Environment) -> Result<Location, VolumeError> {
    let Some((scheme, rest)) = text.split_once("://") else { return local(text, environment) };
    if rest.contains(['?', '#']) {
        return Err(VolumeError::usage(format!(
            "the URL {text:?} has a query or a fragment, which is not supported: write ? as %3F and # as %23"
        )));
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let decoded = |path: &str| Path::from_url_path(path).map_err(|error| bad_url(text, &error));
    if authority.contains('@') && !scheme.starts_with("abfs") {
        // Not repeated: it may hold a password, and would stand in every message about the location.
        return Err(VolumeError::usage(format!(
            "a {scheme}:// URL names a user or a password, which is not supported: give credentials by the environment"
        )));
    }
    match scheme {
        "file" => local(&format!("/{}", decoded(path)?), environment),
        "memory" => Ok(in_memory(decoded(rest)?, environment)),
        _ => remote(scheme, authority, decoded(path)?, &AmazonSettings::default(), environment).await,
    }
}

/// The location of `path`, not escaped, in the memory store of the environment.
pub(crate) fn in_memory(path: Path, environment: &Environment) -> Location {
    let store: Arc<dyn ObjectStore> = environment.memory();
    location(Store::local(store), &format!("memory://{}", shown(&path)), path)
}

/// The location of a path in the local file system; relative to the working directory unless absolute.
pub(crate) fn local(text: &str, environment: &Environment) -> Result<Location, VolumeError> {
    let bad = |error: &dyn std::fmt::Display| VolumeError::usage(format!("the path {text:?} is not usable: {error}"));
    if text.is_empty() {
        return Err(VolumeError::usage("a path is empty: give the folder of a Zarr array or an OME-Zarr group"));
    }
    let directory = settled(std::path::absolute(text).map_err(|error| bad(&error))?);
    let root = Path::from_absolute_path(&directory).map_err(|error| bad(&error))?;
    let url = directory.to_string_lossy().trim_end_matches('/').to_owned();
    let mut location = location(Store::local(Arc::new(LocalFileSystem::new())), &url, root);
    location.directory = Some(directory);
    location.confined = environment.confinement();
    Ok(location)
}

/// The location of a decoded path in a bucket, container or server.
///
/// Locations of one bucket share its client, its credentials and its limit on requests.
pub(crate) async fn remote(
    scheme: &str,
    authority: &str,
    path: Path,
    settings: &AmazonSettings,
    environment: &Environment,
) -> Result<Location, VolumeError> {
    // Two names of one scheme must not hide that two locations are one.
    let scheme = match scheme {
        "s3a" => "s3",
        "gcs" => "gs",
        "azure" => "az",
        "abfss" => "abfs",
        other => other,
    };
    let base = format!("{scheme}://{authority}");
    if authority.is_empty() {
        return Err(VolumeError::usage(format!(
            "the URL {base} names no bucket, container or host: write {base}NAME/PATH"
        )));
    }
    let name = format!("{base} {settings:?}");
    let store = match environment.known_store(&name) {
        Some(store) => store,
        None => environment.keep_store(name, store(&base, authority, settings, environment).await?),
    };
    let mut location = location(store, &format!("{base}/{}", shown(&path)), path);
    location.read_only = scheme.starts_with("http");
    Ok(location)
}

fn location(store: Store, url: &str, root: Path) -> Location {
    let url = if url.ends_with("://") { url } else { url.trim_end_matches('/') }.to_owned();
    let counters = StorageCounters::default();
    Location { store, root, url, directory: None, confined: None, read_only: false, counters }
}

/// A new client for the bucket, container or server at `base`.
async fn store(
    base: &str,
    authority: &str,
    settings: &AmazonSettings,
    environment: &Environment,
) -> Result<Store, VolumeError> {
    let scheme = base.split(':').next().unwrap_or_default();
    if scheme == "s3" {
        return amazon(authority, settings, environment).await;
    }
    let gate = Arc::new(Gate::new(base.to_owned(), environment.network(), true, None));
    let client = PatientClient::new(Arc::clone(&gate))?;
    let objects = match scheme {
        "gs" => google(authority, client, environment),
        "az" | "abfs" => azure(base, client, environment),
        "http" | "https" => http(base, client),
        _ => {
            return Err(VolumeError::usage(format!(
                "the URL scheme {scheme}:// is not supported: it must be {SCHEMES}"
            )));
        }
    };
    let objects = objects.map_err(|error| {
        VolumeError::usage(format!("cannot set up a client for {base}: {error}")).with_source(error)
    })?;
    Ok(Store { objects, gate: Some(gate), credentials: None, region: None })
}

fn google(
    bucket: &str,
    client: PatientClient,
    environment: &Environment,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut builder = GoogleCloudStorageBuilder::new().with_http_connector(client).with_retry(once());
    for (name, value) in environment.with_prefix("GOOGLE_") {
        if let Ok(key) = name.to_ascii_lowercase().parse::<GoogleConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    if environment.network().anonymous {
        builder = builder.with_skip_signature(true);
    }
    Ok(Arc::new(builder.with_bucket_name(bucket).build()?))
}

fn azure(base: &str, client: PatientClient, environment: &Environment) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut builder = MicrosoftAzureBuilder::new().with_http_connector(client).with_retry(once());
    let mut plain = false;
    for (name, value) in environment.with_prefix("AZURE_") {
        if let Ok(key) = name.to_ascii_lowercase().parse::<AzureConfigKey>() {
            plain |= matches!(key, AzureConfigKey::Endpoint) && value.starts_with("http://");
            builder = builder.with_config(key, value);
        }
    }
    if plain {
        builder = builder.with_allow_http(true);
    }
    if environment.network().anonymous {
        builder = builder.with_skip_signature(true);
    }
    Ok(Arc::new(builder.with_url(base).build()?))
}

fn http(base: &str, client: PatientClient) -> object_store::Result<Arc<dyn ObjectStore>> {
    let options = ClientOptions::new().with_allow_http(base.starts_with("http://"));
    let builder = HttpBuilder::new().with_url(base).with_client_options(options);
    Ok(Arc::new(builder.with_http_connector(client).with_retry(once()).build()?))
}

/// The path with the symbolic links and dots of its existing part resolved, so that one place has one name.
fn settled(path: PathBuf) -> PathBuf {
    for ancestor in path.ancestors() {
        if let Ok(real) = ancestor.canonicalize() {
            let rest = path.strip_prefix(ancestor).unwrap_or(std::path::Path::new(""));
            return rest.components().fold(real, |path, part| path.join(part));
        }
    }
    path
}

/// A decoded path as part of a URL that [`locate`] reads back.
fn shown(path: &Path) -> String {
    path.as_ref().replace('%', "%25").replace('?', "%3F").replace('#', "%23")
}

fn bad_url(text: &str, error: &object_store::path::Error) -> VolumeError {
    VolumeError::usage(format!("the URL {text:?} is not usable: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn urls_are_read_back_and_keep_spaces_and_plus() {
        let environment = Environment::new([("AWS_REGION".to_owned(), "us-west-2".to_owned())]);
        for (text, root) in [
            ("s3://bucket/my vol/a+b.zarr/", "my vol/a+b.zarr"),
            ("s3://b/a%20b/%23", "a b/#"),
            ("memory://x/y", "x/y"),
        ] {
            let location = locate(text, &environment).await.unwrap();
            assert_eq!(location.root.as_ref(), root);
            assert_eq!(locate(&location.url, &environment).await.unwrap().root.as_ref(), root);
        }
        assert_eq!(locate("https://host/a/b", &environment).await.unwrap().url, "https://host/a/b");
        assert!(locate("https://host/a/b", &environment).await.unwrap().read_only);
    }

    #[tokio::test]
    async fn local_paths_have_one_name() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let here = local(&format!("{}/new one/a+b", base.display()), &Environment::empty()).unwrap();
        let there = locate(&format!("file://{}/new%20one/a+b", base.display()), &Environment::empty()).await.unwrap();
        assert_eq!(here.url, there.url);
        assert!(
            here.overlaps(&format!("{}/new one", base.display())) && !here.overlaps(&format!("{}/new", base.display()))
        );
    }

    #[tokio::test]
    async fn bad_urls_say_what_is_allowed() {
        for (text, part) in [
            ("ftp://host/x", "s3://"),
            ("s3:///x", "bucket"),
            ("s3://b/x?versionId=1", "%3F"),
            ("", "empty"),
            ("https://me:hunter2@host/x", "password"),
        ] {
            let error = locate(text, &Environment::empty()).await.unwrap_err();
            assert!(error.message.contains(part) && !error.message.contains("hunter2"), "{error}");
        }
    }
}
