//! The metadata of an array that is to be created.

use haloflow_geometry::Zyx;
use serde_json::{Map, Value, json};

use crate::axes::AxisMap;
use crate::{AxisInfo, Element, VolumeError, ZarrFormat};

/// An array that is to be created, before its metadata is written down.
#[derive(Clone, Debug)]
pub(crate) struct Blueprint {
    pub(crate) format: ZarrFormat,
    pub(crate) axes: Vec<AxisInfo>,
    pub(crate) map: AxisMap,
    pub(crate) element: Element,
    /// Spatial shape of a chunk, or of the inner chunk of a shard.
    pub(crate) chunk: Zyx,
    pub(crate) shard: Option<Zyx>,
    pub(crate) compressor: Compressor,
    /// Metadata members that were given in a spec; they win.
    pub(crate) given: Map<String, Value>,
    /// Between the parts of a chunk's key, if the spec does not say.
    pub(crate) separator: &'static str,
}

impl Blueprint {
    /// The content of `.zarray` or `zarr.json`. `attributes` are stored in v3 only.
    pub(crate) fn metadata(&self, attributes: &Value) -> Value {
        let mut metadata = match self.format {
            ZarrFormat::V2 => self.version_2(),
            ZarrFormat::V3 => self.version_3(attributes),
        };
        for (key, value) in &self.given {
            if key == "attributes" {
                let given = value.as_object().into_iter().flatten();
                given.for_each(|(key, value)| metadata["attributes"][key] = value.clone());
            } else {
                metadata[key] = value.clone();
            }
        }
        metadata
    }

    /// Sets the size of the channel axis, unless a spec gave the shape.
    pub(crate) fn set_channels(&mut self, channels: usize) {
        if let Some(place) = self.map.c.filter(|_| !self.given.contains_key("shape")) {
            self.axes[place].size = channels;
        }
    }

    pub(crate) fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|axis| axis.size).collect()
    }

    fn version_2(&self) -> Value {
        json!({
            "zarr_format": 2,
            "shape": self.shape(),
            "chunks": self.full(self.chunk),
            "dtype": self.element.v2_name(),
            "compressor": self.compressor.version_2(self.element),
            "fill_value": self.zero(),
            "order": "C",
            "filters": null,
            "dimension_separator": self.separator,
        })
    }

    fn version_3(&self, attributes: &Value) -> Value {
        let endian = if self.element.size() == 1 { json!({}) } else { json!({"endian": "little"}) };
        let mut codecs = vec![json!({"name": "bytes", "configuration": endian})];
        codecs.extend(self.compressor.version_3(self.element));
        if self.shard.is_some() {
            codecs = vec![json!({"name": "sharding_indexed", "configuration": {
                "chunk_shape": self.full(self.chunk),
                "codecs": codecs,
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
                "index_location": "end",
            }})];
        }
        let names: Vec<&str> = self.axes.iter().map(|axis| axis.name.as_str()).collect();
        json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": self.shape(),
            "data_type": self.element.name(),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": self.full(self.shard.unwrap_or(self.chunk))}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": self.separator}},
            "fill_value": self.zero(),
            "codecs": codecs,
            "attributes": if attributes.is_object() { attributes.clone() } else { json!({}) },
            "dimension_names": names,
        })
    }

    /// A spatial shape as a full-rank one, with 1 along time and channel.
    fn full(&self, shape: Zyx) -> Vec<u64> {
        self.map.index(1, 1, shape)
    }

    fn zero(&self) -> Value {
        match self.element {
            Element::F16 | Element::F32 | Element::F64 => json!(0.0),
            _ => json!(0),
        }
    }
}

/// How chunks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compressor {
    /// In blosc, with this codec in it; bytes are shuffled where voxels have several.
    Blosc(&'static str, u8),
    /// Zstandard.
    Zstd(u8),
    /// Deflate with a gzip header.
    Gzip(u8),
    /// Not at all.
    None,
}

impl Compressor {
    /// Reads `NAME` or `NAME:LEVEL`.
    pub(crate) fn read(text: &str) -> Result<Self, VolumeError> {
        let bad = || {
            VolumeError::usage(format!(
                "the compressor {text:?} is not known: it must be blosc, blosc-zstd, blosc-lz4, blosc-zlib, zstd, gzip (each optionally with :LEVEL) or none"
            ))
        };
        let (name, level) = text.split_once(':').map_or((text, None), |(name, level)| (name, Some(level)));
        let level = |default: u8, highest: u8| match level {
            None => Ok(default),
            Some(level) => level.parse().ok().filter(|level| *level <= highest).ok_or_else(|| {
                VolumeError::usage(format!(
                    "the compressor level of {text:?} must be a whole number from 0 to {highest}"
                ))
            }),
        };
        match name {
            "blosc" | "blosc-zstd" => Ok(Self::Blosc("zstd", level(3, 9)?)),
            "blosc-lz4" => Ok(Self::Blosc("lz4", level(5, 9)?)),
            "blosc-zlib" => Ok(Self::Blosc("zlib", level(5, 9)?)),
            "zstd" => Ok(Self::Zstd(level(3, 22)?)),
            "gzip" => Ok(Self::Gzip(level(5, 9)?)),
            "none" if level(0, 0).is_ok() => Ok(Self::None),
            _ => Err(bad()),
        }
    }

    fn version_2(self, element: Element) -> Value {
        match self {
            Self::Blosc(codec, level) => {
                let shuffle = u8::from(element.size() > 1);
                json!({"id": "blosc", "cname": codec, "clevel": level, "shuffle": shuffle, "blocksize": 0})
            }
            Self::Zstd(level) => json!({"id": "zstd", "level": level}),
            Self::Gzip(level) => json!({"id": "gzip", "level": level}),
            Self::None => Value::Null,
        }
    }

    fn version_3(self, element: Element) -> Option<Value> {
        let (name, configuration) = match self {
            Self::Blosc(codec, level) => {
                let shuffle = if element.size() > 1 { "shuffle" } else { "noshuffle" };
                let size = element.size();
                (
                    "blosc",
                    json!({"cname": codec, "clevel": level, "shuffle": shuffle, "typesize": size, "blocksize": 0}),
                )
            }
            Self::Zstd(level) => ("zstd", json!({"level": level, "checksum": false})),
            Self::Gzip(level) => ("gzip", json!({"level": level})),
            Self::None => return None,
        };
        Some(json!({"name": name, "configuration": configuration}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressors_are_read_with_levels() {
        assert_eq!(Compressor::read("zstd:7").unwrap(), Compressor::Zstd(7));
        assert_eq!(Compressor::read("blosc").unwrap(), Compressor::Blosc("zstd", 3));
        assert_eq!(Compressor::read("blosc-lz4:1").unwrap(), Compressor::Blosc("lz4", 1));
        assert_eq!(Compressor::read("none").unwrap(), Compressor::None);
        for (text, part) in [("lz4", "zstd"), ("gzip:10", "0 to 9"), ("zstd:x", "0 to 22")] {
            assert!(Compressor::read(text).unwrap_err().message.contains(part));
        }
    }
}
