//! Shards: stored objects that hold an index and many inner chunks.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use zarrs::array::{ArrayToBytesCodecTraits, BytesRepresentation, CodecChain, FillValue, data_type};
use zarrs::metadata::v3::MetadataV3;

use crate::layout::{ChunkCodec, codec_options, extension_name, nonzero, sizes};

/// Offset and length of every inner chunk in C order; `None` where there is none.
pub(crate) type ShardIndex = Vec<Option<(u64, u64)>>;

/// How shards are laid out. Set only if the shard is the array's only codec: then inner chunks can be read alone.
#[derive(Debug)]
pub(crate) struct ShardLayout {
    /// Shape of an inner chunk.
    pub(crate) inner: Vec<usize>,
    /// How many inner chunks a shard has along each axis.
    pub(crate) grid: Vec<usize>,
    pub(crate) inner_codec: ChunkCodec,
    /// Whether the index is at the end of the object rather than at its start.
    pub(crate) index_at_end: bool,
    /// Size of the encoded index, bytes.
    pub(crate) index_size: u64,
    index_codecs: Arc<CodecChain>,
}

impl ShardLayout {
    /// Reads an array's metadata. `None` if it is not sharded or its shards can be decoded only as a whole.
    pub(crate) fn read(metadata: &Value, shard: &[usize], outer: &ChunkCodec) -> Result<Option<Self>, String> {
        let codecs = metadata["codecs"].as_array().map_or(&[][..], Vec::as_slice);
        let [codec] = codecs else { return Ok(None) };
        if extension_name(codec) != "sharding_indexed" {
            return Ok(None);
        }
        let configuration = &codec["configuration"];
        let inner = sizes(&configuration["chunk_shape"]).unwrap_or_default();
        let fits = inner.len() == shard.len()
            && shard.iter().zip(&inner).all(|(shard, inner)| *inner > 0 && shard % inner == 0);
        if !fits {
            return Err(format!("its inner chunk shape {inner:?} does not divide its shard shape {shard:?}"));
        }
        let grid: Vec<usize> = shard.iter().zip(&inner).map(|(shard, inner)| shard / inner).collect();
        let inner_codec =
            ChunkCodec { chain: chain(&configuration["codecs"])?, shape: nonzero(&inner), ..outer.clone() };
        let index_codecs = chain(&configuration["index_codecs"])?;
        let index_size = index_codecs
            .encoded_representation(&nonzero(&index_shape(&grid)), &data_type::uint64(), &FillValue::from(u64::MAX))
            .map_err(|error| error.to_string())?;
        let BytesRepresentation::FixedSize(index_size) = index_size else {
            return Err("the codecs of its shard index do not give a fixed size".to_owned());
        };
        let index_at_end = configuration["index_location"].as_str().unwrap_or("end") == "end";
        Ok(Some(Self { inner, grid, inner_codec, index_at_end, index_size, index_codecs }))
    }

    /// The index of the shard that has an inner chunk, and the chunk's place in it.
    pub(crate) fn home(&self, unit: &[u64]) -> (Vec<u64>, usize) {
        let parts = unit.iter().zip(&self.grid);
        let place = parts.clone().fold(0, |place, (index, count)| place * count + (index % *count as u64) as usize);
        (parts.map(|(index, count)| index / *count as u64).collect(), place)
    }

    /// Decodes the index of a shard.
    pub(crate) fn decode_index(&self, encoded: &[u8]) -> Result<ShardIndex, String> {
        if encoded.len() as u64 != self.index_size {
            return Err(format!("it has {} bytes where its index needs {}", encoded.len(), self.index_size));
        }
        let shape = nonzero(&index_shape(&self.grid));
        let fill = FillValue::from(u64::MAX);
        let decoded = self
            .index_codecs
            .decode(Cow::Borrowed(encoded), &shape, &data_type::uint64(), &fill, &codec_options())
            .and_then(|bytes| Ok(bytes.into_fixed()?.into_owned()))
            .map_err(|error| format!("its index is corrupt: {error}"))?;
        let (pairs, _) = decoded.as_chunks::<16>();
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte));
        let word = |bytes: &[u8]| if cfg!(target_endian = "big") { word(bytes).swap_bytes() } else { word(bytes) };
        Ok(pairs
            .iter()
            .map(|pair| (word(&pair[..8]), word(&pair[8..])))
            .map(|(offset, length)| (offset != u64::MAX || length != u64::MAX).then_some((offset, length)))
            .collect())
    }
}

fn index_shape(grid: &[usize]) -> Vec<usize> {
    grid.iter().copied().chain([2]).collect()
}

fn chain(codecs: &Value) -> Result<Arc<CodecChain>, String> {
    let codecs: Vec<MetadataV3> =
        serde_json::from_value(codecs.clone()).map_err(|error| format!("its sharding codec is not valid: {error}"))?;
    CodecChain::from_metadata(&codecs).map(Arc::new).map_err(|error| error.to_string())
}
