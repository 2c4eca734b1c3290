//! Engines that stay ready between runs, each on a thread of its own for as long as it lives.
//!
//! A run makes an engine on its device's thread and drops it at its end. An engine of a [`Pool`] lives on another thread, and what the
//! run gets stands for it: making it again costs nothing while nobody else has taken it, and dropping it gives the engine back. What is
//! asked of it takes one hop to that thread and back.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tracing::Span;

use crate::{Completion, Engine, EngineError, EngineErrorKind, EngineFactory, EngineSpec, Rejected, Slot};

/// What makes an engine anew, as often as it is needed.
pub type Make = Box<dyn Fn() -> Box<dyn EngineFactory> + Send>;

/// What is said about an engine that is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Everything that shaped it: engines of one key can stand for each other.
    pub key: String,
    /// What it shares with every other engine of the process: libtorch's own switches. An idle engine that was made under others goes.
    pub process: String,
    /// What it is, for people.
    pub label: String,
}

/// An engine of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What was said about it.
    pub identity: Identity,
    /// The device that it is on.
    pub device: String,
    /// What runs.
    pub description: String,
    /// Whether a run has it.
    pub busy: bool,
}

/// Engines that stay ready. Cloning shares them.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    /// Idle engines per device.
    most_idle: usize,
    /// The longest idle first.
    engines: Mutex<Engines>,
}

#[derive(Default)]
struct Engines {
    idle: Vec<Owner>,
    busy: Vec<Kept>,
}

/// An engine's thread, and how to ask it.
struct Owner {
    kept: Kept,
    spec: EngineSpec,
    orders: Sender<(Order, Span)>,
    thread: JoinHandle<()>,
}

enum Order {
    Allocate(Sender<Result<Slot, EngineError>>),
    Submit(Slot, usize, Sender<Result<Box<dyn Completion>, Rejected>>),
    Fingerprint(Slot, Sender<Result<(Slot, u64), Rejected>>),
}

impl Pool {
    /// A pool that keeps so many idle engines per device.
    #[must_use]
    pub fn new(most_idle: usize) -> Self {
        Self { shared: Arc::new(Shared { most_idle, engines: Mutex::default() }) }
    }

    /// A factory for an engine of this identity: an idle one, or one that `make` makes.
    #[must_use]
    pub fn factory(&self, identity: Identity, make: Make) -> Box<dyn EngineFactory> {
        let device = make().device();
        Box::new(WarmFactory { pool: self.clone(), identity, make, device })
    }

    /// Every engine, idle or not.
    #[must_use]
    pub fn kept(&self) -> Vec<Kept> {
        let engines = self.engines();
        engines.idle.iter().map(|owner| &owner.kept).chain(&engines.busy).cloned().collect()
    }

    /// Ends idle engines and waits for their threads. Blocks.
    pub fn clear(&self) {
        let idle = std::mem::take(&mut self.engines().idle);
        idle.into_iter().for_each(Owner::end);
    }

    fn engines(&self) -> MutexGuard<'_, Engines> {
        self.shared.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an idle engine of this identity, after those are gone that cannot live beside it.
    fn take(&self, identity: &Identity, device: &str) -> Option<Owner> {
        let mut engines = self.engines();
        let others = engines.idle.extract_if(.., |owner| owner.kept.identity.process != identity.process);
        let mut gone: Vec<Owner> = others.collect();
        let fits = |owner: &Owner| owner.kept.identity.key == identity.key && owner.kept.device == device;
        let found = engines.idle.iter().position(fits).map(|place| engines.idle.remove(place));
        let here = |owner: &&mut Owner| owner.kept.device == device;
        while found.is_none() && engines.idle.iter_mut().filter(here).count() >= self.shared.most_idle.max(1) {
            let Some(oldest) = engines.idle.iter().position(|owner| owner.kept.device == device) else { break };
            gone.push(engines.idle.remove(oldest));
        }
        drop(engines);
        gone.into_iter().for_each(Owner::end);
        found
    }

    /// Makes room on a device: whether there was anything to end.
    fn make_room(&self, device: &str) -> bool {
        let mut engines = self.engines();
        let gone: Vec<Owner> = engines.idle.extract_if(.., |owner| owner.kept.device == device).collect();
        drop(engines);
        let any = !gone.is_empty();
        gone.into_iter().for_each(Owner::end);
        any
    }

    fn lend(&self, owner: Owner) -> WarmEngine {
        let kept = Kept { busy: true, ..owner.kept.clone() };
        self.engines().busy.push(kept);
        WarmEngine { pool: self.clone(), owner: Some(owner), lost: false }
    }

    /// Takes an engine back; one that is lost, or for which there is no room, ends.
    fn give_back(&self, owner: Owner, lost: bool) {
        let mut engines = self.engines();
        let mine = |kept: &Kept| kept.identity == owner.kept.identity && kept.device == owner.kept.device;
        if let Some(place) = engines.busy.iter().position(mine) {
            engines.busy.remove(place);
        }
        let here = engines.idle.iter().filter(|idle| idle.kept.device == owner.kept.device).count();
        if lost || here >= self.shared.most_idle {
            drop(engines);
            owner.end();
        } else {
            engines.idle.push(owner);
        }
    }
}

struct WarmFactory {
    pool: Pool,
    identity: Identity,
    make: Make,
    device: String,
}

impl EngineFactory for WarmFactory {
    fn device(&self) -> String {
        self.device.clone()
    }

    fn make(self: Box<Self>) -> Result<Box<dyn Engine>, EngineError> {
        let owner = match self.pool.take(&self.identity, &self.device) {
            Some(owner) => owner,
            None => match Owner::start(&self.identity, (self.make)()) {
                // What is idle may hold the memory that was wanting.
                Err(error) if error.kind == EngineErrorKind::OutOfMemory && self.pool.make_room(&self.device) => {
                    Owner::start(&self.identity, (self.make)())?
                }
                started => started?,
            },
        };
        Ok(Box::new(self.pool.lend(owner)))
    }
}

impl Owner {
    fn start(identity: &Identity, factory: Box<dyn EngineFactory>) -> Result<Self, EngineError> {
        let device = factory.device();
        let ended = |why: &str| EngineError::new(EngineErrorKind::Load, device.clone(), why.to_owned());
        let (tell, told) = channel();
        let (orders, received) = channel();
        // What is said while it is made belongs to whoever wanted it.
        let span = Span::current();
        let thread = std::thread::Builder::new()
            .name(format!("engine-{device}"))
            .spawn(move || {
                let made = span.in_scope(|| factory.make());
                // The engine outlives it.
                drop(span);
                match made {
                    Ok(mut engine) => {
                        if tell.send(Ok((engine.spec().clone(), engine.describe()))).is_ok() {
                            serve(engine.as_mut(), &received);
                        }
                    }
                    // Whoever asked may have gone.
                    Err(error) => drop(tell.send(Err(error))),
                }
            })
            .map_err(|error| ended(&format!("no thread could be started for its engine: {error}")))?;
        let (spec, description) = match told.recv() {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(ended("the thread of its engine ended while it started")),
        };
        let kept = Kept { identity: identity.clone(), device, description, busy: false };
        Ok(Self { kept, spec, orders, thread })
    }

    /// Ends the engine and waits for its thread.
    fn end(self) {
        drop(self.orders);
        // A panic has been told where it happened.
        drop(self.thread.join());
    }
}

/// The life of an engine's thread: it ends when nobody can ask any more. What it says belongs to whoever asked.
fn serve(engine: &mut dyn Engine, orders: &Receiver<(Order, Span)>) {
    while let Ok((order, span)) = orders.recv() {
        span.in_scope(|| match order {
            Order::Allocate(answer) => drop(answer.send(engine.allocate())),
            Order::Submit(slot, rows, answer) => drop(answer.send(engine.submit(slot, rows))),
            Order::Fingerprint(slot, answer) => drop(answer.send(engine.fingerprint(slot))),
        });
    }
}

/// What a run has in place of an engine.
struct WarmEngine {
    pool: Pool,
    /// None only while this is dropped.
    owner: Option<Owner>,
    lost: bool,
}

impl WarmEngine {
    fn owner(&self) -> &Owner {
        // It is taken nowhere but in `drop`.
        #[expect(clippy::expect_used, reason = "nothing can be asked of what has been dropped")]
        self.owner.as_ref().expect("an engine that is lent has an owner")
    }

    fn order(&self, order: Order) {
        // Without a thread there is no answer either.
        drop(self.owner().orders.send((order, Span::current())));
    }

    fn gone(&mut self) -> EngineError {
        self.lost = true;
        EngineError::new(EngineErrorKind::DeviceLost, self.owner().kept.device.clone(), "the engine's thread has ended")
    }

    /// Notes whether the engine can be used again.
    fn noted<T>(&mut self, answer: Result<T, Rejected>) -> Result<T, Rejected> {
        if let Err(rejected) = &answer {
            self.lost |= rejected.error.kind == EngineErrorKind::DeviceLost;
        }
        answer
    }
}

impl Engine for WarmEngine {
    fn spec(&self) -> &EngineSpec {
        &self.owner().spec
    }

    fn describe(&self) -> String {
        self.owner().kept.description.clone()
    }

    fn allocate(&mut self) -> Result<Slot, EngineError> {
        let (answer, answered) = channel();
        self.order(Order::Allocate(answer));
        answered.recv().unwrap_or_else(|_| Err(self.gone()))
    }

    fn submit(&mut self, slot: Slot, rows: usize) -> Result<Box<dyn Completion>, Rejected> {
        let (answer, answered) = channel();
        self.order(Order::Submit(slot, rows, answer));
        match answered.recv() {
            Ok(answer) => self.noted(answer),
            // The slot went with the thread.
            Err(_) => Err(Rejected { slot: self.owner().spec.heap_slot(), error: self.gone() }),
        }
    }

    fn fingerprint(&mut self, slot: Slot) -> Result<(Slot, u64), Rejected> {
        let (answer, answered) = channel();
        self.order(Order::Fingerprint(slot, answer));
        match answered.recv() {
            Ok(answer) => self.noted(answer),
            Err(_) => Err(Rejected { slot: self.owner().spec.heap_slot(), error: self.gone() }),
        }
    }
}

impl Drop for WarmEngine {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            self.pool.give_back(owner, self.lost);
        }
    }
}

#[cfg(test)]
mod tests;
