//! What the stages of a job did over time, thinned out as it gets longer.

use haloflow_pipeline::live::{Live, STAGES};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::runner::DeviceState;

/// Samples that are kept. When there are more, every second one goes and they are taken half as often.
const MOST: usize = 240;

/// A stage between two samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StageSample {
    /// `read`, `prepare`, `batch`, `device`, `merge` or `write`.
    pub name: String,
    /// Items that it finished per second: steps, batches or blocks.
    pub items_per_second: f64,
    /// Tasks of it that worked, on average.
    pub working: f64,
    /// Items that wait in front of it.
    pub queue: usize,
    /// How many may; 0 if nothing waits in front of it.
    pub queue_capacity: usize,
}

/// A job at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sample {
    /// Since the job was started.
    pub seconds: f64,
    /// In the order of the data's way.
    pub stages: Vec<StageSample>,
    /// Bytes of the job's memory that are leased.
    pub held_bytes: u64,
    /// Bytes that may be.
    pub budget_bytes: u64,
    /// The machine's devices.
    pub devices: Vec<DeviceState>,
}

/// The samples of a job.
#[derive(Debug)]
pub(crate) struct History {
    samples: Vec<Sample>,
    /// What the last sample was taken from.
    last: (f64, Live),
    /// Looks per sample.
    stride: u64,
    looks: u64,
}

impl Default for History {
    fn default() -> Self {
        Self { samples: Vec::new(), last: (0.0, Live::default()), stride: 1, looks: 0 }
    }
}

impl History {
    /// Looks at a job, so many seconds after its start; takes a sample if it is time for one.
    pub(crate) fn look(&mut self, seconds: f64, live: &Live, devices: impl FnOnce() -> Vec<DeviceState>) {
        self.looks += 1;
        let (before, then) = self.last;
        if !self.looks.is_multiple_of(self.stride) || seconds <= before {
            return;
        }
        self.samples.push(sample(seconds - before, &then, seconds, live, devices()));
        self.last = (seconds, *live);
        if self.samples.len() > MOST {
            let mut looked_at = 0_usize;
            self.samples.retain(|_| {
                looked_at += 1;
                looked_at.is_multiple_of(2)
            });
            self.stride *= 2;
        }
    }

    /// The samples, the oldest first.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.samples.clone()
    }
}

fn sample(elapsed: f64, then: &Live, seconds: f64, now: &Live, devices: Vec<DeviceState>) -> Sample {
    let stages = STAGES.iter().zip(then.stages.iter().zip(&now.stages)).map(|(name, (then, now))| StageSample {
        name: (*name).to_owned(),
        items_per_second: now.reading.items.saturating_sub(then.reading.items) as f64 / elapsed,
        working: (now.reading.working_seconds - then.reading.working_seconds).max(0.0) / elapsed,
        queue: now.queue,
        queue_capacity: now.queue_capacity,
    });
    Sample { seconds, stages: stages.collect(), held_bytes: now.held_bytes, budget_bytes: now.budget_bytes, devices }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_job_has_as_many_samples_as_a_short_one_from_its_beginning_on() {
        let (mut history, mut live) = (History::default(), Live::default());
        for look in 1..=10_000_u64 {
            live.stages[3].reading.items = 2 * look;
            history.look(look as f64, &live, Vec::new);
        }
        let samples = history.samples();
        assert!((MOST / 2..=MOST).contains(&samples.len()), "{}", samples.len());
        assert!(samples[0].seconds < 100.0 && samples.last().is_some_and(|last| last.seconds > 9_900.0));
        assert!(samples.windows(2).all(|pair| pair[0].seconds < pair[1].seconds));
        let device = &samples[samples.len() / 2].stages[3];
        assert!(device.name == "device" && (device.items_per_second - 2.0).abs() < 1e-9, "{device:?}");
    }
}
