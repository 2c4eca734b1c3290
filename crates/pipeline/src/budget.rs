//! One budget of bytes for everything large. A lease travels with the buffer it stands for and gives its bytes back when it is
//! dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A bounded number of bytes that leases are taken from, first come first served.
///
/// Bytes are counted one by one: a plan may need every byte of its budget, so rounding a lease up could stop it for ever.
#[derive(Clone, Debug)]
pub struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    bytes: u64,
    taken: Mutex<Taken>,
    /// Held by the one who waits for bytes; the others queue for it.
    turn: tokio::sync::Mutex<()>,
    given_back: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    now: u64,
    most: u64,
}

/// The right to hold a number of bytes.
#[derive(Debug)]
pub struct Lease {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Budget {
    /// A budget of `bytes`.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let (taken, turn, given_back) = Default::default();
        Self { shared: Arc::new(Shared { bytes, taken, turn, given_back }) }
    }

    /// The whole budget, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.bytes
    }

    /// Waits until `bytes` are free and takes them. A request for more than the whole budget is cut to the budget, so that it
    /// waits for everything else to be given back instead of for ever; plans that need more are refused beforehand.
    ///
    /// Cancellation safe: a dropped wait takes nothing and gives up its place in the queue.
    pub async fn lease(&self, bytes: u64) -> Lease {
        let wanted = bytes.min(self.shared.bytes);
        let _turn = self.shared.turn.lock().await;
        loop {
            if self.shared.take(wanted) {
                return Lease { shared: Arc::clone(&self.shared), bytes: wanted };
            }
            // What is given back between the two is remembered by the notification.
            self.shared.given_back.notified().await;
        }
    }

    /// Bytes that are leased now.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.shared.taken().now
    }

    /// Most bytes that were ever leased at one time.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.shared.taken().most
    }
}

impl Shared {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, wanted: u64) -> bool {
        let mut taken = self.taken();
        let fits = wanted <= self.bytes - taken.now;
        if fits {
            taken.now += wanted;
            taken.most = taken.most.max(taken.now);
        }
        fits
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.taken().now -= self.bytes;
        self.shared.given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[tokio::test]
    async fn a_lease_holds_its_bytes_until_it_is_dropped() {
        let budget = Budget::new(10_001);
        let first = budget.lease(6_001).await;
        assert_eq!(budget.held(), 6_001);
        let mut second = Box::pin(budget.lease(4_001));
        assert!(futures::poll!(&mut second).is_pending());
        let third = budget.lease(1);
        let mut third = Box::pin(third);
        assert!(futures::poll!(&mut third).is_pending(), "a small request does not overtake a large one");
        drop(first);
        let second = second.await;
        let third = third.await;
        assert_eq!(budget.held(), 4_002);
        drop((second, third));
        assert_eq!((budget.held(), budget.peak()), (0, 6_001));
    }

    #[tokio::test]
    async fn a_request_beyond_the_budget_waits_for_all_of_it() {
        let budget = Budget::new(4_000);
        let some = budget.lease(1).await;
        let mut all = Box::pin(budget.lease(100_000));
        assert!(futures::poll!(&mut all).is_pending());
        drop(some);
        assert_eq!(all.await.bytes, 4_000);
    }

    #[tokio::test]
    async fn a_dropped_wait_takes_nothing_and_lets_the_next_one_pass() {
        let budget = Budget::new(10);
        let first = budget.lease(8).await;
        let mut large = Box::pin(budget.lease(9));
        let mut small = Box::pin(budget.lease(2));
        assert!(futures::poll!(&mut large).is_pending() && futures::poll!(&mut small).is_pending());
        drop(large);
        let small = small.await;
        assert_eq!(budget.held(), 10);
        drop((first, small));
        assert_eq!(budget.held(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn leases_never_exceed_the_budget_and_all_are_served(total in 1..60_u64, wants in prop::collection::vec(0..80_u64, 1..40)) {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
            let budget = Budget::new(total);
            runtime.block_on(async {
                let tasks: Vec<_> = wants.iter().map(|&bytes| {
                    let budget = budget.clone();
                    tokio::spawn(async move {
                        let lease = budget.lease(bytes).await;
                        tokio::task::yield_now().await;
                        assert!(budget.held() <= budget.bytes());
                        drop(lease);
                    })
                }).collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
            prop_assert_eq!(budget.held(), 0);
            prop_assert!(budget.peak() <= total && budget.peak() >= wants[0].min(total));
        }
    }
}
