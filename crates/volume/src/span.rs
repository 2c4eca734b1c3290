//! Byte ranges of one object that are worth one request together.

use std::ops::Range;

/// A gap of at most so many bytes is fetched along with what is on both sides of it: that takes less time than another request.
const GAP: u64 = 16 << 10;

/// And of at most the so-many-th part of what follows it, so that small chunks do not bring many bytes that nobody wants.
pub(crate) const GAP_PART: u64 = 16;

/// Where a part of an object lies: offset and length, bytes.
pub(crate) type Span = (u64, u64);

/// Puts together what lies side by side, at most `most` spans each time, in the order of their offsets. Gives places in `spans`; every
/// place is there once. A place without a span stays alone, and so does a span that reaches past the last possible byte.
pub(crate) fn runs(spans: &[Option<Span>], most: usize) -> Vec<Vec<usize>> {
    let mut places: Vec<usize> = (0..spans.len()).collect();
    places.sort_by_key(|&place| spans[place].map_or(u64::MAX, |(offset, _)| offset));
    let mut runs: Vec<Vec<usize>> = Vec::new();
    let mut end = None;
    for place in places {
        let stop = spans[place].and_then(|(offset, length)| offset.checked_add(length));
        match runs.last_mut() {
            Some(run) if run.len() < most && stop.is_some() && follows(end, spans[place]) => {
                run.push(place);
                end = end.max(stop);
            }
            _ => {
                runs.push(vec![place]);
                end = stop;
            }
        }
    }
    runs
}

/// Whether a span begins where another ended, or so little behind that the gap may be fetched too.
fn follows(end: Option<u64>, span: Option<Span>) -> bool {
    let (Some(end), Some((offset, length))) = (end, span) else { return false };
    offset.saturating_sub(end) <= GAP.min(length / GAP_PART)
}

/// The bytes from the first of some spans to the end of the last; `None` if there is none.
pub(crate) fn hull(spans: impl Iterator<Item = Span> + Clone) -> Option<Range<u64>> {
    let start = spans.clone().map(|(offset, _)| offset).min()?;
    Some(start..spans.map(|(offset, length)| offset.saturating_add(length)).max()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_go_together_and_the_rest_alone() {
        let large = 1 << 20;
        let spans = [Some((100, 10)), Some((0, 50)), None, Some((50, 50)), Some((u64::MAX, 2)), Some((111, 10))];
        assert_eq!(runs(&spans, 16), [vec![1, 3, 0], vec![5], vec![2], vec![4]]);
        assert_eq!(runs(&spans, 2), [vec![1, 3], vec![0], vec![5], vec![2], vec![4]]);
        assert_eq!(runs(&spans, 1).len(), 6);
        // Two spans with a gap between them: together only if it is small, for a request and for what follows.
        for (gap, length, together) in
            [(GAP, large, true), (GAP + 1, large, false), (100, 1600, true), (101, 1600, false)]
        {
            let found = runs(&[Some((0, 1)), Some((1 + gap, length))], 16);
            assert_eq!(found.len() == 1, together, "{gap} {length}");
        }
        // A corrupt index may have spans that lie in each other.
        assert_eq!(runs(&[Some((0, 100)), Some((10, 5)), Some((100, 5))], 16), [vec![0, 1, 2]]);
        assert_eq!(hull([(7, 3), (2, 4)].into_iter()), Some(2..10));
        assert_eq!(hull([].into_iter()), None);
    }
}
