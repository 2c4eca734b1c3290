//! Device: one named OS thread per device owns its engine from start to join.
//!
//! In front of it: the one channel that all devices share; the idle device takes the next batch. Behind it: flights, in any
//! order. Bounded by the slots, which the engines allocate once, before the first voxel is read. A device thread never awaits and
//! never touches storage.
//!
//! A thread ends when nothing can come any more or on cancellation, whatever is queued then.
//!
//! A device that is lost or has no memory left retires: its batches go back to a queue that the others take from first. With no
//! other left, that is the fault of the run. All devices must give the same bytes for one fixed batch before a run begins, so that it
//! does not matter which of them took what; a processor and a GPU do not, and cannot share a run.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};
use futures::future::{Either, select};
use haloflow_engine::{Engine, EngineError, EngineFactory, EngineSpec, Rejected, Slot};
use haloflow_volume::carried::carried_over;
use tokio::sync::oneshot;

use crate::board::Board;
use crate::fault::{Fault, FaultKind, Faults, Stage};
use crate::home::{Fleet, Home, device_is_at_fault};
use crate::messages::{Batch, Flight, Row};
use crate::meter::Meters;

/// How long a device may take to end when everything else has ended.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// The channel ends that every device thread gets.
#[derive(Clone)]
pub(crate) struct DevicePorts {
    pub(crate) batches: Receiver<Batch>,
    /// Batches that another device could not do.
    pub(crate) returned: Receiver<Batch>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) flights: Sender<Flight>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) faults: Faults,
    pub(crate) board: Board,
}

/// A device whose engine is ready.
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) spec: EngineSpec,
    pub(crate) description: String,
    pub(crate) start_seconds: f64,
    pub(crate) slots: Vec<Slot>,
    /// What it makes of the fixed batch, if there is a device to compare with.
    fingerprint: Option<u64>,
    thread: DeviceThread,
}

struct Ready {
    spec: EngineSpec,
    description: String,
    slots: Vec<Slot>,
    fingerprint: Option<u64>,
}

/// Starts the devices one after the other: each loads and warms up its engine on its own thread and allocates `slots` slots.
///
/// # Errors
/// The first engine that does not become ready, after the threads that were started have ended.
pub(crate) async fn start(
    factories: Vec<Box<dyn EngineFactory>>,
    slots: usize,
    ports: DevicePorts,
) -> Result<Vec<Device>, Fault> {
    let mut devices: Vec<Device> = Vec::with_capacity(factories.len());
    let order = Order { slots, compare: factories.len() > 1 };
    for factory in factories {
        let started = start_one(factory, order, ports.clone()).await.map(|device| devices.push(device));
        if let Err(fault) = started.and_then(|()| agree(&devices)) {
            ports.faults.report(fault.clone());
            ports.batches.close();
            ports.returned.close();
            join(devices.into_iter().map(|device| device.into_parts().1).collect(), &ports.faults, GRACE).await;
            return Err(fault);
        }
    }
    Ok(devices)
}

/// All devices must run the same thing.
fn agree(devices: &[Device]) -> Result<(), Fault> {
    match devices {
        [first, .., last] if first.spec != last.spec => {
            let message = format!(
                "{} and {} disagree on what they run: {:?} and {:?}",
                first.name, last.name, first.spec, last.spec
            );
            Err(Fault::new(FaultKind::Engine, Stage::Device, message))
        }
        [first, .., last] if first.fingerprint != last.fingerprint => {
            let message = format!(
                "{} and {} give different bytes for the same input, so the result would depend on which of them took which patch; run on \
                 devices of one model only",
                first.name, last.name
            );
            Err(Fault::new(FaultKind::Engine, Stage::Device, message))
        }
        _ => Ok(()),
    }
}

/// What a device is to do at its start.
#[derive(Clone, Copy)]
struct Order {
    /// Slots to allocate.
    slots: usize,
    /// Whether it is to run the fixed batch.
    compare: bool,
}

async fn start_one(factory: Box<dyn EngineFactory>, order: Order, ports: DevicePorts) -> Result<Device, Fault> {
    let started = Instant::now();
    let name = factory.device();
    let (tell, told) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let faults = ports.faults.clone();
    let thread = std::thread::Builder::new()
        .name(format!("device-{name}"))
        .spawn(carried_over(move || {
            own(factory, order, tell, &ports);
            drop(end);
        }))
        .map_err(|error| {
            Fault::new(FaultKind::Internal, Stage::Device, format!("no thread could be started for {name}: {error}"))
        })?;
    let thread = DeviceThread { name: name.clone(), thread, ended };
    let fault = match faults.cancel().run_until_cancelled(told).await {
        None => Fault::interrupted(),
        Some(Ok(Ok(Ready { spec, description, slots, fingerprint }))) => {
            let start_seconds = started.elapsed().as_secs_f64();
            return Ok(Device { name, spec, description, start_seconds, slots, fingerprint, thread });
        }
        Some(Ok(Err(error))) => Fault::engine(&error),
        Some(Err(_)) => Fault::defect(Stage::Device, &format!("the thread of {name} ended while it started")),
    };
    join(vec![thread], &faults, GRACE).await;
    Err(fault)
}

/// The life of a device thread.
fn own(
    factory: Box<dyn EngineFactory>,
    order: Order,
    tell: oneshot::Sender<Result<Ready, EngineError>>,
    ports: &DevicePorts,
) {
    let name = factory.device();
    let life = std::panic::AssertUnwindSafe(|| {
        let made = factory.make().and_then(|mut engine| {
            let ready = ready(engine.as_mut(), order)?;
            Ok((engine, ready))
        });
        match made {
            Err(error) => drop(tell.send(Err(error))),
            Ok((mut engine, ready)) => {
                if tell.send(Ok(ready)).is_ok() {
                    serve(engine.as_mut(), &name, ports);
                }
            }
        }
    });
    if std::panic::catch_unwind(life).is_err() {
        ports.faults.report(Fault::defect(Stage::Device, &format!("the thread of {name} panicked")));
    }
}

/// Allocates the slots and, if asked to, runs the fixed batch.
fn ready(engine: &mut dyn Engine, order: Order) -> Result<Ready, EngineError> {
    let mut slots: Vec<Slot> = (0..order.slots).map(|_| engine.allocate()).collect::<Result<_, _>>()?;
    let mut fingerprint = None;
    if order.compare
        && let Some(slot) = slots.pop()
    {
        let (slot, hash) = engine.fingerprint(slot).map_err(|Rejected { error, .. }| error)?;
        slots.push(slot);
        fingerprint = Some(hash);
    }
    Ok(Ready { spec: engine.spec().clone(), description: engine.describe(), slots, fingerprint })
}

/// Takes batches until there are none, the run is cancelled or the device cannot go on.
fn serve(engine: &mut dyn Engine, name: &str, ports: &DevicePorts) {
    let device: Arc<str> = name.into();
    let meter = &ports.meters.device;
    while let Some(Batch { since, sequence, slot, rows, home }) = meter.wait(|| next_batch(ports)) {
        meter.taken(since);
        if ports.faults.cancel().is_cancelled() {
            return;
        }
        // Held until it has landed.
        let holding = ports.board.hold(Stage::Device, format!("{name} has batch {sequence}, {}", named(&rows)));
        let submitted = Instant::now();
        match meter.work(|| engine.submit(slot, rows.len())) {
            Ok(completion) => {
                let device = Arc::clone(&device);
                let flight = Flight { submitted, sequence, rows, completion, device, home, holding };
                if meter.wait(|| ports.flights.send_blocking(flight).is_err()) {
                    return;
                }
            }
            Err(Rejected { slot, error }) if device_is_at_fault(&error) => {
                return retire(ports, name, &error, Batch { since: Instant::now(), sequence, slot, rows, home });
            }
            Err(Rejected { error, .. }) => return ports.faults.report(failed(&error, &rows)),
        }
    }
}

/// The next batch, one that came back before one that is new. None if all have landed, or on cancellation: what is queued may hold
/// ways home then, so that waiting for the last of them would never end.
fn next_batch(ports: &DevicePorts) -> Option<Batch> {
    let next = async {
        let (returned, new) = (std::pin::pin!(ports.returned.recv()), std::pin::pin!(ports.batches.recv()));
        match select(returned, new).await {
            Either::Left((batch, _)) => batch.ok(),
            Either::Right((Ok(batch), _)) => Some(batch),
            // No new ones will come; others may still come back.
            Either::Right((Err(_), returned)) => returned.await.ok(),
        }
    };
    futures::executor::block_on(ports.faults.cancel().run_until_cancelled(next)).flatten()
}

/// Leaves the run to the other devices, or ends it if there is none.
fn retire(ports: &DevicePorts, name: &str, error: &EngineError, batch: Batch) {
    if ports.fleet.retire(name, error) {
        ports.board.note(format!("{name} retired: {error}"));
        tracing::warn!(device = error.device, "the device retires and the others go on: {}", error.message);
        Home::send(batch);
    } else {
        ports.faults.report(failed(error, &batch.rows));
    }
}

/// The fault of a batch that its engine did not complete.
pub(crate) fn failed(error: &EngineError, rows: &[Row]) -> Fault {
    Fault::engine(error).at(named(rows))
}

/// A batch by its patches.
fn named(rows: &[Row]) -> String {
    let first = rows.first().map(|Row { context, .. }| format!(", the first in {}", context.step.read));
    format!("batch of {} patches{}", rows.len(), first.unwrap_or_default())
}

/// Waits for all of the devices' threads to end. They end when the channel of batches is closed and empty, or on cancellation. One
/// that hangs for longer than `grace` is named and left behind.
pub(crate) async fn join(threads: Vec<DeviceThread>, faults: &Faults, grace: Duration) {
    let deadline = tokio::time::Instant::now() + grace;
    for DeviceThread { name, thread, ended } in threads {
        if tokio::time::timeout_at(deadline, ended).await.is_err() {
            tracing::error!(device = name, "{name} still hangs {grace:?} after the run has ended; it is left behind");
            continue;
        }
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        if !matches!(joined, Ok(Ok(()))) {
            faults.report(Fault::defect(Stage::Device, &format!("the thread of {name} could not be joined")));
        }
    }
}

/// A device's thread, to be joined.
pub(crate) struct DeviceThread {
    name: String,
    thread: JoinHandle<()>,
    /// Its sender is dropped at the thread's end.
    ended: oneshot::Receiver<()>,
}

impl Device {
    /// Parts the device into its slots and its thread.
    pub(crate) fn into_parts(self) -> (Vec<Slot>, DeviceThread) {
        (self.slots, self.thread)
    }
}

#[cfg(test)]
mod tests;
