//! The laws of the numerics: they hold for any shape, also smaller than a patch, also 1 along an axis.

use haloflow_engine::fake::Fake;
use haloflow_geometry::Seam;
use haloflow_pipeline::cut::Padding;
use haloflow_pipeline::{LatticeChoice, RunSettings};
use haloflow_volume::{Element, Environment};
use proptest::prelude::*;

use crate::memory::least_memory;
use crate::models::{edge, filtered, mean_filter, pool, pooled};
use crate::shapes::{FREE, Rules, Shape, cases, shape};
use crate::support::{Volume, block_on, complete_shuffled, devices, load, result, spec, store};

const INTEGERS: [Element; 8] =
    [Element::U8, Element::I8, Element::U16, Element::I16, Element::U32, Element::I32, Element::U64, Element::I64];

fn run(settings: &RunSettings, shape: &Shape, volume: &Volume, fake: impl Fn(&str) -> Fake) -> Volume {
    block_on(result(settings, volume, shape.chunk, devices(shape.devices(), fake)))
}

/// The greatest difference of two results.
fn difference(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
}

/// Rounding of weights is all that blending may add; trimming adds nothing.
fn allowed(shape: &Shape) -> f32 {
    if matches!(shape.layout.seam, Seam::Trim { .. }) { 0.0 } else { 2e-3 }
}

proptest! {
    #![proptest_config(cases(80))]

    #[test]
    fn law_1_the_identity_changes_nothing(shape in shape(FREE), kind in 0..INTEGERS.len()) {
        let settings = shape.settings();
        let spec = spec(&settings, 1);
        let volume = shape.volume(INTEGERS[kind]);
        let given = run(&settings, &shape, &volume, |device| Fake::identity(device, spec.clone()));
        prop_assert!(given == volume, "{:?}", settings);
    }

    #[test]
    fn law_1_holds_for_floats(shape in shape(FREE)) {
        let settings = shape.settings();
        let spec = spec(&settings, 1);
        let volume = shape.volume(Element::F32);
        let given = run(&settings, &shape, &volume, |device| Fake::identity(device, spec.clone()));
        prop_assert!(difference(given.f32(0), volume.f32(0)) <= allowed(&shape));
    }

    #[test]
    fn law_3_a_filter_gives_the_same_tiled_and_untiled(
        (shape, radius) in (1..3_usize).prop_flat_map(|reach| {
            (shape(Rules { reach, aligned: false, ..FREE }), Just(reach))
        }),
    ) {
        let mut settings = shape.settings();
        settings.values.padding = Padding::Zero;
        let spec = spec(&settings, 1);
        let volume = shape.volume(Element::F32);
        let given = run(&settings, &shape, &volume, |device| mean_filter(device, spec.clone(), radius));
        let mut untiled = vec![0.0; volume.f32(0).len()];
        filtered(volume.f32(0), &mut untiled, shape.volume, radius);
        prop_assert!(difference(given.f32(0), &untiled) <= allowed(&shape), "{:?}", settings);
    }

    #[test]
    fn law_3_a_model_that_strides_gives_the_same_if_patches_are_aligned(shape in shape(FREE), cell in [1..4_usize, 1..4, 1..4]) {
        let mut shape = shape;
        // Patches hold whole cells and start on cells.
        let grown = |size: usize, axis: usize| size.next_multiple_of(cell[axis]);
        shape.layout.align = cell;
        for axis in 0..3 {
            shape.layout.patch[axis] = grown(shape.layout.overlap[axis] + cell[axis], axis);
            if let Some(block) = &mut shape.layout.block {
                block[axis] = block[axis].max(shape.layout.patch[axis]);
            }
        }
        let mut settings = shape.settings();
        settings.values.padding = Padding::Zero;
        let spec = spec(&settings, 1);
        let volume = shape.volume(Element::F32);
        let given = run(&settings, &shape, &volume, |device| pooled(device, spec.clone(), cell));
        let mut untiled = vec![0.0; volume.f32(0).len()];
        pool(volume.f32(0), &mut untiled, shape.volume, cell);
        prop_assert!(difference(given.f32(0), &untiled) <= allowed(&shape), "{:?}", settings);
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn law_5_devices_batches_and_their_order_do_not_show(shape in shape(FREE), others in [1..12_usize, 1..40]) {
        let settings = shape.settings();
        let volume = shape.volume(Element::F32);
        let one = spec(&settings, 1);
        let alone = devices(1, |device| edge(device, one.clone()));
        let expected = block_on(result(&settings, &volume, shape.chunk, alone));
        for (count, batch) in [2, 3].into_iter().zip(others) {
            let mut settings = settings.clone();
            settings.resources.batch = batch;
            settings.resources.max_inflight_batches = 3 * count;
            let spec = spec(&settings, 1);
            let order = (count, shape.free[0] as u64, shape.pick(1, 1, 3 * count));
            let given = block_on(async {
                let environment = Environment::empty();
                store(&environment, "memory://in", &volume, shape.chunk).await;
                complete_shuffled(&settings, &environment, order, |device| edge(device, spec.clone())).await;
                load(&environment, "memory://out", 1).await
            });
            prop_assert!(given == expected, "{count} devices, batch {batch}");
        }
    }

    #[test]
    fn law_6_blocks_and_memory_do_not_show(
        shape in shape(Rules { lattice: Some(LatticeChoice::Volume), ..FREE }),
        more in [0..12_usize, 0..12, 0..12],
    ) {
        let mut settings = shape.settings();
        let volume = shape.volume(Element::F32);
        let spec = spec(&settings, 1);
        let fake = |device: &str| edge(device, spec.clone());
        settings.layout.block = None;
        let expected = run(&settings, &shape, &volume, fake);
        let grown = |most: usize| std::array::from_fn(|axis| shape.layout.patch[axis] + more[axis] % most);
        for block in [shape.layout.patch, grown(4), grown(12), [64; 3]] {
            settings.layout.block = Some(block);
            prop_assert!(run(&settings, &shape, &volume, fake) == expected, "blocks of {block:?}");
        }
        settings.layout.block = Some(shape.layout.patch);
        settings.resources.memory = block_on(least_memory(&settings, &volume, shape.chunk, || devices(1, fake)));
        let given = block_on(result(&settings, &volume, shape.chunk, devices(1, fake)));
        prop_assert!(given == expected, "{} bytes", settings.resources.memory);
    }
}
