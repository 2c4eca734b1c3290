//! Statistics of the whole volume, streaming: what normalisations that do not differ from place to place need.

use std::sync::Arc;

use futures::{Stream, StreamExt, stream};
use haloflow_geometry::{Box3, Zyx};
use haloflow_volume::{Brick, CpuPool, VolumeReader};

use crate::fault::{Fault, Stage};
use crate::open::input_bytes;
use crate::statistics::{Counts, Moments, Refinement, Tally, Visit, Voxels, percentiles};

/// Bytes that one piece of the volume may have; several are in flight.
const PIECE: usize = 32 << 20;

/// Pieces that are read at one time.
const READING: usize = 4;

/// Pieces that are counted at one time.
const COUNTING: usize = 2;

/// Bytes that a pass over the whole volume holds at most, besides the reader's own.
pub(crate) fn pass_bytes(reader: &VolumeReader) -> u64 {
    let largest = Box3::of_shape(piece(reader)).intersect(&Box3::of_shape(reader.shape()));
    ((READING + COUNTING) * largest.voxels()) as u64 * input_bytes(reader)
}

/// The size of the boxes that a pass reads: whole read units, within [`PIECE`] bytes if one unit is.
fn piece(reader: &VolumeReader) -> Zyx {
    let [z, y, x] = reader.unit().map(|size| size.max(1));
    let fit = PIECE / (z * y * x) / input_bytes(reader).max(1) as usize;
    [z, y, x * fit.max(1)]
}

fn pieces(reader: &VolumeReader) -> impl Iterator<Item = Box3> + Send + use<> {
    let (piece, whole) = (piece(reader), Box3::of_shape(reader.shape()));
    whole.cells(piece).indices().map(move |cell| Box3::of_cell(cell, piece).intersect(&whole))
}

fn bricks(reader: &VolumeReader) -> impl Stream<Item = Result<Brick, Fault>> + use<> {
    let reader = reader.clone();
    stream::iter(pieces(&reader))
        .map(move |piece| {
            let reader = reader.clone();
            async move { reader.read(piece).await.map_err(|error| Fault::volume(Stage::Prepare, &error).at(piece)) }
        })
        .buffered(READING)
}

/// Runs `of_channel` on every channel of every brick, on the CPU pool, and merges what it gives in plan order.
async fn fold<T: Send + 'static>(
    reader: &VolumeReader,
    cpu: &CpuPool,
    of_channel: impl Fn(usize, &Voxels<'_>) -> T + Send + Sync + 'static,
    merge: impl Fn(&mut T, T),
) -> Result<Vec<T>, Fault> {
    let of_channel = Arc::new(of_channel);
    let results = bricks(reader).map(|brick| {
        let of_channel = Arc::clone(&of_channel);
        async move {
            let brick = brick?;
            let work = move || -> Vec<T> {
                let channels = brick.channels.iter().enumerate();
                channels
                    .map(|(channel, bytes)| of_channel(channel, &Voxels { element: brick.element, bytes }))
                    .collect()
            };
            cpu.run(work).await.map_err(|error| Fault::volume(Stage::Prepare, &error))
        }
    });
    let mut results = std::pin::pin!(results.buffered(COUNTING));
    let mut sums: Vec<T> = Vec::new();
    while let Some(parts) = results.next().await {
        for (channel, part) in parts?.into_iter().enumerate() {
            match sums.get_mut(channel) {
                Some(sum) => merge(sum, part),
                None => sums.push(part),
            }
        }
    }
    Ok(sums)
}

/// The percentiles `q` of each channel of the whole volume, exact: one pass for integers of at most sixteen bits, else two.
pub(crate) async fn whole_percentiles(
    reader: &VolumeReader,
    cpu: &CpuPool,
    q: [f64; 2],
) -> Result<Vec<[f64; 2]>, Fault> {
    if Tally::suits(reader.element()) {
        let tallies = fold(reader, cpu, |_, voxels| Tally::of(voxels), merge_some(Tally::merge)).await?;
        let of = |tally: Option<Tally>| tally.and_then(|tally| percentiles(&tally, q)).unwrap_or([0.0, 1.0]);
        return Ok(tallies.into_iter().map(of).collect());
    }
    let counts = fold(reader, cpu, |_, voxels| counted(voxels), |sum, part| sum.merge(&part)).await?;
    let refinements: Vec<Option<Refinement>> = counts.iter().map(|counts| counts.refine(q)).collect();
    let refine = move |channel: usize, voxels: &Voxels<'_>| {
        let mut refinement = refinements[channel].clone();
        if let Some(refinement) = &mut refinement {
            refinement.add(voxels);
        }
        refinement
    };
    let refined = fold(reader, cpu, refine, merge_some(Refinement::merge)).await?;
    Ok(refined
        .into_iter()
        .map(|refinement| refinement.map_or([0.0, 1.0], |refinement| refinement.percentiles()))
        .collect())
}

fn counted(values: &impl Visit) -> Counts {
    let mut counts = Counts::default();
    counts.add(values);
    counts
}

fn merge_some<T>(merge: impl Fn(&mut T, &T)) -> impl Fn(&mut Option<T>, Option<T>) {
    move |sum, part| {
        if let (Some(sum), Some(part)) = (sum.as_mut(), part) {
            merge(sum, &part);
        }
    }
}

/// Mean and standard deviation of each channel of the whole volume.
pub(crate) async fn whole_moments(reader: &VolumeReader, cpu: &CpuPool) -> Result<Vec<[f64; 2]>, Fault> {
    let moments = fold(reader, cpu, |_, voxels| Moments::of(voxels), |sum, part| *sum = sum.merge(part)).await?;
    Ok(moments.into_iter().map(|moments| moments.mean_and_deviation().unwrap_or([0.0, 1.0])).collect())
}
