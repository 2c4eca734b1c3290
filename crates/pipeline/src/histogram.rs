//! How long things took: counts by duration, that anybody may add to and read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the classes but the last, which has none, seconds.
pub const BOUNDS: [f64; 10] = [0.001, 0.004, 0.016, 0.064, 0.25, 1.0, 4.0, 16.0, 64.0, 256.0];

/// Classes.
pub const CLASSES: usize = BOUNDS.len() + 1;

/// Durations, counted by class.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; CLASSES],
    nanos: AtomicU64,
}

/// What a [`Histogram`] showed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HistogramReading {
    /// How many durations fell into each class, not summed up.
    pub counts: [u64; CLASSES],
    /// All of them together, seconds.
    pub seconds: f64,
}

impl Histogram {
    /// Counts one duration.
    pub fn add(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let class = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.counts[class].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What it shows now.
    #[must_use]
    pub fn reading(&self) -> HistogramReading {
        HistogramReading {
            counts: std::array::from_fn(|class| self.counts[class].load(Ordering::Relaxed)),
            seconds: self.nanos.load(Ordering::Relaxed) as f64 / 1e9,
        }
    }
}

impl std::ops::AddAssign for HistogramReading {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.seconds += other.seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_the_first_class_that_holds_it() {
        let histogram = Histogram::default();
        for millis in [0, 1, 2, 1000, 1001, 300_000] {
            histogram.add(Duration::from_millis(millis));
        }
        let mut twice = histogram.reading();
        assert_eq!(twice.counts, [2, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1]);
        assert!((twice.seconds - 302.004).abs() < 1e-6, "{}", twice.seconds);
        twice += histogram.reading();
        assert_eq!(twice.counts.iter().sum::<u64>(), 12);
    }
}
