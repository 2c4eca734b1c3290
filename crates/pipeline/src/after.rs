//! What is done to every voxel of a finished tile, before it is cast: a model's own post-processing.
//!
//! The overlaps have been merged by then: a sigmoid is taken of the blended value, a threshold of the blended probability.

/// Something that is done to a voxel by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VoxelStep {
    /// `gain * y + offset`.
    Linear {
        /// Factor.
        gain: f32,
        /// What is added.
        offset: f32,
    },
    /// The logistic function.
    Sigmoid,
    /// Into bounds, which are in order.
    Clip {
        /// Lower bound.
        low: f32,
        /// Upper bound.
        high: f32,
    },
    /// 1 above the threshold, else 0. NaN stays NaN.
    Binarize {
        /// The threshold.
        threshold: f32,
    },
}

impl VoxelStep {
    /// The voxel after the step.
    #[must_use]
    pub fn apply(self, y: f32) -> f32 {
        match self {
            Self::Linear { gain, offset } => y * gain + offset,
            Self::Sigmoid => 1.0 / (1.0 + (-y).exp()),
            Self::Clip { low, high } => y.clamp(low, high),
            Self::Binarize { .. } if y.is_nan() => y,
            Self::Binarize { threshold } => f32::from(u8::from(y > threshold)),
        }
    }
}

/// Takes all steps, in order, on every voxel.
pub fn apply(steps: &[VoxelStep], values: &mut [f32]) {
    for step in steps {
        values.iter_mut().for_each(|value| *value = step.apply(*value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_their_formulas_in_order() {
        let steps = [
            VoxelStep::Linear { gain: 2.0, offset: -1.0 },
            VoxelStep::Clip { low: -3.0, high: 3.0 },
            VoxelStep::Sigmoid,
            VoxelStep::Binarize { threshold: 0.5 },
        ];
        for (count, expected) in [
            (0, [-5.0, 0.5, 0.75, 9.0]),
            (1, [-11.0, 0.0, 0.5, 17.0]),
            (2, [-3.0, 0.0, 0.5, 3.0]),
            (3, [0.047_425_87, 0.5, 0.622_459_35, 0.952_574_1]),
            (4, [0.0, 0.0, 1.0, 1.0]),
        ] {
            let mut values = [-5.0, 0.5, 0.75, 9.0];
            apply(&steps[..count], &mut values);
            assert!(values.iter().zip(expected).all(|(value, expected)| (value - expected).abs() < 1e-6), "{values:?}");
        }
    }

    #[test]
    fn nan_stays_where_the_cast_finds_it() {
        assert!(VoxelStep::Binarize { threshold: 0.5 }.apply(f32::NAN).is_nan());
        assert!(VoxelStep::Sigmoid.apply(f32::NAN).is_nan());
    }
}
