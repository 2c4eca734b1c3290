//! Batches: full but for the last, whatever blocks their patches are of, and merged in plan order.

use haloflow_geometry::Seam;
use haloflow_pipeline::LatticeChoice;
use haloflow_volume::Environment;

use crate::models::edge;
use crate::support::{
    Volume, block_on, complete, complete_shuffled, devices, layout, load, plain, settings, spec, store, trim,
};

#[test]
fn batches_mix_blocks_and_only_the_last_is_short() {
    // Eight blocks of 64 patches: 51 batches of 10 and one of 2, where blocks alone would give eight short ones.
    let mut settings = settings(layout([4; 3], [2; 3], trim(1)), plain(), 10);
    settings.layout.lattice = Some(LatticeChoice::Block);
    settings.layout.block = Some([8; 3]);
    settings.layout.halo = Some([1; 3]);
    let spec = spec(&settings, 1);
    let report = block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &Volume::of_f32([16; 3], |i, _| i as f32), [8; 3]).await;
        complete(&settings, &environment, devices(2, |device| edge(device, spec.clone()))).await
    });
    assert_eq!((report.work.blocks, report.work.patches), (8, 8 * 64));
    assert_eq!((report.work.batches, report.work.short_batches), (52, 1));
}

#[test]
fn a_shuffle_over_all_slots_of_three_devices_changes_no_byte() {
    // Only where weighted patches are summed does their order show in the last bits.
    let seam = Seam::Blend { floor: 0.1, margin: [0; 3] };
    let mut settings = settings(layout([5; 3], [3; 3], seam), plain(), 2);
    settings.resources.max_inflight_batches = 9;
    let spec = spec(&settings, 1);
    let volume = Volume::of_f32([17, 19, 23], |i, [z, y, x]| (i % 7) as f32 + (z * y) as f32 - x as f32);
    block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &volume, [8; 3]).await;
        complete(&settings, &environment, devices(1, |device| edge(device, spec.clone()))).await;
        let expected = load(&environment, "memory://out", 1).await;
        for seed in 0..6 {
            settings.output.targets = vec![format!("memory://shuffled{seed}")];
            complete_shuffled(&settings, &environment, (3, seed, 9), |device| edge(device, spec.clone())).await;
            assert!(load(&environment, &settings.output.targets[0], 1).await == expected, "seed {seed}");
        }
    });
}
