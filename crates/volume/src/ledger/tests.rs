use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions,
};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::Environment;
use crate::store::Store;

/// What a store does wrong with the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mischief {
    /// The put is made, and its acknowledgement is lost.
    LosesAcknowledgement,
    /// The put is not made.
    Refuses,
    /// Half of the object is stored, as by a disk that lost power.
    Tears,
}

/// A store that plays tricks, each once: on the next put, and on every listing while it is stale.
#[derive(Debug, Default)]
struct Trickster {
    inner: InMemory,
    next: Mutex<Option<Mischief>>,
    /// What listings tell, if they are stale.
    stale: Mutex<Option<Vec<ObjectMeta>>>,
}

impl std::fmt::Display for Trickster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("trickster")
    }
}

fn told() -> object_store::Error {
    object_store::Error::Generic { store: "trickster", source: "told so".into() }
}

#[async_trait::async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for Trickster {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> object_store::Result<PutResult> {
        let mischief = self.next.lock().unwrap().take();
        match mischief {
            None => self.inner.put_opts(at, payload, options).await,
            Some(Mischief::LosesAcknowledgement) => {
                self.inner.put_opts(at, payload, options).await.and_then(|_| Err(told()))
            }
            Some(Mischief::Refuses) => Err(told()),
            Some(Mischief::Tears) => {
                let bytes = Bytes::from(payload);
                let half = PutPayload::from_bytes(bytes.slice(..bytes.len() / 2));
                self.inner.put_opts(at, half, options).await.and_then(|_| Err(told()))
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.inner.get_opts(at, options).await
    }

    async fn get_ranges(&self, at: &Path, ranges: &[std::ops::Range<u64>]) -> object_store::Result<Vec<Bytes>> {
        self.inner.get_ranges(at, ranges).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        match &*self.stale.lock().unwrap() {
            Some(old) => stream::iter(old.clone().into_iter().map(Ok)).boxed(),
            None => self.inner.list(prefix),
        }
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> object_store::Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

async fn ledger() -> (Arc<Trickster>, Ledger) {
    let store = Arc::<Trickster>::default();
    let mut folder = crate::address::locate("memory://out/.haloflow", &Environment::empty()).await.unwrap();
    folder.store = Store::local(Arc::<Trickster>::clone(&store));
    (store, Ledger::new(folder))
}

/// One move in the life of three processes that write to one ledger.
#[derive(Clone, Debug)]
enum Move {
    /// A process has stored a tile.
    Add(usize, u32),
    Flush(usize, Option<Mischief>),
    /// A process dies, and another takes its place.
    Dies(usize),
    /// Listings stay as they are now, or are right again.
    Stale(bool),
    Load,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    use Mischief::{LosesAcknowledgement, Refuses, Tears};
    let mischief = prop_oneof![
        3 => Just(None),
        1 => prop::sample::select(vec![LosesAcknowledgement, Refuses, Tears]).prop_map(Some)
    ];
    let one = prop_oneof![
        6 => (0..3_usize, 0..40_u32).prop_map(|(who, tile)| Move::Add(who, tile)),
        4 => (0..3_usize, mischief).prop_map(|(who, mischief)| Move::Flush(who, mischief)),
        1 => (0..3_usize).prop_map(Move::Dies),
        1 => any::<bool>().prop_map(Move::Stale),
        2 => Just(Move::Load),
    ];
    prop::collection::vec(one, 0..120)
}

/// What may and what must be in the ledger.
#[derive(Default)]
struct Model {
    /// Tiles that were added, by anybody.
    added: BTreeSet<u32>,
    /// Tiles that a flush has told to be stored, of each process's own segment as it was last.
    kept: BTreeSet<u32>,
    /// Tiles of processes that live, and of those that died, whose last put was torn: what was kept may be lost with it.
    doubtful: BTreeSet<u32>,
}

impl Model {
    fn assert_loaded(&self, contents: &Contents, stale: bool) {
        let found: BTreeSet<u32> = contents.records.iter().map(|record| record.tile).collect();
        assert!(found.is_subset(&self.added), "a tile that nobody stored is never in the ledger");
        assert!(
            contents.records.iter().all(|record| *record == of_tile(record.tile)),
            "records are as they were added"
        );
        let window = contents.windows.first().copied().unwrap_or(Window::EMPTY);
        let held = |tile: &u32| (window.least..=window.greatest).contains(&f64::from(*tile));
        assert!(found.iter().all(held), "the window holds what the ledger has");
        let ends = [window.least, window.greatest].map(|end| self.added.contains(&(end as u32)));
        assert!(window == Window::EMPTY || ends == [true; 2], "and nothing that nobody stored");
        let must: BTreeSet<u32> = self.kept.difference(&self.doubtful).copied().collect();
        assert!(stale || found.is_superset(&must), "a tile that was told to be stored is in the ledger");
    }
}

fn of_tile(tile: u32) -> Record {
    Record { tile, checksum: tile.wrapping_mul(0x9E37_79B9), bytes: u64::from(tile) << 33 }
}

async fn play(moves: &[Move]) {
    let (store, ledger) = ledger().await;
    let mut writers: Vec<LedgerWriter> = (0..3).map(|_| ledger.writer()).collect();
    let mut own: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); 3];
    let mut model = Model::default();
    for step in moves {
        match *step {
            Move::Add(who, tile) => {
                writers[who].add(of_tile(tile), &[Window::of(tile.into())]);
                own[who].insert(tile);
                model.added.insert(tile);
            }
            Move::Flush(who, mischief) => {
                *store.next.lock().unwrap() = mischief.filter(|_| writers[who].waiting() > 0);
                let torn = store.next.lock().unwrap().is_some_and(|mischief| mischief == Mischief::Tears);
                match writers[who].flush().await {
                    Ok(()) => {
                        // The whole segment is there again, whatever happened to it before.
                        model.doubtful = model.doubtful.difference(&own[who]).copied().collect();
                        model.kept.extend(&own[who]);
                    }
                    Err(_) if torn => model.doubtful.extend(&own[who]),
                    Err(_) => {}
                }
            }
            Move::Dies(who) => {
                writers[who] = ledger.writer();
                own[who].clear();
            }
            Move::Stale(stale) => {
                let now = store.inner.list(None).try_collect().await.unwrap();
                *store.stale.lock().unwrap() = stale.then_some(now);
            }
            Move::Load => {
                let stale = store.stale.lock().unwrap().is_some();
                model.assert_loaded(&ledger.load().await.unwrap(), stale);
            }
        }
    }
    *store.stale.lock().unwrap() = None;
    for (writer, own) in writers.iter_mut().zip(&own) {
        writer.flush().await.unwrap();
        model.kept.extend(own);
        model.doubtful = model.doubtful.difference(own).copied().collect();
    }
    model.assert_loaded(&ledger.load().await.unwrap(), false);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_ledger_tells_what_is_stored_and_never_more(moves in moves()) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(play(&moves));
    }
}

#[tokio::test]
async fn one_creates_the_head_and_the_others_find_it() {
    let (store, ledger) = ledger().await;
    assert_eq!(ledger.head().await.unwrap(), None);
    let heads: Vec<Value> = (0..8).map(|who| json!({"who": who})).collect();
    let created = futures::future::join_all(heads.iter().map(|head| ledger.create(head))).await;
    let winners: Vec<usize> = (0..8).filter(|&who| *created[who].as_ref().unwrap()).collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(ledger.head().await.unwrap().as_ref(), Some(&heads[winners[0]]));
    assert!(!ledger.is_complete().await.unwrap());
    *store.next.lock().unwrap() = Some(Mischief::LosesAcknowledgement);
    ledger.complete(&json!({})).await.unwrap_err();
    ledger.complete(&json!({})).await.unwrap();
    assert!(ledger.is_complete().await.unwrap());
    store.inner.put_opts(&Path::from("out/.haloflow/run.json"), "{".into(), PutOptions::default()).await.unwrap();
    let error = ledger.head().await.unwrap_err();
    assert!(error.message.contains("out/.haloflow/run.json is damaged"), "{error}");
}

#[tokio::test]
async fn a_process_puts_few_objects() {
    let (store, ledger) = ledger().await;
    let mut writer = ledger.writer();
    let tiles = 2 * SEGMENT_RECORDS + 3;
    for tile in 0..tiles {
        writer.add(of_tile(tile as u32), &[Window::of(tile as f64)]);
        if tile % 10_007 == 0 {
            writer.flush().await.unwrap();
        }
    }
    writer.flush().await.unwrap();
    let objects: Vec<ObjectMeta> = store.inner.list(None).try_collect().await.unwrap();
    assert_eq!(objects.len(), 3);
    assert!(objects.iter().all(|object| object.size <= 36 + 16 * SEGMENT_RECORDS as u64));
    assert_eq!(ledger.load().await.unwrap().records.len(), tiles);
}

#[tokio::test]
async fn ten_million_tiles_are_loaded_in_seconds() {
    let (_, ledger) = ledger().await;
    let mut writer = ledger.writer();
    (0..10_000_000).for_each(|tile| writer.add(of_tile(tile), &[]));
    writer.flush().await.unwrap();
    let began = Instant::now();
    let contents = ledger.load().await.unwrap();
    let took = began.elapsed();
    println!("ten million records in {} segments were loaded in {took:?}", 10_000_000_usize.div_ceil(SEGMENT_RECORDS));
    assert_eq!((contents.records.len(), contents.damaged.len()), (10_000_000, 0));
    assert!(took < Duration::from_secs(20), "{took:?}");
}
