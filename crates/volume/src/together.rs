//! Inner chunks that lie side by side in a shard are fetched in one request.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::future::{join_all, try_join_all};
use tokio::sync::oneshot;

use crate::VolumeError;
use crate::fetch::{Permit, Permitted, UnitSource};
use crate::span::{Span, hull, runs};

/// One request fetches at most so many bytes of decoded chunks, unless one chunk is larger: longer ones gain nothing.
const LONGEST: usize = 8 << 20;

/// At least so many requests may be under way at one time, however many chunks each fetches.
const FEWEST_AT_A_TIME: usize = 8;

/// The index of a unit, and whom to give the unit to.
pub(crate) type Wanted = (Vec<u64>, oneshot::Sender<Result<Permitted, VolumeError>>);

impl UnitSource {
    /// How many inner chunks one request may fetch.
    pub(crate) fn most_together(&self) -> usize {
        let by_size = LONGEST / self.layout.unit_codec().decoded_size().max(1);
        by_size.min(self.requests() / FEWEST_AT_A_TIME).max(1)
    }

    /// Sorts units into groups that are worth one request each, with whatever is known of each unit. Chunks that are no part of a shard
    /// stay alone.
    ///
    /// Whoever holds permits must not wait for this: it takes one to fetch the index of a shard.
    ///
    /// # Errors
    /// As [`unit`](Self::unit), if the index of a shard cannot be read.
    pub(crate) async fn groups<T>(&self, units: Vec<(Vec<u64>, T)>) -> Result<Vec<Vec<(Vec<u64>, T)>>, VolumeError> {
        let (Some(shards), 2..) = (&self.layout.shards, self.most_together()) else {
            return Ok(units.into_iter().map(|unit| vec![unit]).collect());
        };
        let mut by_shard: BTreeMap<Vec<u64>, Vec<(Vec<u64>, T)>> = BTreeMap::new();
        for unit in units {
            by_shard.entry(shards.home(&unit.0).0).or_default().push(unit);
        }
        let cut = by_shard.into_values().map(async |units| {
            let permit = self.permit(1).await?;
            let spans = self.spans(units.iter().map(|(index, _)| index)).await?;
            drop(permit);
            let mut units: Vec<Option<(Vec<u64>, T)>> = units.into_iter().map(Some).collect();
            let mut group = |run: Vec<usize>| run.into_iter().filter_map(|place| units[place].take()).collect();
            Ok(runs(&spans, self.most_together()).into_iter().map(&mut group).collect::<Vec<Vec<_>>>())
        });
        Ok(try_join_all(cut).await?.into_iter().flatten().collect())
    }

    /// Fetches and decodes inner chunks of one shard and gives each to whom it is for, with a permit that all of them share: it stands for
    /// the memory of all, since their encoded bytes come and go together. All that the permit is for is taken at once, and nothing
    /// else is waited for after that, so groups cannot wait for each other in a circle. They must be no more than
    /// [`most_together`](Self::most_together).
    ///
    /// Cancellation: safe; units that were not given are dropped.
    pub(crate) async fn units(&self, wanted: Vec<Wanted>) {
        let Ok(permit) = self.permit(wanted.len()).await else { return };
        let spans = self.spans(wanted.iter().map(|(index, _)| index)).await;
        let spans = spans.unwrap_or_else(|_| vec![None; wanted.len()]);
        let mut wanted: Vec<Option<Wanted>> = wanted.into_iter().map(Some).collect();
        let fetched = runs(&spans, wanted.len()).into_iter().map(|run| {
            let run = run.into_iter().filter_map(|place| Some((wanted[place].take()?, spans[place]))).collect();
            self.run(run, &permit)
        });
        join_all(fetched.collect::<Vec<_>>()).await;
    }

    /// Fetches what lies side by side. What a single request does not bring whole is asked for alone, which also finds out what is
    /// wrong with it.
    async fn run(&self, run: Vec<(Wanted, Option<Span>)>, permit: &Permit) {
        let range = hull(run.iter().filter_map(|(_, span)| *span)).filter(|_| run.len() > 1);
        let bytes = match (range.clone(), run.first()) {
            (Some(range), Some(((index, _), _))) => self.range(index, range).await,
            _ => Ok(None),
        };
        let start = range.map_or(0, |range| range.start);
        let settled = run.into_iter().map(|((index, whom), span)| {
            let bytes = bytes.clone();
            async move {
                let unit = match bytes {
                    Ok(bytes) => {
                        let encoded = bytes.zip(span).and_then(|(bytes, span)| part(&bytes, start, span));
                        self.unit_of(&index, encoded, Permit::clone(permit)).await
                    }
                    Err(error) => Err(error),
                };
                // Nobody may want it any more.
                drop(whom.send(unit));
            }
        });
        join_all(settled).await;
    }

    /// Bytes of the shard that a unit is in.
    async fn range(&self, index: &[u64], range: std::ops::Range<u64>) -> Result<Option<Bytes>, VolumeError> {
        let Some(shards) = &self.layout.shards else { return Ok(None) };
        self.location().get_range(&self.layout.key(&shards.home(index).0), range).await
    }

    /// Where the inner chunks of one shard lie in it, as its index has it; `None` for those that are not there.
    async fn spans(&self, units: impl Iterator<Item = &Vec<u64>>) -> Result<Vec<Option<Span>>, VolumeError> {
        let Some(shards) = &self.layout.shards else { return Ok(units.map(|_| None).collect()) };
        let homes: Vec<_> = units.map(|unit| shards.home(unit)).collect();
        let Some((shard, _)) = homes.first() else { return Ok(Vec::new()) };
        let entries = self.index(shards, shard).await?;
        let entry = |place: &usize| entries.as_ref().and_then(|entries| entries.get(*place).copied().flatten());
        Ok(homes.iter().map(|(_, place)| entry(place)).collect())
    }
}

/// The bytes of a span, out of those that begin at `start`; `None` if not all of it is there, or nothing is to be there.
fn part(bytes: &Bytes, start: u64, (offset, length): Span) -> Option<Bytes> {
    let first = usize::try_from(offset.checked_sub(start)?).ok()?;
    let end = first.checked_add(usize::try_from(length).ok()?)?;
    (length > 0 && end <= bytes.len()).then(|| bytes.slice(first..end))
}
