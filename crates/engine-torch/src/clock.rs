//! When a device did what: its events, on the host's clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haloflow_engine::{Span, Timeline};
use tch::Device;

use crate::cause::Cause;
use crate::stream::{Event, Stream};

/// The steps of a batch; each is drawn on the line of its stream.
const STEPS: [&str; 3] = ["upload", "compute", "download"];

/// A point in time that the host and a device both know.
pub(crate) struct Clock {
    epoch: Arc<Epoch>,
}

struct Epoch {
    event: Event,
    instant: Instant,
    timeline: Arc<Timeline>,
    device: String,
}

impl Clock {
    pub(crate) fn new(device: Device, stream: &Stream, timeline: Arc<Timeline>, name: &str) -> Result<Self, Cause> {
        let event = Event::new(device, true)?;
        stream.record(&event)?;
        event.synchronize()?;
        Ok(Self { epoch: Arc::new(Epoch { event, instant: Instant::now(), timeline, device: name.to_owned() }) })
    }

    /// Events for the begin and the end of every step of a batch.
    pub(crate) fn marks(&self, device: Device) -> Result<Marks, Cause> {
        let events = (0..2 * STEPS.len()).map(|_| Event::new(device, true)).collect::<Result<_, _>>()?;
        Ok(Marks { events, epoch: Arc::clone(&self.epoch) })
    }
}

/// When the steps of a batch began and ended.
pub(crate) struct Marks {
    pub(crate) events: Vec<Event>,
    epoch: Arc<Epoch>,
}

impl Marks {
    /// Adds the steps to the time line. All events have happened.
    pub(crate) fn tell(&self) -> Result<(), Cause> {
        let Epoch { event, instant, timeline, device } = &*self.epoch;
        let at = |mark: &Event| -> Result<Instant, Cause> {
            let milliseconds = mark.milliseconds_since(event)?;
            Ok(*instant + Duration::try_from_secs_f64(milliseconds / 1e3).unwrap_or_default())
        };
        for (name, [begun, ended]) in STEPS.into_iter().zip(self.events.as_chunks().0) {
            let (start, end) = (at(begun)?, at(ended)?);
            timeline.add(Span { track: format!("{device} {name}"), name, start, end });
        }
        Ok(())
    }
}
