//! Resume: what an earlier run has left, and what is left to do.

use std::fmt;

use haloflow_geometry::{Plan, Selection, Zyx, number};
use haloflow_volume::{Contents, Environment, Ledger, OutputPlan};

use crate::fault::{Fault, FaultKind, Stage};
use crate::open::{Opened, open_all};
use crate::recipe::{Head, Recipe, recipe};
use crate::report::Report;
use crate::settings::RunSettings;

/// The run that is gone on with.
#[derive(Clone, Debug)]
pub(crate) struct Earlier {
    pub(crate) head: Head,
    /// Whether nothing is left to do, by anybody.
    pub(crate) complete: bool,
    /// The tiles of the whole volume that are not recorded.
    pub(crate) left: Selection,
    /// Parts of the record that cannot be read.
    pub(crate) damaged: Vec<String>,
}

/// Finds the run that has begun the output, if there is one.
pub(crate) async fn earlier(output: &OutputPlan, plan: &Plan) -> Result<Option<Earlier>, Fault> {
    let Some(begun) = output.begun() else { return Ok(None) };
    let head = Head::read(&begun.head, output.ledger().url())?;
    let left = match begun.complete {
        true => (Selection::new(plan.tiles(), |_| false), Vec::new()),
        false => left(output.ledger(), plan.tiles()).await?,
    };
    Ok(Some(Earlier { head, complete: begun.complete, left: left.0, damaged: left.1 }))
}

/// The tiles that a ledger does not have, and what of it cannot be read.
pub(crate) async fn left(ledger: &Ledger, tiles: Zyx) -> Result<(Selection, Vec<String>), Fault> {
    let Contents { records, damaged } = ledger.load().await.map_err(|error| Fault::volume(Stage::Open, &error))?;
    let mut done = vec![false; tiles.iter().product()];
    for record in records {
        if let Some(done) = done.get_mut(record.tile as usize) {
            *done = true;
        }
    }
    Ok((Selection::new(tiles, |tile| !done[number(tiles, tile)]), damaged))
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
    plan: Plan,
}

/// Blocks that an explanation names.
const NAMED: usize = 5;

/// Finds out what a run would do. Nothing is created or touched.
///
/// # Errors
/// What would end the run before it looks at what an earlier one has left.
pub async fn explain(settings: &RunSettings, environment: &Environment) -> Result<Explanation, Fault> {
    settings.check()?;
    let opened = open_all(settings, environment, &mut Report::default()).await?;
    let Opened { reader, output, plan, earlier, .. } = opened;
    let recipe: Recipe = recipe(settings, &reader, &output, &plan);
    let differences = earlier.as_ref().map(|earlier| earlier.head.differences(&recipe)).unwrap_or_default();
    Ok(Explanation { output: output.urls().join(", "), earlier, differences, plan })
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
        let (output, tiles) = (&self.output, self.plan.selection());
        let Some(earlier) = &self.earlier else {
            return writeln!(f, "{output}: nothing is recorded; all {} blocks would be computed", tiles.len());
        };
        if self.is_refused() {
            writeln!(f, "{output}: would be refused, since the run that began it differs:")?;
            return self.differences.iter().try_for_each(|difference| writeln!(f, "  {difference}"));
        }
        let left = tiles.filter(|tile| earlier.left.contains(tile));
        let done = tiles.len() - left.len();
        writeln!(
            f,
            "{output}: {done} of {} blocks are recorded and stay; {} would be computed, since no record has them",
            tiles.len(),
            left.len()
        )?;
        for name in &earlier.damaged {
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
