//! What to do about a request that failed.

use std::error::Error as _;

use reqwest::StatusCode;

use crate::VolumeError;
use crate::client::{Failure, Refusal};
use crate::credentials::NoCredentials;
use crate::location::{Location, cause};
use crate::retry::STALE;

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Read,
    List,
    Write,
    Delete,
}

impl Deed {
    /// What S3 calls the permission.
    const fn permission(self) -> &'static str {
        match self {
            Self::Read => "s3:GetObject",
            Self::List => "s3:ListBucket",
            Self::Write => "s3:PutObject",
            Self::Delete => "s3:DeleteObject",
        }
    }
}

/// The object store's error behind ours.
fn of_store(error: &VolumeError) -> Option<&object_store::Error> {
    error.source.as_deref()?.downcast_ref()
}

/// Whether the store gave no answer at all.
pub(super) fn is_unreachable(error: &VolumeError) -> bool {
    matches!(of_store(error).and_then(cause), Some(Failure::Broken(_) | Failure::Stalled(_)))
}

/// Codes of S3 and Azure for a bucket or container that does not exist. The object store's own error does not tell it apart.
const NO_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

fn has_no_bucket(error: &VolumeError) -> bool {
    matches!(of_store(error), Some(object_store::Error::NotFound { .. }))
        || NO_BUCKET.iter().any(|code| error.message.contains(code))
}

/// Whether asking the place for something else is idle after this.
pub(super) fn is_final(place: &Location, error: &VolumeError) -> bool {
    place.directory.is_some() || is_unreachable(error) || has_no_bucket(error)
}

/// What to do about `error`, which came of doing `deed` at `place`.
pub(super) fn advice(place: &Location, error: &VolumeError, deed: Deed) -> String {
    if place.directory.is_some() {
        return match deed {
            Deed::Read | Deed::List => "let this user read there, or name another folder",
            Deed::Write | Deed::Delete => "let this user write there, or name another folder",
        }
        .to_owned();
    }
    let Some(store) = of_store(error) else { return "see what the store says".to_owned() };
    match cause(store) {
        _ if has_no_bucket(error) => "mend the bucket's name, or make the bucket: it does not exist".to_owned(),
        Some(Failure::Broken(_) | Failure::Stalled(_)) => {
            "look at the address (AWS_ENDPOINT_URL or the profile's endpoint_url), the network and the proxy".to_owned()
        }
        Some(Failure::Refused(refusal)) => of_refusal(refusal, deed),
        _ if store.source().is_some_and(|source| source.is::<NoCredentials>()) => {
            "set credentials, or use --anonymous".to_owned()
        }
        _ => "see what the store says".to_owned(),
    }
}

fn of_refusal(refusal: &Refusal, deed: Deed) -> String {
    match (&*refusal.code, refusal.status) {
        ("RequestTimeTooSkewed", _) => "set this machine's clock, by NTP for example".to_owned(),
        ("SignatureDoesNotMatch" | "InvalidAccessKeyId", _) => {
            "give the right access key and secret: these are not the store's".to_owned()
        }
        (code, _) if STALE.contains(&code) => "get new credentials: these have expired".to_owned(),
        (_, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            format!("allow these credentials {} there, or use others (AWS_PROFILE)", deed.permission())
        }
        _ => "see what the store says".to_owned(),
    }
}
