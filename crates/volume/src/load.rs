//! Loading groups of units, each unit once for all reads that need it at one time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures::future::{join, join_all};
use tokio::sync::oneshot;

use crate::leftovers::Turn;
use crate::reader::{Arrived, Needed};
use crate::{VolumeError, VolumeReader};

impl VolumeReader {
    /// Loads what the cache lacks of a group, in one request if the group lies side by side. The second list are the units that another
    /// read is loading at the moment: they are not waited for, since this group may come with a permit that others need.
    pub(crate) async fn load(
        &self,
        group: Vec<Needed>,
        turn: Option<&Turn>,
    ) -> Result<(Vec<Arrived>, Vec<Needed>), VolumeError> {
        if let [needed] = &group[..] {
            let held = self.kept(needed, turn).await?;
            return Ok((vec![(needed.clone(), held)], Vec::new()));
        }
        let (mut arrived, mut elsewhere) = (Vec::new(), Vec::new());
        let (mut wanted, mut loads) = (Vec::new(), Vec::new());
        for needed in group {
            let (whom, answer) = oneshot::channel();
            let ours = Arc::new(AtomicBool::new(false));
            let mut load = Box::pin(self.claimed(needed.clone(), turn, Arc::clone(&ours), answer));
            // Asked once, the cache has the unit, or has this task load it, or has it wait for another that does.
            match futures::poll!(&mut load) {
                Poll::Ready(held) => arrived.push((needed, held?)),
                Poll::Pending if ours.load(Ordering::Acquire) => {
                    wanted.push((needed.0.clone(), whom));
                    loads.push(async move { load.await.map(|held| (needed, held)) });
                }
                Poll::Pending => elsewhere.push(needed),
            }
        }
        if !wanted.is_empty() {
            let ((), loaded) = join(self.source().units(wanted), join_all(loads)).await;
            for unit in loaded {
                arrived.push(unit?);
            }
        }
        Ok((arrived, elsewhere))
    }

    /// The unit at an index, from the cache or as the `answer` to a request that others share; `ours` tells that it is waited for. If
    /// there will be no answer, since the read that has asked was cancelled, the unit is fetched alone.
    async fn claimed(
        &self,
        needed: Needed,
        turn: Option<&Turn>,
        ours: Arc<AtomicBool>,
        answer: oneshot::Receiver<Result<crate::fetch::Permitted, VolumeError>>,
    ) -> Result<crate::reader::Held, VolumeError> {
        let load = async {
            ours.store(true, Ordering::Release);
            match answer.await {
                Ok(unit) => unit,
                Err(_) => self.source().unit(&needed.0).await,
            }
        };
        self.kept_or(&needed, turn, load).await
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use haloflow_geometry::Box3;
    use serde_json::json;

    use super::*;
    use crate::gather::Placement;
    use crate::{CpuPool, Environment, InputOptions};

    /// A volume of 32 inner chunks of one byte, in one shard: two of them may come together.
    async fn reader(cpu: &CpuPool) -> VolumeReader {
        let environment = Environment::empty();
        let location = crate::address::locate("memory://v", &environment).await.unwrap();
        let bytes = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
        let metadata = json!({"zarr_format": 3, "node_type": "array", "shape": [4, 8], "data_type": "uint8", "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 8]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 1], "index_location": "end",
                "codecs": bytes, "index_codecs": bytes}}]});
        location.put("zarr.json", metadata.to_string().into()).await.unwrap();
        let index = (0..32_u64).flat_map(|place| [place, 1]).flat_map(u64::to_le_bytes);
        let shard: Vec<u8> = (0..32).chain(index).collect();
        location.put("c/0/0", shard.into()).await.unwrap();
        let options = InputOptions {
            source: "memory://v".to_owned(),
            level: 0,
            level_given: false,
            t: 0,
            c: vec![0],
            cache_bytes: 1 << 20,
            requests: 16,
        };
        VolumeReader::open(&options, &environment, cpu).await.unwrap()
    }

    fn needed(x: usize) -> Needed {
        let covers = Box3::new([0, 0, x], [1, 1, x + 1]);
        (vec![0, x as u64], Placement { covers, planes: vec![(0, 0)] })
    }

    #[tokio::test]
    async fn a_group_holds_its_permits_until_all_of_it_is_copied() {
        let reader = reader(&CpuPool::new(NonZeroUsize::MIN).unwrap()).await;
        assert_eq!(reader.source().most_together(), 2);
        let free = || reader.source().permits.available_permits();
        let (mut arrived, elsewhere) = reader.load(vec![needed(0), needed(1)], None).await.unwrap();
        assert_eq!((arrived.len(), elsewhere.len(), free()), (2, 0, 14));
        arrived.pop();
        assert_eq!(free(), 14);
        drop(arrived);
        assert_eq!(free(), 16);
        let (again, _) = reader.load(vec![needed(0), needed(1)], None).await.unwrap();
        assert_eq!((again.len(), free()), (2, 16));
    }

    #[tokio::test]
    async fn what_another_read_is_loading_is_left_to_it_even_if_that_is_cancelled() {
        let cpu = CpuPool::new(NonZeroUsize::MIN).unwrap();
        let reader = reader(&cpu).await;
        // The index is known, so that only the chunks are waited for.
        reader.read(Box3::new([0, 3, 7], [1, 4, 8])).await.unwrap();
        let (before, decoded) = (reader.counters().requests, reader.counters().chunks_decoded);
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let busy = tokio::spawn(async move { cpu.run(move || gate.recv()).await });
        let mut first = Box::pin(reader.load(vec![needed(0), needed(1)], None));
        while reader.counters().requests == before {
            assert!(futures::poll!(&mut first).is_pending());
            tokio::task::yield_now().await;
        }
        let mut second = Box::pin(reader.load(vec![needed(1), needed(2)], None));
        assert!(futures::poll!(&mut second).is_pending());
        let zero = needed(0);
        let mut third = Box::pin(reader.kept(&zero, None));
        assert!(futures::poll!(&mut third).is_pending());
        drop(first);
        release.send(()).unwrap();
        busy.await.unwrap().unwrap().unwrap();
        let (arrived, elsewhere) = second.await.unwrap();
        assert_eq!((arrived[0].0.0[1], elsewhere[0].0[1]), (2, 1));
        assert_eq!((arrived.len(), elsewhere.len()), (1, 1));
        drop(arrived);
        assert!(third.await.is_ok(), "whoever waited loads it now");
        assert!(reader.counters().chunks_decoded > decoded);
        assert_eq!(reader.source().permits.available_permits(), 16);
    }
}
