//! The watchdog: a stage that holds something and neither takes up nor lays down anything for too long has stalled.
//!
//! A stage that waits for another holds nothing, so it is the one that hangs that is named.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::board::{Board, StageState};
use crate::fault::{Fault, FaultKind, Faults, Stage};
use crate::meter::Meters;
use crate::progress::Progress;
use crate::report::StagesReport;

/// When a stage counts as stalled, and where that is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watchdog {
    /// How long a stage may hold something without taking up or laying down anything.
    pub limit: Duration,
    /// The file for the diagnosis.
    pub diagnosis: PathBuf,
}

/// How often it looks, in parts of the limit.
const LOOKS: u32 = 10;

/// What the watchdog has seen of each stage: its changes, and since when there were no more.
#[derive(Debug, Default)]
struct Watch {
    seen: HashMap<Stage, (u64, Instant)>,
}

impl Watch {
    /// The first stage that holds something and has not changed for `limit`.
    fn look<'a>(&mut self, stages: &'a [StageState], now: Instant, limit: Duration) -> Option<&'a StageState> {
        let mut stalled = None;
        for state in stages {
            let (changes, since) = self.seen.entry(state.stage).or_insert((state.changes, now));
            if *changes != state.changes {
                (*changes, *since) = (state.changes, now);
            }
            if !state.holds.is_empty() && now.duration_since(*since) >= limit {
                stalled = stalled.or(Some(state));
            }
        }
        stalled
    }
}

/// Watches until it is dropped, or until a stage has stalled and the run is told to stop.
pub(crate) async fn watch(
    watchdog: Watchdog,
    board: Board,
    (meters, progress): (Arc<Meters>, Arc<Progress>),
    faults: Faults,
) {
    let mut watch = Watch::default();
    let mut ticks = interval((watchdog.limit / LOOKS).max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let stages = board.stages();
        let Some(stalled) = watch.look(&stages, Instant::now(), watchdog.limit) else { continue };
        let diagnosis = json!({
            "stalled": stalled.stage,
            "watchdog_seconds": watchdog.limit.as_secs_f64(),
            "stages": stages,
            "clocks": StagesReport::of(&meters),
            "progress": format!("{:?}", progress.snapshot()),
            "doing": progress.doing(),
            "errors": board.errors(),
        });
        let told = write(&watchdog.diagnosis, &format!("{diagnosis:#}\n"));
        return faults.report(fault(stalled, watchdog.limit, &told));
    }
}

fn fault(stalled: &StageState, limit: Duration, told: &str) -> Fault {
    let message = format!(
        "nothing has moved for {limit:?} (`watchdog`), so the run stops; what is stored stays, and the same command goes on with it; {told}"
    );
    let held = stalled.holds.first().map(|item| format!("{}, for {:.0} s", item.what, item.for_seconds));
    Fault { block: held, ..Fault::new(FaultKind::Interrupted, stalled.stage, message) }
}

fn write(path: &Path, text: &str) -> String {
    match std::fs::write(path, text) {
        Ok(()) => format!("what every stage held is in {}", path.display()),
        Err(error) => format!("what every stage held could not be written to {}: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_stalls_if_it_holds_something_and_does_not_move() {
        let (board, mut watch, limit) = (Board::default(), Watch::default(), Duration::from_secs(300));
        let start = Instant::now();
        let mut look = |seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            watch.look(&board.stages(), now, limit).map(|state| (state.stage, state.holds.len()))
        };
        let waiting = board.hold(Stage::Read, "block 0");
        let batch = board.hold(Stage::Device, "batch 3");
        assert_eq!(look(0), None);
        assert_eq!(look(299), None);
        drop(waiting);
        assert_eq!(look(299), None, "reading moved, and then waits for the device");
        assert_eq!(look(300), Some((Stage::Device, 1)));
        let next = board.hold(Stage::Device, "batch 4");
        assert_eq!(look(301), None, "the device moved");
        assert_eq!(look(600), None);
        drop((batch, next));
        assert_eq!(look(601), None);
        assert_eq!(look(2000), None, "whoever holds nothing may wait for ever");
    }
}
