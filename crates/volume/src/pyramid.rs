//! The coarser levels of an output: their sizes, chunks and places.
//!
//! A level is written in the same pass as the finest one, from tiles in memory. So a tile must own whole chunks on every level:
//! where the tile shrinks with the level, the chunks shrink with it.

use haloflow_geometry::{AXES, Zyx};

use crate::{AxisInfo, VolumeError};

/// How many levels an output gets, the finest one counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Levels {
    /// The finest alone.
    #[default]
    One,
    /// Until the longest side is at most 128 voxels, or blocks are too small for chunks of 16 voxels.
    Auto,
    /// So many.
    Count(usize),
}

/// Longest side at which no coarser level is worth having.
const SMALL: usize = 128;
/// Chunks smaller than this make more requests than they are worth.
const LEAST_CHUNK: usize = 16;

/// The grid of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Voxels of the finest level that one voxel stands for, along each axis.
    pub(crate) factors: Zyx,
    pub(crate) extent: Zyx,
    pub(crate) chunk: Zyx,
    pub(crate) shard: Option<Zyx>,
}

/// The grids of the levels coarser than `finest`, which has voxels of size `scale` and is written in tiles of `tile` voxels.
///
/// # Errors
/// `Usage` if there cannot be as many levels as asked for; names axis and sizes.
pub(crate) fn coarser(finest: Grid, scale: [f64; 3], tile: Zyx, levels: Levels) -> Result<Vec<Grid>, VolumeError> {
    let mut grids: Vec<Grid> = Vec::new();
    loop {
        let last = grids.last().copied().unwrap_or(finest);
        let wanted = match levels {
            Levels::One => false,
            Levels::Auto => last.extent.iter().any(|size| *size > SMALL),
            Levels::Count(count) => grids.len() + 1 < count,
        };
        if !wanted {
            return Ok(grids);
        }
        let factors = next_factors(last, scale);
        let blocked = (0..3).find(|&axis| !divides(factors[axis], tile[axis], finest.extent[axis]));
        let next = grid(finest, factors, tile);
        let tiny = (0..3).any(|axis| {
            let chunk = next.chunk[axis];
            chunk < LEAST_CHUNK.min(finest.chunk[axis]) && chunk < next.extent[axis]
        });
        match (levels, blocked) {
            (Levels::Auto, Some(_)) => return Ok(grids),
            (Levels::Auto, None) if tiny => return Ok(grids),
            (_, Some(axis)) => {
                return Err(VolumeError::usage(format!(
                    "`pyramid` asks for level {}, but a block of {} voxels along {} is not a multiple of its factor {}: ask for fewer levels, or \
                     choose a larger `block`",
                    grids.len() + 1,
                    tile[axis],
                    AXES[axis],
                    factors[axis]
                )));
            }
            _ if factors == last.factors => {
                return Err(VolumeError::usage(format!(
                    "`pyramid` asks for level {}, but the level before has only one voxel: ask for fewer levels",
                    grids.len() + 1
                )));
            }
            _ => grids.push(next),
        }
    }
}

/// Halves every axis whose voxels are not yet twice as long as the shortest: voxels become cubes first.
fn next_factors(last: Grid, scale: [f64; 3]) -> Zyx {
    let lengths: [f64; 3] = std::array::from_fn(|axis| scale[axis] * last.factors[axis] as f64);
    let long = |axis: &usize| last.extent[*axis] > 1;
    let least = (0..3).filter(long).map(|axis| lengths[axis]).fold(f64::INFINITY, f64::min);
    std::array::from_fn(|axis| {
        let halved = long(&axis) && (lengths[axis] < 2.0 * least || !lengths[axis].is_normal());
        last.factors[axis] * if halved { 2 } else { 1 }
    })
}

/// Whether every tile along an axis begins where a voxel of the level does.
fn divides(factor: usize, tile: usize, extent: usize) -> bool {
    tile >= extent || tile.is_multiple_of(factor)
}

fn grid(finest: Grid, factors: Zyx, tile: Zyx) -> Grid {
    let extent = std::array::from_fn(|axis| finest.extent[axis].div_ceil(factors[axis]));
    // The tile covers the axis, or shrinks with the level and must hold whole units.
    let fitted = |size: Zyx| -> Zyx {
        std::array::from_fn(|axis| {
            let covers = tile[axis] >= finest.extent[axis];
            if covers { size[axis] } else { common_divisor(size[axis], tile[axis] / factors[axis]) }
        })
    };
    let shard = finest.shard.map(fitted);
    let chunk = match shard {
        Some(shard) => std::array::from_fn(|axis| common_divisor(finest.chunk[axis], shard[axis])),
        None => {
            let chunk = fitted(finest.chunk);
            std::array::from_fn(|axis| chunk[axis].min(extent[axis]))
        }
    };
    Grid { factors, extent, chunk, shard }
}

fn common_divisor(one: usize, other: usize) -> usize {
    if other == 0 { one.max(1) } else { common_divisor(other, one % other) }
}

/// The axes of a level, whose voxels lie in the middle of those that they stand for.
pub(crate) fn axes_of(finest: &[AxisInfo], places: [Option<usize>; 3], grid: &Grid) -> Vec<AxisInfo> {
    let mut axes = finest.to_vec();
    for (axis, place) in places.into_iter().enumerate() {
        if let Some(info) = place.and_then(|place| axes.get_mut(place)) {
            let factor = grid.factors[axis] as f64;
            info.translation += info.scale * (factor - 1.0) / 2.0;
            info.scale *= factor;
            info.size = grid.extent[axis];
        }
    }
    axes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finest(extent: Zyx, chunk: usize, shard: Option<usize>) -> Grid {
        Grid { factors: [1; 3], extent, chunk: [chunk; 3], shard: shard.map(|shard| [shard; 3]) }
    }

    #[test]
    fn chunks_shrink_with_the_tiles_and_stay_whole() {
        let grids = coarser(finest([1000, 900, 300], 64, None), [1.0; 3], [256; 3], Levels::Auto).unwrap();
        let told: Vec<_> = grids.iter().map(|grid| (grid.factors[0], grid.extent, grid.chunk)).collect();
        assert_eq!(told[0], (2, [500, 450, 150], [64; 3]));
        assert_eq!(told[1], (4, [250, 225, 75], [64; 3]));
        assert_eq!(told[2], (8, [125, 113, 38], [32; 3]));
        assert_eq!(told.len(), 3);
        let grids = coarser(finest([2000; 3], 32, Some(128)), [1.0; 3], [256; 3], Levels::Count(3)).unwrap();
        assert_eq!((grids[0].chunk, grids[0].shard), ([32; 3], Some([128; 3])));
        assert_eq!((grids[1].chunk, grids[1].shard), ([32; 3], Some([64; 3])));
    }

    #[test]
    fn long_voxels_are_halved_last_and_single_planes_never() {
        let grids = coarser(finest([1, 512, 512], 64, None), [1.0, 0.5, 0.5], [256; 3], Levels::Count(3)).unwrap();
        assert_eq!(grids[1].factors, [1, 4, 4]);
        let grids = coarser(finest([512; 3], 64, None), [2.0, 0.5, 0.5], [256; 3], Levels::Count(4)).unwrap();
        let factors: Vec<_> = grids.iter().map(|grid| grid.factors).collect();
        assert_eq!(factors, [[1, 2, 2], [1, 4, 4], [2, 8, 8]]);
    }

    #[test]
    fn a_tile_that_covers_an_axis_need_not_be_a_multiple() {
        let grids = coarser(finest([37, 300, 300], 50, None), [1.0; 3], [37, 100, 100], Levels::Count(3)).unwrap();
        assert_eq!((grids[1].extent, grids[1].chunk), ([10, 75, 75], [10, 25, 25]));
        let error = coarser(finest([37, 300, 300], 50, None), [1.0; 3], [37, 100, 100], Levels::Count(4)).unwrap_err();
        assert!(error.message.contains("100 voxels along y") && error.message.contains("factor 8"), "{error}");
        let error = coarser(finest([2, 1, 1], 2, None), [1.0; 3], [2; 3], Levels::Count(4)).unwrap_err();
        assert!(error.message.contains("only one voxel"), "{error}");
    }

    #[test]
    fn voxels_of_a_level_lie_in_the_middle() {
        let axis = |name: &str, scale, translation| AxisInfo {
            name: name.to_owned(),
            kind: crate::AxisKind::Space,
            unit: None,
            size: 100,
            scale,
            translation,
        };
        let grid = Grid { factors: [1, 4, 2], extent: [100, 25, 50], chunk: [1; 3], shard: None };
        let axes = [axis("z", 2.0, 1.0), axis("y", 0.5, 1.0), axis("x", 1.0, 0.0)];
        let axes = axes_of(&axes, [Some(0), Some(1), Some(2)], &grid);
        let told: Vec<_> = axes.iter().map(|axis| (axis.size, axis.scale, axis.translation)).collect();
        assert_eq!(told, [(100, 2.0, 1.0), (25, 2.0, 1.75), (50, 2.0, 0.5)]);
    }
}
