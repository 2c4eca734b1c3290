//! Casting alone: every finished tile from f32 to the stored kind, a piece on each core.

use anyhow::{Result, anyhow};
use haloflow_pipeline::cast::cast_to;
use haloflow_volume::{AlignedBytes, Element};
use rayon::prelude::*;

use crate::bench::Bench;
use crate::clock::{Clock, Taken};

/// Voxels that are cast in one go.
const PIECE: usize = 1 << 12;

/// The time to cast the voxels that the first run wrote.
pub(crate) async fn measure(bench: &Bench) -> Result<Taken> {
    let rules = bench.settings.cast(Element::U16);
    let mut took = Taken::default();
    for (tile, voxels) in &bench.written {
        let values: Vec<f32> = voxels.as_slice::<u16>().iter().map(|&voxel| voxel.into()).collect();
        let work = move || {
            let clock = Clock::start();
            let mut bytes = AlignedBytes::zeroed(values.len() * size_of::<u16>());
            let pieces = values.par_chunks(PIECE).zip(bytes.par_chunks_mut(PIECE * size_of::<u16>()));
            let cast = pieces.try_for_each(|(values, bytes)| cast_to(values, &rules, bytes).map(drop));
            cast.map(|()| clock.taken())
        };
        took += bench.cpu.run(work).await?.map_err(|_| anyhow!("a voxel of the tile {tile} is not finite"))?;
    }
    Ok(took)
}
