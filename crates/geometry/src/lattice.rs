//! Where patches start along one axis.

use std::ops::Range;

/// Distance between the starts of two neighbouring patches: `patch - overlap`, rounded down to a multiple of `align`.
/// Zero if no such distance exists.
#[must_use]
pub const fn stride(patch: usize, overlap: usize, align: usize) -> usize {
    let free = patch.saturating_sub(overlap);
    match free.checked_rem(align) {
        Some(rest) => free - rest,
        None => 0,
    }
}

/// The starts of the patches that cover `span`, in ascending order.
///
/// The span's start alone if the span is no longer than a patch; else every `stride` as long as the patch fits, and a last
/// patch flush with the span's end. With alignment the span must start on a multiple of `align`; every start is then a
/// multiple of it and the last patch runs past the span's end, by less than `align`: a network sees there what it would
/// see if the whole span were one patch.
#[must_use]
pub fn starts(span: &Range<usize>, patch: usize, overlap: usize, align: usize) -> Vec<usize> {
    let step = stride(patch, overlap, align).max(1);
    if span.len() <= patch {
        return vec![span.start];
    }
    let fitting = span.len() - patch;
    let last = span.start + fitting.next_multiple_of(align.max(1));
    let mut starts: Vec<usize> = (span.start..=span.start + fitting).step_by(step).collect();
    if starts.last() != Some(&last) {
        starts.push(last);
    }
    starts
}

/// The box that a tile's patches are cut from in the block lattice, along one axis: the tile's core widened by `halo`, inside
/// `0..extent`. With alignment the box starts on a multiple of `align` and ends where its last patch ends.
#[must_use]
pub fn expanded(
    core: &Range<usize>,
    halo: usize,
    extent: usize,
    patch: usize,
    overlap: usize,
    align: usize,
) -> Range<usize> {
    let low = core.start.saturating_sub(halo);
    let span = low - low.checked_rem(align).unwrap_or(0)..core.end.saturating_add(halo).min(extent);
    if align <= 1 {
        return span;
    }
    let last = starts(&span, patch, overlap, align).last().map_or(span.end, |start| start.saturating_add(patch));
    span.start..last.max(span.end).min(extent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_patch_is_flush_with_the_end() {
        assert_eq!(starts(&(0..266), 64, 10, 1), [0, 54, 108, 162, 202]);
        assert_eq!(starts(&(0..64), 64, 10, 1), [0]);
        assert_eq!(starts(&(5..9), 64, 10, 1), [5]);
    }

    #[test]
    fn aligned_patches_start_on_the_grid_and_the_last_runs_past_the_end() {
        assert_eq!(starts(&(0..130), 96, 32, 32), [0, 64]);
        assert_eq!(starts(&(0..97), 96, 32, 32), [0, 32]);
        assert_eq!(starts(&(64..330), 96, 32, 32), [64, 128, 192, 256]);
        assert_eq!(expanded(&(100..200), 5, 1000, 96, 32, 32), 64..224);
    }
}
