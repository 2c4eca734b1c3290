//! Whether a place can be used: what `haloflow doctor` says of storage.
//!
//! What a place is asked in the order in which it can go wrong: who we are, what time it is, reading, listing, and for an output what
//! a run does there: writing, creating what must not exist, deleting.

mod account;
mod advice;
mod object;

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use crate::location::Location;
use crate::node::Node;
use crate::probe::advice::{Deed, advice, is_final};
use crate::spec::Source;
use crate::{Environment, VolumeError, VolumeErrorKind};

/// What a place is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// As an input: a volume has to be there.
    Read,
    /// As an output.
    Write,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// A run may work; there is something to mend.
    Warning,
    /// A run cannot work, for a reason of this kind.
    Failed(VolumeErrorKind),
}

/// One check, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at: `place`, `region`, `credentials`, `clock`, `read`, `list`, `write`, `create` or `delete`.
    pub check: &'static str,
    /// The place, or the store it is in, without secrets.
    pub subject: String,
    /// How it ended.
    pub verdict: Verdict,
    /// What was found, without line breaks.
    pub found: String,
    /// What to do about it; none if nothing has to be done.
    pub fix: Option<String>,
}

/// All that was found about a place.
#[derive(Clone, Debug, Default)]
pub struct Probed {
    /// In the order of the checks.
    pub findings: Vec<Finding>,
    /// The folder on the local disk that an output would go into, the nearest that exists.
    pub folder: Option<PathBuf>,
}

/// Looks whether the place that `source` names, a URL, a path or a spec, can be used for `purpose`.
///
/// For [`Purpose::Write`] one object of some fifty bytes is put, twice, below the place, or into the nearest folder that exists on a local
/// disk, under a name with a random number that no volume has; it is deleted again, whatever fails. Nothing else is created or
/// changed. Secrets are in no finding.
///
/// What cannot be found out because something before it failed is left out. A check takes as long as the environment's network lets
/// a request be repeated.
///
/// Cancellation: when `stop` is cancelled the checks that are left are skipped and the object is deleted, which takes some seconds at
/// most where the store answers. A future that is dropped leaves the object behind.
pub async fn probe(source: &str, purpose: Purpose, environment: &Environment, stop: &CancellationToken) -> Probed {
    let mut probed = Probed::default();
    let place = match stop.run_until_cancelled(Source::read(source, environment)).await {
        None => return probed,
        Some(Ok(source)) => source.location().clone(),
        Some(Err(error)) => {
            probed.findings.push(failed("place", source, &error, "name a place that can be used".to_owned()));
            return probed;
        }
    };
    let findings = &mut probed.findings;
    if purpose == Purpose::Write && place.read_only {
        let error = VolumeError::usage(format!("{} is on a web server, which takes nothing", place.url));
        findings.push(failed("write", &place.url, &error, "name a bucket or a folder for the output".to_owned()));
        return probed;
    }
    if stop.run_until_cancelled(check(&place, purpose, environment, findings)).await != Some(true) {
        return probed;
    }
    if purpose == Purpose::Write {
        let folder = nearest(&place);
        findings.extend(object::probe(&place, &folder, stop).await);
        probed.folder = folder.directory;
    }
    probed
}

/// Everything that changes nothing. Whether it makes sense to go on.
async fn check(place: &Location, purpose: Purpose, environment: &Environment, findings: &mut Vec<Finding>) -> bool {
    findings.extend(account::region(place));
    let credentials = account::credentials(place, environment).await;
    let denied = credentials.as_ref().is_some_and(|finding| matches!(finding.verdict, Verdict::Failed(_)));
    findings.extend(credentials);
    if denied {
        return false;
    }
    let (seen, goes_on) = match purpose {
        Purpose::Read => read(place).await,
        Purpose::Write => listed(place).await,
    };
    // The cause stands before what it causes: a store refuses signatures of another time.
    findings.extend(account::clock(place));
    findings.extend(seen);
    goes_on
}

/// Whether a volume can be read, and the place be listed.
async fn read(place: &Location) -> (Vec<Finding>, bool) {
    let found = match Node::find(place).await {
        Ok(Some(Node::Array(_))) => ok("read", &place.url, "the metadata of a Zarr array can be read"),
        Ok(Some(Node::Group(_))) => ok("read", &place.url, "the metadata of a Zarr group can be read"),
        Ok(None) => {
            let error = VolumeError::data(format!("no Zarr array or group is stored at {}", place.url));
            let fix = "name the folder that holds zarr.json, .zarray or .zattrs; the bucket may be another one too";
            failed("read", &place.url, &error, fix.to_owned())
        }
        Err(error) => {
            let goes_on = !is_final(place, &error);
            let finding = failed("read", &place.url, &error, advice(place, &error, Deed::Read));
            if !goes_on {
                return (vec![finding], false);
            }
            finding
        }
    };
    let listed = match place.exists().await {
        _ if place.read_only => ok("list", &place.url, "a web server does not list what it has, and need not"),
        Ok(_) => ok("list", &place.url, "its objects can be listed"),
        Err(error) => Finding {
            check: "list",
            subject: place.url.clone(),
            verdict: Verdict::Warning,
            found: one_line(&error.message),
            fix: Some(format!(
                "{}; only --skip-empty and `haloflow inspect` need it",
                advice(place, &error, Deed::List)
            )),
        },
    };
    (vec![found, listed], true)
}

/// Whether the place of an output can be listed. A place that may not be listed may be written to, so that this is looked at too.
async fn listed(place: &Location) -> (Vec<Finding>, bool) {
    if place.is_file() {
        let error = VolumeError::data(format!("{} is a file, and an output is a folder", place.url));
        return (vec![failed("list", &place.url, &error, "name another place, or move the file".to_owned())], false);
    }
    match place.exists().await {
        Ok(true) => (vec![ok("list", &place.url, "something is stored there already, and can be listed")], true),
        Ok(false) => (vec![ok("list", &place.url, "nothing is stored there yet")], true),
        Err(error) => {
            let finding = failed("list", &place.url, &error, advice(place, &error, Deed::List));
            (vec![finding], !is_final(place, &error))
        }
    }
}

/// The place itself, or on a local disk the nearest folder around it that exists.
fn nearest(place: &Location) -> Location {
    let Some(directory) = &place.directory else { return place.clone() };
    let found = directory.ancestors().find(|folder| folder.exists()).unwrap_or(directory);
    crate::address::local(&found.to_string_lossy(), &crate::Environment::empty()).unwrap_or_else(|_| place.clone())
}

fn ok(check: &'static str, subject: &str, found: impl Into<String>) -> Finding {
    Finding { check, subject: subject.to_owned(), verdict: Verdict::Ok, found: found.into(), fix: None }
}

fn warning(check: &'static str, subject: &str, found: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Warning, fix: Some(fix.into()), ..ok(check, subject, found) }
}

fn failed(check: &'static str, subject: &str, error: &VolumeError, fix: String) -> Finding {
    Finding { verdict: Verdict::Failed(error.kind), fix: Some(fix), ..ok(check, subject, one_line(&error.message)) }
}

fn broken(check: &'static str, subject: &str, found: impl Into<String>, fix: impl Into<String>) -> Finding {
    failed(check, subject, &VolumeError::new(VolumeErrorKind::Unavailable, found), fix.into())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
