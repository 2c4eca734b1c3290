//! One budget of bytes for everything large. A lease travels with the buffer it stands for and gives its bytes back when it is
//! dropped.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes per permit: semaphores count in `u32`, volumes do not.
const UNIT: u64 = 1024;

/// A bounded number of bytes that leases are taken from, first come first served.
#[derive(Clone, Debug)]
pub struct Budget {
    permits: Arc<Semaphore>,
    bytes: u64,
}

/// The right to hold a number of bytes.
#[derive(Debug)]
pub struct Lease {
    _permit: OwnedSemaphorePermit,
}

impl Budget {
    /// A budget of `bytes`, rounded down to whole KiB.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let permits = usize::try_from(bytes / UNIT).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(permits)), bytes: permits as u64 * UNIT }
    }

    /// The whole budget, bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits until `bytes` are free and takes them. A request for more than the whole budget is cut to the budget, so that it
    /// waits for everything else to be given back instead of for ever; plans that need more are refused beforehand.
    ///
    /// Cancellation safe: a dropped wait takes nothing and gives up its place in the queue.
    pub async fn lease(&self, bytes: u64) -> Lease {
        let wanted = bytes.min(self.bytes).div_ceil(UNIT).min(self.bytes / UNIT);
        let permit = Arc::clone(&self.permits).acquire_many_owned(u32::try_from(wanted).unwrap_or(u32::MAX)).await;
        match permit {
            Ok(permit) => Lease { _permit: permit },
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Bytes that are leased now.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.bytes - self.permits.available_permits() as u64 * UNIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lease_holds_its_bytes_until_it_is_dropped() {
        let budget = Budget::new(10 * UNIT);
        let first = budget.lease(6 * UNIT + 1).await;
        assert_eq!(budget.held(), 7 * UNIT);
        let mut second = Box::pin(budget.lease(4 * UNIT));
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        let second = second.await;
        assert_eq!(budget.held(), 4 * UNIT);
        drop(second);
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test]
    async fn a_request_beyond_the_budget_waits_for_all_of_it() {
        let budget = Budget::new(4 * UNIT);
        let all = budget.lease(100 * UNIT).await;
        assert_eq!(budget.held(), 4 * UNIT);
        drop(all);
    }
}
