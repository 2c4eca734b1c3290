//! Lines of a job's log that wait to be kept: so many, and each so long.

use std::sync::{Mutex, PoisonError};

/// Lines that wait at most; more are dropped, and counted.
const MOST: usize = 5_000;

/// Bytes of a line; what is longer is cut off.
const LONGEST: usize = 16 << 10;

/// The lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<String>,
    dropped: u64,
}

impl Lines {
    pub(crate) fn add(&self, mut line: String) {
        if line.len() > LONGEST {
            line.truncate(line.floor_char_boundary(LONGEST));
            line.push('…');
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.lines.len() < MOST {
            waiting.lines.push(line);
        } else {
            waiting.dropped += 1;
        }
    }

    /// The lines since this was last asked, and how many there were that did not fit.
    pub(crate) fn take(&self) -> Vec<String> {
        let Waiting { mut lines, dropped } =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        if dropped > 0 {
            lines.push(format!("{dropped} more lines came too fast to be kept"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_many_lines_nor_long_ones_fill_the_memory_and_what_is_missing_is_told() {
        let lines = Lines::default();
        lines.add("ä".repeat(LONGEST));
        let cut = lines.take();
        assert!(cut.len() == 1 && cut[0].len() <= LONGEST + 3 && cut[0].ends_with("ä…"), "{}", cut[0].len());
        (0..MOST + 7).for_each(|line| lines.add(line.to_string()));
        let taken = lines.take();
        assert_eq!((taken.len(), taken[MOST - 1].as_str()), (MOST + 1, "4999"));
        assert_eq!(taken[MOST], "7 more lines came too fast to be kept");
        assert!(lines.take().is_empty());
    }
}
