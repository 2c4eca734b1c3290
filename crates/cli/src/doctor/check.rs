//! One line about one thing.

use std::io::Write;
use std::process::ExitCode;

use haloflow_pipeline::{Fault, FaultKind, Stage};
use haloflow_volume::{Finding, Verdict, VolumeError, VolumeErrorKind};
use serde::Serialize;

use crate::exit;
use crate::typed::Errors;

/// One check, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    check: &'static str,
    /// What was looked at.
    subject: String,
    verdict: Word,
    found: String,
    /// What to do, where something is to be done.
    fix: Option<String>,
    /// The exit code that a run would end with.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Ok,
    Warning,
    Failed,
}

impl Check {
    /// All is well.
    pub(crate) fn ok(check: &'static str, subject: impl Into<String>, found: impl Into<String>) -> Self {
        let (subject, found) = (subject.into(), found.into());
        Self { check, subject, verdict: Word::Ok, found, fix: None, code: None }
    }

    /// A run may work.
    pub(crate) fn warning(
        check: &'static str,
        subject: impl Into<String>,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { verdict: Word::Warning, fix: Some(fix.into()), ..Self::ok(check, subject, found) }
    }

    /// A run cannot work, and would end with `code`.
    pub(crate) fn failed(
        check: &'static str,
        subject: impl Into<String>,
        found: impl Into<String>,
        fix: impl Into<String>,
        code: u8,
    ) -> Self {
        let warning = Self::warning(check, subject, found, fix);
        Self { verdict: Word::Failed, code: Some(code), ..warning }
    }

    /// What was found about a place.
    pub(crate) fn of(finding: Finding) -> Self {
        let Finding { check, subject, verdict, found, fix } = finding;
        let fix = fix.unwrap_or_default();
        match verdict {
            Verdict::Ok => Self::ok(check, subject, found),
            Verdict::Warning => Self::warning(check, subject, found, fix),
            Verdict::Failed(kind) => Self::failed(check, subject, found, fix, exit::code(fault_kind(kind))),
        }
    }

    fn line(&self) -> String {
        let word = match self.verdict {
            Word::Ok => "ok",
            Word::Warning => "warning",
            Word::Failed => "FAILED",
        };
        let fix = self.fix.as_ref().map_or(String::new(), |fix| format!("; fix: {fix}"));
        format!("{word:<8} {:<12} {}: {}{fix}", self.check, self.subject, self.found)
    }
}

/// The kind of fault that a failure of storage is for a run.
fn fault_kind(kind: VolumeErrorKind) -> FaultKind {
    let error = VolumeError { kind, message: String::new(), source: None };
    Fault::volume(Stage::Open, &error).kind
}

/// What was found so far; each check is printed when it is done.
pub(crate) struct Told {
    json: bool,
    checks: Vec<Check>,
}

impl Told {
    /// Nothing yet; as lines, or as JSON at the end.
    pub(crate) const fn new(json: bool) -> Self {
        Self { json, checks: Vec::new() }
    }

    /// Adds a check.
    pub(crate) fn tell(&mut self, check: Check) {
        if !self.json {
            // A closed pipe is no fault.
            drop(writeln!(std::io::stdout().lock(), "{}", check.line()));
        }
        self.checks.push(check);
    }

    /// Adds a failed check for everything that is wrong with a key. These sentences say what is allowed.
    pub(crate) fn refuse(&mut self, check: &'static str, errors: Errors) {
        for sentence in errors.into_result(()).err().into_iter().flatten() {
            self.tell(Check::failed(check, "settings", sentence, "change that key", exit::USAGE));
        }
    }

    /// Prints what has to be printed at the end, and chooses the exit code: that of the first check that failed.
    pub(crate) fn end(self, interrupted: bool) -> ExitCode {
        let failed = self.checks.iter().find_map(|check| check.code);
        let code = failed.unwrap_or(if interrupted { exit::INTERRUPTED } else { 0 });
        if self.json {
            let told = serde_json::json!({ "checks": self.checks, "complete": !interrupted, "exit_code": code });
            drop(writeln!(std::io::stdout().lock(), "{told:#}"));
        }
        if interrupted {
            return crate::run::fail(&["interrupted: the checks that were left are not made".to_owned()], code);
        }
        ExitCode::from(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_fix_in_it() {
        let failed = Check::failed("clock", "s3://b", "it is late", "set it", exit::UNAVAILABLE);
        assert_eq!(failed.line(), "FAILED   clock        s3://b: it is late; fix: set it");
        assert_eq!(Check::ok("clock", "s3://b", "right").line(), "ok       clock        s3://b: right");
        let json = serde_json::to_value(&failed).unwrap();
        assert_eq!((&json["verdict"], &json["code"]), (&"failed".into(), &74.into()));
    }

    #[test]
    fn failures_of_storage_have_the_codes_of_a_run() {
        for (kind, code) in [
            (VolumeErrorKind::Usage, 64),
            (VolumeErrorKind::Data, 65),
            (VolumeErrorKind::Unavailable, 74),
            (VolumeErrorKind::Transient, 74),
        ] {
            assert_eq!(exit::code(fault_kind(kind)), code);
        }
    }
}
