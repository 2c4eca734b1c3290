//! Axes, sizes and halos of a tensor, as versions 0.4 and 0.5 write them.

use serde_json::Value;

/// The sizes that z, y and x may have: the least, and steps upwards; a step of 0 is the only size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    least: [usize; 3],
    step: [usize; 3],
}

/// A patch is made this large where a model allows it, voxels.
const USUAL: usize = 64;

impl Sizes {
    /// The patch to run with: the smallest that is not below the usual one.
    pub(super) fn patch(&self) -> [usize; 3] {
        std::array::from_fn(|axis| {
            let (least, step) = (self.least[axis], self.step[axis]);
            least + if step == 0 { 0 } else { USUAL.saturating_sub(least).div_ceil(step) * step }
        })
    }

    /// A sentence if a patch is of none of these sizes.
    pub(super) fn problem(&self, patch: [usize; 3]) -> Option<String> {
        let fits = |axis: usize| {
            let (size, least, step) = (patch[axis], self.least[axis], self.step[axis]);
            size == least || (step > 0 && size > least && (size - least).is_multiple_of(step))
        };
        let axis = (0..3).find(|&axis| !fits(axis))?;
        let (name, least, step) = (["z", "y", "x"][axis], self.least[axis], self.step[axis]);
        let allowed = if step == 0 { format!("{least}") } else { format!("{least} plus any number of {step}") };
        Some(format!("`patch` is {} along axis {name}; allowed is {allowed}", patch[axis]))
    }
}

/// What is told of an input or output.
#[derive(Debug, Default)]
pub(super) struct Tensor {
    pub(super) channels: Option<usize>,
    pub(super) sizes: Option<Sizes>,
    pub(super) halo: [usize; 3],
    /// What keeps an output from having its input's size.
    resized: Option<String>,
}

impl Tensor {
    pub(super) fn read(tensor: &Value) -> Result<Self, String> {
        match &tensor["axes"] {
            Value::String(axes) => Self::of_letters(tensor, axes),
            Value::Array(axes) => Self::of_list(axes),
            _ => Err("a tensor tells no `axes`".into()),
        }
    }

    pub(super) fn check_same_size(&self) -> Result<(), String> {
        match &self.resized {
            None => Ok(()),
            Some(what) => Err(format!("the output's {what}; only models whose output has the input's size can be run")),
        }
    }

    /// Version 0.4: `axes: bczyx` and a shape.
    fn of_letters(tensor: &Value, axes: &str) -> Result<Self, String> {
        check_axes(axes)?;
        let shape = &tensor["shape"];
        let five = |value: &Value| -> Option<[usize; 5]> {
            let sizes: Vec<usize> = value.as_array()?.iter().map(size).collect::<Option<_>>()?;
            sizes.try_into().ok()
        };
        let spatial = |[_, _, z, y, x]: [usize; 5]| [z, y, x];
        let mut read = Self { halo: five(&tensor["halo"]).map(spatial).unwrap_or_default(), ..Self::default() };
        if let Some(exact) = five(shape) {
            read.channels = Some(exact[1]);
            read.sizes = Some(Sizes { least: spatial(exact), step: [0; 3] });
        } else if let (Some(least), Some(step)) = (five(&shape["min"]), five(&shape["step"])) {
            read.channels = Some(least[1]);
            read.sizes = Some(Sizes { least: spatial(least), step: spatial(step) });
        } else {
            read.resized = resized(shape);
        }
        Ok(read)
    }

    /// Version 0.5: a list of axes, each with its size.
    fn of_list(axes: &[Value]) -> Result<Self, String> {
        let letter = |axis: &Value| match axis["type"].as_str() {
            Some("batch") => "b".to_owned(),
            Some("channel") => "c".to_owned(),
            _ => axis["id"].as_str().unwrap_or("?").to_owned(),
        };
        check_axes(&axes.iter().map(letter).collect::<String>())?;
        let mut read = Self {
            channels: axes[1]["channel_names"].as_array().map(Vec::len).or(size(&axes[1]["size"])),
            ..Self::default()
        };
        let mut sizes = Sizes { least: [0; 3], step: [0; 3] };
        for (axis, told) in axes[2..].iter().enumerate() {
            read.halo[axis] = size(&told["halo"]).unwrap_or(0);
            let given = &told["size"];
            if let Some(exact) = size(given) {
                sizes.least[axis] = exact;
            } else if let (Some(least), Some(step)) = (size(&given["min"]), size(&given["step"])) {
                (sizes.least[axis], sizes.step[axis]) = (least, step);
            } else if given["offset"].as_i64().unwrap_or(0) != 0 {
                read.resized = Some(format!("axis {} has an offset of {}", told["id"], given["offset"]));
            }
        }
        read.sizes = Some(sizes).filter(|sizes| !sizes.least.contains(&0));
        Ok(read)
    }
}

/// What makes an output's shape, given by its input's, another one. Batch and channel are told by themselves.
fn resized(shape: &Value) -> Option<String> {
    let differs = |key: &str, same: f64| {
        let values = shape[key].as_array()?.get(2..)?;
        values.iter().any(|value| value.as_f64() != Some(same)).then(|| format!("`{key}` is {}", shape[key]))
    };
    differs("scale", 1.0).or_else(|| differs("offset", 0.0))
}

fn check_axes(axes: &str) -> Result<(), String> {
    match axes {
        "bczyx" => Ok(()),
        other => Err(format!("`axes` are {other}; only bczyx (batch, channel, z, y, x) can be run")),
    }
}

fn size(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_follow_least_and_step() {
        let sizes = Sizes { least: [16, 48, 32], step: [16, 32, 0] };
        assert_eq!(sizes.patch(), [64, 80, 32]);
        assert_eq!(sizes.problem([32, 112, 32]), None);
        assert_eq!(
            sizes.problem([8, 80, 32]).unwrap(),
            "`patch` is 8 along axis z; allowed is 16 plus any number of 16"
        );
        assert_eq!(sizes.problem([16, 80, 64]).unwrap(), "`patch` is 64 along axis x; allowed is 32");
    }
}
