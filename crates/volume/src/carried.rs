//! What goes along with work to other tasks and threads: the span that its log lines belong to, and who takes down what storage does
//! for it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tracing::{Instrument, Span};

use crate::StorageWork;

/// Notes that are kept of one piece of work; what comes after them is counted only.
const MOST: usize = 512;

tokio::task_local! {
    static NOTES: Option<Notes>;
}

/// Takes down what storage does for one piece of work, on whichever task or thread it does it. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    taken: Arc<Mutex<Taken>>,
}

/// What was taken down.
#[derive(Debug, Default)]
pub struct Taken {
    /// In the order in which the work was done.
    pub notes: Vec<Note>,
    /// How many more there were.
    pub left_out: usize,
}

/// A piece of work on one chunk or object.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// What was done.
    pub work: StorageWork,
    /// When it began.
    pub start: Instant,
    /// When it was done.
    pub end: Instant,
}

impl Notes {
    /// Awaits `work`, and takes down what storage does for it. What another read has loaded already, or is loading, is not part of it.
    pub async fn of<F: Future>(&self, work: F) -> F::Output {
        NOTES.scope(Some(self.clone()), work).await
    }

    /// What was taken down since it was last asked for.
    #[must_use]
    pub fn take(&self) -> Taken {
        std::mem::take(&mut self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, note: Note) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.notes.len() < MOST {
            taken.notes.push(note);
        } else {
            taken.left_out += 1;
        }
    }
}

/// Takes down work that has just been done, if anybody does.
pub(crate) fn noted(work: StorageWork, start: Instant) {
    // Outside every task nobody does.
    let _ = NOTES.try_with(|notes| {
        if let Some(notes) = notes {
            notes.add(Note { work, start, end: Instant::now() });
        }
    });
}

fn here() -> Option<Notes> {
    NOTES.try_with(Clone::clone).unwrap_or_default()
}

/// `work` for another task, with everything that belongs to the task that calls this.
pub fn carried<F: Future>(work: F) -> impl Future<Output = F::Output> {
    NOTES.scope(here(), work.instrument(Span::current()))
}

/// As [`carried`], for work on another thread.
pub fn carried_over<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let (notes, span) = (here(), Span::current());
    move || NOTES.sync_scope(notes, || span.in_scope(work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_taken_down_wherever_it_is_done_and_by_nobody_else() {
        let [mine, other] = [Notes::default(), Notes::default()];
        let done = |work| noted(work, Instant::now());
        mine.of(async {
            done(StorageWork::Fetch);
            tokio::spawn(carried(async move { done(StorageWork::Put) })).await.unwrap();
            std::thread::spawn(carried_over(move || done(StorageWork::Decode))).join().unwrap();
            other.of(async { done(StorageWork::Encode) }).await;
            // Nothing goes along by itself.
            tokio::spawn(async move { done(StorageWork::Encode) }).await.unwrap();
        })
        .await;
        done(StorageWork::Fetch);
        let works = |notes: &Notes| notes.take().notes.iter().map(|note| note.work).collect::<Vec<_>>();
        assert_eq!(works(&mine), [StorageWork::Fetch, StorageWork::Put, StorageWork::Decode]);
        assert_eq!(works(&other), [StorageWork::Encode]);
        mine.of(async { (0..MOST + 3).for_each(|_| done(StorageWork::Fetch)) }).await;
        let taken = mine.take();
        assert_eq!((taken.notes.len(), taken.left_out), (MOST, 3));
    }
}
