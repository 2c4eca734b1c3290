//! What was written is read back, in every form.

use haloflow_geometry::Box3;
use haloflow_volume::{Environment, VolumeReader, ZarrFormat};
use serde_json::{Value, json};

use crate::support::{assert_holds, cpu, described, make, open, options, request};

#[tokio::test]
async fn every_format_and_compressor_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let shape = [10, 9, 7];
    for place in [format!("{}/my vol+ 50% #1", folder.path().display()), "memory://my vol+".to_owned()] {
        let environment = Environment::empty();
        let mut number = 0;
        for format in [ZarrFormat::V2, ZarrFormat::V3] {
            for compressor in ["blosc", "blosc-lz4:5", "blosc-zlib", "zstd", "zstd:1", "gzip", "none"] {
                for shard in [None, Some([8, 4, 8])] {
                    if shard.is_some() && format == ZarrFormat::V2 {
                        continue;
                    }
                    number += 1;
                    let mut request = request(&format!("{place}/{number}.zarr"));
                    request.format = Some(format);
                    request.compressor = Some(compressor.to_owned());
                    (request.chunk, request.shard) = (Some([4, 2, 4]), shard);
                    let url = request.targets[0].clone();
                    let writer = make(request, &described("tczyx", shape), 1, &environment).await.unwrap();
                    let objects = if shard.is_some() { 2 * 3 } else { 3 * 5 * 2 };
                    assert_eq!(
                        writer.counters().objects_written,
                        objects + if format == ZarrFormat::V2 { 3 } else { 2 }
                    );
                    let reader = open(&url, &environment).await.unwrap();
                    assert_eq!((reader.shape(), reader.unit()), (shape, [4, 2, 4]));
                    assert_holds(&reader.read(Box3::of_shape(shape)).await.unwrap(), &[0]);
                    assert_eq!(reader.counters().chunks_absent, 0);
                }
            }
        }
    }
}

#[tokio::test]
async fn axes_units_and_positions_survive_for_every_rank() {
    let environment = Environment::empty();
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        for names in ["yx", "zyx", "czyx", "tczyx", "tyx", "zyxc"] {
            let shape = if names.contains('z') { [5, 6, 7] } else { [1, 6, 7] };
            let input = described(names, shape);
            let url = format!("memory://{names}-{format:?}");
            let mut request = request(&url);
            request.format = Some(format);
            make(request, &input, 1, &environment).await.unwrap();
            let reader = open(&url, &environment).await.unwrap();
            assert_eq!(reader.description().axes, input.axes);
            assert!(reader.description().is_group);
            assert_eq!(reader.shape(), shape);
            assert_holds(&reader.read(Box3::of_shape(shape)).await.unwrap(), &[0]);
        }
    }
}

#[tokio::test]
async fn channels_are_stacked_or_one_per_array() {
    let environment = Environment::empty();
    let shape = [5, 6, 7];
    for names in ["zyx", "tczyx"] {
        let mut stacked = request(&format!("memory://stacked-{names}"));
        stacked.stack_channels = true;
        let url = stacked.targets[0].clone();
        make(stacked, &described(names, shape), 3, &environment).await.unwrap();
        let mut options = options(&url);
        options.c = vec![2, 0, 2];
        let reader = VolumeReader::open(&options, &environment, &cpu()).await.unwrap();
        assert_holds(&reader.read(Box3::new([1, 2, 3], [5, 5, 6])).await.unwrap(), &[2, 0, 2]);
    }
    let mut several = request("memory://one");
    several.targets.push("memory://two".to_owned());
    make(several, &described("zyx", shape), 2, &environment).await.unwrap();
    let reader = open("memory://two", &environment).await.unwrap();
    assert_holds(&reader.read(Box3::of_shape(shape)).await.unwrap(), &[1]);
}

#[tokio::test]
async fn a_spec_makes_a_bare_array_and_keeps_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::empty();
    let path = folder.path().join("bare");
    let spec = json!({"driver": "zarr", "kvstore": {"driver": "file", "path": path}, "create": true, "delete_existing": true,
        "metadata": {"shape": [2, 3, 5, 6, 7], "chunks": [1, 1, 4, 4, 4], "dtype": ">u2", "order": "F",
            "compressor": {"id": "zlib", "level": 1}, "dimension_separator": "/", "fill_value": 9}});
    let mut request = request(&spec.to_string());
    (request.input_t, request.c) = (1, Some(2));
    make(request, &described("tczyx", [5, 6, 7]), 1, &environment).await.unwrap();
    assert!(path.join("1/2/0/0/0").is_file() && !path.join("0").exists());
    let attributes: Value = serde_json::from_slice(&std::fs::read(path.join(".zattrs")).unwrap()).unwrap();
    assert_eq!(attributes["haloflow"]["made_by"], "a test");
    let mut options = options(path.to_str().unwrap());
    (options.t, options.c) = (1, vec![2, 1]);
    let reader = VolumeReader::open(&options, &environment, &cpu()).await.unwrap();
    let brick = reader.read(Box3::of_shape([5, 6, 7])).await.unwrap();
    assert!(brick.channels[1].as_slice::<u16>().iter().all(|value| *value == 9));
    assert_holds(&haloflow_volume::Brick { channels: vec![brick.channels[0].clone()], ..brick }, &[0]);
    let spec = json!({"driver": "zarr2", "kvstore": format!("file://{}", folder.path().display()), "path": "bare"});
    open(&spec.to_string(), &environment).await.unwrap();
}
