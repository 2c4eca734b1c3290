//! Which tiles need not be computed: those whose input is not stored, and those outside a mask.
//!
//! Nothing is fetched, computed or put for a tile that is skipped. In the result it holds the fill value, as it does in the input.

use futures::{StreamExt, TryStreamExt, stream};
use haloflow_geometry::{Box3, Plan, Selection, Zyx};
use haloflow_volume::{CpuPool, Environment, InputOptions, VolumeReader};
use serde::Serialize;

use crate::fault::{Fault, FaultKind, Stage};
use crate::settings::RunSettings;

/// Tiles whose part of the mask is read at one time.
const READING: usize = 8;

/// Decoded chunks of the mask that are kept, bytes; gone before the run needs its memory.
const MASK_CACHE: u64 = 64 << 20;

/// What is skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skip {
    /// Tiles of which no chunk of the input is stored. Whoever asks for this vouches that the network makes fill of fill.
    pub empty: bool,
    /// Tiles in which this volume, of any size and kind, is zero everywhere: a URL, a path or a spec.
    pub mask: Option<String>,
}

/// Tiles that the run did not compute, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SkippedReport {
    /// No chunk of their input is stored.
    pub empty: u64,
    /// Their input is stored, but the mask leaves them out.
    pub masked: u64,
}

/// The plan without what is skipped, and what that is.
pub(crate) async fn skip(
    plan: Plan,
    settings: &RunSettings,
    reader: &VolumeReader,
    (environment, cpu): (&Environment, &CpuPool),
) -> Result<(Plan, Selection, SkippedReport), Fault> {
    let asked = plan.selection().clone();
    let mut report = SkippedReport::default();
    let mut plan = plan;
    if settings.skip.empty {
        let left = not_empty(&plan, reader).await?;
        report.empty = (plan.selection().len() - left.len()) as u64;
        plan = plan.select(&left);
    }
    if let Some(mask) = &settings.skip.mask {
        let left = inside(&plan, mask, settings, (environment, cpu)).await?;
        report.masked = (plan.selection().len() - left.len()) as u64;
        plan = plan.select(&left);
    }
    let skipped = asked.filter(|tile| !plan.selection().contains(tile));
    Ok((plan, skipped, report))
}

/// The voxels that the patches of a tile see.
fn seen(plan: &Plan, tile: Zyx) -> Box3 {
    let [z, y, x] = std::array::from_fn(|axis| plan.axes()[axis].tile_box(tile[axis]));
    Box3::from_ranges(&z, &y, &x)
}

async fn not_empty(plan: &Plan, reader: &VolumeReader) -> Result<Selection, Fault> {
    let fill = reader.fill();
    if fill != 0.0 {
        return Err(Fault::new(
            FaultKind::Usage,
            Stage::Open,
            format!(
                "`skip-empty` is on, but voxels of {} that are not stored are {fill} and those of the result would be 0; leave it out",
                reader.description().url
            ),
        ));
    }
    let presence = reader.presence().await.map_err(|error| Fault::volume(Stage::Open, &error))?;
    Ok(plan.selection().filter(|tile| presence.any(seen(plan, tile))))
}

async fn inside(
    plan: &Plan,
    mask: &str,
    settings: &RunSettings,
    (environment, cpu): (&Environment, &CpuPool),
) -> Result<Selection, Fault> {
    let told = |error: haloflow_volume::VolumeError| Fault::volume(Stage::Open, &error);
    let options = InputOptions {
        source: mask.to_owned(),
        level: 0,
        level_given: false,
        t: 0,
        c: vec![0],
        cache_bytes: MASK_CACHE,
        requests: settings.input.requests,
    };
    let mask = VolumeReader::open(&options, environment, cpu).await.map_err(told)?;
    let (whole, coarse) = (plan.geometry().volume, mask.shape());
    if let Some(axis) = (0..3).find(|&axis| coarse[axis] > whole[axis]) {
        return Err(Fault::new(
            FaultKind::Usage,
            Stage::Open,
            format!(
                "`mask` has {} voxels along {} and the volume {}: it must cover the same space with no more voxels",
                coarse[axis],
                haloflow_geometry::AXES[axis],
                whole[axis]
            ),
        ));
    }
    let marked = stream::iter(plan.selection().iter().collect::<Vec<_>>()).map(|tile| {
        let (mask, region) = (&mask, covered(plan.tile(tile), whole, coarse));
        async move {
            let brick = mask.read(region).await.map_err(told)?;
            Ok::<_, Fault>(brick.channels.iter().any(|voxels| voxels.iter().any(|byte| *byte != 0)))
        }
    });
    let marked: Vec<bool> = marked.buffered(READING).try_collect().await?;
    let mut marked = marked.into_iter();
    Ok(plan.selection().filter(|_| marked.next().unwrap_or(true)))
}

/// The voxels of a volume of `coarse` size that touch a tile of one of `whole` size, if both cover the same space.
fn covered(tile: Box3, whole: Zyx, coarse: Zyx) -> Box3 {
    Box3::new(
        std::array::from_fn(|axis| tile.start[axis] * coarse[axis] / whole[axis]),
        std::array::from_fn(|axis| (tile.stop[axis] * coarse[axis]).div_ceil(whole[axis])),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coarse_voxel_touches_every_tile_it_reaches() {
        let tile = Box3::new([0, 64, 100], [64, 128, 101]);
        assert_eq!(covered(tile, [64, 128, 101], [8, 16, 13]), Box3::new([0, 8, 12], [8, 16, 13]));
        assert_eq!(covered(tile, [64, 128, 101], [1, 1, 1]), Box3::of_shape([1; 3]));
    }
}
