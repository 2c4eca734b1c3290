//! An array's metadata, understood: shape, chunks, keys and codecs.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::Arc;

use serde_json::Value;
use zarrs::array::{
    Array, ArrayBytes, ArrayMetadata, ArrayToBytesCodecTraits, CodecChain, CodecOptions, DataType, FillValue,
};

use crate::shard::ShardLayout;
use crate::{Element, VolumeError, ZarrFormat};

/// The highest number of axes: t, c, z, y, x.
pub(crate) const MAX_RANK: usize = 5;

/// The most voxels of an array or a chunk: sizes in bytes, and a few times them, still fit into 64 bits.
const MOST_VOXELS: usize = 1 << 56;

/// An array's metadata, understood. All shapes are in stored axis order.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) format: ZarrFormat,
    pub(crate) shape: Vec<usize>,
    /// Shape of a stored object: the chunk, or the shard.
    pub(crate) chunk: Vec<usize>,
    pub(crate) element: Element,
    pub(crate) dimension_names: Option<Vec<String>>,
    pub(crate) compressor: String,
    /// Set if parts of a stored object can be read alone.
    pub(crate) shards: Option<ShardLayout>,
    pub(crate) codec: ChunkCodec,
    array: Array<()>,
}

/// The keys of a Zarr v3 array (version 3.0 and 3.1 of its specification, "Array metadata").
pub(crate) const V3_KEYS: [&str; 11] = [
    "zarr_format",
    "node_type",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "attributes",
    "storage_transformers",
    "dimension_names",
];

/// A key of a Zarr v3 array that nobody may open without understanding it: any other than the known ones that does not say
/// `"must_understand": false`.
fn not_understood(metadata: &Value, format: ZarrFormat) -> Option<&str> {
    let keys = metadata.as_object().filter(|_| format == ZarrFormat::V3)?;
    let optional = |value: &Value| value["must_understand"] == Value::Bool(false);
    // Written by zarr-python, as null where there is none; it tells of other arrays.
    let known = |key: &str| V3_KEYS.contains(&key) || key == "consolidated_metadata";
    keys.iter().find(|(key, value)| !known(key) && !optional(value)).map(|(key, _)| key.as_str())
}

impl Layout {
    /// Reads the content of `.zarray` or `zarr.json`; `url` is for messages.
    ///
    /// # Errors
    /// `Data` if the metadata is not valid or asks for something unsupported.
    pub(crate) fn read(metadata: &Value, url: &str) -> Result<Self, VolumeError> {
        let bad = |what: String| VolumeError::data(format!("the array {url} cannot be used: {what}"));
        let format = if metadata["zarr_format"] == 2 { ZarrFormat::V2 } else { ZarrFormat::V3 };
        let shape = sizes(&metadata["shape"])
            .ok_or_else(|| bad(format!("its shape is {}, not a list of whole numbers", metadata["shape"])))?;
        if !(2..=MAX_RANK).contains(&shape.len()) || shape.contains(&0) {
            return Err(bad(format!(
                "its shape is {shape:?}, but 2 to {MAX_RANK} axes of at least 1 voxel are supported"
            )));
        }
        if voxels(&shape).is_none() {
            return Err(bad(format!("its shape {shape:?} has more than 2^56 voxels")));
        }
        let chunk = chunk_shape(metadata, format).map_err(bad)?;
        if chunk.len() != shape.len() || chunk.contains(&0) {
            return Err(bad(format!("its chunk shape {chunk:?} does not suit its shape {shape:?}")));
        }
        if voxels(&chunk).is_none() {
            return Err(bad(format!("its chunk shape {chunk:?} has more than 2^56 voxels")));
        }
        if let Some(key) = not_understood(metadata, format) {
            return Err(bad(format!("its metadata has the key {key:?}, which has to be understood and is not")));
        }
        let element = element(metadata, format).map_err(bad)?;
        let parsed: ArrayMetadata = serde_json::from_value(settled(metadata))
            .map_err(|error| bad(format!("its metadata is not valid: {error}")))?;
        let array = Array::new_with_metadata(Arc::new(()), "/", parsed).map_err(|error| bad(error.to_string()))?;
        let codec = ChunkCodec {
            chain: array.codecs(),
            shape: nonzero(&chunk),
            data_type: array.data_type().clone(),
            fill: array.fill_value().clone(),
        };
        let shards = ShardLayout::read(metadata, &chunk, &codec).map_err(bad)?;
        let dimension_names = dimension_names(metadata);
        let compressor = compressor(metadata, format);
        Ok(Self { format, shape, chunk, element, dimension_names, compressor, shards, codec, array })
    }

    /// Shape of the smallest part that can be read alone.
    pub(crate) fn unit(&self) -> &[usize] {
        self.shards.as_ref().map_or(&self.chunk, |shards| &shards.inner)
    }

    /// How many units the array has.
    pub(crate) fn units(&self) -> usize {
        self.shape.iter().zip(self.unit()).map(|(size, unit)| size.div_ceil(*unit)).product()
    }

    /// The codecs of the smallest part that can be read alone.
    pub(crate) fn unit_codec(&self) -> &ChunkCodec {
        self.shards.as_ref().map_or(&self.codec, |shards| &shards.inner_codec)
    }

    /// The key of the stored object at a chunk index, relative to the array.
    pub(crate) fn key(&self, index: &[u64]) -> String {
        self.array.chunk_key(index).as_str().to_owned()
    }
}

/// Encodes and decodes the voxels of chunks of one shape. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct ChunkCodec {
    pub(crate) chain: Arc<CodecChain>,
    pub(crate) shape: Vec<NonZeroU64>,
    pub(crate) data_type: DataType,
    pub(crate) fill: FillValue,
}

impl ChunkCodec {
    /// The fill value, one element in the machine's byte order.
    pub(crate) fn fill_bytes(&self) -> &[u8] {
        self.fill.as_ne_bytes()
    }

    /// Size of a decoded chunk, bytes.
    pub(crate) fn decoded_size(&self) -> usize {
        self.shape.iter().map(|size| size.get() as usize).product::<usize>() * self.fill_bytes().len()
    }

    /// Decodes a whole chunk; computes for milliseconds, so call it on the CPU pool.
    pub(crate) fn decode(&self, encoded: &[u8]) -> Result<Vec<u8>, String> {
        if encoded.is_empty() {
            return Err("it is empty".to_owned());
        }
        let decoded = self
            .chain
            .decode(Cow::Borrowed(encoded), &self.shape, &self.data_type, &self.fill, &codec_options())
            .map_err(|error| error.to_string())?;
        let bytes = decoded.into_fixed().map_err(|error| error.to_string())?.into_owned();
        if bytes.len() == self.decoded_size() {
            Ok(bytes)
        } else {
            Err(format!("it decodes to {} bytes instead of {}", bytes.len(), self.decoded_size()))
        }
    }

    /// Encodes a whole chunk; computes for milliseconds, so call it on the CPU pool.
    pub(crate) fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>, String> {
        let bytes = ArrayBytes::new_flen(Cow::Borrowed(decoded));
        let encoded = self.chain.encode(bytes, &self.shape, &self.data_type, &self.fill, &codec_options());
        encoded.map(Cow::into_owned).map_err(|error| error.to_string())
    }
}

/// Concurrency is between chunks, so a codec works on one thread.
pub(crate) fn codec_options() -> CodecOptions {
    CodecOptions::default().with_concurrent_target(1).with_validate_checksums(true)
}

/// The product of a shape, if it is small enough to compute with.
fn voxels(shape: &[usize]) -> Option<usize> {
    let product = shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
    product.filter(|voxels| *voxels <= MOST_VOXELS)
}

pub(crate) fn nonzero(shape: &[usize]) -> Vec<NonZeroU64> {
    shape.iter().filter_map(|&size| NonZeroU64::new(size as u64)).collect()
}

/// A JSON list of whole numbers.
pub(crate) fn sizes(value: &Value) -> Option<Vec<usize>> {
    value.as_array()?.iter().map(|size| usize::try_from(size.as_u64()?).ok()).collect()
}

/// The name of a v3 extension, which is a string or an object with a name.
pub(crate) fn extension_name(value: &Value) -> &str {
    value.as_str().or_else(|| value["name"].as_str()).unwrap_or("")
}

fn chunk_shape(metadata: &Value, format: ZarrFormat) -> Result<Vec<usize>, String> {
    let shape = match format {
        ZarrFormat::V2 => &metadata["chunks"],
        ZarrFormat::V3 => {
            let name = extension_name(&metadata["chunk_grid"]);
            if name != "regular" {
                return Err(format!("its chunk grid is {name:?}, but only regular grids are supported"));
            }
            &metadata["chunk_grid"]["configuration"]["chunk_shape"]
        }
    };
    sizes(shape).ok_or_else(|| format!("its chunk shape is {shape}"))
}

fn element(metadata: &Value, format: ZarrFormat) -> Result<Element, String> {
    let value = if format == ZarrFormat::V2 { &metadata["dtype"] } else { &metadata["data_type"] };
    match value.as_str() {
        Some("bool" | "|b1") => Ok(Element::U8),
        Some(name) => name.parse().map_err(|error: VolumeError| error.message),
        None => Err(format!("the element kind {value} is not supported")),
    }
}

/// The metadata with the type strings that zarrs does not know replaced: one byte has no order, so `<u1` is `|u1`.
fn settled(metadata: &Value) -> Value {
    let mut metadata = metadata.clone();
    let one_byte = metadata["dtype"]
        .as_str()
        .and_then(|dtype| dtype.strip_prefix(['<', '>', '=']))
        .filter(|kind| kind.ends_with('1'));
    if let Some(kind) = one_byte {
        metadata["dtype"] = Value::String(format!("|{kind}"));
    }
    metadata
}

fn dimension_names(metadata: &Value) -> Option<Vec<String>> {
    let names = metadata["dimension_names"].as_array()?;
    names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
}

fn compressor(metadata: &Value, format: ZarrFormat) -> String {
    if format == ZarrFormat::V2 {
        let compressor = &metadata["compressor"];
        let name = compressor["id"].as_str().unwrap_or("none");
        return compressor["cname"].as_str().map_or_else(|| name.to_owned(), |inner| format!("{name}-{inner}"));
    }
    let mut codecs = &metadata["codecs"];
    if extension_name(&codecs[0]) == "sharding_indexed" {
        codecs = &codecs[0]["configuration"]["codecs"];
    }
    let known = ["blosc", "zstd", "gzip", "bz2", "zlib"];
    let found = codecs
        .as_array()
        .into_iter()
        .flatten()
        .find(|codec| known.iter().any(|name| extension_name(codec).ends_with(name)));
    let Some(codec) = found else { return "none".to_owned() };
    let name = extension_name(codec);
    codec["configuration"]["cname"].as_str().map_or_else(|| name.to_owned(), |inner| format!("{name}-{inner}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn v2(dtype: &str, order: &str, separator: &str) -> Value {
        json!({"zarr_format": 2, "shape": [3, 4], "chunks": [2, 3], "dtype": dtype, "compressor": null, "fill_value": null,
            "filters": null, "order": order, "dimension_separator": separator})
    }

    #[test]
    fn byte_order_and_memory_order_are_undone() {
        let layout = Layout::read(&v2(">u2", "F", "."), "x").unwrap();
        // Stored big-endian, first axis fastest: columns (0, 3), (1, 4), (2, 5).
        let stored: Vec<u8> = [0u16, 3, 1, 4, 2, 5].iter().flat_map(|value| value.to_be_bytes()).collect();
        let decoded = layout.codec.decode(&stored).unwrap();
        let expected: Vec<u8> = (0u16..6).flat_map(u16::to_ne_bytes).collect();
        assert_eq!(decoded, expected);
        assert_eq!(layout.codec.encode(&expected).unwrap(), stored);
        assert_eq!(layout.key(&[1, 0]), "1.0");
        assert_eq!(layout.codec.fill_bytes(), [0, 0]);
        assert!(layout.codec.decode(&stored[..10]).is_err());
    }

    #[test]
    fn a_key_that_has_to_be_understood_is_named() {
        let metadata = |key: &str, value: Value| {
            let mut metadata = json!({"zarr_format": 3, "node_type": "array", "shape": [8, 8], "data_type": "uint8", "fill_value": 0,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 4]}}, "codecs": [{"name": "bytes"}],
                "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}});
            metadata[key] = value;
            metadata
        };
        for value in [json!(5), json!({"name": "x"}), json!({"name": "x", "must_understand": true})] {
            let told = Layout::read(&metadata("foo", value), "x").unwrap_err().message;
            assert!(told.contains("the key \"foo\""), "{told}");
        }
        Layout::read(&metadata("foo", json!({"must_understand": false})), "x").unwrap();
        Layout::read(&metadata("dimension_names", json!(["y", "x"])), "x").unwrap();
    }

    #[test]
    fn absurd_shapes_are_errors_that_name_them() {
        const HUGE: u64 = 1_000_000_000_000;
        let error = |shape: Value, chunk: Value, format: u64| {
            let metadata = json!({"zarr_format": format, "node_type": "array", "shape": shape, "chunks": chunk, "dtype": "<u2",
                "data_type": "uint16", "compressor": null, "fill_value": 0, "filters": null, "order": "C",
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}}});
            let error = Layout::read(&metadata, "s3://b/x").unwrap_err();
            assert_eq!(error.kind, crate::VolumeErrorKind::Data);
            error.message
        };
        for format in [2, 3] {
            let message = error(json!([64, 64, 64]), json!([HUGE, HUGE, HUGE]), format);
            assert!(message.contains("chunk shape [1000000000000, 1000000000000, 1000000000000]"), "{message}");
            let message = error(json!([64, 64]), json!([u64::MAX, 2]), format);
            assert!(message.contains("chunk shape [18446744073709551615, 2]"), "{message}");
            let message = error(json!([HUGE, HUGE, HUGE]), json!([64, 64, 64]), format);
            assert!(message.contains("shape [1000000000000, ") && message.contains("voxels"), "{message}");
            for odd in [json!([-1, 2]), json!([1e300, 2]), json!([0, 2]), json!([2]), json!("2"), json!([[2], 2])] {
                error(odd.clone(), json!([1, 1]), format);
                error(json!([4, 4]), odd, format);
            }
        }
    }

    #[test]
    fn one_byte_kinds_and_the_other_separator() {
        let layout = Layout::read(&v2("|u1", "C", "/"), "x").unwrap();
        assert_eq!((layout.element, layout.key(&[1, 0]).as_str()), (Element::U8, "1/0"));
        assert_eq!(Layout::read(&v2("<u1", "C", "/"), "x").unwrap().element, Element::U8);
        assert_eq!(Layout::read(&v2("|b1", "C", "/"), "x").unwrap().element, Element::U8);
        let error = Layout::read(&v2("<c8", "C", "/"), "s3://b/x").unwrap_err();
        assert!(error.message.contains("<c8") && error.message.contains("s3://b/x"), "{error}");
    }
}
