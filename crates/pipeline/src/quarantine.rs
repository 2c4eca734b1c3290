//! Quarantine: blocks that could not be read or stored, try after try, are set aside while the others go on.
//!
//! Data that is damaged, and a store that fails for longer than its own retries last, are faults of a block. Whatever else fails
//! would fail every block: a network, a full disk, permissions. Nothing of a block that was set aside is recorded, so the same
//! command tries it again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use haloflow_geometry::{Box3, Zyx};
use serde::Serialize;

use crate::fault::{Fault, FaultKind, Stage};

/// How often a block is tried.
pub(crate) const TRIES: usize = 3;

/// So many blocks in a row, none stored between them: then it is the store that fails, not a block.
const IN_A_ROW: usize = 8;

/// Blocks that the sentence about them names.
const NAMED: usize = 3;

/// A block that was set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetAside {
    /// Where it starts, voxels z y x.
    pub start: Zyx,
    /// Its size, voxels z y x.
    pub shape: Zyx,
    /// Why.
    pub fault: Fault,
}

/// The blocks of a run that were set aside.
#[derive(Debug)]
pub(crate) struct Quarantine {
    most: usize,
    blocks: Mutex<BTreeMap<Zyx, SetAside>>,
    /// Blocks that a store failed for since the last one that was stored.
    in_a_row: AtomicUsize,
}

impl Quarantine {
    /// For at most so many blocks.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, blocks: Mutex::default(), in_a_row: AtomicUsize::new(0) }
    }

    /// Whether `fault` is one of a block, which others may not have.
    pub(crate) fn admits(&self, fault: &Fault) -> bool {
        self.most > 0 && matches!(fault.kind, FaultKind::Data | FaultKind::Transient)
    }

    /// A block was stored.
    pub(crate) fn stored(&self) {
        self.in_a_row.store(0, Ordering::Relaxed);
    }

    /// Sets a block aside.
    ///
    /// # Errors
    /// The fault, if there are too many such blocks, or it seems that of every block.
    pub(crate) fn set_aside(&self, region: Box3, fault: &Fault) -> Result<(), Fault> {
        let mut blocks = self.blocks();
        if blocks.len() >= self.most {
            let message = format!(
                "{}; {} blocks had been set aside before, which are as many as `quarantine` allows",
                fault.message,
                blocks.len()
            );
            return Err(Fault { message, ..fault.clone() });
        }
        if fault.kind == FaultKind::Transient && self.in_a_row.fetch_add(1, Ordering::Relaxed) + 1 >= IN_A_ROW {
            return Err(fault.clone());
        }
        tracing::warn!("block {region} is set aside, and the others go on: {fault}");
        let set_aside = SetAside { start: region.start, shape: region.shape(), fault: fault.clone() };
        blocks.insert(region.start, set_aside);
        Ok(())
    }

    /// Every block that was set aside.
    pub(crate) fn list(&self) -> Vec<SetAside> {
        self.blocks().values().cloned().collect()
    }

    fn blocks(&self) -> MutexGuard<'_, BTreeMap<Zyx, SetAside>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a run of `total` blocks ends that set some aside and stored all others.
pub(crate) fn fault(blocks: &[SetAside], total: u64) -> Option<Fault> {
    let first = blocks.first()?;
    if blocks.len() as u64 >= total {
        return Some(first.fault.clone());
    }
    let named: Vec<String> = blocks
        .iter()
        .take(NAMED)
        .map(|SetAside { start: [z, y, x], fault, .. }| format!("the one at z {z}, y {y}, x {x}: {fault}"))
        .collect();
    let more = match blocks.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more, which the report lists"),
    };
    let damaged = blocks.iter().all(|block| block.fault.kind == FaultKind::Data);
    let (kind, advice) = match damaged {
        true => (FaultKind::Data, "mend the input, then give the same command again"),
        false => (FaultKind::Interrupted, "the same command tries them again"),
    };
    let message = format!(
        "{} of {total} blocks failed {TRIES} times and were set aside, all others are stored; {advice}: {}{more}",
        blocks.len(),
        named.join("; ")
    );
    Some(Fault::new(kind, Stage::Plan, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(z: usize) -> Box3 {
        Box3::of_cell([z, 0, 0], [4; 3])
    }

    fn failed(kind: FaultKind) -> Fault {
        Fault::new(kind, Stage::Read, "c/7 is truncated")
    }

    #[test]
    fn only_faults_of_a_block_are_admitted_and_only_if_any_may_be() {
        let admitted = |most: usize, kind| Quarantine::new(most).admits(&failed(kind));
        assert!(admitted(1, FaultKind::Data) && admitted(1, FaultKind::Transient));
        assert!(
            !admitted(0, FaultKind::Data) && !admitted(1, FaultKind::Engine) && !admitted(1, FaultKind::Unavailable)
        );
    }

    #[test]
    fn one_block_too_many_is_the_fault() {
        let quarantine = Quarantine::new(2);
        for z in [5, 1] {
            quarantine.set_aside(block(z), &failed(FaultKind::Data)).unwrap();
        }
        let fault = quarantine.set_aside(block(2), &failed(FaultKind::Data)).unwrap_err();
        assert!(fault.message.starts_with("c/7 is truncated; 2 blocks had been set aside before"), "{fault}");
        let starts: Vec<Zyx> = quarantine.list().into_iter().map(|block| block.start).collect();
        assert_eq!(starts, [[4, 0, 0], [20, 0, 0]]);
    }

    #[test]
    fn a_store_that_fails_for_every_block_is_the_fault() {
        let quarantine = Quarantine::new(100);
        let mut set_aside = (0..100).map(|z| quarantine.set_aside(block(z), &failed(FaultKind::Transient)));
        assert_eq!(set_aside.position(|set_aside| set_aside.is_err()), Some(IN_A_ROW - 1));
        quarantine.stored();
        assert_eq!(quarantine.set_aside(block(50), &failed(FaultKind::Transient)), Ok(()));
        let damaged = || quarantine.set_aside(block(60), &failed(FaultKind::Data));
        assert!((0..20).all(|_| damaged().is_ok()), "data may be damaged in many places");
    }

    #[test]
    fn the_end_names_blocks_and_says_whether_trying_again_may_help() {
        assert_eq!(fault(&[], 9), None);
        let quarantine = Quarantine::new(9);
        quarantine.set_aside(block(0), &failed(FaultKind::Data)).unwrap();
        let ended = fault(&quarantine.list(), 9).unwrap();
        assert_eq!(ended.kind, FaultKind::Data);
        assert!(ended.message.starts_with("1 of 9 blocks failed 3 times"), "{ended}");
        assert!(ended.message.ends_with("the one at z 0, y 0, x 0: c/7 is truncated (stage read)"), "{ended}");
        (1..5).for_each(|z| quarantine.set_aside(block(z), &failed(FaultKind::Transient)).unwrap());
        let ended = fault(&quarantine.list(), 9).unwrap();
        assert_eq!(ended.kind, FaultKind::Interrupted);
        assert!(ended.message.ends_with("and 2 more, which the report lists"), "{ended}");
        assert_eq!(fault(&quarantine.list(), 5).unwrap(), failed(FaultKind::Data), "nothing was stored");
    }
}
