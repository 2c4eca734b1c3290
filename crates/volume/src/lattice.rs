//! The shapes of output chunks and shards: derived from the input and the blocks, or checked against them.

use haloflow_geometry::Zyx;

use crate::VolumeError;

const AXES: [&str; 3] = ["z", "y", "x"];

/// The shape of the output's chunks: as given, else the input's where it suits the blocks, else the block's. A derived chunk is no
/// larger than the volume.
pub(crate) fn chunk_shape(
    given: Option<Zyx>,
    shard: Option<Zyx>,
    input_chunk: Zyx,
    block: Option<Zyx>,
    extent: Zyx,
) -> Zyx {
    given.unwrap_or_else(|| {
        std::array::from_fn(|axis| {
            let chunk = input_chunk[axis];
            if let Some(shard) = shard {
                return if shard[axis].is_multiple_of(chunk) { chunk } else { shard[axis] };
            }
            let suits = block.is_none_or(|block| fits(chunk, block[axis], extent[axis]));
            let chunk = if suits { chunk } else { block.map_or(chunk, |block| block[axis]) };
            chunk.min(extent[axis])
        })
    })
}

/// Refuses a shard that chunks do not fill, and sizes of zero.
pub(crate) fn check_shard(chunk: Zyx, shard: Option<Zyx>) -> Result<(), VolumeError> {
    let shard = shard.unwrap_or(chunk);
    for axis in 0..3 {
        if chunk[axis] == 0 || shard[axis] == 0 || !shard[axis].is_multiple_of(chunk[axis]) {
            return Err(VolumeError::usage(format!(
                "the shard {} along {} must be a multiple of the chunk {}, and neither may be 0",
                shard[axis], AXES[axis], chunk[axis]
            )));
        }
    }
    Ok(())
}

/// Refuses a write unit that two blocks would share.
pub(crate) fn check_block(unit: Zyx, block: Option<Zyx>, extent: Zyx) -> Result<(), VolumeError> {
    let Some(block) = block else { return Ok(()) };
    for axis in 0..3 {
        if !fits(unit[axis], block[axis], extent[axis]) {
            return Err(VolumeError::usage(format!(
                "the output's chunk or shard of {} voxels along {} does not divide the block of {}, so two blocks would write one object: \
                 choose a divisor, or a block that covers the axis ({} voxels)",
                unit[axis], AXES[axis], block[axis], extent[axis]
            )));
        }
    }
    Ok(())
}

/// Refuses an array whose spatial size is not the input's.
pub(crate) fn check_extent(extent: Zyx, input: Zyx, url: &str) -> Result<(), VolumeError> {
    for axis in 0..3 {
        if extent[axis] != input[axis] {
            return Err(VolumeError::usage(format!(
                "the output {url} has {} voxels along {} but the input has {}: they must be equal",
                extent[axis], AXES[axis], input[axis]
            )));
        }
    }
    Ok(())
}

fn fits(unit: usize, block: usize, extent: usize) -> bool {
    block >= extent || (unit > 0 && block.is_multiple_of(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_the_input_where_blocks_allow() {
        let chunk = |block, extent| chunk_shape(None, None, [64, 100, 128], block, extent);
        assert_eq!(chunk(None, [1000, 1000, 50]), [64, 100, 50]);
        assert_eq!(chunk(Some([128, 256, 256]), [1000, 1000, 1000]), [64, 256, 128]);
        assert_eq!(chunk(Some([128, 256, 256]), [1000, 200, 1000]), [64, 100, 128]);
        assert_eq!(chunk_shape(None, Some([128; 3]), [64, 100, 300], None, [9; 3]), [64, 128, 128]);
        check_block([64, 256, 128], Some([128, 256, 256]), [1000; 3]).unwrap();
        let error = check_block([64, 96, 128], Some([128, 256, 256]), [1000; 3]).unwrap_err();
        assert!(error.message.contains("96 voxels along y") && error.message.contains("256"), "{error}");
        assert!(check_shard([64, 64, 64], Some([64, 96, 64])).unwrap_err().message.contains("96 along y"));
    }
}
