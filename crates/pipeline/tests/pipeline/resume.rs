//! Runs that are stopped and gone on with: the bytes are those of an undisturbed run, and what differs is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use haloflow_engine::fake::Fake;
use haloflow_geometry::Seam;
use haloflow_pipeline::cut::Padding;
use haloflow_pipeline::normalise::Normalisation;
use haloflow_pipeline::pyramid::{Downsampling, Pyramid};
use haloflow_pipeline::resume::explain;
use haloflow_pipeline::{Fault, FaultKind, Part, Report, RunSettings};
use haloflow_volume::{Element, Environment, Levels};
use proptest::prelude::*;

use crate::models::edge;
use crate::shapes::{FREE, cases, shape};
use crate::support::{
    Factories, Volume, block_on, complete, devices, execute, layout, load, plain, prepare, result, settings, spec,
    store, store_sparse, trim,
};

fn good() -> RunSettings {
    let mut settings = settings(layout([6; 3], [2; 3], trim(1)), plain(), 2);
    settings.layout.block = Some([8; 3]);
    settings
}

fn numbers() -> Volume {
    Volume::of_f32([24; 3], |i, _| (i % 1013) as f32)
}

fn fakes(settings: &RunSettings) -> Factories {
    let spec = spec(settings, 1);
    devices(2, |device| edge(device, spec.clone()))
}

/// Every file below a folder, with its length and when it was last changed.
fn listed(folder: &Path) -> Vec<(PathBuf, u64, SystemTime)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| match path.is_dir() {
        true => listed(&path),
        false => {
            let found = path.metadata().unwrap();
            vec![(path, found.len(), found.modified().unwrap())]
        }
    };
    let mut files: Vec<_> = entries.flat_map(of).collect();
    files.sort_unstable();
    files
}

/// Runs until the devices have begun `batches` batches, then stops the run.
async fn stopped(settings: &RunSettings, environment: &Environment, batches: usize) -> (Report, Result<(), Fault>) {
    let mut run = prepare(settings, environment, Vec::new());
    let (cancel, seen, spec) = (run.cancel.clone(), Arc::new(AtomicUsize::new(0)), spec(settings, 1));
    run.factories = devices(2, |device| {
        let (cancel, seen) = (cancel.clone(), Arc::clone(&seen));
        edge(device, spec.clone()).before(move |_| {
            if seen.fetch_add(1, Ordering::SeqCst) >= batches {
                cancel.cancel();
            }
            Ok(())
        })
    });
    run.execute().await
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn however_often_a_run_is_stopped_its_bytes_are_those_of_an_undisturbed_one(
        shape in shape(FREE),
        stops in prop::collection::vec(0..30_usize, 1..6),
        whole in any::<bool>(),
    ) {
        let mut settings = shape.settings();
        if whole && settings.lattice().is_ok() {
            settings.values.normalisation = Normalisation::Volume { percentiles: [2.0, 97.0] };
        }
        let volume = shape.volume(Element::F32);
        let expected = block_on(result(&settings, &volume, shape.chunk, fakes(&settings)));
        block_on(async {
            let environment = Environment::empty();
            store(&environment, "memory://in", &volume, shape.chunk).await;
            let mut before = 0;
            let mut done = false;
            for batches in stops {
                let (report, ended) = stopped(&settings, &environment, batches).await;
                if done {
                    assert_eq!(ended.unwrap_err().kind, FaultKind::Data, "a finished output exists");
                    return;
                }
                assert!(report.work.blocks_before >= before, "what was recorded stays");
                before = report.work.blocks_before;
                done = ended.is_ok();
            }
            if !done {
                let work = complete(&settings, &environment, fakes(&settings)).await.work;
                assert!(work.blocks_before >= before);
            }
            assert!(load(&environment, "memory://out", 1).await == expected);
        });
    }
}

#[test]
fn what_is_recorded_is_not_computed_again() {
    let settings = good();
    block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &numbers(), [8; 3]).await;
        let explained = async || explain(&settings, &environment).await.unwrap().to_string();
        assert!(explained().await.contains("nothing is recorded; all 27 blocks"));
        let (stopped, _) = stopped(&settings, &environment, 40).await;
        assert!(stopped.work.blocks > 0, "{stopped:?}");
        let told = explained().await;
        let first =
            format!("{} of 27 blocks are recorded and stay; {} would", stopped.work.blocks, 27 - stopped.work.blocks);
        assert!(told.contains(&first), "{told}");
        let report = complete(&settings, &environment, fakes(&settings)).await;
        assert_eq!(report.work.blocks_before, stopped.work.blocks);
        assert_eq!(report.work.blocks + report.work.blocks_before, 27);
        let fault = execute(&settings, &environment, fakes(&settings)).await.1.unwrap_err();
        assert!(fault.message.contains("memory://out exists already"), "{fault}");
    });
}

#[test]
fn another_input_recipe_or_network_is_refused_by_name_and_nothing_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = good();
    let out = folder.path().join("out.zarr");
    settings.output.targets = vec![out.to_str().unwrap().into()];
    settings.network = [("model".to_owned(), "abc".to_owned())].into();
    block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &numbers(), [8; 3]).await;
        assert!(stopped(&settings, &environment, 60).await.1.is_err());
        let list = || listed(&out);
        let before = list();
        assert!(before.iter().any(|(path, ..)| path.ends_with("run.json")), "{before:?}");
        type Change = fn(&mut RunSettings);
        let changes: [(&str, Change); 9] = [
            ("`overlap` was 2 2 2 and is 3 3 3", |settings| settings.layout.overlap = [3; 3]),
            ("`seam-mode` was trim and is blend", |settings| {
                settings.layout.seam = Seam::Blend { floor: 0.05, margin: [0; 3] };
            }),
            ("`block` was 8 8 8 and is 16 16 16", |settings| settings.layout.block = Some([16; 3])),
            ("`normalize` was false and is global 0 7.5", |settings| {
                settings.values.normalisation = Normalisation::Global { bounds: [0.0, 7.5] };
            }),
            ("`pad` was Reflect and is Zero", |settings| settings.values.padding = Padding::Zero),
            ("`out-dtype` was float32 and is uint16", |settings| settings.output.element = Some(Element::U16)),
            ("`compressor` was ", |settings| settings.output.compressor = Some("zstd:3".into())),
            ("`model` was abc and is def", |settings| {
                settings.network.insert("model".into(), "def".into());
            }),
            ("`in` was memory://in and is memory://other", |settings| settings.input.source = "memory://other".into()),
        ];
        store(&environment, "memory://other", &numbers(), [8; 3]).await;
        for (difference, change) in changes {
            let mut other = settings.clone();
            change(&mut other);
            let fault = execute(&other, &environment, fakes(&other)).await.1.unwrap_err();
            assert_eq!(fault.kind, FaultKind::Data, "{fault}");
            assert!(
                fault.message.contains("out.zarr was begun otherwise: ") && fault.message.contains(difference),
                "{fault}"
            );
            assert!(explain(&other, &environment).await.unwrap().to_string().contains(difference));
        }
        let mut again = settings.clone();
        again.output.resume = false;
        let fault = execute(&again, &environment, fakes(&again)).await.1.unwrap_err();
        assert!(fault.message.contains("exists already"), "{fault}");
        assert_eq!(list(), before);
        // What does not change the result does not matter.
        settings.resources.batch = 3;
        settings.resources.memory = 32 << 20;
        assert!(complete(&settings, &environment, fakes(&settings)).await.work.blocks_before > 0);
    });
}

#[test]
fn an_input_that_was_stored_anew_is_another_one() {
    let settings = good();
    block_on(async {
        let environment = Environment::empty();
        store(&environment, "memory://in", &numbers(), [8; 3]).await;
        assert!(stopped(&settings, &environment, 20).await.1.is_err());
        // The same metadata and voxels, in other objects: the store's tag tells.
        store(&environment, "memory://same", &numbers(), [8; 3]).await;
        let mut copy = good();
        copy.input.source = "memory://same".into();
        copy.output.targets = vec!["memory://in".into()];
        copy.output.overwrite = true;
        copy.output.resume = false;
        let spec = spec(&copy, 1);
        complete(&copy, &environment, devices(1, |device| Fake::identity(device, spec.clone()))).await;
        let fault = execute(&settings, &environment, fakes(&settings)).await.1.unwrap_err();
        assert!(fault.message.contains("`in (its metadata)` was "), "{fault}");
    });
}

#[test]
fn numbers_of_the_whole_volume_are_those_of_the_first_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = good();
    let input = folder.path().join("in.zarr");
    settings.input.source = input.to_str().unwrap().into();
    settings.values.normalisation = Normalisation::ZScore { given: None };
    block_on(async {
        let environment = Environment::empty();
        store(&environment, &settings.input.source, &numbers(), [8; 3]).await;
        let (first, ended) = stopped(&settings, &environment, 20).await;
        assert!(ended.is_err());
        // The voxels of a chunk change behind the run's back.
        std::fs::write(input.join("0/c/0/0/2/2/2"), [0; 4 * 512]).unwrap();
        let second = complete(&settings, &environment, fakes(&settings)).await;
        assert_eq!(second.normalisation, first.normalisation);
        settings.output.targets = vec!["memory://anew".into()];
        let anew = complete(&settings, &environment, fakes(&settings)).await;
        assert_ne!(anew.normalisation, first.normalisation);
    });
}

/// Every object of a result, by its name: all but the ledger.
fn objects(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = listed(folder).into_iter().map(|(path, ..)| path);
    let files = files.filter(|path| !path.strip_prefix(folder).unwrap().starts_with(".haloflow"));
    files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn coarser_levels_skipped_blocks_and_the_range_of_values_survive_an_interruption() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.zarr");
    let mut settings = good();
    settings.output.targets = vec![out.to_str().unwrap().into()];
    settings.output.chunk = Some([4; 3]);
    settings.pyramid = Pyramid { levels: Levels::Count(2), method: Downsampling::Mean };
    settings.skip.empty = true;
    // Nothing is stored of the lower half. The extreme values lie in the first block, so whoever goes on does not see them.
    let value = |i: usize, [z, y, x]: [usize; 3]| match (z, y, x) {
        (0, 0, 0) => -7.0,
        (1, 1, 1) => 5000.0,
        (0..16, ..) => (i % 1013) as f32,
        _ => 0.0,
    };
    block_on(async {
        let environment = Environment::empty();
        store_sparse(&environment, "memory://in", &Volume::of_f32([40, 24, 24], value), [8; 3], None).await;
        let undisturbed = complete(&settings, &environment, fakes(&settings)).await;
        let (skipped, all) = (undisturbed.work.skipped.empty, 5 * 3 * 3);
        assert_eq!((undisturbed.work.blocks, skipped), (3 * 9, 2 * 9));
        let expected = objects(&out);
        std::fs::remove_dir_all(&out).unwrap();
        let told = explain(&settings, &environment).await.unwrap().to_string();
        assert!(
            told.contains("27 of 45 blocks would be computed\n  18 would be skipped as empty, 0 as masked"),
            "{told}"
        );
        let (first, ended) = stopped(&settings, &environment, 60).await;
        assert!(ended.is_err() && first.work.blocks > 0, "{first:?}");
        let mut other = settings.clone();
        other.pyramid.method = Downsampling::Max;
        other.skip.empty = false;
        let fault = execute(&other, &environment, fakes(&other)).await.1.unwrap_err();
        let differences = "`downsample` was mean and is max, `skip-empty` was true and is false";
        assert!(fault.message.contains(differences), "{fault}");
        let second = complete(&settings, &environment, fakes(&settings)).await;
        assert_eq!(second.work.blocks_before, first.work.blocks + skipped);
        assert_eq!((second.work.blocks + second.work.blocks_before, second.work.skipped.empty), (all, 0));
        assert!(objects(&out) == expected);
    });
}

#[test]
fn shards_share_a_volume_and_the_last_one_completes_it() {
    let settings = good();
    let shard = |index: usize| RunSettings { part: Part::Shard { index, count: 3 }, ..settings.clone() };
    block_on(async {
        let expected = result(&settings, &numbers(), [8; 3], fakes(&settings)).await;
        let environment = Environment::empty();
        store(&environment, "memory://in", &numbers(), [8; 3]).await;
        let shards = [shard(0), shard(1), shard(2)];
        // All begin at once; the second is stopped, and one that does it again is let run.
        let (first, second, third) = futures::join!(
            Box::pin(execute(&shards[0], &environment, fakes(&settings))),
            Box::pin(stopped(&shards[1], &environment, 5)),
            Box::pin(execute(&shards[2], &environment, fakes(&settings))),
        );
        assert_eq!((&first.1, &third.1), (&Ok(()), &Ok(())));
        assert_eq!(second.1.unwrap_err().kind, FaultKind::Interrupted);
        let complete_is = async |expected: bool| {
            let told = explain(&settings, &environment).await;
            assert_eq!(told.is_err_and(|fault| fault.message.contains("exists already")), expected);
        };
        complete_is(false).await;
        let again = complete(&shards[1], &environment, fakes(&settings)).await;
        assert_eq!(again.work.blocks + again.work.blocks_before, 9);
        complete_is(true).await;
        assert!(load(&environment, "memory://out", 1).await == expected);
        // A shard that is started once more has nothing to do, and no device is started for it.
        let (report, ended) = execute(&shards[0], &environment, fakes(&settings)).await;
        assert_eq!((ended, report.work.blocks_total, report.devices.len()), (Ok(()), 0, 0));
    });
}
