//! Verify: whether an output is what its ledger says, and whether its blocks can be seen.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use haloflow_geometry::{Box3, Zyx};
use haloflow_volume::{
    CpuPool, Element, Environment, InputOptions, Ledger, Record, StoredOutput, StoredSelection, VolumeReader, no_ledger,
};
use serde::Serialize;

use crate::fault::{Fault, FaultKind, Stage};
use crate::pyramid::covered;
use crate::recipe::Head;
use crate::sample::values;

/// Tiles that are compared at one time.
const COMPARING: usize = 8;

/// Faces of blocks that are looked at along each axis.
const FACES: usize = 64;

/// Voxels along the sides of the part of a face that is looked at.
const FACE: usize = 128;

/// What was found about one output.
#[derive(Clone, Debug, Serialize)]
pub struct Verification {
    /// Where its arrays are.
    pub outputs: Vec<String>,
    /// Blocks that it has.
    pub blocks_total: u64,
    /// Blocks that are recorded.
    pub blocks_recorded: u64,
    /// Bytes that were fetched and compared.
    pub bytes: u64,
    /// Whether its last run said that it is complete.
    pub complete: bool,
    /// Parts of the record that are torn.
    pub damaged: Vec<String>,
    /// Blocks that are not as they were recorded.
    pub flawed: Vec<Flawed>,
    /// For z, y and x: the mean step between neighbouring voxels across faces of blocks over that one voxel inside; nothing where
    /// there is no face, or no step inside. 1 is what a volume without seams has.
    pub seams: [Option<f64>; 3],
}

/// A block that is not as it was recorded.
#[derive(Clone, Debug, Serialize)]
pub struct Flawed {
    /// Where it starts, voxels z y x.
    pub start: Zyx,
    /// What is wrong.
    pub what: String,
}

impl Verification {
    /// The fault that this is, if it is one.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        let output = self.outputs.join(", ");
        let told = |kind, message| Some(Fault::new(kind, Stage::Open, message));
        if let Some(Flawed { start: [z, y, x], what }) = self.flawed.first() {
            let message = format!(
                "{} of {} recorded blocks of {output} are not as they were stored, the first at z {z}, y {y}, x {x}: {what}; compute it \
                 anew with `--overwrite`",
                self.flawed.len(),
                self.blocks_recorded
            );
            return told(FaultKind::Data, message);
        }
        if self.complete && self.blocks_recorded < self.blocks_total {
            let message = format!(
                "{output} says that it is complete, but only {} of {} blocks are recorded{}",
                self.blocks_recorded,
                self.blocks_total,
                self.damaged.first().map_or_else(String::new, |name| format!("; {name} is torn"))
            );
            return told(FaultKind::Data, message);
        }
        if self.complete {
            return None;
        }
        let message = format!(
            "{output} is not complete: {} of {} blocks are stored, and as they should be; the command that began it goes on with it",
            self.blocks_recorded, self.blocks_total
        );
        told(FaultKind::Interrupted, message)
    }
}

/// A stored output and what is known about it.
pub(crate) struct Stored {
    pub(crate) head: Head,
    pub(crate) ledger: Ledger,
    pub(crate) selection: StoredSelection,
    pub(crate) volume: Zyx,
    pub(crate) block: Zyx,
}

/// Compares every output at `place`, a URL or a path, with its ledger, and measures its seams.
///
/// # Errors
/// `Data` if there is no ledger or it is damaged, `Unavailable` or `Transient` if the store fails. What is wrong with the blocks
/// is no error but in the result.
pub async fn verify(place: &str, environment: &Environment, cpu: &CpuPool) -> Result<Vec<Verification>, Fault> {
    let mut found = Vec::new();
    for stored in all(place, environment).await? {
        found.push(verify_one(stored, environment, cpu).await?);
    }
    Ok(found)
}

/// Every output at `place`.
pub(crate) async fn all(place: &str, environment: &Environment) -> Result<Vec<Stored>, Fault> {
    let told = |error| Fault::volume(Stage::Open, &error);
    let mut found = Vec::new();
    for ledger in Ledger::find(place, environment).await.map_err(told)? {
        let Some(head) = ledger.head().await.map_err(told)? else { continue };
        let head = Head::read(&head, ledger.url())?;
        found.push(Stored::of(place, head, ledger)?);
    }
    if found.is_empty() {
        return Err(told(no_ledger(place)));
    }
    Ok(found)
}

impl Stored {
    fn of(place: &str, head: Head, ledger: Ledger) -> Result<Self, Fault> {
        let fact = |name: &str| {
            head.recipe.get(name).cloned().ok_or_else(|| {
                let message = format!("the record {} does not tell `{name}`: it is not one of a run", ledger.url());
                Fault::new(FaultKind::Data, Stage::Open, message)
            })
        };
        let numbers = |name: &str| -> Result<Vec<usize>, Fault> {
            Ok(fact(name)?.split_whitespace().filter_map(|number| number.parse().ok()).collect())
        };
        let triple = |name: &str| -> Result<Zyx, Fault> {
            let found = numbers(name)?;
            <Zyx>::try_from(found).map_err(|found| {
                let message = format!("the record {} tells `{name}` as {found:?}, not as three sizes", ledger.url());
                Fault::new(FaultKind::Data, Stage::Open, message)
            })
        };
        let one = |name: &str| -> Result<usize, Fault> { Ok(numbers(name)?.first().copied().unwrap_or_default()) };
        let mut places: Vec<String> = fact("out")?.split(' ').map(str::to_owned).collect();
        if let Some(first) = places.first_mut() {
            // It may have been moved since.
            place.trim_end_matches('/').clone_into(first);
        }
        let (t, c, levels) = (one("out-t")?, one("out-c")?, one("pyramid")?);
        let selection = StoredSelection { places, channels: head.channels, levels, t, c };
        let (volume, block) = (triple("the volume's size")?, triple("block")?);
        Ok(Self { head, ledger, selection, volume, block })
    }

    /// The voxels of a tile by its number.
    pub(crate) fn tile(&self, number: u32) -> Box3 {
        let [_, height, width] = self.head.tiles;
        let number = number as usize;
        let cell = [number / (height * width), number / width % height, number % width];
        Box3::of_cell(cell, self.block).intersect(&Box3::of_shape(self.volume))
    }

    /// Opens the finest level of the array that has `channel`.
    pub(crate) async fn reader(
        &self,
        channel: usize,
        environment: &Environment,
        cpu: &CpuPool,
    ) -> Result<VolumeReader, Fault> {
        let StoredSelection { places, t, c, .. } = &self.selection;
        let stacked = places.len() == 1;
        let options = InputOptions {
            source: places[if stacked { 0 } else { channel }].clone(),
            level: 0,
            level_given: false,
            t: *t,
            c: vec![if stacked { c + channel } else { *c }],
            cache_bytes: 64 << 20,
            requests: COMPARING,
        };
        VolumeReader::open(&options, environment, cpu).await.map_err(|error| Fault::volume(Stage::Open, &error))
    }
}

async fn verify_one(stored: Stored, environment: &Environment, cpu: &CpuPool) -> Result<Verification, Fault> {
    let told = |error| Fault::volume(Stage::Open, &error);
    let contents = stored.ledger.load().await.map_err(told)?;
    let complete = stored.ledger.is_complete().await.map_err(told)?;
    let output = StoredOutput::open(&stored.selection, environment).await.map_err(told)?;
    let factors: Vec<Zyx> = output.shapes().iter().map(|shape| factors(stored.volume, *shape)).collect();
    // Whoever computed a block twice got the same bytes; if not, it is the last that counts, which may be any.
    let mut records: BTreeMap<u32, Vec<Record>> = BTreeMap::new();
    contents.records.into_iter().for_each(|record| records.entry(record.tile).or_default().push(record));
    let flawed = stream::iter(&records)
        .map(|(&tile, records)| {
            let (region, output, factors) = (stored.tile(tile), &output, &factors);
            async move { Ok::<_, Fault>((region, flaw(output, region, factors, records).await.map_err(told)?)) }
        })
        .buffer_unordered(COMPARING)
        .try_filter_map(|(region, flaw)| async move {
            Ok(flaw.map(|flaw| Flawed { start: region.start, what: flaw.to_string() }))
        });
    let mut flawed: Vec<Flawed> = flawed.try_collect().await?;
    flawed.sort_by_key(|block| block.start);
    let recorded = |tile: Zyx| records.contains_key(&(haloflow_geometry::number(stored.head.tiles, tile) as u32));
    let seams = match flawed.is_empty() {
        true => seams(&stored, recorded, &stored.reader(0, environment, cpu).await?).await?,
        false => [None; 3],
    };
    Ok(Verification {
        outputs: stored.selection.places,
        blocks_total: stored.head.tiles.iter().product::<usize>() as u64,
        blocks_recorded: records.len() as u64,
        bytes: records.values().filter_map(|records| Some(records.first()?.bytes)).sum(),
        complete,
        damaged: contents.damaged,
        flawed,
        seams,
    })
}

/// What is wrong with a tile, if no record of it holds.
async fn flaw(
    output: &StoredOutput,
    region: Box3,
    factors: &[Zyx],
    records: &[Record],
) -> Result<Option<haloflow_volume::Flaw>, haloflow_volume::VolumeError> {
    let regions: Vec<Box3> = factors.iter().map(|factors| covered(region, *factors)).collect();
    let mut found = None;
    for record in records {
        // Nothing was stored for a tile that was skipped.
        if record.bytes == 0 {
            return Ok(None);
        }
        found = output.check(&regions, record).await?;
        if found.is_none() {
            return Ok(None);
        }
    }
    Ok(found)
}

/// How many voxels of the finest level one of a level of `shape` stands for: powers of two.
fn factors(finest: Zyx, shape: Zyx) -> Zyx {
    std::array::from_fn(|axis| {
        let mut factor = 1;
        while finest[axis].div_ceil(factor) > shape[axis] {
            factor *= 2;
        }
        factor
    })
}

/// The seam figure along each axis.
async fn seams(
    stored: &Stored,
    recorded: impl Fn(Zyx) -> bool,
    reader: &VolumeReader,
) -> Result<[Option<f64>; 3], Fault> {
    let mut figures = [None; 3];
    for (axis, figure) in figures.iter_mut().enumerate() {
        let (mut across, mut inside) = (0.0, 0.0);
        for face in faces(stored, &recorded, axis) {
            let brick = reader.read(face).await.map_err(|error| Fault::volume(Stage::Read, &error).at(face))?;
            let steps = steps((brick.element, &brick.channels[0]), face.shape(), axis);
            across += 2.0 * steps[1];
            inside += steps[0] + steps[2];
        }
        *figure = (inside > 0.0).then(|| across / inside);
    }
    Ok(figures)
}

/// Boxes of four voxels around faces between recorded tiles, spread over the volume.
fn faces(stored: &Stored, recorded: impl Fn(Zyx) -> bool, axis: usize) -> Vec<Box3> {
    let tiles = Box3::of_shape(stored.head.tiles);
    let before = |mut tile: Zyx| {
        tile[axis] -= 1;
        tile
    };
    let all: Vec<Box3> = tiles
        .indices()
        .filter(|&tile| tile[axis] > 0 && recorded(tile) && recorded(before(tile)))
        .filter_map(|tile| {
            let mut face = Box3::of_cell(tile, stored.block).intersect(&Box3::of_shape(stored.volume));
            for other in (0..3).filter(|other| *other != axis) {
                face.stop[other] = face.stop[other].min(face.start[other] + FACE);
            }
            let place = face.start[axis];
            (face.start[axis], face.stop[axis]) = (place.checked_sub(2)?, place + 2);
            (face.stop[axis] <= stored.volume[axis]).then_some(face)
        })
        .collect();
    let every = all.len().div_ceil(FACES).max(1);
    all.into_iter().step_by(every).collect()
}

/// The sums of the absolute steps between the first and second, second and third, third and fourth voxel along `axis`.
fn steps((element, bytes): (Element, &[u8]), shape: Zyx, axis: usize) -> [f64; 3] {
    let values = values(element, bytes);
    let strides = [shape[1] * shape[2], shape[2], 1];
    let mut sums = [0.0; 3];
    for (index, value) in values.iter().enumerate() {
        let place = index / strides[axis] % shape[axis];
        if let (Some(sum), Some(next)) = (sums.get_mut(place), values.get(index + strides[axis])) {
            let step = f64::from(next - value).abs();
            *sum += if step.is_finite() { step } else { 0.0 };
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use haloflow_volume::AlignedBytes;

    use super::*;

    #[test]
    fn factors_are_those_that_make_the_shape() {
        assert_eq!(factors([100, 33, 7], [100, 33, 7]), [1, 1, 1]);
        assert_eq!(factors([100, 33, 7], [50, 17, 7]), [2, 2, 1]);
        assert_eq!(factors([100, 33, 1], [13, 5, 1]), [8, 8, 1]);
    }

    #[test]
    fn steps_are_told_apart_by_their_place() {
        // Along y: 0 1 5 6, at two places along x.
        let values: [u16; 8] = [0, 10, 1, 11, 5, 15, 6, 16];
        let bytes = AlignedBytes::from_slice(&values);
        assert_eq!(steps((Element::U16, &bytes), [1, 4, 2], 1), [2.0, 8.0, 2.0]);
    }
}
