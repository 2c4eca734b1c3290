//! Any region of any volume is what the volume holds there.

use haloflow_geometry::{Box3, Zyx};
use haloflow_volume::Environment;
use proptest::prelude::*;

use crate::support::{assert_holds, cpu, described, make, options, request};

fn zyx(range: std::ops::Range<usize>) -> impl Strategy<Value = Zyx> {
    [range.clone(), range.clone(), range]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn regions_are_gathered_right(
        shape in zyx(1..14),
        chunk in zyx(1..6),
        shards in prop::option::of(zyx(1..3)),
        corners in prop::collection::vec((zyx(0..14), zyx(0..14)), 3),
        names in prop::sample::select(vec!["zyx", "tczyx", "xyz", "czyx"]),
        cache_bytes in prop::sample::select(vec![0, 1000, 1 << 20]),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let environment = Environment::empty();
            let mut request = request("memory://volume");
            request.chunk = Some(chunk);
            request.shard = shards.map(|count| std::array::from_fn(|axis| chunk[axis] * count[axis]));
            request.stack_channels = true;
            let input = described(names, shape);
            let writer = make(request, &input, 2, &environment).await.unwrap();
            drop(writer);
            let mut options = options("memory://volume");
            options.c = vec![1, 0];
            options.cache_bytes = cache_bytes;
            let reader = haloflow_volume::VolumeReader::open(&options, &environment, &cpu()).await.unwrap();
            for (one, other) in corners {
                let start: Zyx = std::array::from_fn(|axis| one[axis].min(other[axis]).min(shape[axis]));
                let stop: Zyx = std::array::from_fn(|axis| one[axis].max(other[axis]).min(shape[axis]));
                assert_holds(&reader.read(Box3::new(start, stop)).await.unwrap(), &[1, 0]);
            }
        });
    }
}
