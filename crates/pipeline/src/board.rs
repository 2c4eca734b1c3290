//! The board: what every stage holds at the moment, for the watchdog and its diagnosis.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;

use crate::fault::Stage;

/// Errors that are remembered, the last ones.
const ERRORS: usize = 20;

/// What is being worked on, by stage. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    stages: BTreeMap<Stage, Held>,
    errors: VecDeque<String>,
}

#[derive(Debug, Default)]
struct Held {
    /// How often something was taken up or laid down.
    changes: u64,
    items: BTreeMap<u64, (String, Instant)>,
}

/// Something that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Holding {
    board: Board,
    stage: Stage,
    id: u64,
}

/// What a stage holds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StageState {
    pub(crate) stage: Stage,
    #[serde(skip)]
    pub(crate) changes: u64,
    /// The longest held first.
    pub(crate) holds: Vec<Item>,
}

/// Something that is held.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Item {
    pub(crate) what: String,
    pub(crate) for_seconds: f64,
}

impl Board {
    /// Takes something up.
    pub(crate) fn hold(&self, stage: Stage, what: impl Into<String>) -> Holding {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        let held = state.stages.entry(stage).or_default();
        held.changes += 1;
        held.items.insert(id, (what.into(), Instant::now()));
        drop(state);
        Holding { board: self.clone(), stage, id }
    }

    /// Remembers an error that did not end the run.
    pub(crate) fn note(&self, error: impl Into<String>) {
        let errors = &mut self.state().errors;
        errors.truncate(ERRORS - 1);
        errors.push_front(error.into());
    }

    /// The last errors, the newest first.
    pub(crate) fn errors(&self) -> Vec<String> {
        self.state().errors.iter().cloned().collect()
    }

    /// What every stage holds now, in the order of the data's way.
    pub(crate) fn stages(&self) -> Vec<StageState> {
        let state = self.state();
        let of = |(&stage, held): (&Stage, &Held)| StageState {
            stage,
            changes: held.changes,
            holds: held
                .items
                .values()
                .map(|(what, since)| Item { what: what.clone(), for_seconds: since.elapsed().as_secs_f64() })
                .collect(),
        };
        state.stages.iter().map(of).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if let Some(held) = self.board.state().stages.get_mut(&self.stage) {
            held.changes += 1;
            held.items.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_there_until_it_is_dropped() {
        let board = Board::default();
        let first = board.hold(Stage::Read, "block 1");
        let second = board.hold(Stage::Read, "block 2");
        let device = board.hold(Stage::Device, "batch 0");
        let told = |board: &Board| -> Vec<(Stage, Vec<String>)> {
            let holds = |state: StageState| (state.stage, state.holds.into_iter().map(|item| item.what).collect());
            board.stages().into_iter().map(holds).collect()
        };
        let [one, two, batch] = ["block 1", "block 2", "batch 0"].map(str::to_owned);
        assert_eq!(told(&board), [(Stage::Read, vec![one, two.clone()]), (Stage::Device, vec![batch])]);
        let before = board.stages()[0].changes;
        drop((first, device));
        assert_eq!(told(&board), [(Stage::Read, vec![two]), (Stage::Device, vec![])]);
        assert_eq!(board.stages()[0].changes, before + 1);
        drop(second);
    }

    #[test]
    fn the_last_errors_are_remembered() {
        let board = Board::default();
        (0..50).for_each(|i| board.note(format!("error {i}")));
        let errors = board.errors();
        assert_eq!((errors.len(), errors[0].as_str(), errors[ERRORS - 1].as_str()), (ERRORS, "error 49", "error 30"));
    }
}
