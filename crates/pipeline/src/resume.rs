//! Resume: what an earlier run has left, and what is left to do.

use std::fmt;

use haloflow_geometry::{Plan, Selection, Zyx, number};
use haloflow_volume::{Contents, Environment, Ledger, OutputPlan, Window};

use crate::fault::{Fault, FaultKind, Stage};
use crate::open::{Opened, checked};
use crate::recipe::Head;
use crate::report::{Report, WorkReport};
use crate::settings::RunSettings;

/// The run that is gone on with.
#[derive(Clone, Debug)]
pub(crate) struct Earlier {
    pub(crate) head: Head,
    /// Whether nothing is left to do, by anybody.
    pub(crate) complete: bool,
    /// What its ledger has.
    pub(crate) recorded: Recorded,
}

/// What a ledger tells about a volume.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// The tiles that it does not have.
    pub(crate) left: Selection,
    /// The range of the values of those that it has, one per output channel.
    pub(crate) windows: Vec<Window>,
    /// Parts of it that cannot be read.
    pub(crate) damaged: Vec<String>,
}

/// Finds the run that has begun the output, if there is one.
pub(crate) async fn earlier(output: &OutputPlan, plan: &Plan) -> Result<Option<Earlier>, Fault> {
    let Some(begun) = output.begun() else { return Ok(None) };
    let head = Head::read(&begun.head, output.ledger().url())?;
    let recorded = match begun.complete {
        true => Recorded { left: Selection::new(plan.tiles(), |_| false), windows: Vec::new(), damaged: Vec::new() },
        false => recorded(output.ledger(), plan.tiles(), head.channels).await?,
    };
    Ok(Some(Earlier { head, complete: begun.complete, recorded }))
}

/// Reads the ledger of a volume of so many tiles and output channels.
pub(crate) async fn recorded(ledger: &Ledger, tiles: Zyx, channels: usize) -> Result<Recorded, Fault> {
    let Contents { records, mut windows, damaged } =
        ledger.load().await.map_err(|error| Fault::volume(Stage::Open, &error))?;
    let mut done = vec![false; tiles.iter().product()];
    for record in records {
        if let Some(done) = done.get_mut(record.tile as usize) {
            *done = true;
        }
    }
    // None has been seen yet if every tile was skipped.
    windows.resize(channels, Window::EMPTY);
    Ok(Recorded { left: Selection::new(tiles, |tile| !done[number(tiles, tile)]), windows, damaged })
}

/// Checks that tiles can be numbered in a ledger.
pub(crate) fn check_count(plan: &Plan) -> Result<(), Fault> {
    let count = plan.tiles().iter().try_fold(1_usize, |count, tiles| count.checked_mul(*tiles));
    if count.is_some_and(|count| u32::try_from(count).is_ok()) {
        return Ok(());
    }
    let message = format!("there would be {:?} blocks, more than can be counted; make `block` larger", plan.tiles());
    Err(Fault::new(FaultKind::Usage, Stage::Plan, message))
}

/// What a run would do if it were started now.
#[derive(Clone, Debug)]
pub struct Explanation {
    output: String,
    earlier: Option<Earlier>,
    differences: Vec<String>,
    /// Of what is left.
    plan: Plan,
    work: WorkReport,
}

/// Blocks that an explanation names.
const NAMED: usize = 5;

/// Finds out what a run would do. Nothing is created or touched.
///
/// # Errors
/// What would end the run before it looks at what an earlier one has left.
pub async fn explain(settings: &RunSettings, environment: &Environment) -> Result<Explanation, Fault> {
    settings.check()?;
    let mut report = Report::default();
    let Opened { output, plan, earlier, recipe, .. } = checked(settings, environment, &mut report).await?;
    let differences = earlier.as_ref().map(|earlier| earlier.head.differences(&recipe)).unwrap_or_default();
    Ok(Explanation { output: output.urls().join(", "), earlier, differences, plan, work: report.work })
}

impl Explanation {
    /// Whether the run would be refused.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        !self.differences.is_empty()
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (output, left, work) = (&self.output, self.plan.selection(), &self.work);
        let skipped = work.skipped.empty + work.skipped.masked;
        let all = left.len() as u64 + skipped + work.blocks_before;
        if self.is_refused() {
            writeln!(f, "{output}: would be refused, since the run that began it differs:")?;
            return self.differences.iter().try_for_each(|difference| writeln!(f, "  {difference}"));
        }
        match &self.earlier {
            None if skipped == 0 => {
                return writeln!(f, "{output}: nothing is recorded; all {all} blocks would be computed");
            }
            None => writeln!(f, "{output}: nothing is recorded; {} of {all} blocks would be computed", left.len())?,
            Some(_) => writeln!(
                f,
                "{output}: {} of {all} blocks are recorded and stay; {} would be computed, since no record has them",
                work.blocks_before,
                left.len()
            )?,
        }
        if skipped > 0 {
            writeln!(f, "  {} would be skipped as empty, {} as masked", work.skipped.empty, work.skipped.masked)?;
        }
        let Some(earlier) = &self.earlier else { return Ok(()) };
        for name in &earlier.recorded.damaged {
            writeln!(f, "  the record {name} is torn, so its blocks are computed again")?;
        }
        for tile in left.iter().take(NAMED) {
            writeln!(f, "  block {}", self.plan.tile(tile))?;
        }
        if left.len() > NAMED {
            writeln!(f, "  and {} more", left.len() - NAMED)?;
        }
        Ok(())
    }
}
