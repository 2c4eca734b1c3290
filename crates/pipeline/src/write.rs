//! Write: brings a finished tile back into its range, casts it, encodes and stores it whole.
//!
//! Tokio tasks, `writers` at a time; casting and encoding run on the CPU pool. In front of it: a bounded channel of finished
//! tiles. A tile's lease is held until its last put is acknowledged.

use std::sync::Arc;

use async_channel::Receiver;
use futures::StreamExt;
use haloflow_geometry::{Box3, Zyx};
use haloflow_volume::AlignedBytes;
use rayon::prelude::*;
use tokio_util::task::AbortOnDropHandle;

use crate::cast::{CastCounts, cast};
use crate::fault::{Fault, FaultKind, Stage};
use crate::messages::FinishedTile;
use crate::normalise::Affine;
use crate::shared::Shared;

/// Stores all tiles.
pub(crate) async fn write(shared: Arc<Shared>, tiles: Receiver<FinishedTile>) -> Result<(), Fault> {
    let storing = tiles.map(|tile| {
        let shared = Arc::clone(&shared);
        let tasks = shared.tasks.clone();
        AbortOnDropHandle::new(tasks.spawn(async move { store(&shared, tile).await }))
    });
    let mut stored = std::pin::pin!(storing.buffer_unordered(shared.writers));
    while let Some(tile) = shared.meters.write.waiting(stored.next()).await {
        tile.map_err(|error| Fault::panicked(Stage::Write, &error))??;
    }
    Ok(())
}

async fn store(shared: &Arc<Shared>, tile: FinishedTile) -> Result<(), Fault> {
    let FinishedTile { region, values, inverses, lease } = tile;
    let casting = Arc::clone(shared);
    let storing = async {
        let work = move || finalise(&casting, region, values, &inverses);
        let (channels, counts) = shared.cpu.run(work).await.map_err(|error| Fault::volume(Stage::Write, &error))??;
        let written = shared.writer.write(region, channels).await;
        written.map_err(|error| Fault::volume(Stage::Write, &error).at(format!("block {region}")))?;
        Ok(counts)
    };
    let counts = shared.meters.write.working(storing).await?;
    drop(lease);
    shared.progress.tile_stored(region.voxels(), &counts);
    Ok(())
}

/// The channels of a tile in the stored kind.
fn finalise(
    shared: &Shared,
    region: Box3,
    mut values: Vec<f32>,
    inverses: &[Affine],
) -> Result<(Vec<AlignedBytes>, CastCounts), Fault> {
    let voxels = region.voxels();
    let channels: Vec<(AlignedBytes, CastCounts)> = values
        .par_chunks_mut(voxels)
        .zip(inverses)
        .enumerate()
        .map(|(channel, (values, &inverse))| {
            if inverse != Affine::IDENTITY {
                values.iter_mut().for_each(|value| *value = inverse.apply(*value));
            }
            cast(values, &shared.cast).map_err(|index| not_finite(region, channel, values[index], index))
        })
        .collect::<Result<_, Fault>>()?;
    let mut counts = CastCounts::default();
    let channels = channels.into_iter().map(|(channel, of_channel)| {
        counts.add(&of_channel);
        channel
    });
    Ok((channels.collect(), counts))
}

fn not_finite(region: Box3, channel: usize, value: f32, index: usize) -> Fault {
    let [_, height, width] = region.shape();
    let place: Zyx = [index / (height * width), index / width % height, index % width];
    let [z, y, x]: Zyx = std::array::from_fn(|axis| region.start[axis] + place[axis]);
    let message = format!(
        "the result at voxel z {z}, y {y}, x {x} of channel {channel} is {value}; `--nonfinite replace` or `--nonfinite VALUE` would store a \
         number instead"
    );
    Fault::new(FaultKind::Data, Stage::Write, message).at(format!("block {region}"))
}
