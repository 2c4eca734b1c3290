//! Which chunks the steps that are being read still want: a chunk may be forgotten once the last step that reads it has it, and every one
//! before that too, whatever order they are read in.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haloflow_geometry::Box3;

/// The steps that are being read.
#[derive(Clone, Default)]
pub(crate) struct Wanted {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    next: u64,
    steps: Vec<Wants>,
    /// Chunks that the last step of a column has, while one before it still wants them; by their indices, with that last step.
    passed: HashMap<Vec<u64>, u64>,
}

/// What a step wants: the chunks of its region that it does not have yet.
struct Wants {
    step: u64,
    region: Box3,
    has: HashSet<Vec<u64>>,
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
    /// The step has the chunk of this index, which covers `cell`, and is the last in plan order to read it, or not: whether nobody wants it
    /// any more. Channels may lie in chunks of their own, which cover the same voxels.
    pub(crate) fn has(&self, chunk: &[u64], cell: &Box3, is_last: bool) -> bool {
        let State { steps, passed, .. } = &mut *self.wanted.lock();
        if let Some(own) = steps.iter_mut().find(|wants| wants.step == self.step) {
            own.has.insert(chunk.to_vec());
        }
        // A step of a later column begins anew with what it shares with this one.
        let is_behind = passed.get(chunk).is_some_and(|last| self.step > *last);
        if is_behind {
            passed.remove(chunk);
        }
        if !is_last && !passed.contains_key(chunk) {
            return false;
        }
        let wants = |other: &Wants| !other.has.contains(chunk) && !other.region.intersect(cell).is_empty();
        if steps.iter().any(wants) {
            passed.entry(chunk.to_vec()).or_insert(self.step);
            return false;
        }
        passed.remove(chunk);
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

    /// Tells of a chunk of 4 x 4 x 4 voxels from `x` on, of a channel.
    fn has(step: &Wanting, channel: u64, x: usize, is_last: bool) -> bool {
        step.has(&[channel, 0, 0, x as u64 / 4], &Box3::new([0, 0, x], [4, 4, x + 4]), is_last)
    }

    #[test]
    fn a_chunk_is_done_with_when_the_last_step_and_all_before_it_have_it() {
        let wanted = Wanted::default();
        let region = |start, stop| Box3::new([0, 0, start], [4, 4, stop]);
        let [first, second, third] = [region(0, 6), region(3, 9), region(8, 12)].map(|region| wanted.begin(region));
        // In plan order.
        assert!(!has(&first, 0, 0, false));
        assert!(has(&second, 0, 0, true));
        // The last comes first.
        assert!(!has(&second, 0, 4, true));
        assert!(has(&first, 0, 4, false), "it was only the first that still wanted it");
        // Channels in chunks of their own are told apart.
        assert!(!has(&second, 1, 4, true), "the first has the other channel only");
        assert!(has(&first, 1, 4, false));
        // A later column goes by its own last step.
        let [fourth, fifth] = [region(8, 12), region(8, 12)].map(|region| wanted.begin(region));
        assert!(!has(&third, 0, 8, true) && !has(&fourth, 0, 8, false) && !has(&fifth, 0, 8, true));
        // One that has failed wants nothing.
        drop(second);
        assert!(has(&fifth, 0, 8, true));
    }
}
