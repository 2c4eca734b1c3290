//! What makes a result: everything that decides about its bytes. It is recorded with the first block, and whoever goes on with a
//! run must follow the same recipe.

use std::collections::BTreeMap;

use haloflow_geometry::{Lattice, Plan, Seam, Zyx};
use haloflow_volume::{OutputPlan, VolumeReader};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::{Fault, FaultKind, Stage};
use crate::normalise::Normalisation;
use crate::pyramid::Pyramid;
use crate::settings::{RunSettings, Values};
use crate::skip::Skip;

/// Names, those of the keys where there are some, and values. Numbers are written so that they come back exactly.
pub type Recipe = BTreeMap<String, String>;

/// The version of [`Head`].
const FORMAT: u32 = 1;

/// The head of a run's ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    format: u32,
    pub(crate) recipe: Recipe,
    /// Number of tiles along z, y, x: what the numbers in the ledger count.
    pub(crate) tiles: Zyx,
    /// Output channels.
    pub(crate) channels: usize,
    /// The numbers of the whole volume's normalisation, one pair per input channel.
    normalisation: Vec<[String; 2]>,
}

impl Head {
    pub(crate) fn new(recipe: Recipe, plan: &Plan, channels: usize, normalisation: &[[f64; 2]]) -> Self {
        let normalisation = normalisation.iter().map(|pair| pair.map(|number| number.to_string())).collect();
        Self { format: FORMAT, recipe, tiles: plan.tiles(), channels, normalisation }
    }

    /// Reads the head of the ledger at `url`.
    pub(crate) fn read(value: &Value, url: &str) -> Result<Self, Fault> {
        let bad = |what: String| {
            let message = format!(
                "the record {url} of the run that is to be resumed cannot be used ({what}); start over with `--overwrite`"
            );
            Fault::new(FaultKind::Data, Stage::Open, message)
        };
        if value["format"] != FORMAT {
            return Err(bad(format!("it is of version {}, and this is version {FORMAT}", value["format"])));
        }
        let head: Self = serde_json::from_value(value.clone()).map_err(|error| bad(error.to_string()))?;
        let numbers = head.normalisation.iter().flatten();
        if let Some(number) = numbers.into_iter().find(|number| number.parse::<f64>().is_err()) {
            return Err(bad(format!("{number:?} is no number")));
        }
        Ok(head)
    }

    pub(crate) fn normalisation(&self) -> Vec<[f64; 2]> {
        let number = |text: &String| text.parse().unwrap_or(f64::NAN);
        self.normalisation.iter().map(|[low, high]| [number(low), number(high)]).collect()
    }

    /// What is not the same in `recipe`, a clause for each.
    pub(crate) fn differences(&self, recipe: &Recipe) -> Vec<String> {
        let mut names: Vec<&String> = self.recipe.keys().chain(recipe.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let value = |recipe: &Recipe, name| recipe.get(name).map_or("nothing", String::as_str).to_owned();
        let pairs = names.into_iter().map(|name| (name, value(&self.recipe, name), value(recipe, name)));
        pairs
            .filter(|(_, was, is)| was != is)
            .map(|(name, was, is)| format!("`{name}` was {was} and is {is}"))
            .collect()
    }

    /// Refuses another recipe.
    pub(crate) fn check(&self, recipe: &Recipe, output: &str) -> Result<(), Fault> {
        let differences = self.differences(recipe);
        if differences.is_empty() {
            return Ok(());
        }
        let message = format!(
            "the unfinished output {output} was begun otherwise: {}; say the same again to go on with it, or start over with `--overwrite`",
            differences.join(", ")
        );
        Err(Fault::new(FaultKind::Data, Stage::Open, message))
    }
}

/// The recipe of a run.
pub(crate) fn recipe(settings: &RunSettings, reader: &VolumeReader, output: &OutputPlan, plan: &Plan) -> Recipe {
    let input = [
        ("in", reader.description().url.clone()),
        ("in (its metadata)", reader.identity().to_owned()),
        ("level", settings.input.level.to_string()),
        ("t", settings.input.t.to_string()),
        ("c", format!("{:?}", settings.input.c)),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let named = input.into_iter().chain(output.facts()).chain(places(plan)).chain(values(&settings.values));
    let named = named.chain(coarser(&settings.pyramid, output)).chain(skipped(&settings.skip));
    let named = named.map(|(name, value)| (name.to_owned(), value));
    named.chain(settings.network.clone()).collect()
}

/// What decides about a voxel wherever the blocks lie.
pub(crate) fn made_by(settings: &RunSettings) -> impl Iterator<Item = (String, String)> {
    values(&settings.values).into_iter().map(|(name, value)| (name.to_owned(), value))
}

fn places(plan: &Plan) -> Vec<(&'static str, String)> {
    let geometry = plan.geometry();
    let size = |size: Zyx| size.map(|voxels| voxels.to_string()).join(" ");
    let mut named = vec![
        ("the volume's size", size(geometry.volume)),
        ("block", size(geometry.tile)),
        ("patch", size(geometry.patch)),
        ("overlap", size(geometry.overlap)),
        ("align", size(geometry.align)),
    ];
    match geometry.lattice {
        Lattice::Volume => named.push(("lattice", "volume".into())),
        Lattice::Block { halo } => named.extend([("lattice", "block".into()), ("halo", size(halo))]),
    }
    match geometry.seam {
        Seam::Trim { voxels } => named.extend([("seam-mode", "trim".into()), ("trim-voxels", size(voxels))]),
        Seam::Blend { floor, margin } => named.extend([
            ("seam-mode", "blend".into()),
            ("min-blend-weight", floor.to_string()),
            ("margin", size(margin)),
        ]),
    }
    named
}

/// How coarser levels are made, if there are any; how many there are is a fact of the output.
fn coarser(pyramid: &Pyramid, output: &OutputPlan) -> Option<(&'static str, String)> {
    (!output.factors().is_empty()).then(|| ("downsample", format!("{:?}", pyramid.method).to_lowercase()))
}

fn skipped(skip: &Skip) -> Vec<(&'static str, String)> {
    let mask = skip.mask.iter().map(|mask| ("mask", mask.clone()));
    std::iter::once(("skip-empty", skip.empty.to_string())).chain(mask).collect()
}

fn values(values: &Values) -> Vec<(&'static str, String)> {
    let pair = |[low, high]: [f64; 2]| format!("{low} {high}");
    let normalisation = match values.normalisation {
        Normalisation::Percentile { percentiles } => format!("percentile {}", pair(percentiles)),
        Normalisation::Volume { percentiles } => format!("volume {}", pair(percentiles)),
        Normalisation::ZScore { given: None } => "zscore".into(),
        Normalisation::ZScore { given: Some(given) } => format!("zscore {}", pair(given)),
        Normalisation::Global { bounds } => format!("global {}", pair(bounds)),
        Normalisation::None => "false".into(),
    };
    let clip = values.clip.map_or_else(|| "false".into(), |[low, high]| format!("{low} {high}"));
    vec![
        ("normalize", normalisation),
        ("norm-level", values.statistics_level.map_or_else(|| "the input's".into(), |level| level.to_string())),
        ("eps", values.eps.to_string()),
        ("clip-norm", clip),
        ("no-output-denormalize", (!values.denormalise).to_string()),
        ("the model's own post-processing", format!("{:?}", values.after)),
        ("pad", format!("{:?}", values.padding)),
        ("rounding", format!("{:?}", values.rounding)),
        ("nonfinite", format!("{:?}", values.nonfinite)),
    ]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan() -> Plan {
        let seam = Seam::Trim { voxels: [1; 3] };
        let lattice = Lattice::Volume;
        Plan::new(haloflow_geometry::Geometry {
            volume: [9; 3],
            tile: [4; 3],
            patch: [5; 3],
            overlap: [2; 3],
            align: [1; 3],
            lattice,
            seam,
        })
        .unwrap()
    }

    fn recipe(pairs: &[(&str, &str)]) -> Recipe {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn differences_are_named_with_both_values() {
        let head = Head::new(recipe(&[("a", "1"), ("b", "2"), ("c", "3")]), &plan(), 1, &[]);
        assert_eq!(head.differences(&head.recipe), Vec::<String>::new());
        let other = recipe(&[("a", "1"), ("b", "4"), ("d", "5")]);
        let told = ["`b` was 2 and is 4", "`c` was 3 and is nothing", "`d` was nothing and is 5"];
        assert_eq!(head.differences(&other), told);
        let fault = head.check(&other, "out.zarr").unwrap_err();
        assert!(fault.message.contains("out.zarr was begun otherwise: `b` was 2 and is 4, "), "{fault}");
    }

    #[test]
    fn a_head_of_another_version_is_refused() {
        let mut value = serde_json::to_value(Head::new(Recipe::new(), &plan(), 1, &[[0.0, 1.0]])).unwrap();
        assert!(Head::read(&value, "x").is_ok());
        value["normalisation"][0][1] = "many".into();
        assert!(Head::read(&value, "x").unwrap_err().message.contains("\"many\" is no number"));
        value["format"] = 2.into();
        assert!(Head::read(&value, "x").unwrap_err().message.contains("it is of version 2"));
    }

    proptest! {
        #[test]
        fn numbers_come_back_exactly(low in any::<f64>(), high in any::<f64>()) {
            let head = Head::new(Recipe::new(), &plan(), 2, &[[low, high], [-0.0, f64::MIN_POSITIVE]]);
            let text = serde_json::to_string(&head).unwrap();
            let back = Head::read(&serde_json::from_str(&text).unwrap(), "x").unwrap();
            let bits = |pairs: Vec<[f64; 2]>| pairs.into_iter().flatten().map(f64::to_bits).collect::<Vec<_>>();
            prop_assert_eq!(bits(back.normalisation())[..2].to_vec(), bits(vec![[low, high]]));
            prop_assert_eq!(back, head);
        }
    }
}
