//! A time line in Chrome's trace format, for `chrome://tracing` and ui.perfetto.dev.

use std::collections::HashMap;
use std::time::Instant;

use haloflow_engine::Span;
use serde_json::json;

/// The JSON of `spans`: a line per track, and as many more as it has spans at one time; microseconds since the first span began.
#[must_use]
pub fn chrome(spans: &[Span]) -> String {
    let mut spans: Vec<&Span> = spans.iter().collect();
    spans.sort_by_key(|span| span.start);
    let epoch = spans.first().map(|span| span.start);
    let mut lines = Lines::default();
    let mut events = Vec::with_capacity(spans.len());
    for span in spans {
        let line = lines.line_of(span);
        let began = epoch.map_or(0.0, |epoch| micros(span.start.saturating_duration_since(epoch)));
        let took = micros(span.end.saturating_duration_since(span.start));
        events.push(json!({ "name": span.name, "ph": "X", "pid": 1, "tid": line, "ts": began, "dur": took }));
    }
    let names = lines.names.iter().enumerate();
    let names = names.map(
        |(line, name)| json!({ "name": "thread_name", "ph": "M", "pid": 1, "tid": line, "args": { "name": name } }),
    );
    events.extend(names);
    json!({ "traceEvents": events, "displayTimeUnit": "ms" }).to_string()
}

/// The lines of a trace. Spans of one line must not overlap, and those of tasks do.
#[derive(Default)]
struct Lines<'a> {
    names: Vec<String>,
    /// For each track its lines, and when the last span on each ends.
    of_track: HashMap<&'a str, Vec<(usize, Instant)>>,
}

impl<'a> Lines<'a> {
    /// The first line of the span's track that is free when it begins. Spans come in the order of their beginnings.
    fn line_of(&mut self, span: &'a Span) -> usize {
        let lines = self.of_track.entry(&span.track).or_default();
        if let Some((line, end)) = lines.iter_mut().find(|(_, end)| *end <= span.start) {
            *end = span.end;
            return *line;
        }
        let line = self.names.len();
        let count = lines.len() + 1;
        self.names.push(if count == 1 { span.track.clone() } else { format!("{} ({count})", span.track) });
        lines.push((line, span.end));
        line
    }
}

fn micros(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn spans_share_a_line_unless_they_overlap() {
        let start = Instant::now();
        let span = |track: &str, name, from, to| Span {
            track: track.to_owned(),
            name,
            start: start + Duration::from_micros(from),
            end: start + Duration::from_micros(to),
        };
        let spans = [
            span("read", "read", 5, 9),
            span("a", "merge", 3, 4),
            span("read", "read", 6, 7),
            span("read", "read", 7, 8),
        ];
        let told: serde_json::Value = serde_json::from_str(&chrome(&spans)).unwrap();
        let events = told["traceEvents"].as_array().unwrap();
        let lines: Vec<_> =
            events.iter().filter(|event| event["ph"] == "X").map(|event| event["tid"].as_u64()).collect();
        assert_eq!(lines, [Some(0), Some(1), Some(2), Some(2)]);
        assert_eq!((events[1]["ts"].as_f64(), events[1]["dur"].as_f64()), (Some(2.0), Some(4.0)));
        let names: Vec<_> = events[4..].iter().map(|event| event["args"]["name"].as_str()).collect();
        assert_eq!(names, [Some("a"), Some("read"), Some("read (2)")]);
    }
}
