//! How many requests a store gets at one time: fewer when it throttles, slowly more when it does not.
//!
//! Additive increase, multiplicative decrease: halved by the first complaint about requests that were sent under the present
//! limit, one more after as many good answers as there are requests in flight.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::Network;

/// What a store that has not answered yet gets at most.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// Between two lines in the log about one store that throttles.
const QUIET: Duration = Duration::from_secs(60);

/// The entrance to one store, shared by everything that reads and writes there.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The store, for the log.
    name: String,
    network: Network,
    /// Whether throttling changes the limit.
    adaptive: bool,
    /// The most attempts that an operation may take, if somebody limited them.
    pub(crate) attempts: Option<usize>,
    permits: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Requests at one time now.
    limit: usize,
    /// Permits that are out but no longer allowed: they are not given back.
    surplus: usize,
    /// How often the limit was lowered.
    lowered: u64,
    /// Good answers since the limit changed.
    good: usize,
    answered: bool,
    clock: Option<Clock>,
    /// When the store wants the next request.
    not_before: Option<Instant>,
    told: Option<Instant>,
}

/// Two clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The store's, to the second.
    pub(crate) store: SystemTime,
    pub(crate) ours: SystemTime,
}

/// The right to have one request under way. It ends when it is dropped, which is after the answer's last byte.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Arc<Gate>,
    permit: Option<OwnedSemaphorePermit>,
    /// Which limit it was given under.
    lowered: u64,
}

impl Gate {
    pub(crate) fn new(name: String, network: Network, adaptive: bool, attempts: Option<usize>) -> Self {
        let limit = network.requests.clamp(1, Semaphore::MAX_PERMITS);
        let state = State {
            limit,
            surplus: 0,
            lowered: 0,
            good: 0,
            answered: false,
            clock: None,
            not_before: None,
            told: None,
        };
        let permits = Arc::new(Semaphore::new(limit));
        Self { name, network, adaptive, attempts, permits, state: Mutex::new(state) }
    }

    /// Waits for the right to send a request.
    ///
    /// Cancellation: safe.
    pub(crate) async fn enter(self: &Arc<Self>) -> Pass {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let pass = Pass { gate: Arc::clone(self), permit, lowered: self.state().lowered };
        loop {
            let until = self.state().not_before;
            match until.filter(|until| *until > Instant::now()) {
                Some(until) => tokio::time::sleep_until(until).await,
                None => return pass,
            }
        }
    }

    /// Requests at one time now.
    pub(crate) fn limit(&self) -> usize {
        self.state().limit
    }

    /// How long a request may go without a byte.
    pub(crate) fn stall(&self) -> Duration {
        self.patience(self.network.stall)
    }

    /// For how long an operation may be repeated.
    pub(crate) fn deadline(&self) -> Duration {
        self.patience(self.network.deadline)
    }

    fn patience(&self, full: Duration) -> Duration {
        if self.state().answered { full } else { full.min(FIRST_ANSWER) }
    }

    /// The store has answered, whatever the answer was, and may have said what time it is.
    pub(crate) fn answered(&self, date: Option<SystemTime>) {
        let mut state = self.state();
        state.answered = true;
        state.clock = date.map(|store| Clock { store, ours: SystemTime::now() }).or(state.clock);
    }

    /// What the clocks said at the last answer that told the time.
    pub(crate) fn clock(&self) -> Option<Clock> {
        self.state().clock
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass {
    /// The answer was a good one.
    pub(crate) fn succeeded(&self) {
        let gate = &self.gate;
        let mut state = gate.state();
        state.good += 1;
        if state.good < state.limit || state.limit >= gate.network.requests {
            return;
        }
        state.good = 0;
        state.limit += 1;
        if state.surplus > 0 {
            state.surplus -= 1;
        } else {
            gate.permits.add_permits(1);
        }
    }

    /// The store complained, and may have said when to come back.
    pub(crate) fn throttled(&self, after: Option<Duration>, why: &str) {
        let gate = &self.gate;
        let mut state = gate.state();
        let now = Instant::now();
        if let Some(after) = after {
            let until = now + after.min(gate.network.deadline);
            state.not_before = Some(state.not_before.map_or(until, |before| before.max(until)));
        }
        // Everything that was sent before the last change complains about what has been mended already.
        if gate.adaptive && self.lowered == state.lowered {
            let lower = (state.limit / 2).max(1);
            let fewer = state.limit - lower;
            state.surplus += fewer - gate.permits.forget_permits(fewer);
            (state.limit, state.good, state.lowered) = (lower, 0, state.lowered + 1);
        }
        if state.told.is_none_or(|told| now - told >= QUIET) {
            state.told = Some(now);
            tracing::warn!("{} throttles ({why}): {} requests at one time from now on", gate.name, state.limit);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        if state.surplus > 0 {
            state.surplus -= 1;
            self.permit.take().into_iter().for_each(OwnedSemaphorePermit::forget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(requests: usize, adaptive: bool) -> Arc<Gate> {
        let network = Network { requests, ..Network::default() };
        Arc::new(Gate::new("s3://b".to_owned(), network, adaptive, None))
    }

    /// How many more may enter now.
    fn room(gate: &Gate) -> usize {
        gate.permits.available_permits()
    }

    #[tokio::test]
    async fn throttling_halves_once_per_limit_and_good_answers_add_one_at_a_time() {
        let gate = gate(16, true);
        let mut passes = Vec::new();
        for _ in 0..16 {
            passes.push(gate.enter().await);
        }
        for pass in &passes {
            pass.throttled(None, "503");
        }
        assert_eq!((gate.limit(), room(&gate)), (8, 0));
        drop(passes);
        assert_eq!(room(&gate), 8);
        let pass = gate.enter().await;
        (0..8 + 9).for_each(|_| pass.succeeded());
        assert_eq!((gate.limit(), room(&gate)), (10, 9));
        drop(pass);
        for _ in 0..10 {
            let pass = gate.enter().await;
            pass.throttled(None, "503");
        }
        assert_eq!(gate.limit(), 1);
        let pass = gate.enter().await;
        assert_eq!(room(&gate), 0);
        (0..1000).for_each(|_| pass.succeeded());
        drop(pass);
        assert_eq!((gate.limit(), room(&gate)), (16, 16));
    }

    #[tokio::test]
    async fn a_fixed_limit_stays() {
        let gate = gate(4, false);
        let pass = gate.enter().await;
        pass.throttled(None, "503");
        assert_eq!(gate.limit(), 4);
    }

    #[tokio::test]
    async fn nobody_enters_before_the_store_wants_the_next_request() {
        let gate = gate(4, true);
        let pass = gate.enter().await;
        pass.throttled(Some(Duration::from_millis(60)), "429");
        pass.throttled(Some(Duration::from_millis(20)), "429");
        let since = Instant::now();
        drop(gate.enter().await);
        assert!(since.elapsed() >= Duration::from_millis(50));
    }

    #[test]
    fn a_store_that_never_answered_gets_little_time() {
        let gate = gate(4, true);
        assert_eq!((gate.deadline(), gate.stall()), (FIRST_ANSWER, FIRST_ANSWER));
        gate.answered(None);
        assert_eq!((gate.deadline().as_secs(), gate.stall().as_secs()), (300, 60));
    }
}
