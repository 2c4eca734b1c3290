//! From what was typed for the daemon to what it means.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haloflow_service::ServiceSettings;
use haloflow_service::queue::Capacity;
use haloflow_service::roots::Roots;
use haloflow_service::settings::{Keep, Limits, Token};

use super::args::ServeArgs;
use crate::args::RunArgs;
use crate::machine::Machine;
use crate::typed::{Errors, time};

/// The variable that holds the token itself.
pub(crate) const TOKEN_VARIABLE: &str = "HALOFLOW_TOKEN";

/// What a job's own drain is given on top, to be recorded and reported.
const LAST_STEPS: Duration = Duration::from_secs(3);

/// The daemon's settings, and those of what runs jobs.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) settings: ServiceSettings,
    /// Idle engines per device.
    pub(crate) idle_engines: usize,
    /// The folder of the job table.
    pub(crate) state: PathBuf,
}

/// Makes the settings of a daemon on `machine`. Reads the token, and looks whether the models' folders are there.
///
/// # Errors
/// One sentence per key that cannot work.
pub(crate) fn serving(args: &ServeArgs, defaults: &RunArgs, machine: &Machine) -> Result<Serving, Vec<String>> {
    let mut errors = Errors::default();
    let listen = args.listen.as_deref().unwrap_or("127.0.0.1:8470");
    let listen = listen.parse::<SocketAddr>().unwrap_or_else(|_| {
        errors.tell(&format!("`listen` is {listen}; give an IP address and a port, such as 127.0.0.1:8470"));
        SocketAddr::from(([127, 0, 0, 1], 0))
    });
    let token = token(args.token_file.as_deref(), &mut errors);
    let state = state(args, &mut errors);
    let writable = args.write.clone().unwrap_or_default();
    let readable: Vec<String> = args.read.iter().flatten().chain(&writable).cloned().collect();
    let settings = ServiceSettings {
        listen,
        token,
        hosts: args.hosts.clone().unwrap_or_default(),
        read_roots: roots("read", &readable, &mut errors),
        write_roots: roots("write", &writable, &mut errors),
        models: folders(args.models.as_deref().unwrap_or_default(), &mut errors),
        table: state.join("jobs.sqlite"),
        capacity: Capacity {
            jobs: args.jobs_at_once.unwrap_or(1),
            memory_bytes: size("budget", args.budget.as_deref(), machine.memory / 5 * 3, &mut errors),
        },
        limits: limits(args, &mut errors),
        keep: keep(args),
        drain: time("drain-timeout", defaults.drain_timeout.as_deref().unwrap_or("25s"), &mut errors) + LAST_STEPS,
    };
    for sentence in settings.check().err().into_iter().flatten() {
        errors.tell(&sentence);
    }
    errors.into_result(Serving { settings, idle_engines: args.warm_models.unwrap_or(1), state })
}

fn keep(args: &ServeArgs) -> Keep {
    let usual = Keep::default();
    let days = |days: u64| Duration::from_secs(days.saturating_mul(24 * 60 * 60));
    Keep {
        age: args.keep_days.map_or(usual.age, |kept| (kept > 0).then(|| days(kept))),
        jobs: args.keep_jobs.map_or(usual.jobs, |kept| (kept > 0).then_some(kept)),
    }
}

fn limits(args: &ServeArgs, errors: &mut Errors) -> Limits {
    let usual = Limits::default();
    let body = size("body-limit", args.body_limit.as_deref(), usual.body_bytes as u64, errors);
    Limits {
        body_bytes: usize::try_from(body).unwrap_or(usize::MAX),
        rate: args.rate.unwrap_or(usual.rate),
        requests: args.requests_at_once.unwrap_or(usual.requests),
        connections: args.connections.unwrap_or(usual.connections),
        waiting: args.queue_limit.unwrap_or(usual.waiting),
        patience: usual.patience,
    }
}

fn size(key: &str, typed: Option<&str>, usual: u64, errors: &mut Errors) -> u64 {
    match typed.map(str::parse::<bytesize::ByteSize>) {
        None => usual,
        Some(Ok(size)) => size.as_u64(),
        Some(Err(_)) => {
            errors.tell(&format!("`{key}` is {}; give a size such as 16GiB or 800MB", typed.unwrap_or_default()));
            usual
        }
    }
}

/// The token of the file, or of the environment.
fn token(file: Option<&Path>, errors: &mut Errors) -> Option<Token> {
    let text = match file {
        Some(path) => match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                errors.tell(&format!("`token-file`: {} cannot be read: {error}", path.display()));
                return None;
            }
        },
        None => std::env::var(TOKEN_VARIABLE).ok().filter(|text| !text.is_empty())?,
    };
    match Token::new(&text) {
        Ok(token) => Some(token),
        Err(sentence) => {
            let from = file.map_or(TOKEN_VARIABLE.to_owned(), |path| path.display().to_string());
            errors.tell(&format!("{from}: {sentence}"));
            None
        }
    }
}

/// Roots; those on this machine with links followed, as the places of jobs are.
fn roots(key: &str, typed: &[String], errors: &mut Errors) -> Roots {
    let settled: Vec<String> = typed
        .iter()
        .map(|root| match root.strip_prefix("file://").unwrap_or(root) {
            path if path.starts_with('/') => {
                Path::new(path).canonicalize().map_or_else(|_| root.clone(), |path| path.display().to_string())
            }
            _ => root.clone(),
        })
        .collect();
    Roots::new(settled.iter().map(String::as_str)).unwrap_or_else(|sentences| {
        sentences.iter().for_each(|sentence| errors.tell(&format!("`{key}`: {sentence}")));
        Roots::default()
    })
}

fn folders(typed: &[PathBuf], errors: &mut Errors) -> Vec<PathBuf> {
    let settled = typed.iter().filter_map(|folder| match folder.canonicalize() {
        Ok(folder) => Some(folder),
        Err(error) => {
            errors.tell(&format!("`models`: the folder {} cannot be used: {error}", folder.display()));
            None
        }
    });
    settled.collect()
}

fn state(args: &ServeArgs, errors: &mut Errors) -> PathBuf {
    if let Some(state) = &args.state {
        return state.clone();
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    home.map(|folder| folder.join("haloflow")).unwrap_or_else(|| {
        errors
            .tell("`state` is missing, and neither HOME nor XDG_STATE_HOME is set; name the folder for the job table");
        PathBuf::new()
    })
}
