use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use haloflow_engine::ElementKind;
use haloflow_geometry::{Box3, Geometry, Lattice, Read, Seam, Selection, Zyx};
use haloflow_volume::Shelf;
use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn plan(volume: Zyx, tile: usize, patch: usize, lattice: Lattice) -> Plan {
    let seam = Seam::Blend { floor: 0.05, margin: [0; 3] };
    let overlap = [(patch / 6).max(1); 3];
    let (tile, patch) = ([tile; 3], [patch; 3]);
    Plan::new(Geometry { volume, tile, patch, overlap, align: [1; 3], lattice, seam }).unwrap()
}

fn spec(plan: &Plan, batch: usize) -> EngineSpec {
    let patch = plan.geometry().patch;
    let kind = ElementKind::F32;
    EngineSpec { batch, patch, channels_in: 1, channels_out: 1, input: kind, output: kind, pad_short: false }
}

fn demand<'a>(plan: &'a Plan, spec: &'a EngineSpec, slots: usize) -> Demand<'a> {
    Demand { plan, spec, slots, input_bytes: 2, tile_bytes: 6, transfer: MIB, unit: [64; 3] }
}

fn assert_holds(total: u64, demand: &Demand<'_>, (column, split): (Column, MemorySplit)) {
    let footprint = Footprint { input: demand.input_bytes, tile: demand.tile_bytes, batch: demand.spec.batch };
    assert_eq!(split.need, demand.plan.need(column, &footprint));
    assert!(split.need <= split.leases, "{split:?}");
    assert_eq!(split.slots + split.transfer + split.leases + split.cache, total, "{split:?}");
}

/// The MiB that a refusal asks for.
fn asked(fault: &Fault) -> u64 {
    let figure = fault.message.split("at least ").nth(1).and_then(|rest| rest.split(' ').next());
    figure.unwrap().parse().unwrap()
}

#[test]
fn too_little_memory_is_refused_with_what_would_do() {
    let plan = plan([300, 700, 900], 128, 64, Lattice::Volume);
    let spec = spec(&plan, 16);
    let demand = demand(&plan, &spec, 3);
    for (total, given) in [(1 << 10, "1 KiB"), (MIB, "1 MiB"), (96 * MIB, "96 MiB"), (110 * MIB - 1, "110 MiB")] {
        let fault = split(total, &demand).unwrap_err();
        assert_eq!((fault.kind, fault.stage), (FaultKind::Usage, Stage::Plan));
        let told = &fault.message;
        assert!(told.starts_with(&format!("`memory` is {given}; this run needs at least ")), "{told}");
        for word in ["3 slots of a batch of 16", "Give more memory", "`batch`", "`block`", "`chunk`"] {
            assert!(told.contains(word), "{word}: {told}");
        }
        let enough = asked(&fault) * MIB;
        assert_holds(enough, &demand, split(enough, &demand).unwrap());
    }
}

#[test]
fn a_part_without_tiles_needs_nothing_and_is_split_all_the_same() {
    for lattice in [Lattice::Volume, Lattice::Block { halo: [3; 3] }] {
        let plan = plan([300, 700, 900], 128, 64, lattice);
        let tiles = plan.tiles();
        let plan = plan.select(&Selection::new(tiles, |_| false));
        let spec = spec(&plan, 16);
        let demand = demand(&plan, &spec, 3);
        let least = 3 * spec.slot_bytes() as u64 + demand.transfer;
        for total in [least, least + 5, least + 200 * MIB] {
            assert_holds(total, &demand, split(total, &demand).unwrap());
        }
    }
}

#[test]
fn more_memory_gives_a_wider_column_and_in_the_end_the_widest() {
    let plan = plan([500, 900, 900], 64, 64, Lattice::Volume);
    let spec = spec(&plan, 4);
    let demand = demand(&plan, &spec, 3);
    let mut computed = u64::MAX;
    for total in [128 * MIB, 256 * MIB, 512 * MIB, 1024 * MIB, 8192 * MIB] {
        let given = split(total, &demand).unwrap();
        assert_holds(total, &demand, given);
        let patches = plan.patches(given.0);
        assert!(patches <= computed, "{total}: {patches} after {computed}");
        computed = patches;
    }
    assert_eq!(computed, plan.patches(plan.widest()));
}

#[test]
fn a_whole_brain_is_split_in_no_time() {
    let volume = [20480, 10640, 14192];
    let plans = [
        plan(volume, 256, 64, Lattice::Block { halo: [5; 3] }),
        plan(volume, 256, 64, Lattice::Volume),
        plan(volume, 256, 128, Lattice::Volume),
        plan(volume, 64, 64, Lattice::Volume),
    ];
    for plan in &plans {
        for (memory, batch) in [(2, 64), (4, 64), (64, 64), (1024, 256)] {
            let spec = spec(plan, batch);
            let began = Instant::now();
            let given = split(memory << 30, &demand(plan, &spec, 3));
            let took = began.elapsed();
            let geometry = plan.geometry();
            // A tenth of a second where nothing else runs; what grew with the square of the tiles would take hours.
            assert!(took < Duration::from_secs(30), "{took:?} for {memory} GiB, {geometry:?}");
            if let Ok(given) = given {
                assert!(given.1.need <= given.1.leases);
            }
        }
    }
}

#[test]
fn columns_are_tried_at_the_least_size_of_each_number_of_them() {
    for tiles in 1..200_usize {
        let least = (1..=tiles).filter(|&size| size == 1 || tiles.div_ceil(size) < tiles.div_ceil(size - 1));
        assert_eq!(sizes(tiles), least.collect::<Vec<_>>(), "{tiles}");
    }
    assert!(sizes(10_000).len() <= 200);
}

#[test]
fn a_refusal_names_the_requests_if_they_take_a_large_part() {
    let plan = plan([300, 700, 900], 128, 64, Lattice::Volume);
    let spec = spec(&plan, 16);
    for (transfer, named) in [(MIB, false), (4096 * MIB, true)] {
        let fault = split(MIB, &Demand { transfer, ..demand(&plan, &spec, 3) }).unwrap_err();
        assert_eq!(fault.message.contains("`requests`"), named, "{fault}");
    }
}

#[test]
fn slots_are_shared_out_among_the_devices() {
    assert_eq!(
        [(1, 64), (2, 4), (8, 64), (8, 4), (3, 1), (0, 5)].map(|(devices, most)| slots_per_device(devices, most)),
        [3, 2, 3, 1, 1, 3]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn what_a_refusal_asks_for_is_enough_and_what_is_needed_is_admitted(
        volume in [1..60_usize, 1..60_usize, 1..60_usize],
        patch in 2..12_usize,
        tile in 0..9_usize,
        block in any::<bool>(),
        batch in 1..200_usize,
        per_voxel in (1..2000_u64, 1..2000_u64),
    ) {
        let lattice = if block { Lattice::Block { halo: [2; 3] } } else { Lattice::Volume };
        let plan = plan(volume, patch + tile, patch, lattice);
        let spec = spec(&plan, batch);
        let demand = Demand { input_bytes: per_voxel.0, tile_bytes: per_voxel.1, unit: [4; 3], ..demand(&plan, &spec, 1) };
        let mut total = 0;
        if let Err(fault) = split(total, &demand) {
            prop_assert!(asked(&fault) * MIB > total, "{}", fault.message);
            total = asked(&fault) * MIB;
        }
        // What is admitted with some memory is admitted with what it says it needs of it, and so on to the last byte.
        total *= 8;
        loop {
            let given = split(total, &demand).unwrap();
            assert_holds(total, &demand, given);
            let least = given.1.slots + given.1.transfer + given.1.need;
            if least == total {
                break;
            }
            total = least;
        }
    }
}

/// Chunks that the steps of a plan fetch if a run keeps pieces of them as it does, over the chunks that there are. Steps are read one by
/// one, or `ahead` at one time, of which the last comes first.
fn fetched(plan: &Plan, unit: usize, bytes: u64, ahead: usize, (column, split): (Column, MemorySplit)) -> f64 {
    let (mut shelf, mut count) = (Shelf::new(split.cache), 0_u64);
    let steps: Vec<_> = plan.steps(column).collect();
    for steps in steps.chunks(ahead) {
        let reads: Vec<_> = steps.iter().map(|step| plan.read_of(column, step)).collect();
        let cells = |read: &Read| read.region.cells([unit; 3]).indices();
        let part = |read: &Read, cell: Zyx| {
            let part = read.region.intersect(&Box3::of_cell(cell, [unit; 3]));
            part.voxels() as u64 * bytes
        };
        // What reads under way have does not give way.
        let mut has: HashMap<(u64, Zyx), u64> = HashMap::new();
        for (read, cell) in reads.iter().flat_map(|read| cells(read).map(move |cell| (read, cell))) {
            if let Some(bytes) = shelf.take(&cell.map(|place| place as u64), read.order) {
                drop(shelf.hold(bytes));
                has.insert((read.order, cell), bytes);
            }
        }
        let last = reads.last().map_or(0, |read| read.order);
        let mut done = HashSet::new();
        for (read, cell) in reads.iter().rev().flat_map(|read| cells(read).map(move |cell| (read, cell))) {
            done.insert((read.order, cell));
            if let Some(bytes) = has.remove(&(read.order, cell)) {
                shelf.release(bytes);
                continue;
            }
            count += 1;
            for other in plan.reads_of(column, &Box3::of_cell(cell, [unit; 3])) {
                let key = (other.order, cell);
                if other.order <= last && reads.contains(&other) && !done.contains(&key) && !has.contains_key(&key) {
                    drop(shelf.hold(part(&other, cell)));
                    has.insert(key, part(&other, cell));
                }
            }
            let later = plan.reads_of(column, &Box3::of_cell(cell, [unit; 3])).into_iter();
            let later = later.filter(|read| read.order > last).map(|read| (read.order, part(&read, cell)));
            drop(shelf.keep(&cell.map(|place| place as u64), read.order, later));
        }
    }
    assert_eq!(shelf.used(), 0, "everything that is kept is wanted");
    let all = Box3::of_shape(plan.geometry().volume).cells([unit; 3]).voxels();
    count as f64 / all as f64
}

#[test]
fn what_is_read_is_about_what_the_split_says() {
    let mut told = Vec::new();
    for volume in [[1024; 3], [2048, 512, 512], [2048, 256, 256]] {
        let plan = plan(volume, 256, 64, Lattice::Block { halo: [5; 3] });
        let spec = spec(&plan, 8);
        for unit in [64, 128] {
            for memory in [512, 768, 1024, 2048, 4096] {
                let transfer = 2 * 4 * 2 * (unit as u64).pow(3);
                let given =
                    split(memory * MIB, &Demand { unit: [unit; 3], transfer, ..demand(&plan, &spec, 3) }).unwrap();
                let times = fetched(&plan, unit, 2, 1, given);
                let said = given.1.read as f64 / (2 * volume.iter().product::<usize>()) as f64;
                println!(
                    "{volume:?} in chunks of {unit}, {memory} MiB: {times:.3}, said {said:.3}, column {:?}, {:?}",
                    given.0, given.1
                );
                assert!(times <= said * 1.05, "{times} {said}");
                // The need is that of two blocks.
                let ahead = (2 * given.1.leases / given.1.need).clamp(1, 6) as usize;
                let disorderly = fetched(&plan, unit, 2, ahead, given);
                println!("{disorderly:.3} if {ahead} are read at one time, the last first");
                told.push((volume, unit, memory, times.max(disorderly)));
            }
        }
    }
    let of = |volume: Zyx, unit: usize, memory: u64| {
        told.iter().find(|told| (told.0, told.1, told.2) == (volume, unit, memory)).map(|told| told.3)
    };
    for unit in [64, 128] {
        assert_eq!(of([1024; 3], unit, 4096), Some(1.0));
        for volume in [[1024; 3], [2048, 512, 512], [2048, 256, 256]] {
            assert!(of(volume, unit, 512) <= Some(1.3));
        }
    }
}

#[test]
fn columns_of_the_volume_lattice_keep_what_they_share() {
    for (volume, memory, most) in [([1024; 3], 3072, 1.0), ([1024; 3], 4096, 1.0), ([2048; 3], 8192, 1.13)] {
        let plan = plan(volume, 128, 64, Lattice::Volume);
        let spec = spec(&plan, 64);
        let given =
            split(memory * MIB, &Demand { unit: [128; 3], transfer: 512 * MIB, ..demand(&plan, &spec, 3) }).unwrap();
        let times = fetched(&plan, 128, 2, 8, given);
        println!("{volume:?}, {memory} MiB: {times:.3}, column {:?}, {:?}", given.0, given.1);
        assert!(times <= most, "{times}");
    }
}
