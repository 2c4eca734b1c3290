//! Runs over parts of a volume: what a part holds is what the whole run gives there, and nothing else is written.

use haloflow_geometry::{Box3, Selection, Zyx, number};
use haloflow_pipeline::Part;
use haloflow_volume::{AlignedBytes, Element, Environment};
use proptest::prelude::*;

use crate::memory::least_memory;
use crate::models::edge;
use crate::shapes::{FREE, Shape, cases, shape};
use crate::support::{Volume, block_on, complete, devices, load, result, spec, store};

/// The volume with every voxel outside the selected tiles at 0, as it is where nothing was written.
fn kept(volume: &Volume, tile: Zyx, selection: &Selection) -> Volume {
    let voxels = Box3::of_shape(volume.shape).indices().zip(volume.f32(0));
    let kept = voxels.map(|(at, &value)| {
        let chosen = selection.contains(std::array::from_fn(|axis| at[axis] / tile[axis]));
        if chosen { value } else { 0.0 }
    });
    Volume::new(volume.shape, Element::F32, AlignedBytes::from_slice(&kept.collect::<Vec<_>>()))
}

/// One tile in `few` of all; none if `few` is 0.
fn drawn(tiles: Zyx, few: u64, seed: u64) -> Selection {
    let number = |tile| (seed ^ number(tiles, tile) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    Selection::new(tiles, |tile| number(tile).checked_rem(few) == Some(0))
}

fn part_of_a_run(shape: &Shape, few: u64, seed: u64, least: bool) {
    let mut settings = shape.settings();
    let volume = shape.volume(Element::F32);
    let spec = spec(&settings, 1);
    let fakes = || devices(shape.devices(), |device| edge(device, spec.clone()));
    let whole = block_on(result(&settings, &volume, shape.chunk, fakes()));
    block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &volume, shape.chunk).await;
        let tile = complete(&settings, &environment, fakes()).await.work.block;
        let tiles = std::array::from_fn(|axis| shape.volume[axis].div_ceil(tile[axis]));
        let selection = drawn(tiles, few, seed);
        settings.part = Part::Tiles(selection.clone());
        if least {
            settings.resources.memory = least_memory(&settings, &volume, shape.chunk, fakes).await;
        }
        settings.output.overwrite = true;
        let report = complete(&settings, &environment, fakes()).await;
        assert_eq!(report.work.blocks, selection.len() as u64);
        assert!(load(&environment, "memory://out", 1).await == kept(&whole, tile, &selection), "{settings:?}");
    });
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn any_part_has_the_bytes_of_the_whole_run(shape in shape(FREE), few in 0..5_u64, seed in any::<u64>()) {
        part_of_a_run(&shape, few, seed, false);
    }

    #[test]
    fn the_least_memory_is_enough_for_any_part(shape in shape(FREE), few in 1..5_u64, seed in any::<u64>()) {
        part_of_a_run(&shape, few, seed, true);
    }
}
