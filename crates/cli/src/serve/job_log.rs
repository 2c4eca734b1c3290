//! The log lines of jobs: what is said inside a job's span goes to that job, on whichever thread; what is said outside of every job goes
//! to none.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use haloflow_service::job::JobId;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

type Sink = Arc<dyn Fn(String) + Send + Sync>;

/// Where the lines of jobs go. Cloning shares it.
#[derive(Clone, Default)]
pub(crate) struct JobLogs {
    sinks: Arc<Mutex<HashMap<JobId, Sink>>>,
}

/// A job whose lines are taken; no longer once this is dropped.
pub(super) struct Taken {
    logs: JobLogs,
    id: JobId,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.logs.sinks.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

impl JobLogs {
    /// Takes the lines of a job.
    pub(super) fn take(&self, id: JobId, sink: Sink) -> Taken {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sink);
        Taken { logs: self.clone(), id }
    }

    fn sink(&self, id: JobId) -> Option<Sink> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}

/// The number of a span's job.
struct JobOf(JobId);

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for JobLogs {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut found = Fields::default();
        attributes.record(&mut found);
        if let (Some(job), Some(span)) = (found.job, context.span(id)) {
            span.extensions_mut().insert(JobOf(job));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if *event.metadata().level() > Level::INFO {
            return;
        }
        let mut spans = context.event_scope(event).into_iter().flatten();
        let of_span = spans.find_map(|span| span.extensions().get::<JobOf>().map(|JobOf(job)| *job));
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Some(sink) = of_span.or(fields.job).and_then(|job| self.sink(job)) else { return };
        let mut line = String::new();
        // Writing into a string cannot fail.
        let _ = SystemTime.format_time(&mut Writer::new(&mut line));
        let _ = write!(line, " {} {}{}", event.metadata().level(), fields.message, fields.others);
        sink(line);
    }
}

/// What a span or an event says.
#[derive(Default)]
struct Fields {
    job: Option<JobId>,
    message: String,
    others: String,
}

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        if field.name() == "job" {
            self.job = Some(value);
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.others, " {}={value:?}", field.name())
        };
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn a_job_gets_its_own_lines_and_no_others() {
        let logs = JobLogs::default();
        let lines = [Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new()))];
        let _taken: Vec<Taken> = (1..)
            .zip(&lines)
            .map(|(id, lines)| {
                let lines = Arc::clone(lines);
                logs.take(id, Arc::new(move |line| lines.lock().unwrap().push(line)))
            })
            .collect();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(logs), || {
            tracing::error_span!("job", job = 1_i64).in_scope(|| {
                tracing::info_span!("inside").in_scope(|| tracing::warn!(device = "cpu", "of the first"));
            });
            tracing::info!(job = 2_i64, "of the second");
            tracing::info!("of nobody");
            tracing::debug!("not told");
        });
        let told = lines.map(|lines| lines.lock().unwrap().clone());
        assert!(told[0].len() == 1 && told[0][0].ends_with(" WARN of the first device=cpu"), "{told:?}");
        assert!(told[1].len() == 1 && told[1][0].ends_with(" INFO of the second"), "{told:?}");
    }
}
