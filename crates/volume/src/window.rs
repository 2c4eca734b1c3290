//! The range of the values that a channel holds, as viewers are told.

use bytemuck::{Pod, Zeroable};

/// The least and the greatest of a channel's finite values.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Window {
    /// The least; above the greatest if there was no value.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

impl Window {
    /// No value.
    pub const EMPTY: Self = Self { least: f64::INFINITY, greatest: f64::NEG_INFINITY };

    /// One value, which is finite.
    #[must_use]
    pub const fn of(value: f64) -> Self {
        Self { least: value, greatest: value }
    }

    /// The window that holds both. The order does not matter, not even for the sign of zero.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let pick = |one: f64, other: f64, other_is_less: bool| {
            if other.total_cmp(&one).is_lt() == other_is_less { other } else { one }
        };
        Self { least: pick(self.least, other.least, true), greatest: pick(self.greatest, other.greatest, false) }
    }

    /// Its ends; 0 and 1 if there was no value.
    pub(crate) fn ends(self) -> [f64; 2] {
        if self.least > self.greatest { [0.0, 1.0] } else { [self.least, self.greatest] }
    }
}

/// Takes what was seen of each channel in.
pub(crate) fn widen(windows: &mut Vec<Window>, seen: &[Window]) {
    windows.resize(windows.len().max(seen.len()), Window::EMPTY);
    for (window, seen) in windows.iter_mut().zip(seen) {
        *window = window.and(*seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_does_not_depend_on_the_order() {
        let values = [0.0, -0.0, 2.0, -3.0];
        let window = |values: &mut dyn Iterator<Item = &f64>| {
            let window = values.map(|&value| Window::of(value)).fold(Window::EMPTY, Window::and);
            window.ends().map(f64::to_bits)
        };
        assert_eq!(window(&mut values.iter()), [-3.0, 2.0].map(f64::to_bits));
        assert_eq!(window(&mut values[..2].iter()), [-0.0, 0.0].map(f64::to_bits));
        assert_eq!(window(&mut values[..2].iter().rev()), [-0.0, 0.0].map(f64::to_bits));
        assert_eq!(Window::EMPTY.ends(), [0.0, 1.0]);
        let mut windows = vec![Window::of(1.0)];
        widen(&mut windows, &[Window::of(3.0), Window::of(5.0)]);
        assert_eq!(windows, [Window { least: 1.0, greatest: 3.0 }, Window::of(5.0)]);
    }
}
