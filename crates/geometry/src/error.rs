//! What can be wrong with a geometry, told by key and axis.

use crate::Zyx;

/// The names of the axes, in order.
pub const AXES: [&str; 3] = ["z", "y", "x"];

/// A geometry that cannot work. The message names the key, the axis, the value and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GeometryError(pub(crate) String);

/// Checks `holds` on each axis and reports the first axis on which it does not hold.
pub(crate) fn check_axes(
    holds: impl Fn(usize) -> bool,
    message: impl Fn(usize) -> String,
) -> Result<(), GeometryError> {
    match (0..3).find(|&axis| !holds(axis)) {
        Some(axis) => Err(GeometryError(format!("{} (axis {})", message(axis), AXES[axis]))),
        None => Ok(()),
    }
}

/// Says that the values of two keys do not go together.
pub(crate) fn clash(keys: [&str; 2], values: [usize; 2], rule: &str) -> String {
    format!("`{}` is {} and `{}` is {}; {rule}", keys[0], values[0], keys[1], values[1])
}

/// Shows three sizes the way they are typed.
pub(crate) fn typed(sizes: Zyx) -> String {
    format!("{} {} {}", sizes[0], sizes[1], sizes[2])
}
