//! Which stored axis is which, and how to step through memory along z, y, x.

use haloflow_geometry::Zyx;

use crate::layout::{Layout, MAX_RANK};
use crate::{AxisInfo, AxisKind, VolumeError};

/// Where t, c, z, y, x are among the stored axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AxisMap {
    pub(crate) rank: usize,
    pub(crate) t: Option<usize>,
    pub(crate) c: Option<usize>,
    pub(crate) zyx: [Option<usize>; 3],
}

/// The bytes of a chunk as seen along z, y, x: where a voxel is, in elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strides {
    pub(crate) t: usize,
    pub(crate) c: usize,
    pub(crate) zyx: Zyx,
}

impl AxisMap {
    /// The map of axes whose kinds and names are known. Spatial axes named z, y, x may be in any order; spatial axes of other names
    /// are taken as z, y, x in stored order.
    pub(crate) fn of(axes: &[AxisInfo], url: &str) -> Result<Self, VolumeError> {
        let places =
            |kind: AxisKind| axes.iter().enumerate().filter(move |(_, axis)| axis.kind == kind).map(|(place, _)| place);
        let space: Vec<usize> = places(AxisKind::Space).collect();
        let single = |kind| places(kind).count() <= 1;
        if !(2..=3).contains(&space.len())
            || !single(AxisKind::Time)
            || !single(AxisKind::Channel)
            || axes.len() > MAX_RANK
        {
            let names: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
            return Err(VolumeError::data(format!(
                "the axes {names:?} of {url} are not supported: there must be 2 or 3 spatial axes, at most one time axis and at most one channel axis"
            )));
        }
        let named = ["z", "y", "x"]
            .map(|name| space.iter().copied().find(|&place| axes[place].name.eq_ignore_ascii_case(name)));
        let by_name = named.iter().flatten().count() == space.len() && named[1].is_some() && named[2].is_some();
        let zyx = match space[..] {
            _ if by_name => named,
            [y, x] => [None, Some(y), Some(x)],
            _ => [space.first().copied(), space.get(1).copied(), space.get(2).copied()],
        };
        let first = |kind| places(kind).next();
        Ok(Self { rank: axes.len(), t: first(AxisKind::Time), c: first(AxisKind::Channel), zyx })
    }

    /// The spatial part of a full-rank shape; 1 where there is no such axis.
    pub(crate) fn spatial(&self, full: &[usize]) -> Zyx {
        self.zyx.map(|place| place.map_or(1, |place| full[place]))
    }

    /// The entry of a full-rank list at an axis that may not exist; 1 then.
    pub(crate) fn along(place: Option<usize>, full: &[usize]) -> usize {
        place.map_or(1, |place| full[place])
    }

    /// A full-rank index made of its parts.
    pub(crate) fn index(&self, t: usize, c: usize, zyx: Zyx) -> Vec<u64> {
        let mut index = vec![0; self.rank];
        let parts = [(self.t, t), (self.c, c), (self.zyx[0], zyx[0]), (self.zyx[1], zyx[1]), (self.zyx[2], zyx[2])];
        for (place, value) in parts {
            if let Some(slot) = place.and_then(|place| index.get_mut(place)) {
                *slot = value as u64;
            }
        }
        index
    }

    /// How to step through a C-order buffer of this full-rank shape.
    pub(crate) fn strides(&self, shape: &[usize]) -> Strides {
        let step = |place: Option<usize>| place.map_or(0, |place| shape[place + 1..].iter().product());
        Strides { t: step(self.t), c: step(self.c), zyx: self.zyx.map(step) }
    }
}

/// The axes of an array that has no OME-Zarr metadata: by its dimension names if they are known ones, else by rank.
pub(crate) fn bare_axes(layout: &Layout) -> Vec<AxisInfo> {
    let rank = layout.shape.len();
    let by_rank = ["t", "c", "z", "y", "x"].iter().skip(MAX_RANK - rank).map(|name| (*name).to_owned()).collect();
    let known = |names: &Vec<String>| {
        let kinds: Option<Vec<AxisKind>> = names.iter().map(|name| kind_of_name(name)).collect();
        let distinct = names.iter().enumerate().all(|(place, name)| !names[..place].contains(name));
        let space = kinds.iter().flatten().filter(|kind| **kind == AxisKind::Space).count();
        distinct && names.len() == rank && space >= 2
    };
    let names: Vec<String> = layout.dimension_names.clone().filter(known).unwrap_or(by_rank);
    let axis = |(name, &size): (String, &usize)| {
        let kind = kind_of_name(&name).unwrap_or(AxisKind::Space);
        AxisInfo { name, kind, unit: None, size, scale: 1.0, translation: 0.0 }
    };
    names.into_iter().zip(&layout.shape).map(axis).collect()
}

/// What an axis of this name means, if the name is a usual one.
pub(crate) fn kind_of_name(name: &str) -> Option<AxisKind> {
    match name.to_ascii_lowercase().as_str() {
        "t" | "time" => Some(AxisKind::Time),
        "c" | "channel" | "channels" => Some(AxisKind::Channel),
        "z" | "y" | "x" => Some(AxisKind::Space),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn axes_of(shape: &[usize], names: serde_json::Value) -> Vec<AxisInfo> {
        let metadata = json!({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint8", "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}}, "codecs": [{"name": "bytes"}],
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "dimension_names": names});
        bare_axes(&Layout::read(&metadata, "x").unwrap())
    }

    #[test]
    fn axes_follow_the_rank_or_the_names() {
        for (rank, names) in [(2, "yx"), (3, "zyx"), (4, "czyx"), (5, "tczyx")] {
            let shape: Vec<usize> = (2..2 + rank).collect();
            let axes = axes_of(&shape, json!(vec!["dim"; rank]));
            assert_eq!(axes.iter().map(|axis| axis.name.as_str()).collect::<String>(), names);
            let map = AxisMap::of(&axes, "x").unwrap();
            assert_eq!(map.spatial(&shape)[2], rank + 1);
        }
        let axes = axes_of(&[2, 3, 4], json!(["x", "y", "c"]));
        let map = AxisMap::of(&axes, "x").unwrap();
        assert_eq!((map.c, map.zyx, map.spatial(&[2, 3, 4])), (Some(2), [None, Some(1), Some(0)], [1, 3, 2]));
        assert_eq!(map.strides(&[2, 3, 4]).zyx, [0, 4, 12]);
        assert_eq!(map.index(9, 1, [7, 5, 6]), [6, 5, 1]);
    }
}
