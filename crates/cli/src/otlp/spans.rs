//! The spans of a run: the run, its blocks below it, and below each block what the stages did for it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use haloflow_geometry::Zyx;
use haloflow_pipeline::blocks::{Block, BlockTrace, Work};
use haloflow_pipeline::{Fault, Report};
use haloflow_volume::StorageWork;
use haloflow_volume::carried::Taken;
use opentelemetry::trace::{Link, Span as _, SpanContext, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span};

/// The trace of a run or a job. Its blocks that have not ended end with it.
#[derive(Debug)]
pub(crate) struct RunTrace {
    tracer: SdkTracer,
    clock: Clock,
    context: SpanContext,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    root: Span,
    /// Blocks that something was done for and that have not ended: no more than the run holds at one time.
    blocks: HashMap<Zyx, Span>,
}

/// What tells the time of day of an instant.
#[derive(Clone, Copy, Debug)]
struct Clock {
    instant: Instant,
    time: SystemTime,
}

impl Clock {
    fn time(self, instant: Instant) -> SystemTime {
        match instant.checked_duration_since(self.instant) {
            Some(after) => self.time + after,
            None => self.time - self.instant.duration_since(instant),
        }
    }
}

impl RunTrace {
    pub(super) fn begin(tracer: SdkTracer, name: &'static str, about: Vec<KeyValue>) -> Self {
        let clock = Clock { instant: Instant::now(), time: SystemTime::now() };
        let root = tracer.span_builder(name).with_kind(SpanKind::Internal).with_attributes(about);
        let root = root.with_start_time(clock.time).start_with_context(&tracer, &Context::new());
        let context = root.span_context().clone();
        Self { tracer, clock, context, state: Mutex::new(State { root, blocks: HashMap::new() }) }
    }

    /// Ends the run, and every block that it leaves.
    pub(crate) fn end(&self, report: &Report, outcome: Result<(), &Fault>) {
        let now = self.clock.time(Instant::now());
        let mut state = self.state();
        for (_, mut block) in state.blocks.drain() {
            block.set_status(Status::error("the run ended before it was stored"));
            block.end_with_timestamp(now);
        }
        state.root.set_attributes([
            KeyValue::new("haloflow.input", report.input.url.clone()),
            KeyValue::new("haloflow.output", report.output.urls.join(", ")),
        ]);
        state.root.set_status(status(outcome));
        state.root.end_with_timestamp(now);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The span of a block, begun at `start` if it has not.
    fn of_block(&self, block: &Block, start: Instant) -> SpanContext {
        let mut state = self.state();
        let span = state.blocks.entry(block.place).or_insert_with(|| {
            let [z, y, x] = block.place;
            let about = vec![
                KeyValue::new("haloflow.block", format!("{z}/{y}/{x}")),
                KeyValue::new("haloflow.region", block.region.to_string()),
            ];
            self.span("block", &self.context, start, about, Vec::new())
        });
        span.span_context().clone()
    }

    fn span(
        &self,
        name: &'static str,
        parent: &SpanContext,
        start: Instant,
        about: Vec<KeyValue>,
        links: Vec<Link>,
    ) -> Span {
        let parent = Context::new().with_remote_span_context(parent.clone());
        let span = self.tracer.span_builder(name).with_start_time(self.clock.time(start));
        span.with_attributes(about).with_links(links).start_with_context(&self.tracer, &parent)
    }

    /// What storage did for a piece of work.
    fn storage(&self, parent: &SpanContext, taken: &Taken) {
        for note in &taken.notes {
            let name = match note.work {
                StorageWork::Fetch => "fetch",
                StorageWork::Decode => "decode",
                StorageWork::Encode => "encode",
                StorageWork::Put => "put",
            };
            self.span(name, parent, note.start, Vec::new(), Vec::new()).end_with_timestamp(self.clock.time(note.end));
        }
    }
}

impl BlockTrace for RunTrace {
    fn begun(&self, block: &Block, at: Instant) {
        let _known = self.of_block(block, at);
    }

    /// Every block gets a span of the work, so that each shows all of its way. What storage did stands below the first of them, and the
    /// others link to that one.
    fn worked(&self, work: Work<'_>) {
        let mut about = vec![KeyValue::new("haloflow.blocks", count(work.blocks.len()))];
        about.extend(work.batch.map(|batch| KeyValue::new("haloflow.batch", count(batch))));
        about.extend(work.device.map(|device| KeyValue::new("haloflow.device", device.to_owned())));
        if work.storage.left_out > 0 {
            about.push(KeyValue::new("haloflow.storage_left_out", count(work.storage.left_out)));
        }
        let mut first: Option<SpanContext> = None;
        for block in work.blocks {
            let parent = self.of_block(block, work.start);
            let links = first.iter().cloned().map(Link::with_context).collect();
            let mut span = self.span(work.name, &parent, work.start, about.clone(), links);
            if first.is_none() {
                self.storage(span.span_context(), &work.storage);
                first = Some(span.span_context().clone());
            }
            span.end_with_timestamp(self.clock.time(work.end));
        }
    }

    fn ended(&self, block: &Block, outcome: Result<(), &Fault>) {
        let Some(mut span) = self.state().blocks.remove(&block.place) else { return };
        span.set_status(status(outcome));
        span.end_with_timestamp(self.clock.time(Instant::now()));
    }
}

fn status(outcome: Result<(), &Fault>) -> Status {
    outcome.map_or_else(|fault| Status::error(fault.to_string()), |()| Status::Ok)
}

fn count(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}
