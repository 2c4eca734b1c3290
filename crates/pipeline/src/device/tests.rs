//! Devices that agree, disagree, retire: a run's middle, without stages around it.

use std::collections::{BTreeMap, HashMap};

use haloflow_engine::EngineErrorKind::{self, DeviceLost, OutOfMemory, Run};
use haloflow_engine::fake::{Fake, read_elements, write_elements};
use haloflow_engine::{ElementKind, EngineSpec};
use haloflow_geometry::{Box3, Step};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::messages::StepContext;
use crate::wiring::DeviceChannels;

const BATCHES: u64 = 40;
const SLOTS: usize = 2;

fn spec() -> EngineSpec {
    EngineSpec {
        batch: 2,
        patch: [2, 3, 4],
        channels_in: 1,
        channels_out: 1,
        input: ElementKind::F32,
        output: ElementKind::F32,
        pad_short: false,
    }
}

fn fake(name: &str) -> Fake {
    Fake::affine(name, spec(), 2.0, 1.0)
}

fn row() -> Row {
    let step =
        Step { patches: [0..1, 0..1, 0..1], tiles: [0..1, 0..1, 0..1], read: Box3 { start: [0; 3], stop: [2, 3, 4] } };
    Row { patch: [0; 3], context: Arc::new(StepContext::new(step, Vec::new(), HashMap::new())) }
}

/// What came of a run.
struct Outcome {
    /// The output's bytes, by sequence.
    landed: BTreeMap<u64, Vec<u8>>,
    retired: Vec<EngineError>,
    fault: Option<Fault>,
}

/// The ends that the devices hold, and those that the stages hold.
fn parted(channels: DeviceChannels, faults: &Faults) -> (DevicePorts, Sender<Batch>, Receiver<Flight>, Home) {
    let DeviceChannels { batches_in, batches_out, flights_in, flights_out, home, returned } = channels;
    let ports = DevicePorts {
        batches: batches_out,
        returned,
        fleet: Arc::clone(home.fleet()),
        flights: flights_in,
        meters: Arc::default(),
        faults: faults.clone(),
        board: Board::default(),
    };
    (ports, batches_in, flights_out, home)
}

fn factories(fakes: Vec<Fake>) -> Vec<Box<dyn EngineFactory>> {
    fakes.into_iter().map(|fake| Box::new(fake) as Box<dyn EngineFactory>).collect()
}

/// Sends batches through `fakes` as the batch and merge stages do.
async fn run(fakes: Vec<Fake>) -> Outcome {
    let (devices, faults) = (fakes.len(), Faults::new(CancellationToken::new()));
    let names = fakes.iter().map(EngineFactory::device).collect();
    let (ports, batches_in, flights_out, home) = parted(DeviceChannels::new(names, devices * SLOTS), &faults);
    let fleet = Arc::clone(&ports.fleet);
    let factories = factories(fakes);
    let mut outcome = Outcome { landed: BTreeMap::new(), retired: Vec::new(), fault: None };
    if let Ok(devices) = start(factories, SLOTS, ports).await {
        let (slots, threads): (Vec<_>, Vec<_>) = devices.into_iter().map(Device::into_parts).unzip();
        let (give_back, free) = async_channel::unbounded();
        slots.into_iter().flatten().for_each(|slot| give_back.try_send(slot).unwrap());
        let form = form(free, batches_in, home);
        let land = land(flights_out, give_back);
        let stages = async { futures::join!(form, land).1 };
        // A fault ends the stages, as it does in a run.
        if let Some(landed) = faults.cancel().clone().run_until_cancelled_owned(stages).await {
            outcome.landed = landed;
        }
        join(threads, &faults, GRACE).await;
    }
    outcome.retired = fleet.retired();
    outcome.fault = faults.first();
    outcome
}

async fn form(free: Receiver<Slot>, batches: Sender<Batch>, home: Home) {
    for sequence in 0..BATCHES {
        let Ok(mut slot) = free.recv().await else { return };
        let values: Vec<f32> = (0..48).map(|i| (i + sequence * 7) as f32).collect();
        write_elements(ElementKind::F32, &values, slot.input.bytes_mut());
        let batch = Batch { since: Instant::now(), sequence, slot, rows: vec![row(), row()], home: home.clone() };
        if batches.send(batch).await.is_err() {
            return;
        }
    }
}

async fn land(flights: Receiver<Flight>, give_back: Sender<Slot>) -> BTreeMap<u64, Vec<u8>> {
    let mut landed = BTreeMap::new();
    while let Ok(Flight { sequence, completion, home, .. }) = flights.recv().await {
        let slot = completion.wait().unwrap();
        assert!(landed.insert(sequence, slot.output.bytes().to_vec()).is_none(), "batch {sequence} came twice");
        drop(give_back.send(slot).await);
        drop(home);
    }
    landed
}

fn assert_undisturbed(landed: &BTreeMap<u64, Vec<u8>>) {
    assert_eq!(landed.len() as u64, BATCHES);
    for (sequence, bytes) in landed {
        let expected: Vec<f32> = (0..48).map(|i| (i + sequence * 7) as f32 * 2.0 + 1.0).collect();
        assert_eq!(read_elements(ElementKind::F32, bytes), expected, "batch {sequence}");
    }
}

fn failing(name: &str, nth: usize, kind: EngineErrorKind) -> Fake {
    fake(name).failing_on(nth, kind, "told so")
}

#[tokio::test]
async fn all_batches_of_one_and_of_three_devices_come_back() {
    for names in [vec!["fake:0"], vec!["fake:0", "fake:1", "fake:2"]] {
        let outcome = run(names.into_iter().map(fake).collect()).await;
        assert_undisturbed(&outcome.landed);
        assert_eq!((outcome.fault, outcome.retired), (None, vec![]));
    }
}

#[tokio::test]
async fn a_lost_device_leaves_its_batches_to_the_others() {
    for kind in [DeviceLost, OutOfMemory] {
        for nth in [0, 1, 3] {
            // The other waits with its first batch until this one has failed, so that it cannot have done all by then.
            let (tell, told) = std::sync::mpsc::channel();
            let told = std::sync::Mutex::new(told);
            let lost = fake("fake:0").before(move |batch| {
                if batch != nth {
                    return Ok(());
                }
                tell.send(()).unwrap();
                Err(EngineError::new(kind, "fake:0", "told so"))
            });
            let other = fake("fake:1").before(move |batch| {
                if batch == 0 {
                    told.lock().unwrap().recv().unwrap();
                }
                Ok(())
            });
            let outcome = run(vec![lost, other]).await;
            assert_eq!(outcome.fault, None);
            assert_undisturbed(&outcome.landed);
            assert_eq!(outcome.retired, [EngineError::new(kind, "fake:0", "told so")]);
        }
    }
}

#[tokio::test]
async fn with_no_device_left_the_run_fails_with_the_cause() {
    for fakes in [
        vec![failing("fake:0", 3, DeviceLost)],
        vec![failing("fake:0", 1, DeviceLost), failing("fake:1", 1, OutOfMemory)],
    ] {
        let fault = run(fakes).await.fault.unwrap();
        assert!(fault.message.ends_with("told so"), "{fault}");
    }
}

#[tokio::test]
async fn a_model_that_fails_ends_the_run_at_once() {
    let fakes = vec![failing("fake:0", 0, Run), failing("fake:1", 0, Run)];
    let outcome = run(fakes).await;
    assert_eq!(outcome.retired, vec![]);
    assert!(outcome.fault.unwrap().message.ends_with("told so"));
}

#[tokio::test]
async fn cancelling_ends_the_devices_while_flights_are_queued() {
    let faults = Faults::new(CancellationToken::new());
    let (ports, batches_in, flights_out, home) =
        parted(DeviceChannels::new(vec!["fake:0".into(), "fake:1".into()], 2 * SLOTS), &faults);
    let devices = start(factories(vec![fake("fake:0"), fake("fake:1")]), SLOTS, ports).await;
    let (slots, threads): (Vec<_>, Vec<_>) = devices.unwrap().into_iter().map(Device::into_parts).unzip();
    let (give_back, free) = async_channel::unbounded();
    slots.into_iter().flatten().for_each(|slot| give_back.try_send(slot).unwrap());
    let forming = tokio::spawn(form(free, batches_in, home));
    // Nobody merges: every slot ends up in a flight, and every flight holds a way home.
    while flights_out.len() < 2 * SLOTS {
        tokio::task::yield_now().await;
    }
    forming.abort();
    faults.cancel().cancel();
    join(threads, &faults, GRACE).await;
    assert_eq!((flights_out.len(), faults.first()), (2 * SLOTS, None));
}

#[tokio::test]
async fn a_device_that_hangs_is_left_behind_at_the_deadline() {
    let faults = Faults::new(CancellationToken::new());
    let (ports, batches_in, flights_out, home) = parted(DeviceChannels::new(vec!["fake:0".into()], SLOTS), &faults);
    let (go_on, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let hanging = fake("fake:0").before(move |_| {
        // Until the test has ended.
        let _ = held.lock().unwrap().recv();
        Ok(())
    });
    let mut devices = start(factories(vec![hanging]), SLOTS, ports).await.unwrap();
    let (slots, thread) = devices.remove(0).into_parts();
    let slot = slots.into_iter().next().unwrap();
    batches_in.send(Batch { since: Instant::now(), sequence: 0, slot, rows: vec![row(), row()], home }).await.unwrap();
    while !batches_in.is_empty() {
        tokio::task::yield_now().await;
    }
    faults.cancel().cancel();
    join(vec![thread], &faults, Duration::ZERO).await;
    assert_eq!((flights_out.len(), faults.first()), (0, None));
    drop(go_on);
}

#[tokio::test]
async fn a_start_that_is_cancelled_is_interrupted() {
    let faults = Faults::new(CancellationToken::new());
    let (ports, ..) = parted(DeviceChannels::new(vec!["fake:0".into()], SLOTS), &faults);
    faults.cancel().cancel();
    let Err(fault) = start(factories(vec![fake("fake:0")]), SLOTS, ports).await else { panic!("it started") };
    assert_eq!(fault.kind, FaultKind::Interrupted);
}

#[tokio::test]
async fn devices_that_give_different_bytes_are_refused_by_name() {
    let outcome = run(vec![fake("fake:0"), Fake::affine("fake:1", spec(), 2.0, 1.000_000_1)]).await;
    let fault = outcome.fault.unwrap();
    assert!(fault.message.starts_with("fake:0 and fake:1 give different bytes"), "{fault}");
}
