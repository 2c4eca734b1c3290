//! Pyramids: every level is what its method makes of the one before, lies where it should, and has been written once.

use haloflow_engine::fake::Fake;
use haloflow_geometry::{Box3, Zyx};
use haloflow_pipeline::pyramid::{Downsampling, Pyramid};
use haloflow_volume::{AlignedBytes, CpuPool, Element, Environment, InputDescription, Levels, VolumeReader};
use proptest::prelude::*;

use crate::shapes::cases;
use crate::support::{Volume, block_on, complete, devices, input_options, layout, plain, settings, spec, store, trim};

/// What is stored on a level of the result.
async fn level(environment: &Environment, level: usize) -> (Zyx, Vec<f64>, InputDescription) {
    let mut options = input_options();
    (options.source, options.level) = ("memory://out".into(), level);
    let reader =
        VolumeReader::open(&options, environment, &CpuPool::new(1.try_into().unwrap()).unwrap()).await.unwrap();
    let brick = reader.read(Box3::of_shape(reader.shape())).await.unwrap();
    let voxels = match reader.element() {
        Element::U16 => brick.channels[0].as_slice::<u16>().iter().map(|&value| value.into()).collect(),
        _ => brick.channels[0].as_slice::<f32>().iter().map(|&value| value.into()).collect(),
    };
    (reader.shape(), voxels, reader.description().clone())
}

/// The level after one of `shape`, by the words of the documentation.
fn after(shape: Zyx, voxels: &[f64], steps: Zyx, method: Downsampling, whole_numbers: bool) -> Vec<f64> {
    let coarse: Zyx = std::array::from_fn(|axis| shape[axis].div_ceil(steps[axis]));
    let made = Box3::of_shape(coarse).indices().map(|at| {
        let stop = std::array::from_fn(|axis| ((at[axis] + 1) * steps[axis]).min(shape[axis]));
        let covered = Box3::new(std::array::from_fn(|axis| at[axis] * steps[axis]), stop).indices();
        let mut values: Vec<f64> = covered.map(|[z, y, x]| voxels[(z * shape[1] + y) * shape[2] + x]).collect();
        values.sort_by(f64::total_cmp);
        let votes = |value: f64| values.iter().filter(|other| **other == value).count();
        match method {
            Downsampling::Max => values[values.len() - 1],
            Downsampling::Mode => values.iter().copied().max_by_key(|&value| votes(value)).unwrap(),
            Downsampling::Mean => {
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                if whole_numbers { mean.round_ties_even() } else { f64::from(mean as f32) }
            }
        }
    });
    made.collect()
}

fn volume(shape: Zyx, element: Element) -> Volume {
    let value = |i: usize| (i.wrapping_mul(2_654_435_761) >> 7) % 9;
    let count = shape.iter().product::<usize>();
    let voxels = match element {
        Element::U16 => AlignedBytes::from_slice(&(0..count).map(|i| value(i) as u16).collect::<Vec<_>>()),
        _ => AlignedBytes::from_slice(&(0..count).map(|i| value(i) as f32 / 3.0).collect::<Vec<_>>()),
    };
    Volume::new(shape, element, voxels)
}

async fn check(shape: Zyx, element: Element, method: Downsampling, sharded: bool) {
    let environment = Environment::empty();
    store(&environment, "memory://in", &volume(shape, element), [8; 3]).await;
    let mut settings = settings(layout([12; 3], [4; 3], trim(2)), plain(), 3);
    settings.layout.block = Some([16, 16, 32]);
    settings.output.chunk = Some([4, 4, 8]);
    settings.output.shard = sharded.then_some([8, 8, 8]);
    settings.pyramid = Pyramid { levels: Levels::Count(4), method };
    let spec = spec(&settings, 1);
    let report = complete(&settings, &environment, devices(2, |device| Fake::identity(device, spec.clone()))).await;
    assert_eq!(report.output.levels, 4);
    let (mut shape, mut voxels, finest) = level(&environment, 0).await;
    let window = finest.omero.as_ref().unwrap()["channels"][0]["window"].clone();
    let ends = [f64::min, f64::max].map(|end| voxels.iter().copied().reduce(end).unwrap());
    assert_eq!([&window["start"], &window["end"]].map(|end| end.as_f64().unwrap()), ends);
    let mut objects = 0;
    for number in 1..4 {
        let (coarse, stored, description) = level(&environment, number).await;
        let steps = std::array::from_fn(|axis| if shape[axis] > 1 { 2 } else { 1 });
        assert_eq!(stored, after(shape, &voxels, steps, method, element == Element::U16), "{shape:?} level {number}");
        for (axis, finest) in description.axes.iter().zip(&finest.axes).skip(2) {
            // The first voxel covers as many of the finest as its scale says, and lies in their middle.
            assert_eq!(axis.translation, finest.scale * (axis.scale / finest.scale - 1.0) / 2.0);
            assert!(axis.size == 1 || axis.scale == f64::from(1 << number), "{axis:?}");
        }
        let unit = description.shard.unwrap_or(description.chunk);
        objects += coarse.iter().zip(&unit[2..]).map(|(size, unit)| size.div_ceil(*unit)).product::<usize>();
        (shape, voxels) = (coarse, stored);
    }
    let finest_unit = finest.shard.unwrap_or(finest.chunk);
    objects +=
        report.input.shape.iter().zip(&finest_unit[2..]).map(|(size, unit)| size.div_ceil(*unit)).product::<usize>();
    // Besides: four arrays' metadata, and the group's, which gets the window at the end.
    assert_eq!(report.storage_written.objects_written, objects as u64 + 6, "every object is put once");
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn every_level_follows_from_the_one_before(
        shape in [2..40_usize, 9..50_usize, 17..70_usize],
        element in prop::sample::select(vec![Element::U16, Element::F32]),
        method in prop::sample::select(vec![Downsampling::Mean, Downsampling::Mode, Downsampling::Max]),
        sharded in any::<bool>(),
    ) {
        block_on(check(shape, element, method, sharded));
    }
}

#[test]
fn a_pyramid_whose_tiles_would_share_voxels_is_refused_before_anything_is_made() {
    block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &volume([40; 3], Element::U16), [8; 3]).await;
        let mut settings = settings(layout([12; 3], [4; 3], trim(2)), plain(), 3);
        settings.layout.block = Some([16, 16, 24]);
        settings.output.chunk = Some([8; 3]);
        settings.pyramid.levels = Levels::Count(5);
        let spec = spec(&settings, 1);
        let factories = devices(1, |device| Fake::identity(device, spec.clone()));
        let (_, ended) = crate::support::execute(&settings, &environment, factories).await;
        let told = ended.unwrap_err().message;
        assert!(told.contains("24 voxels along x") && told.contains("factor 16"), "{told}");
        let mut options = input_options();
        options.source = "memory://out".into();
        let cpu = CpuPool::new(1.try_into().unwrap()).unwrap();
        assert!(VolumeReader::open(&options, &environment, &cpu).await.is_err());
    });
}
