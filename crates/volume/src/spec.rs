//! What a user typed as an input or output: a URL, a path, or a TensorStore spec.

use object_store::path::Path;
use serde_json::{Map, Value};

use crate::address::{in_memory, local, locate, remote};
use crate::amazon::AmazonSettings;
use crate::layout::V3_KEYS;
use crate::location::Location;
use crate::{Element, Environment, VolumeError, ZarrFormat};

/// Keys of a spec. Those that cannot change what is read or written are accepted and have no effect.
const SPEC_KEYS: [&str; 15] = [
    "driver",
    "kvstore",
    "path",
    "metadata",
    "create",
    "open",
    "delete_existing",
    "dtype",
    "context",
    "cache_pool",
    "data_copy_concurrency",
    "recheck_cached",
    "recheck_cached_data",
    "recheck_cached_metadata",
    "store_data_equal_to_fill_value",
];
/// Keys that would change the meaning of a spec, so that ignoring them would give wrong data.
const REFUSED_KEYS: [&str; 10] = [
    "fill_missing_data_reads",
    "schema",
    "transform",
    "field",
    "metadata_key",
    "assume_metadata",
    "assume_cached_metadata",
    "delete",
    "rank",
    "key_encoding",
];
const V2_KEYS: [&str; 9] =
    ["shape", "chunks", "dtype", "compressor", "dimension_separator", "fill_value", "filters", "order", "zarr_format"];
/// Resources that a `context` may name. They cannot change what is read or written; haloflow has keys of its own for them.
const CONTEXT_KEYS: [(&str, &str); 9] = [
    ("cache_pool", "memory"),
    ("data_copy_concurrency", "threads"),
    ("file_io_concurrency", "requests"),
    ("s3_request_concurrency", "requests"),
    ("gcs_request_concurrency", "requests"),
    ("http_request_concurrency", "requests"),
    ("s3_request_retries", "request-deadline"),
    ("gcs_request_retries", "request-deadline"),
    ("http_request_retries", "request-deadline"),
];
const STORE_KEYS: [&str; 8] =
    ["driver", "path", "bucket", "base_url", "endpoint", "aws_region", "aws_credentials", "context"];

/// An input or output as typed.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A URL or a path.
    Place(Location),
    /// A TensorStore spec: always a bare array.
    Spec(Box<Spec>),
}

/// A TensorStore spec of a Zarr array.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) location: Location,
    pub(crate) format: ZarrFormat,
    /// The `metadata` member: what the array must have, or shall get.
    pub(crate) metadata: Map<String, Value>,
    pub(crate) create: Option<bool>,
    pub(crate) open: Option<bool>,
    pub(crate) delete_existing: bool,
    /// The kind of number it asks for.
    pub(crate) element: Option<Element>,
}

impl Source {
    /// Reads what was typed. A spec file is read from the local disk.
    ///
    /// # Errors
    /// `Usage` for anything that is not understood.
    pub(crate) async fn read(text: &str, environment: &Environment) -> Result<Self, VolumeError> {
        let text = text.trim();
        if text.starts_with('{') {
            return Ok(Self::Spec(Box::new(Spec::read(text, "the inline spec", environment).await?)));
        }
        let is_file = text.ends_with(".json") && !text.contains("://") && !std::path::Path::new(text).is_dir();
        if !is_file {
            return locate(text, environment).await.map(Self::Place);
        }
        let content = tokio::fs::read_to_string(text).await.map_err(|error| {
            VolumeError::usage(format!("cannot read the spec file {text}: {error}")).with_source(error)
        })?;
        Ok(Self::Spec(Box::new(Spec::read(&content, &format!("the spec file {text}"), environment).await?)))
    }

    pub(crate) fn location(&self) -> &Location {
        match self {
            Self::Place(location) => location,
            Self::Spec(spec) => &spec.location,
        }
    }
}

impl Spec {
    /// Reads a spec's JSON; `name` says in messages which one it is.
    async fn read(text: &str, name: &str, environment: &Environment) -> Result<Self, VolumeError> {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| VolumeError::usage(format!("{name} is not valid JSON: {error}")))?;
        let Value::Object(spec) = value else { return Err(VolumeError::usage(format!("{name} is not a JSON object"))) };
        if spec.contains_key("zarr_format") && !spec.contains_key("driver") {
            return Err(VolumeError::usage(format!(
                "{name} is the metadata of a Zarr node, not a spec: give the folder that holds it"
            )));
        }
        known_keys(&spec, &SPEC_KEYS, &REFUSED_KEYS, name)?;
        check_context(spec.get("context"), name)?;
        let format = format(&spec, name)?;
        let metadata = match spec.get("metadata") {
            None => Map::new(),
            Some(Value::Object(metadata)) => metadata.clone(),
            Some(other) => {
                return Err(VolumeError::usage(format!("the key metadata of {name} is {other}: it must be an object")));
            }
        };
        let allowed: &[&str] = if format == ZarrFormat::V2 { &V2_KEYS } else { &V3_KEYS };
        known_keys(&metadata, allowed, &[], &format!("the metadata of {name}"))?;
        let mut location = kvstore(spec.get("kvstore"), name, environment).await?;
        if let Some(path) = optional_text(&spec, "path", name)? {
            location = location.at(&path);
        }
        Ok(Self {
            location,
            format,
            element: element(&spec, &metadata, name)?,
            metadata,
            create: flag(&spec, "create", name)?,
            open: flag(&spec, "open", name)?,
            delete_existing: flag(&spec, "delete_existing", name)?.unwrap_or(false),
        })
    }
}

fn format(spec: &Map<String, Value>, name: &str) -> Result<ZarrFormat, VolumeError> {
    let other = match spec.get("driver").map(|driver| driver.as_str().unwrap_or("not a string")) {
        Some("zarr" | "zarr2") => return Ok(ZarrFormat::V2),
        Some("zarr3") => return Ok(ZarrFormat::V3),
        None => "missing".to_owned(),
        Some(other) => format!("{other:?}"),
    };
    Err(VolumeError::usage(format!("the key driver of {name} is {other}: it must be zarr, zarr2 or zarr3")))
}

fn element(
    spec: &Map<String, Value>,
    metadata: &Map<String, Value>,
    name: &str,
) -> Result<Option<Element>, VolumeError> {
    let given = metadata.get("dtype").or_else(|| metadata.get("data_type")).or_else(|| spec.get("dtype"));
    let Some(given) = given else { return Ok(None) };
    let text = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
    let element = if text == "|b1" || text == "bool" { Ok(Element::U8) } else { text.parse() };
    element.map(Some).map_err(|error: VolumeError| VolumeError::usage(format!("{name}: {}", error.message)))
}

async fn kvstore(value: Option<&Value>, name: &str, environment: &Environment) -> Result<Location, VolumeError> {
    let name = format!("the kvstore of {name}");
    let store = match value {
        Some(Value::String(url)) => return locate(url, environment).await,
        Some(Value::Object(store)) => store,
        _ => return Err(VolumeError::usage(format!("{name} is missing: it must be an object or a URL"))),
    };
    known_keys(store, &STORE_KEYS, &[], &name)?;
    check_context(store.get("context"), &name)?;
    let text = |key: &str| optional_text(store, key, &name);
    let required = |key: &str| {
        text(key)?.ok_or_else(|| VolumeError::usage(format!("{name} has no key {key}, which its driver needs")))
    };
    let path = text("path")?.unwrap_or_default();
    let key = || {
        Path::parse(path.trim_matches('/')).map_err(|error| VolumeError::usage(format!("the path of {name}: {error}")))
    };
    match required("driver")?.as_str() {
        "file" => local(&required("path")?, environment),
        "memory" => Ok(in_memory(key()?, environment)),
        "s3" => remote("s3", &required("bucket")?, key()?, &amazon_settings(store, &name)?, environment).await,
        "gcs" => remote("gs", &required("bucket")?, key()?, &AmazonSettings::default(), environment).await,
        "http" => locate(&format!("{}{path}", required("base_url")?), environment).await,
        other => {
            Err(VolumeError::usage(format!("the driver {other:?} of {name} must be file, s3, gcs, http or memory")))
        }
    }
}

/// Refuses resources that could change what is read or written, and says what stands for the others.
fn check_context(context: Option<&Value>, name: &str) -> Result<(), VolumeError> {
    let Some(Value::Object(context)) = context else { return Ok(()) };
    for key in context.keys() {
        // One resource may be given several names: `cache_pool#local`.
        let kind = key.split('#').next().unwrap_or_default();
        let Some((_, own)) = CONTEXT_KEYS.iter().find(|(known, _)| *known == kind) else {
            let known = CONTEXT_KEYS.map(|(known, _)| known).join(", ");
            return Err(VolumeError::usage(format!(
                "the key {key} in the context of {name} is not supported: it must be one of {known}"
            )));
        };
        tracing::info!("the key {key} in the context of {name} has no effect: `{own}` stands for it");
    }
    Ok(())
}

fn amazon_settings(store: &Map<String, Value>, name: &str) -> Result<AmazonSettings, VolumeError> {
    let anonymous = match store.get("aws_credentials").map(|credentials| credentials["type"].as_str().unwrap_or("?")) {
        None | Some("default" | "environment") => false,
        Some("anonymous") => true,
        Some(other) => {
            return Err(VolumeError::usage(format!(
                "the aws_credentials type {other:?} of {name} must be default, environment or anonymous"
            )));
        }
    };
    let text = |key: &str| optional_text(store, key, name);
    Ok(AmazonSettings { endpoint: text("endpoint")?, region: text("aws_region")?, anonymous })
}

fn optional_text(object: &Map<String, Value>, key: &str, name: &str) -> Result<Option<String>, VolumeError> {
    match object.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(VolumeError::usage(format!("the key {key} of {name} is {other}: it must be a string"))),
    }
}

fn flag(object: &Map<String, Value>, key: &str, name: &str) -> Result<Option<bool>, VolumeError> {
    match object.get(key) {
        None => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(other) => Err(VolumeError::usage(format!("the key {key} of {name} is {other}: it must be true or false"))),
    }
}

fn known_keys(object: &Map<String, Value>, allowed: &[&str], refused: &[&str], name: &str) -> Result<(), VolumeError> {
    let Some(key) = object.keys().map(String::as_str).find(|key| !allowed.contains(key)) else { return Ok(()) };
    if refused.contains(&key) {
        return Err(VolumeError::usage(format!("the key {key} of {name} is not supported: remove it")));
    }
    let likeness = |known: &str| strsim::jaro_winkler(key, known);
    let nearest =
        allowed.iter().copied().max_by(|one, other| likeness(one).total_cmp(&likeness(other))).unwrap_or_default();
    Err(VolumeError::usage(format!("the key {key} of {name} is unknown: the nearest known key is {nearest}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VolumeErrorKind;

    async fn error(text: &str) -> String {
        let error = Source::read(text, &Environment::empty()).await.unwrap_err();
        assert_eq!(error.kind, VolumeErrorKind::Usage);
        error.message
    }

    #[tokio::test]
    async fn specs_name_locations() {
        let environment = Environment::empty();
        for (text, url) in [
            (
                r#"{"driver": "zarr", "kvstore": {"driver": "s3", "bucket": "b", "path": "a b/c+d/"}, "path": "0"}"#,
                "s3://b/a b/c+d/0",
            ),
            (r#"{"driver": "zarr3", "kvstore": "gs://b/x"}"#, "gs://b/x"),
            (r#"{"driver": "zarr2", "kvstore": {"driver": "memory", "path": "m"}}"#, "memory://m"),
            (
                r#"{"driver": "zarr", "kvstore": {"driver": "http", "base_url": "https://host/a", "path": "/b"}}"#,
                "https://host/a/b",
            ),
            (r#"{"driver": "zarr", "kvstore": {"driver": "file", "path": "/nowhere/x/"}}"#, "/nowhere/x"),
        ] {
            assert_eq!(Source::read(text, &environment).await.unwrap().location().url, url);
        }
    }

    #[tokio::test]
    async fn unknown_keys_suggest_the_nearest() {
        let message = error(r#"{"driver": "zarr", "kvstore": "memory://x", "delete_exsting": true}"#).await;
        assert!(message.contains("delete_exsting") && message.contains("delete_existing"), "{message}");
        let message = error(r#"{"driver": "zarr", "kvstore": "memory://x", "metadata": {"chunk": [1]}}"#).await;
        assert!(message.contains("chunks"), "{message}");
        let message = error(r#"{"driver": "zarr3", "kvstore": "memory://x", "schema": {}}"#).await;
        assert!(message.contains("schema") && message.contains("remove"), "{message}");
        let message = error(r#"{"driver": "zarr", "kvstore": "memory://x", "context": {"aws_credentials": {}}}"#).await;
        assert!(message.contains("aws_credentials") && message.contains("cache_pool"), "{message}");
        let spec =
            r#"{"driver": "zarr", "kvstore": "memory://x", "context": {"cache_pool#a": {}, "s3_request_retries": {}}}"#;
        Source::read(spec, &Environment::empty()).await.unwrap();
        assert!(error(r#"{"driver": "n5", "kvstore": "memory://x"}"#).await.contains("zarr3"));
        assert!(error(r#"{"driver": "zarr""#).await.contains("JSON"));
        assert!(error("/nowhere/spec.json").await.contains("/nowhere/spec.json"));
        assert!(error(r#"{"driver": "zarr", "kvstore": {"driver": "s3", "path": "x"}}"#).await.contains("bucket"));
    }
}
