//! Wrappers of fakes: engines whose batches are done later, and gates that hold an engine up.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

use haloflow_engine::fake::Fake;
use haloflow_engine::{Completion, Engine, EngineError, EngineFactory, EngineSpec, Rejected, Slot};
use haloflow_pipeline::{Progress, Run};

/// What is done when somebody waits for a batch.
pub(crate) type Wait = Box<dyn FnOnce() -> Result<(), EngineError> + Send>;

/// What a [`Late`] engine asks of whoever directs it.
pub(crate) trait Director: Send + Sync {
    /// A batch has been submitted; the answer is run by whoever waits for it.
    fn submitted(&self) -> Wait;
}

/// A fake whose completions do what a director says before they are done.
pub(crate) struct Late {
    inner: Fake,
    director: Arc<dyn Director>,
}

impl Late {
    pub(crate) fn new<D: Director + 'static>(inner: Fake, director: &Arc<D>) -> Self {
        let director: Arc<D> = Arc::clone(director);
        Self { inner, director }
    }
}

struct LateEngine {
    inner: Box<dyn Engine>,
    director: Arc<dyn Director>,
}

struct LateCompletion {
    inner: Box<dyn Completion>,
    wait: Wait,
}

#[deny(clippy::missing_trait_methods)]
impl EngineFactory for Late {
    fn device(&self) -> String {
        self.inner.device()
    }

    fn make(self: Box<Self>) -> Result<Box<dyn Engine>, EngineError> {
        Ok(Box::new(LateEngine { inner: Box::new(self.inner).make()?, director: self.director }))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Engine for LateEngine {
    fn spec(&self) -> &EngineSpec {
        self.inner.spec()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn allocate(&mut self) -> Result<Slot, EngineError> {
        self.inner.allocate()
    }

    fn submit(&mut self, slot: Slot, rows: usize) -> Result<Box<dyn Completion>, Rejected> {
        let inner = self.inner.submit(slot, rows)?;
        Ok(Box::new(LateCompletion { inner, wait: self.director.submitted() }))
    }

    /// No batch of the run: no director holds it up.
    fn fingerprint(&mut self, slot: Slot) -> Result<(Slot, u64), Rejected> {
        self.inner.fingerprint(slot)
    }
}

impl Completion for LateCompletion {
    fn wait(self: Box<Self>) -> Result<Slot, Rejected> {
        let waited = (self.wait)();
        let slot = self.inner.wait()?;
        match waited {
            Ok(()) => Ok(slot),
            Err(error) => Err(Rejected { slot, error }),
        }
    }
}

/// Lets batches be done in a random order: it collects as many as its window and lets them go one after the other. They go before
/// that if no more can come: every slot holds a batch that is not merged, or this was the last batch of the run.
pub(crate) struct Shuffle {
    state: Mutex<Shuffled>,
    window: usize,
    slots: u64,
    batch: u64,
    progress: Arc<Progress>,
}

struct Shuffled {
    seed: u64,
    submitted: u64,
    held: Vec<Sender<Baton>>,
}

/// Whoever drops the baton passes it on.
struct Baton(Vec<Sender<Baton>>);

impl Drop for Baton {
    fn drop(&mut self) {
        if let Some(next) = self.0.pop() {
            // If nobody waits there any more, the baton comes back and is passed on from here.
            drop(next.send(Baton(std::mem::take(&mut self.0))));
        }
    }
}

impl Shuffle {
    /// A shuffle of the batches of `run`, which is to have `devices` devices.
    pub(crate) fn new(run: &Run, devices: usize, seed: u64, window: usize) -> Arc<Self> {
        let resources = &run.settings.resources;
        let slots = devices * (resources.max_inflight_batches / devices).clamp(1, 3);
        Arc::new(Self {
            state: Mutex::new(Shuffled { seed, submitted: 0, held: Vec::new() }),
            window,
            slots: slots as u64,
            batch: resources.batch as u64,
            progress: Arc::clone(&run.progress),
        })
    }

    /// Whether no batch comes after the `submitted` ones unless some of them are let go.
    fn is_last(&self, submitted: u64) -> bool {
        let seen = self.progress.snapshot();
        submitted - seen.batches >= self.slots || submitted == seen.patches_total.div_ceil(self.batch)
    }
}

impl Shuffled {
    fn release(&mut self) {
        let mut order = std::mem::take(&mut self.held);
        for i in (1..order.len()).rev() {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(i, (self.seed >> 33) as usize % (i + 1));
        }
        drop(Baton(order));
    }
}

impl Director for Shuffle {
    fn submitted(&self) -> Wait {
        let (sender, receiver): (_, Receiver<Baton>) = channel();
        let mut state = self.state.lock().unwrap();
        state.held.push(sender);
        state.submitted += 1;
        if state.held.len() == self.window || self.is_last(state.submitted) {
            state.release();
        }
        Box::new(move || {
            drop(receiver.recv());
            Ok(())
        })
    }
}

/// A gate that holds up whoever passes until it is opened, and tells when somebody has come.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    /// Waits until the gate is open.
    pub(crate) fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |(_, open)| !*open).unwrap());
    }

    /// Waits until somebody has come. Blocks.
    pub(crate) fn wait_for_somebody(&self) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |(came, _)| !*came).unwrap());
    }

    pub(crate) fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}
