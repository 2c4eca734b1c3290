//! The one object that is put and deleted again, to see whether an output could be written.

use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::advice::{Deed, advice, is_unreachable};
use super::{Finding, broken, failed, ok};
use crate::location::Location;
use crate::{VolumeError, VolumeErrorKind};

/// The object, in a folder of its own so that it can be listed alone.
const KEY: &str = "object";

/// How long a put that is under way may go on after the probe was told to stop: one that is cut off may arrive after the deletion.
const GRACE: Duration = Duration::from_secs(5);

/// How long the deletion may take then.
const CLEANING: Duration = Duration::from_secs(10);

/// Puts an object into `folder`, which is `place` or around it, reads it, lists it, and deletes it whatever happened.
pub(super) async fn probe(place: &Location, folder: &Location, stop: &CancellationToken) -> Vec<Finding> {
    let home = folder.at(&format!(".haloflow-probe-{}", Uuid::new_v4()));
    let mut trial = Trial { place, home, stop, findings: Vec::new(), may_exist: false };
    trial.run().await;
    trial.clean().await;
    trial.findings
}

struct Trial<'a> {
    place: &'a Location,
    home: Location,
    stop: &'a CancellationToken,
    findings: Vec<Finding>,
    /// Whether a put was acknowledged, or may have been done without that.
    may_exist: bool,
}

impl Trial<'_> {
    /// All checks; `None` when one failed that the others need, or it was told to stop.
    async fn run(&mut self) -> Option<()> {
        let [first, second, third] = [1, 2, 3].map(|number| Bytes::from(format!("haloflow doctor: probe {number}\n")));
        let home = self.home.clone();
        let created = self.until_done(home.create(KEY, first)).await?;
        let put = self.until_done(home.put(KEY, second.clone())).await?;
        let what = format!("{} bytes", second.len());
        self.tell("write", put, &format!("{what} were written and replaced"), Deed::Write)?;
        match self.stop.run_until_cancelled(home.get(KEY)).await? {
            Ok(read) if read.as_ref() != Some(&second) => {
                let found = "what was written does not come back as it was";
                self.findings.push(broken("read", &self.place.url, found, "use another store: this one loses data"));
            }
            read => drop(self.tell("read", read, &format!("the {what} came back"), Deed::Read)),
        }
        self.created_once(created, third).await?;
        let listed = self.stop.run_until_cancelled(home.list()).await?;
        match listed {
            Ok(stored) if stored.iter().any(|object| object.key == KEY) => {}
            Ok(_) => {
                let found = "what was written is not in the list of objects";
                self.findings.push(broken("list", &self.place.url, found, "use a store whose lists are up to date"));
            }
            // That the place cannot be listed has been told.
            Err(_) => {}
        }
        Some(())
    }

    /// Whether an object can be created only where none is: two processes must not begin one output. Another now stands there.
    async fn created_once(&mut self, created: Result<bool, VolumeError>, bytes: Bytes) -> Option<()> {
        let home = self.home.clone();
        let again = self.until_done(home.create(KEY, bytes)).await?;
        let url = &self.place.url;
        let needed = "an output cannot be begun there without (If-None-Match, PutMode::Create)";
        let fix = match self.place.directory {
            Some(_) => "use a file system with hard links",
            None => "use a store with conditional puts, or a newer version of it",
        };
        self.findings.push(match (created, again) {
            (Ok(_), Ok(false)) => ok("create", url, "an object is created only where none is, as the ledger needs it"),
            (Ok(_), Ok(true)) => broken(
                "create",
                url,
                format!("the store replaced an object that it was to create only if absent; {needed}"),
                fix,
            ),
            (Err(error), _) | (_, Err(error)) => {
                let error = VolumeError { message: format!("{}; {needed}", error.message), ..error };
                failed("create", url, &error, fix.to_owned())
            }
        });
        Some(())
    }

    /// Deletes the object and its folder.
    async fn clean(&mut self) {
        let url = &self.place.url;
        let left = format!("delete {} by hand", self.home.url_of(KEY));
        let deleted = tokio::time::timeout(self.patience(), self.delete()).await;
        self.findings.extend(match deleted {
            // Nothing was stored, so that nothing can be said about deleting.
            Ok(_) if !self.may_exist => None,
            Ok(Ok(())) => Some(ok("delete", url, "the object of this check is gone again")),
            Ok(Err(error)) => {
                let fix = format!("{left}; {}", advice(self.place, &error, Deed::Delete));
                Some(failed("delete", url, &error, fix))
            }
            Err(_) => {
                Some(broken("delete", url, "the store does not say whether it deleted the object of this check", left))
            }
        });
    }

    async fn delete(&self) -> Result<(), VolumeError> {
        self.home.delete(KEY).await?;
        if self.home.directory.as_ref().is_some_and(|folder| folder.exists()) {
            return self.home.delete_all().await;
        }
        match self.home.size(KEY).await? {
            Some(_) if self.may_exist => Err(VolumeError::new(
                VolumeErrorKind::Unavailable,
                format!("{} was deleted and is still there", self.home.url_of(KEY)),
            )),
            _ => Ok(()),
        }
    }

    fn patience(&self) -> Duration {
        if self.stop.is_cancelled() { CLEANING } else { Duration::MAX }
    }

    /// What a put gives; `None` if it had to be cut off, or was not begun because of that.
    async fn until_done<T>(
        &mut self,
        put: impl Future<Output = Result<T, VolumeError>>,
    ) -> Option<Result<T, VolumeError>> {
        if self.stop.is_cancelled() {
            return None;
        }
        let mut put = std::pin::pin!(put);
        let done = match self.stop.run_until_cancelled(&mut put).await {
            Some(done) => Some(done),
            None => tokio::time::timeout(GRACE, put).await.ok(),
        };
        // A refusal stored nothing; of a lost answer nobody knows.
        self.may_exist |= match &done {
            Some(Err(error)) => error.kind == VolumeErrorKind::Transient || is_unreachable(error),
            Some(Ok(_)) | None => true,
        };
        done
    }

    /// Notes how something ended; `None` if it failed.
    fn tell<T>(&mut self, check: &'static str, done: Result<T, VolumeError>, found: &str, deed: Deed) -> Option<()> {
        let finding = match &done {
            Ok(_) => ok(check, &self.place.url, found),
            Err(error) => failed(check, &self.place.url, error, advice(self.place, error, deed)),
        };
        self.findings.push(finding);
        done.ok().map(|_| ())
    }
}
