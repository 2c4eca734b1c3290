//! A time line in Chrome's trace format, for `chrome://tracing` and ui.perfetto.dev.

use std::collections::HashMap;

use haloflow_engine::Span;
use serde_json::json;

/// The JSON of `spans`: one line per track, microseconds since the first span began.
#[must_use]
pub fn chrome(spans: &[Span]) -> String {
    let mut tracks: HashMap<&str, usize> = HashMap::new();
    let epoch = spans.iter().map(|span| span.start).min();
    let mut events = Vec::with_capacity(spans.len());
    for span in spans {
        let next = tracks.len();
        let track = *tracks.entry(&span.track).or_insert_with(|| {
            let name = json!({ "name": span.track });
            events.push(json!({ "name": "thread_name", "ph": "M", "pid": 1, "tid": next, "args": name }));
            next
        });
        let began = epoch.map_or(0.0, |epoch| micros(span.start.saturating_duration_since(epoch)));
        let took = micros(span.end.saturating_duration_since(span.start));
        events.push(json!({ "name": span.name, "ph": "X", "pid": 1, "tid": track, "ts": began, "dur": took }));
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ms" }).to_string()
}

fn micros(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn spans_of_a_track_share_a_line() {
        let start = Instant::now();
        let span = |track: &str, name, from, to| Span {
            track: track.to_owned(),
            name,
            start: start + Duration::from_micros(from),
            end: start + Duration::from_micros(to),
        };
        let spans =
            [span("cuda:0 upload", "upload", 5, 9), span("a", "read", 3, 4), span("cuda:0 upload", "upload", 10, 11)];
        let told: serde_json::Value = serde_json::from_str(&chrome(&spans)).unwrap();
        let events = told["traceEvents"].as_array().unwrap();
        let lines: Vec<_> =
            events.iter().filter(|event| event["ph"] == "X").map(|event| event["tid"].as_u64()).collect();
        assert_eq!(lines, [Some(0), Some(1), Some(0)]);
        assert_eq!((events[1]["ts"].as_f64(), events[1]["dur"].as_f64()), (Some(2.0), Some(4.0)));
        assert_eq!(events[0]["args"]["name"], "cuda:0 upload");
    }
}
