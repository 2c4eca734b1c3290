//! Reads that are known beforehand give what other reads give, and fetch every chunk once if there is room.

use std::collections::HashSet;
use std::time::Duration;

use futures::stream::{StreamExt, TryStreamExt};
use haloflow_geometry::{Box3, Read, Zyx};
use haloflow_volume::{Environment, Leftovers, VolumeReader};
use proptest::prelude::*;

use crate::support::{assert_holds, cpu, described, make, options, request};

/// What later reads want of the chunks of `reads`.
fn leftovers(bytes: u64, reads: &[Read]) -> Leftovers {
    let reads = reads.to_vec();
    let wanted =
        move |cell: &Box3| reads.iter().filter(|read| !read.region.intersect(cell).is_empty()).copied().collect();
    Leftovers::new(bytes, wanted)
}

/// Reads all, `ahead` at one time, and checks the voxels.
async fn read_all(reader: &VolumeReader, reads: &[Read], leftovers: &Leftovers, ahead: usize, channels: &[usize]) {
    let turns: Vec<_> = reads.iter().map(|read| move || leftovers.begin(*read)).collect();
    let reading = futures::stream::iter(turns).map(|begin| {
        let (reader, turn) = (reader.clone(), begin());
        tokio::spawn(async move { reader.read_in_turn(&turn).await })
    });
    let bricks: Vec<_> = reading.buffered(ahead).try_collect().await.unwrap();
    bricks.into_iter().for_each(|brick| assert_holds(&brick.unwrap(), channels));
}

fn zyx(range: std::ops::Range<usize>) -> impl Strategy<Value = Zyx> {
    [range.clone(), range.clone(), range]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_chunk_is_decoded_once_if_there_is_room_and_what_is_read_is_right_if_there_is_none(
        shape in zyx(1..14),
        chunk in zyx(1..6),
        shards in prop::option::of(zyx(1..3)),
        corners in prop::collection::vec((zyx(0..14), zyx(0..14)), 1..9),
        names in prop::sample::select(vec!["zyx", "tczyx", "xyz", "czyx"]),
        room in prop::sample::select(vec![0, 100, 1000, 1 << 20]),
        ahead in 1..5_usize,
        requests in prop::sample::select(vec![1, 16, 40]),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let environment = Environment::empty();
            let mut request = request("memory://volume");
            request.chunk = Some(chunk);
            request.shard = shards.map(|count| std::array::from_fn(|axis| chunk[axis] * count[axis]));
            request.stack_channels = true;
            drop(make(request, &described(names, shape), 2, &environment).await.unwrap());
            let mut options = options("memory://volume");
            (options.c, options.requests) = (vec![1, 0], requests);
            let reader = VolumeReader::open(&options, &environment, &cpu()).await.unwrap().with_cache(0);
            let reads: Vec<Read> = corners.into_iter().zip(3..).map(|((one, other), order)| {
                let start: Zyx = std::array::from_fn(|axis| one[axis].min(other[axis]).min(shape[axis]));
                let stop: Zyx = std::array::from_fn(|axis| one[axis].max(other[axis]).min(shape[axis]));
                Read { order: order * order, region: Box3::new(start, stop) }
            }).collect();
            let leftovers = leftovers(room, &reads);
            let all = read_all(&reader, &reads, &leftovers, ahead, &[1, 0]);
            tokio::time::timeout(Duration::from_secs(60), all).await.expect("reads hang");
            assert!(leftovers.is_idle(), "nothing is kept for nobody");
            let cells: HashSet<Zyx> = reads.iter()
                .filter(|read| !read.region.is_empty())
                .flat_map(|read| read.region.cells(reader.unit()).indices().collect::<Vec<_>>())
                .collect();
            let decoded = reader.counters().chunks_decoded;
            assert!(decoded >= cells.len() as u64);
            if room == 1 << 20 {
                let per_cell = reader.chunks() / Box3::of_shape(shape).cells(reader.unit()).voxels() as u64;
                assert_eq!(decoded, per_cell * cells.len() as u64);
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thin_slabs_are_kept_and_not_the_chunks_that_they_come_from() {
    let environment = Environment::empty();
    make(request("memory://v"), &described("zyx", [4, 4, 64]), 1, &environment).await.unwrap();
    // Chunks of 4: the second read wants one plane of the first one's last chunk, and the first one plane of the second one's first.
    let reads = [(0, 0, 33), (1, 31, 64)]
        .map(|(order, start, stop)| Read { order, region: Box3::new([0, 0, start], [4, 4, stop]) });
    let reader = VolumeReader::open(&options("memory://v"), &environment, &cpu()).await.unwrap().with_cache(0);
    let voxel = reader.element().size() as u64;
    let leftovers = leftovers(1 << 20, &reads);
    let first = leftovers.begin(reads[0]);
    assert_holds(&reader.read_in_turn(&first).await.unwrap(), &[0]);
    let kept = leftovers.used();
    // One plane of the chunk before 32 and all of that behind it, and the books of two pieces.
    assert!((16 * (1 + 4) * voxel..16 * (1 + 4) * voxel + 1024).contains(&kept), "{kept}");
    let second = leftovers.begin(reads[1]);
    assert_eq!(leftovers.used(), kept, "they do not give way now, but count");
    let before = reader.counters().chunks_decoded;
    assert_holds(&reader.read_in_turn(&second).await.unwrap(), &[0]);
    assert_eq!((reader.counters().chunks_decoded - before, leftovers.used()), (7, 0));
    // A read that is tried again fetches for itself.
    assert_holds(&reader.read_in_turn(&second).await.unwrap(), &[0]);
    assert_eq!(reader.counters().chunks_decoded - before, 7 + 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_under_way_fetch_nothing_twice_even_if_nothing_is_kept_and_the_last_comes_first() {
    let environment = Environment::empty();
    make(request("memory://v"), &described("zyx", [4, 4, 64]), 1, &environment).await.unwrap();
    let reads = [0, 1, 2].map(|order| Read { order, region: Box3::new([0, 0, order as usize * 8], [4, 4, 64]) });
    let reader = VolumeReader::open(&options("memory://v"), &environment, &cpu()).await.unwrap().with_cache(0);
    let leftovers = leftovers(0, &reads);
    let turns = reads.map(|read| leftovers.begin(read));
    for turn in turns.iter().rev() {
        assert_holds(&reader.read_in_turn(turn).await.unwrap(), &[0]);
    }
    assert_eq!(reader.counters().chunks_decoded, 16);
    drop(turns);
    assert!(leftovers.is_idle());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_is_given_up_leaves_the_others_whole() {
    let environment = Environment::empty();
    make(request("memory://v"), &described("zyx", [4, 4, 64]), 1, &environment).await.unwrap();
    let reads = [0, 1, 2].map(|order| Read { order, region: Box3::new([0; 3], [4, 4, 64]) });
    let reader = VolumeReader::open(&options("memory://v"), &environment, &cpu()).await.unwrap().with_cache(0);
    let leftovers = leftovers(1 << 20, &reads);
    for polls in 0..40 {
        let [first, second, third] = reads.map(|read| leftovers.begin(read));
        let mut given_up = Box::pin(reader.read_in_turn(&first));
        let mut waiting = Box::pin(reader.read_in_turn(&second));
        for _ in 0..polls {
            let _ = (futures::poll!(&mut given_up), futures::poll!(&mut waiting));
            tokio::task::yield_now().await;
        }
        drop(given_up);
        drop(first);
        assert_holds(&tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it hangs").unwrap(), &[0]);
        assert_holds(&reader.read_in_turn(&third).await.unwrap(), &[0]);
        drop((second, third));
        // What was under way on the pool for the read that is gone may still be.
        while !leftovers.is_idle() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_that_are_absent_are_asked_for_once_and_broken_ones_fail_every_read_that_wants_them() {
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::empty();
    let metadata = serde_json::json!({"zarr_format": 2, "shape": [4, 4, 16], "chunks": [4, 4, 4], "dtype": "|u1", "compressor": null,
        "fill_value": 7, "filters": null, "order": "C"});
    std::fs::write(folder.path().join(".zarray"), metadata.to_string()).unwrap();
    std::fs::write(folder.path().join("0.0.1"), [9; 64]).unwrap();
    let source = folder.path().display().to_string();
    let reader = VolumeReader::open(&options(&source), &environment, &cpu()).await.unwrap().with_cache(0);
    let reads = [0, 1, 2].map(|order| Read { order, region: Box3::new([0, 0, 2], [4, 4, 14]) });
    let kept = leftovers(1 << 20, &reads);
    let turns = reads.map(|read| kept.begin(read));
    for turn in &turns {
        let brick = reader.read_in_turn(turn).await.unwrap();
        let expected = [7, 7, 9, 9, 9, 9, 7, 7, 7, 7, 7, 7];
        assert!(brick.channels[0].as_slice::<u8>().chunks(12).all(|row| row == expected));
    }
    assert_eq!((reader.counters().chunks_decoded, reader.counters().chunks_absent), (1, 3));
    std::fs::write(folder.path().join("0.0.2"), [9; 5]).unwrap();
    let kept = leftovers(1 << 20, &reads);
    let turns = reads.map(|read| kept.begin(read));
    let failed = futures::future::join_all(turns.iter().map(|turn| reader.read_in_turn(turn))).await;
    for read in failed {
        let error = read.unwrap_err();
        assert!(error.to_string().contains("0.0.2"), "{error}");
    }
    drop(turns);
    assert!(kept.is_idle());
}
