//! Which chunks the steps that are being read still want: a chunk may be forgotten once the last step that reads it has it, and every one
//! before that too, whatever order they are read in.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haloflow_geometry::{Box3, Zyx};

/// The steps that are being read.
#[derive(Clone, Default)]
pub(crate) struct Wanted {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    next: u64,
    steps: Vec<Wants>,
    /// Chunks that the last step of a column has, while one before it still wants them; by their first voxels, with that last step.
    passed: HashMap<Zyx, u64>,
}

/// What a step wants: the chunks of its region that it does not have yet.
struct Wants {
    step: u64,
    region: Box3,
    has: HashSet<Zyx>,
}

impl Wanted {
    /// A step will be read. To be told in plan order, or a step that is behind may forget what this one wants.
    pub(crate) fn begin(&self, region: Box3) -> Wanting {
        let mut state = self.lock();
        let step = state.next;
        state.next += 1;
        state.steps.push(Wants { step, region, has: HashSet::new() });
        Wanting { wanted: self.clone(), step }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A step that is being read. Dropped, it wants nothing any more.
pub(crate) struct Wanting {
    wanted: Wanted,
    step: u64,
}

impl Wanting {
    /// The step has the chunk at `cell`, and is the last in plan order to read it, or not: whether nobody wants it any more.
    pub(crate) fn has(&self, cell: &Box3, is_last: bool) -> bool {
        let State { steps, passed, .. } = &mut *self.wanted.lock();
        if let Some(own) = steps.iter_mut().find(|wants| wants.step == self.step) {
            own.has.insert(cell.start);
        }
        // A step of a later column begins anew with what it shares with this one.
        let is_behind = passed.get(&cell.start).is_some_and(|last| self.step > *last);
        if is_behind {
            passed.remove(&cell.start);
        }
        if !is_last && !passed.contains_key(&cell.start) {
            return false;
        }
        let wants = |other: &Wants| !other.has.contains(&cell.start) && !other.region.intersect(cell).is_empty();
        if steps.iter().any(wants) {
            passed.entry(cell.start).or_insert(self.step);
            return false;
        }
        passed.remove(&cell.start);
        true
    }
}

impl Drop for Wanting {
    fn drop(&mut self) {
        self.wanted.lock().steps.retain(|wants| wants.step != self.step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(x: usize) -> Box3 {
        Box3::new([0, 0, x], [4, 4, x + 4])
    }

    #[test]
    fn a_chunk_is_done_with_when_the_last_step_and_all_before_it_have_it() {
        let wanted = Wanted::default();
        let region = |start, stop| Box3::new([0, 0, start], [4, 4, stop]);
        let [first, second, third] = [region(0, 6), region(3, 9), region(8, 12)].map(|region| wanted.begin(region));
        // In plan order.
        assert!(!first.has(&cell(0), false));
        assert!(second.has(&cell(0), true));
        // The last comes first.
        assert!(!second.has(&cell(4), true));
        assert!(first.has(&cell(4), false), "it was only the first that still wanted it");
        // A later column goes by its own last step.
        let [fourth, fifth] = [region(8, 12), region(8, 12)].map(|region| wanted.begin(region));
        assert!(!third.has(&cell(8), true) && !fourth.has(&cell(8), false) && !fifth.has(&cell(8), true));
        // One that has failed wants nothing.
        drop(second);
        assert!(fifth.has(&cell(8), true));
    }
}
