//! Zarr arrays written byte by byte, without any of the code that is under test. Chunks are not compressed.

use std::path::Path;

use bytemuck::Pod;
use serde_json::{Value, json};

/// What an array looks like. Shapes are in stored axis order, any number of axes.
#[derive(Clone, Debug)]
pub struct Array {
    /// Version of the Zarr format: 2 or 3.
    pub format: u8,
    /// Size.
    pub shape: Vec<usize>,
    /// Size of a chunk.
    pub chunk: Vec<usize>,
    /// Size of a shard, a multiple of the chunk's; version 3 only.
    pub shard: Option<Vec<usize>>,
    /// Kind of number: `uint8`, `uint16`, `int16` or `float32`.
    pub element: &'static str,
}

impl Array {
    /// An array of version 3 without shards.
    #[must_use]
    pub fn new(shape: &[usize], chunk: &[usize], element: &'static str) -> Self {
        Self { format: 3, shape: shape.to_vec(), chunk: chunk.to_vec(), shard: None, element }
    }

    /// Writes metadata and chunks below `folder`. `values` has the shape's elements in C order.
    pub fn write<T: Pod>(&self, folder: &Path, values: &[T]) {
        assert_eq!(values.len(), self.shape.iter().product::<usize>());
        self.write_metadata(folder);
        let unit = self.shard.as_ref().unwrap_or(&self.chunk);
        for cell in cells(&grid(&self.shape, unit)) {
            let start: Vec<usize> = cell.iter().zip(unit).map(|(index, size)| index * size).collect();
            let object = if self.shard.is_some() {
                self.shard_bytes(&start, values)
            } else {
                bytemuck::cast_slice(&self.cut(&start, &self.chunk, values)).to_vec()
            };
            put(folder, &self.key(&cell), &object);
        }
    }

    /// Writes the metadata only: every chunk is missing, and so holds the fill value.
    pub fn write_metadata(&self, folder: &Path) {
        match self.format {
            2 => put_json(folder, ".zarray", &self.version_2()),
            _ => put_json(folder, "zarr.json", &self.version_3()),
        }
    }

    /// The key of a chunk or shard, relative to the array.
    #[must_use]
    pub fn key(&self, cell: &[usize]) -> String {
        let parts: Vec<String> = cell.iter().map(ToString::to_string).collect();
        if self.format == 2 { parts.join(".") } else { format!("c/{}", parts.join("/")) }
    }

    /// The values of the box of `size` at `start`, zero where it reaches past the array's end.
    fn cut<T: Pod>(&self, start: &[usize], size: &[usize], values: &[T]) -> Vec<T> {
        let of = |offset: Vec<usize>| {
            let at: Vec<usize> = offset.iter().zip(start).map(|(offset, start)| offset + start).collect();
            let inside = at.iter().zip(&self.shape).all(|(index, size)| index < size);
            inside.then(|| values[at.iter().zip(&self.shape).fold(0, |place, (index, size)| place * size + index)])
        };
        cells(size).map(|offset| of(offset).unwrap_or_else(T::zeroed)).collect()
    }

    /// The inner chunks one after the other, then where each begins and how long it is.
    fn shard_bytes<T: Pod>(&self, start: &[usize], values: &[T]) -> Vec<u8> {
        let (mut object, mut index) = (Vec::new(), Vec::new());
        for cell in cells(&grid(self.shard.as_ref().unwrap(), &self.chunk)) {
            let inner = cell.iter().zip(&self.chunk).zip(start);
            let inner: Vec<usize> = inner.map(|((index, size), start)| start + index * size).collect();
            let voxels = self.cut(&inner, &self.chunk, values);
            let chunk: &[u8] = bytemuck::cast_slice(&voxels);
            index.extend([object.len() as u64, chunk.len() as u64].map(u64::to_le_bytes).concat());
            object.extend_from_slice(chunk);
        }
        object.extend(index);
        object
    }

    fn version_2(&self) -> Value {
        let kind = match self.element {
            "uint8" => "|u1",
            "uint16" => "<u2",
            "int16" => "<i2",
            "float32" => "<f4",
            other => panic!("{other} is not known"),
        };
        json!({"zarr_format": 2, "shape": self.shape, "chunks": self.chunk, "dtype": kind, "compressor": null,
            "fill_value": 0, "order": "C", "filters": null})
    }

    fn version_3(&self) -> Value {
        let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
        let codec = match &self.shard {
            None => bytes,
            Some(_) => json!({"name": "sharding_indexed", "configuration": {"chunk_shape": self.chunk,
                "codecs": [bytes], "index_codecs": [bytes], "index_location": "end"}}),
        };
        let unit = self.shard.as_ref().unwrap_or(&self.chunk);
        json!({"zarr_format": 3, "node_type": "array", "shape": self.shape, "data_type": self.element,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": unit}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0, "codecs": [codec], "attributes": {}})
    }
}

/// Writes an object below `folder`.
pub fn put(folder: &Path, key: &str, bytes: &[u8]) {
    let path = folder.join(key);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Writes a JSON object below `folder`.
pub fn put_json(folder: &Path, key: &str, value: &Value) {
    put(folder, key, value.to_string().as_bytes());
}

/// How many cells of `size` cover `shape`.
fn grid(shape: &[usize], size: &[usize]) -> Vec<usize> {
    shape.iter().zip(size).map(|(shape, size)| shape.div_ceil(*size)).collect()
}

/// Every index of a grid, in C order.
fn cells(grid: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let count: usize = grid.iter().product();
    (0..count).map(move |place| {
        let mut rest = place;
        let mut cell: Vec<usize> = grid.iter().rev().map(|size| (rest % size, rest /= size).0).collect();
        cell.reverse();
        cell
    })
}
