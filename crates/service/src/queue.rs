//! Which job is next: the highest priority first, then the oldest. Nobody overtakes: where the next job does not fit the memory that is
//! left, those behind it wait too, so that a large job comes to its turn.

use std::collections::BTreeMap;

use crate::job::JobId;

/// What may run at one time.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Jobs.
    pub jobs: usize,
    /// Bytes of memory for all of them.
    pub memory_bytes: u64,
}

/// The jobs that run, with the memory that each holds.
#[derive(Debug, Default)]
pub struct Holding {
    running: BTreeMap<JobId, u64>,
}

impl Holding {
    /// Whether a job that takes `bytes` may begin now.
    #[must_use]
    pub fn admits(&self, bytes: u64, capacity: Capacity) -> bool {
        self.running.len() < capacity.jobs && bytes <= capacity.memory_bytes.saturating_sub(self.bytes())
    }

    /// Bytes that are held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.running.values().sum()
    }

    /// Jobs that run.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.running.len()
    }

    /// A job begins.
    pub fn begin(&mut self, id: JobId, bytes: u64) {
        self.running.insert(id, bytes);
    }

    /// A job has ended.
    pub fn end(&mut self, id: JobId) {
        self.running.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

        #[test]
        fn neither_the_number_nor_the_memory_is_exceeded_and_everything_gets_its_turn(
            jobs in 1..5_usize, memory in 1..100_u64, wants in prop::collection::vec(0..100_u64, 1..40), ends in any::<u64>(),
        ) {
            let capacity = Capacity { jobs, memory_bytes: memory };
            let wants: Vec<u64> = wants.into_iter().map(|bytes| bytes.min(memory)).collect();
            let (mut holding, mut next, mut seed) = (Holding::default(), 0, ends);
            while next < wants.len() {
                if holding.admits(wants[next], capacity) {
                    holding.begin(next as JobId, wants[next]);
                    next += 1;
                    prop_assert!(holding.jobs() <= jobs && holding.bytes() <= memory);
                } else {
                    // If nothing ran, the next one would have been admitted.
                    prop_assert!(holding.jobs() > 0);
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let running: Vec<JobId> = holding.running.keys().copied().collect();
                    holding.end(running[(seed >> 33) as usize % running.len()]);
                }
            }
        }
    }
}
