//! Which stage limits a job, and what to change: read off the queues between the stages. In front of the slowest stage items wait; behind
//! it stages wait for items.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::history::Sample;

/// Samples that are looked at, the last ones.
const LOOKED_AT: usize = 12;

/// Samples from which on something can be said.
const FEWEST: usize = 3;

/// What limits a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limit {
    /// The stage.
    pub stage: String,
    /// A sentence on why, and what to change.
    pub sentence: String,
}

/// What limits a job, if it shows.
#[must_use]
pub fn limit(samples: &[Sample]) -> Option<Limit> {
    let recent = &samples[samples.len().saturating_sub(LOOKED_AT)..];
    let moving = |sample: &&Sample| sample.stages.iter().any(|stage| stage.items_per_second > 0.0);
    let recent: Vec<&Sample> = recent.iter().filter(moving).collect();
    if recent.len() < FEWEST {
        return None;
    }
    let full = |stage: &str| {
        let shares = recent.iter().filter_map(|sample| {
            let stage = sample.stages.iter().find(|found| found.name == stage)?;
            (stage.queue_capacity > 0).then(|| stage.queue as f64 / stage.queue_capacity as f64)
        });
        shares.sum::<f64>() / recent.len() as f64
    };
    let held = recent.iter().map(|sample| sample.held_bytes as f64 / sample.budget_bytes.max(1) as f64);
    let held = held.sum::<f64>() / recent.len() as f64;
    // From the end of the data's way: what is full because those behind it are is not to blame.
    let (stage, sentence) = if full("write") > 0.5 {
        (
            "write",
            "Storing limits it: finished blocks wait. Raise `requests` and `writer-workers`, or take a lighter `compressor`.",
        )
    } else if full("merge") > 0.5 {
        ("merge", "Merging limits it: batches wait that the network is done with. Raise `threads`, or lower `overlap`.")
    } else if full("device") > 0.5 {
        (
            "device",
            "The network limits it: batches wait for a device. More devices, a larger `batch`, `kind` f16, `compile` or a smaller `overlap` \
             make it faster.",
        )
    } else if full("batch") > 0.5 {
        ("prepare", "Cutting patches limits it: what was read waits, and the devices do too. Raise `threads`.")
    } else if held > 0.9 {
        ("read", "Memory limits it: reading waits for blocks to be finished. Raise `memory`, or make `block` smaller.")
    } else {
        (
            "read",
            "Reading limits it: the stages behind wait for voxels. Raise `requests` and `prep-workers`, or bring the data nearer.",
        )
    };
    Some(Limit { stage: stage.into(), sentence: sentence.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::StageSample;

    fn samples(queues: [usize; 4], held_bytes: u64) -> Vec<Sample> {
        let names = ["batch", "device", "merge", "write"].iter().zip(queues);
        let stages = names.map(|(name, queue)| StageSample {
            name: (*name).into(),
            items_per_second: 1.0,
            working: 1.0,
            queue,
            queue_capacity: 4,
        });
        let stages: Vec<StageSample> = stages.collect();
        let sample =
            |seconds| Sample { seconds, stages: stages.clone(), held_bytes, budget_bytes: 100, devices: Vec::new() };
        (0..5).map(|second| sample(f64::from(second))).collect()
    }

    #[test]
    fn the_last_stage_with_a_full_queue_limits() {
        for (queues, held, stage, part) in [
            ([4, 4, 4, 4], 50, "write", "`writer-workers`"),
            ([4, 4, 4, 0], 50, "merge", "`threads`"),
            ([4, 4, 0, 0], 50, "device", "`batch`"),
            ([4, 0, 0, 0], 50, "prepare", "`threads`"),
            ([0, 0, 0, 0], 95, "read", "`memory`"),
            ([1, 0, 1, 0], 50, "read", "`requests`"),
        ] {
            let limit = limit(&samples(queues, held)).unwrap();
            assert!(limit.stage == stage && limit.sentence.contains(part), "{queues:?}: {limit:?}");
        }
    }

    #[test]
    fn nothing_is_said_too_early() {
        assert_eq!(limit(&samples([4; 4], 0)[..2]), None);
        let mut still = samples([4; 4], 0);
        still.iter_mut().flat_map(|sample| &mut sample.stages).for_each(|stage| stage.items_per_second = 0.0);
        assert_eq!(limit(&still), None);
    }
}
