//! What the machine or the container allows: memory, disks, open files.

use std::path::{Path, PathBuf};

use haloflow_model::Cache;
use indicatif::HumanBytes;
use rustix::process::{Resource, getrlimit};

use super::check::{Check, Told};
use crate::args::RunArgs;
use crate::machine::{Machine, available};
use crate::typed::Errors;
use crate::{exit, settings};

/// Below this a disk is about to be full, for volumes.
const LITTLE_SPACE: u64 = 1 << 30;

/// Below this many files a volume of small chunks finds no place.
const FEW_INODES: u64 = 10_000;

/// The budget against what there is.
pub(super) fn memory(args: &RunArgs, machine: &Machine, told: &mut Told) {
    let mut errors = Errors::default();
    let budget = settings::memory(args, machine, &mut errors);
    if !errors.is_empty() {
        return told.refuse("memory", errors);
    }
    told.tell(judge_memory(budget, machine.memory, available()));
}

fn judge_memory(budget: u64, limit: u64, available: Option<u64>) -> Check {
    let subject = format!("budget {}", HumanBytes(budget));
    let allowed = format!("the machine or container allows {}", HumanBytes(limit));
    let smaller = format!("set `memory` to {}MiB or less", (limit / 5 * 3) >> 20);
    match available {
        _ if budget > limit => {
            let found = format!("{allowed}, less than that: the run would be killed");
            Check::failed("memory", subject, found, smaller, exit::USAGE)
        }
        _ if budget > limit / 5 * 4 => {
            let found = format!("{allowed}, which leaves little for libtorch");
            Check::warning("memory", subject, found, smaller)
        }
        Some(free) if free < budget => {
            let found = format!("{allowed}, but only {} are free now", HumanBytes(free));
            Check::warning("memory", subject, found, "end what else runs here, or set `memory` lower")
        }
        _ => Check::ok("memory", subject, allowed),
    }
}

/// The disks of local outputs, of the folder for temporary files, and of the cache.
pub(super) fn disks(args: &RunArgs, outputs: Vec<PathBuf>, told: &mut Told) {
    let cache = Cache::new(args.cache.as_deref(), |name| std::env::var_os(name));
    let cache = cache.as_ref().map(|cache| cache.folder().to_owned());
    let named = outputs.into_iter().map(|folder| ("an output's folder", folder));
    let named = named.chain([("the folder for temporary files", std::env::temp_dir())]);
    let named = named.chain(cache.ok().map(|folder| ("the cache", folder)));
    let mut seen = Vec::new();
    for (what, folder) in named.filter_map(|(what, folder)| Some((what, nearest(&folder)?))) {
        if !seen.contains(&folder) {
            told.tell(disk(what, &folder));
            seen.push(folder);
        }
    }
}

/// The folder itself, or the nearest around it that exists.
fn nearest(folder: &Path) -> Option<PathBuf> {
    let folder = std::path::absolute(folder).ok()?;
    folder.ancestors().find(|folder| folder.is_dir()).map(Path::to_owned)
}

fn disk(what: &str, folder: &Path) -> Check {
    let subject = folder.display().to_string();
    match rustix::fs::statvfs(folder) {
        // What a user who is not root may take.
        Ok(disk) => {
            judge_disk(what, subject, disk.f_bavail * disk.f_frsize, (disk.f_files > 0).then_some(disk.f_favail))
        }
        Err(error) => {
            let found = format!("how full the disk of {what} is cannot be told: {error}");
            Check::warning("disk", subject, found, "name another folder if it turns out to be full")
        }
    }
}

fn judge_disk(what: &str, subject: String, free: u64, inodes: Option<u64>) -> Check {
    // Some file systems have no fixed number of files.
    let files = inodes.map_or(String::new(), |inodes| format!(" and room for {inodes} files"));
    let found = format!("{what} has {} free{files}", HumanBytes(free));
    let fix = "free some, or name a folder on another disk";
    match (free, inodes) {
        (0, _) | (_, Some(0)) => Check::failed("disk", subject, found, fix, exit::UNAVAILABLE),
        (free, _) if free < LITTLE_SPACE => Check::warning("disk", subject, found, fix),
        (_, Some(few)) if few < FEW_INODES => {
            Check::warning("disk", subject, found, format!("{fix}, or write shards (`shard`): they are fewer files"))
        }
        _ => Check::ok("disk", subject, found),
    }
}

/// Every request under way is a connection or a file.
pub(super) fn open_files(args: &RunArgs, told: &mut Told) {
    let needed = 256 + 2 * args.requests.unwrap_or(64) as u64;
    let limit = getrlimit(Resource::Nofile).current;
    let found = limit.map_or("no limit".to_owned(), |limit| format!("{limit} may be open at one time"));
    told.tell(match limit {
        Some(limit) if limit < needed => {
            let fix = format!("raise it (ulimit -n {}), or set `requests` lower", needed.next_power_of_two());
            Check::warning("open files", "process", format!("{found}, and a run may need {needed}"), fix)
        }
        _ => Check::ok("open files", "process", found),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(check: &Check) -> String {
        let json = serde_json::to_value(check).unwrap();
        json["verdict"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_budget_is_held_against_the_limit_and_what_is_free() {
        let gib = 1 << 30;
        for (budget, free, word) in [
            (6, Some(8), "ok"),
            (6, None, "ok"),
            (6, Some(5), "warning"),
            (9, Some(10), "warning"),
            (11, Some(10), "failed"),
        ] {
            let check = judge_memory(budget * gib, 10 * gib, free.map(|free: u64| free * gib));
            assert_eq!(verdict(&check), word, "{check:?}");
        }
    }

    #[test]
    fn a_disk_that_is_full_fails_and_one_that_is_nearly_full_is_warned_of() {
        for (free, inodes, word) in [
            (LITTLE_SPACE, Some(FEW_INODES), "ok"),
            (LITTLE_SPACE, None, "ok"),
            (LITTLE_SPACE - 1, None, "warning"),
            (LITTLE_SPACE, Some(FEW_INODES - 1), "warning"),
            (0, None, "failed"),
            (LITTLE_SPACE, Some(0), "failed"),
        ] {
            let check = judge_disk("the cache", "/x".into(), free, inodes);
            assert_eq!(verdict(&check), word, "{check:?}");
        }
    }
}
