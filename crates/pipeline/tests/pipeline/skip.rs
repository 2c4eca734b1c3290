//! Tiles that are skipped: nothing is read, computed or written for them, and the others are as in the whole run.

use haloflow_engine::fake::Fake;
use haloflow_geometry::{Box3, Zyx};
use haloflow_pipeline::{FaultKind, Report, RunSettings};
use haloflow_volume::{AlignedBytes, Element, Environment};

use crate::support::{
    Volume, block_on, complete, devices, execute, layout, load, plain, settings, spec, store_sparse, trim,
};

const SHAPE: Zyx = [16, 40, 40];

/// A volume that is zero but in a corner of 8 x 12 x 12 voxels.
fn corner() -> Volume {
    Volume::of_f32(SHAPE, |i, [z, y, x]| if z < 8 && y < 12 && x < 12 { 1.0 + i as f32 } else { 0.0 })
}

fn skipping() -> RunSettings {
    let mut settings = settings(layout([8; 3], [4; 3], trim(2)), plain(), 2);
    settings.layout.block = Some([8; 3]);
    settings.skip.empty = true;
    settings
}

/// Runs the identity over the corner, whose chunks of zeros are not stored.
async fn run(settings: &RunSettings, environment: &Environment, shard: Option<Zyx>) -> Report {
    store_sparse(environment, "memory://in", &corner(), [8; 3], shard).await;
    let spec = spec(settings, 1);
    complete(settings, environment, devices(1, |device| Fake::identity(device, spec.clone()))).await
}

#[test]
fn what_is_not_stored_is_neither_read_nor_computed_nor_written() {
    for shard in [None, Some([16; 3])] {
        block_on(async {
            let environment = Environment::empty();
            let report = run(&skipping(), &environment, shard).await;
            assert_eq!(load(&environment, "memory://out", 1).await, corner());
            // Patches of a tile see up to 2 voxels, rounded up to where they start, beyond it: one more tile each way.
            let tiles = 2 * 5 * 5;
            assert_eq!(report.work.blocks + report.work.skipped.empty, tiles, "{report:?}");
            assert!((8..=27).contains(&report.work.blocks), "{report:?}");
            assert_eq!(report.storage_written.objects_written, report.work.blocks + 3);
            let chunks = if shard.is_some() { report.storage_read.chunks_absent } else { 0 };
            assert!(report.storage_read.chunks_decoded <= 8 && chunks <= 100, "{report:?}");
        });
    }
}

#[test]
fn a_coarse_mask_leaves_out_what_lies_outside() {
    block_on(async {
        let environment = Environment::empty();
        // One voxel of the mask is 8 x 10 x 10 of the volume: y and x from 10 on, in the upper half.
        let mask: Vec<u8> = Box3::of_shape([2, 4, 4]).indices().map(|at| u8::from(at == [0, 1, 1])).collect();
        let mask = Volume::new([2, 4, 4], Element::U8, AlignedBytes::from_slice(&mask));
        store_sparse(&environment, "memory://mask", &mask, [2; 3], None).await;
        let mut settings = skipping();
        (settings.skip.empty, settings.skip.mask) = (false, Some("memory://mask".into()));
        let report = run(&settings, &environment, None).await;
        // Voxels 10 to 20 touch the tiles 1 and 2 along y and x.
        assert_eq!((report.work.blocks, report.work.skipped.masked), (4, 46));
        let [_, height, width] = SHAPE;
        let expected: Vec<f32> = Box3::of_shape(SHAPE)
            .indices()
            .zip(corner().f32(0).to_vec())
            .map(|([z, y, x], value)| if z < 8 && (8..24).contains(&y) && (8..24).contains(&x) { value } else { 0.0 })
            .collect();
        assert_eq!(expected.len(), 16 * height * width);
        assert_eq!(load(&environment, "memory://out", 1).await.f32(0), expected);
    });
}

#[test]
fn a_mask_larger_than_the_volume_is_refused() {
    block_on(async {
        let environment = Environment::empty();
        store_sparse(&environment, "memory://in", &corner(), [8; 3], None).await;
        let mask = Volume::of_f32([16, 40, 41], |_, _| 1.0);
        store_sparse(&environment, "memory://mask", &mask, [16; 3], None).await;
        let mut settings = skipping();
        settings.skip.mask = Some("memory://mask".into());
        let spec = spec(&settings, 1);
        let factories = devices(1, |device| Fake::identity(device, spec.clone()));
        let fault = execute(&settings, &environment, factories).await.1.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Usage);
        assert!(fault.message.contains("41 voxels along x and the volume 40"), "{fault}");
    });
}
