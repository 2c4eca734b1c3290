use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::ElementKind;
use crate::conformance::check;
use crate::fake::Fake;

fn spec() -> EngineSpec {
    let kind = ElementKind::F32;
    EngineSpec {
        batch: 4,
        patch: [3, 4, 5],
        channels_in: 1,
        channels_out: 1,
        input: kind,
        output: kind,
        pad_short: false,
    }
}

fn identity(key: &str, process: &str) -> Identity {
    Identity { key: key.into(), process: process.into(), label: format!("the model {key}") }
}

/// A pool's factory of fakes, and how many were made.
struct Fakes {
    pool: Pool,
    made: Arc<AtomicUsize>,
}

impl Fakes {
    fn new(most_idle: usize) -> Self {
        Self { pool: Pool::new(most_idle), made: Arc::default() }
    }

    fn factory(&self, identity: Identity) -> Box<dyn EngineFactory> {
        let made = Arc::clone(&self.made);
        self.pool.factory(
            identity,
            Box::new(move || Box::new(Counted { fake: Fake::identity("fake:0", spec()), made: Arc::clone(&made) })),
        )
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }
}

struct Counted {
    fake: Fake,
    made: Arc<AtomicUsize>,
}

impl EngineFactory for Counted {
    fn device(&self) -> String {
        self.fake.device()
    }

    fn make(self: Box<Self>) -> Result<Box<dyn Engine>, EngineError> {
        self.made.fetch_add(1, Ordering::SeqCst);
        Box::new(self.fake).make()
    }
}

#[test]
fn what_stands_for_an_engine_conforms_and_one_engine_serves_all_runs() {
    let fakes = Fakes::new(1);
    assert_eq!(check(|| fakes.factory(identity("a", ""))), Ok(()));
    assert_eq!(fakes.made(), 1);
}

#[test]
fn an_engine_that_is_in_use_is_not_taken_and_both_are_told_of() {
    let fakes = Fakes::new(1);
    let first = fakes.factory(identity("a", "")).make().unwrap();
    let second = fakes.factory(identity("a", "")).make().unwrap();
    assert_eq!(fakes.made(), 2);
    assert_eq!(fakes.pool.kept().iter().filter(|kept| kept.busy).count(), 2);
    drop(first);
    let told = fakes.pool.kept();
    assert_eq!(told.iter().map(|kept| kept.busy).collect::<Vec<_>>(), [false, true]);
    assert_eq!((told[0].identity.label.as_str(), told[0].device.as_str()), ("the model a", "fake:0"));
    // There is room for one idle engine only.
    drop(second);
    assert_eq!(fakes.pool.kept().len(), 1);
    fakes.pool.clear();
    assert_eq!(fakes.pool.kept(), []);
}

#[test]
fn an_engine_goes_for_another_model_or_other_switches_of_the_process() {
    let fakes = Fakes::new(1);
    for (key, process, made) in
        [("a", "", 1), ("a", "", 1), ("b", "", 2), ("a", "", 3), ("a", "tf32", 4), ("a", "tf32", 4)]
    {
        drop(fakes.factory(identity(key, process)).make().unwrap());
        assert_eq!(fakes.made(), made, "{key} {process}");
        assert_eq!(fakes.pool.kept().len(), 1);
    }
}

#[test]
fn a_lost_engine_is_not_used_again() {
    let pool = Pool::new(1);
    let fake = Fake::identity("fake:0", spec()).failing_on(0, EngineErrorKind::DeviceLost, "gone");
    let make = move || Box::new(fake.clone()) as Box<dyn EngineFactory>;
    let mut engine = pool.factory(identity("a", ""), Box::new(make)).make().unwrap();
    let slot = engine.allocate().unwrap();
    assert!(engine.submit(slot, 1).is_err());
    drop(engine);
    assert_eq!(pool.kept(), []);
}

#[test]
fn idle_engines_make_room_where_memory_is_wanting() {
    let pool = Pool::new(4);
    let room = Arc::new(AtomicUsize::new(1));
    let make = |key: &str| {
        let room = Arc::clone(&room);
        pool.factory(identity(key, ""), Box::new(move || Box::new(Large { room: Arc::clone(&room) }))).make()
    };
    let first = make("a").unwrap();
    assert_eq!(make("b").err().unwrap().kind, EngineErrorKind::OutOfMemory);
    drop(first);
    drop(make("b").unwrap());
    assert_eq!(pool.kept().len(), 1);
}

/// An engine of which as many fit as there is room.
struct Large {
    room: Arc<AtomicUsize>,
}

struct Held(Box<dyn Engine>, Arc<AtomicUsize>);

impl EngineFactory for Large {
    fn device(&self) -> String {
        "fake:0".into()
    }

    fn make(self: Box<Self>) -> Result<Box<dyn Engine>, EngineError> {
        let taken = self.room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |room| room.checked_sub(1));
        if taken.is_err() {
            return Err(EngineError::new(EngineErrorKind::OutOfMemory, "fake:0", "no room"));
        }
        let engine = Box::new(Fake::identity("fake:0", spec())).make()?;
        Ok(Box::new(Held(engine, self.room)))
    }
}

impl Engine for Held {
    fn spec(&self) -> &EngineSpec {
        self.0.spec()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn allocate(&mut self) -> Result<Slot, EngineError> {
        self.0.allocate()
    }

    fn submit(&mut self, slot: Slot, rows: usize) -> Result<Box<dyn Completion>, Rejected> {
        self.0.submit(slot, rows)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}
