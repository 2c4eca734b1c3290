//! From a job's keys to a run that could begin, and the places that it would touch.

use std::path::{Path, PathBuf};

use haloflow_service::runner::Prepared;
use haloflow_volume::{Environment, Place};
use serde_json::{Map, Value};
use tokio::runtime::Handle;

use crate::args::RunArgs;
use crate::config;
use crate::machine::Machine;
use crate::ready;

/// Keys that a job may not have, and why.
const REFUSED: [(&str, &str); 10] = [
    ("python", "it would run as the daemon's user"),
    ("registry", "it names code"),
    ("cache", "it is the daemon's"),
    ("metrics-json", "the report is at /v1/jobs/ID/report"),
    ("trace", "it would be written on the daemon's machine"),
    ("diagnosis", "it would be written on the daemon's machine"),
    ("otlp-endpoint", "traces go where the daemon's do"),
    ("interruption-notice", "the daemon watches for its own"),
    ("log-format", "it is the daemon's"),
    ("log-level", "it is the daemon's"),
];

/// Switches of the whole process: all jobs have the daemon's.
const SHARED: [&str; 2] = ["tf32", "cudnn-benchmark"];

/// What a job is checked against.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// The daemon's own keys, which hold where a job does not say otherwise.
    pub(super) defaults: RunArgs,
    /// Where models may lie; links followed.
    pub(super) models: Vec<PathBuf>,
    /// Memory of a job that does not name its own, bytes.
    pub(super) memory: u64,
}

/// Checks a job. A model outside the models' folders is not looked at.
///
/// # Errors
/// One sentence per key that cannot work.
pub(super) async fn check(rules: Rules, typed: Value, environment: &Environment) -> Result<Prepared, Vec<String>> {
    let Value::Object(typed) = typed else { return Err(vec!["`config` must be an object of keys".into()]) };
    let mut errors = refused(&typed, &rules.defaults);
    let mut args = match args(typed, &rules.defaults) {
        Ok(args) => args,
        Err(told) => {
            errors.extend(told);
            return Err(errors);
        }
    };
    args.memory.get_or_insert_with(|| rules.memory.to_string());
    let model = match &args.model {
        Some(model) => real(model, &mut errors).await,
        None => None,
    };
    if let Some(model) = &model {
        args.model = Some(model.clone());
    }
    let reads: Vec<&String> = args.input.iter().chain(&args.mask).collect();
    let reads = places(&reads, environment, &mut errors).await;
    let writes: Vec<&String> = args.output.iter().flatten().collect();
    let writes = places(&writes, environment, &mut errors).await;
    let allowed = model.as_ref().is_some_and(|model| rules.models.iter().any(|folder| model.starts_with(folder)));
    let (looked_at, machine) = (args.clone(), Machine::here());
    let looking = tokio::task::spawn_blocking(move || ready::checked(looked_at, &machine, allowed));
    let memory_bytes = match looking.await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(told)) => {
            errors.extend(told.into_iter().filter(|sentence| !errors.contains(sentence)).collect::<Vec<_>>());
            0
        }
        Err(error) => return Err(vec![format!("the check ended unexpectedly: {error}")]),
    };
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(Prepared {
        config: serde_json::to_value(&args).map_err(|error| vec![error.to_string()])?,
        input: reads.first().cloned().unwrap_or_default(),
        outputs: writes.clone(),
        model: model.as_ref().map(|model| model.display().to_string()).unwrap_or_default(),
        reads,
        writes,
        models: model.into_iter().collect(),
        memory_bytes,
    })
}

fn refused(typed: &Map<String, Value>, defaults: &RunArgs) -> Vec<String> {
    let own = REFUSED.iter().filter(|(key, _)| typed.contains_key(*key));
    let own = own.map(|(key, why)| format!("`{key}` is not for jobs: {why}; leave it out"));
    let daemon = serde_json::to_value(defaults).unwrap_or_default();
    let shared = SHARED.iter().filter(|key| {
        let of_daemon = daemon[**key].as_bool().unwrap_or(false);
        typed.get(**key).is_some_and(|value| *value != of_daemon)
    });
    let shared = shared.map(|key| {
        format!("`{key}` is {} for all jobs of this daemon; leave it out", daemon[*key].as_bool().unwrap_or(false))
    });
    let part = typed.get("part").or(typed.get("shard")).is_some_and(|part| {
        part == "auto" || part.as_array().is_some_and(|parts| parts.iter().any(|part| part == "auto"))
    });
    let part = part.then(|| "`part` is auto, and the daemon is no part of an array; give it as I/N".to_owned());
    let explain = (typed.get("resume") == Some(&"explain".into()))
        .then(|| "`resume` is explain, which a job cannot; `haloflow run --resume explain` does".to_owned());
    own.chain(shared).chain(part).chain(explain).collect()
}

/// The keys, each checked by itself so that all errors are told, laid over the daemon's.
fn args(typed: Map<String, Value>, defaults: &RunArgs) -> Result<RunArgs, Vec<String>> {
    let known = config::known_keys();
    let (mut keys, mut errors) = (Map::new(), Vec::new());
    for (key, value) in typed {
        if !known.contains(&key) {
            errors.push(config::unknown(&key, &known));
            continue;
        }
        // By its first name, whatever it was called.
        let alone = Value::Object(Map::from_iter([(key.clone(), value.clone())]));
        match serde_json::from_value::<RunArgs>(alone).map(|args| serde_json::to_value(&args)) {
            Ok(Ok(Value::Object(named))) => keys.extend(named),
            Ok(_) => {}
            Err(error) => errors.push(format!("`{key}` is {value}: {error}")),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let Ok(Value::Object(mut all)) = serde_json::to_value(defaults) else { return Ok(defaults.clone()) };
    all.extend(keys);
    serde_json::from_value(Value::Object(all)).map_err(|error| vec![error.to_string()])
}

/// The model's path with links followed.
async fn real(model: &Path, errors: &mut Vec<String>) -> Option<PathBuf> {
    if !model.is_absolute() {
        errors.push(format!("`model` is {}; a job has to name it by its absolute path", model.display()));
        return None;
    }
    match tokio::fs::canonicalize(model).await {
        Ok(model) => Some(model),
        Err(_) => {
            errors.push(format!("`model`: there is no {} that the daemon can read", model.display()));
            None
        }
    }
}

/// The places of what was typed: URLs, or absolute paths with links followed.
async fn places(typed: &[&String], environment: &Environment, errors: &mut Vec<String>) -> Vec<String> {
    let mut found = Vec::new();
    for text in typed {
        if let Some(sentence) = unfit(text) {
            errors.push(sentence);
            continue;
        }
        // A path is looked at on its disk, which may be far away.
        let (text, environment, runtime) = ((*text).clone(), environment.clone(), Handle::current());
        let finding = tokio::task::spawn_blocking(move || runtime.block_on(Place::find(&text, &environment)));
        match finding.await {
            Ok(Ok(place)) => found.push(place.url().to_owned()),
            Ok(Err(error)) => errors.push(error.to_string()),
            Err(error) => errors.push(format!("the check ended unexpectedly: {error}")),
        }
    }
    found
}

/// What a job may not name as a place, although a run may.
fn unfit(text: &str) -> Option<String> {
    let text = text.trim();
    if text.starts_with('{') {
        let spec: Value = serde_json::from_str(text).unwrap_or_default();
        let store = &spec["kvstore"];
        let chosen = ["endpoint", "aws_credentials"].into_iter().find(|key| !store[*key].is_null());
        return chosen.map(|key| format!("a spec names `{key}`, which is the daemon's to choose; leave it out"));
    }
    if text.contains("://") || text.starts_with('/') && !text.ends_with(".json") {
        return None;
    }
    if text.ends_with(".json") {
        return Some(format!("{text} is a file; a job has to give the spec itself"));
    }
    Some(format!("{text:?} is not absolute; a job has to give a URL or an absolute path"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn told(config: Value) -> Vec<String> {
        let rules = Rules { defaults: RunArgs::default(), models: Vec::new(), memory: 1 << 30 };
        check(rules, config, &Environment::empty()).await.unwrap_err()
    }

    #[tokio::test]
    async fn all_that_is_wrong_is_told_at_once() {
        let errors = told(json!({
            "in": "/data/in.zarr", "out": ["/x/out.zarr"], "model": "net.ts", "patch": "many", "overlop": 3, "python": "/bin/sh",
            "tf32": true,
        }))
        .await;
        for part in [
            "`python` is not for jobs",
            "`tf32` is false for all jobs",
            "`patch` is \"many\"",
            "did you mean `overlap`?",
        ] {
            assert!(errors.iter().any(|error| error.contains(part)), "{part}: {errors:?}");
        }
        let errors =
            told(json!({ "in": "relative.zarr", "out": ["/etc/spec.json"], "model": "net.ts", "seam-mode": "glue" }))
                .await;
        for part in [
            "\"relative.zarr\" is not absolute",
            "/etc/spec.json is a file",
            "`model` is net.ts",
            "`seam-mode` is glue",
        ] {
            assert!(errors.iter().any(|error| error.contains(part)), "{part}: {errors:?}");
        }
    }

    #[tokio::test]
    async fn a_store_of_somebody_elses_is_not_asked() {
        let spec = json!({ "driver": "zarr3", "kvstore": { "driver": "s3", "bucket": "b", "path": "p", "endpoint": "http://evil.org" } });
        let errors = told(json!({ "in": spec.to_string(), "out": ["/x"], "model": "/nowhere/net.ts" })).await;
        assert!(errors.iter().any(|error| error.contains("`endpoint`, which is the daemon's to choose")), "{errors:?}");
    }
}
