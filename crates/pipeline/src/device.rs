//! Device: one named OS thread per device owns its engine from start to join.
//!
//! In front of it: the one channel that all devices share; the idle device takes the next batch. Behind it: flights, in any
//! order. Bounded by the slots, which the engines allocate once, before the first voxel is read. A device thread never awaits and
//! never touches storage.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use async_channel::{Receiver, Sender};
use haloflow_engine::{Engine, EngineError, EngineFactory, EngineSpec, Rejected, Slot};
use tokio::sync::oneshot;

use crate::fault::{Fault, FaultKind, Faults, Stage};
use crate::messages::{Batch, Flight, Row};
use crate::meter::Meters;

/// The channel ends that every device thread gets.
#[derive(Clone)]
pub(crate) struct DevicePorts {
    pub(crate) batches: Receiver<Batch>,
    pub(crate) flights: Sender<Flight>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) faults: Faults,
}

/// A device whose engine is ready.
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) spec: EngineSpec,
    pub(crate) description: String,
    pub(crate) start_seconds: f64,
    pub(crate) slots: Vec<Slot>,
    thread: JoinHandle<()>,
}

struct Ready {
    spec: EngineSpec,
    description: String,
    slots: Vec<Slot>,
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
    for factory in factories {
        let started = start_one(factory, slots, ports.clone()).await.map(|device| devices.push(device));
        if let Err(fault) = started.and_then(|()| agree(&devices)) {
            ports.faults.report(fault.clone());
            ports.batches.close();
            join(devices.into_iter().map(|device| device.into_parts().1).collect(), &ports.faults).await;
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
        _ => Ok(()),
    }
}

async fn start_one(factory: Box<dyn EngineFactory>, slots: usize, ports: DevicePorts) -> Result<Device, Fault> {
    let started = Instant::now();
    let name = factory.device();
    let (tell, told) = oneshot::channel();
    let faults = ports.faults.clone();
    let thread = std::thread::Builder::new()
        .name(format!("device-{name}"))
        .spawn(move || own(factory, slots, tell, &ports))
        .map_err(|error| {
            Fault::new(FaultKind::Internal, Stage::Device, format!("no thread could be started for {name}: {error}"))
        })?;
    let fault = match told.await {
        Ok(Ok(Ready { spec, description, slots })) => {
            let start_seconds = started.elapsed().as_secs_f64();
            return Ok(Device { name, spec, description, start_seconds, slots, thread });
        }
        Ok(Err(error)) => Fault::engine(&error),
        Err(_) => Fault::defect(Stage::Device, &format!("the thread of {name} ended while it started")),
    };
    join(vec![DeviceThread { name, thread }], &faults).await;
    Err(fault)
}

/// The life of a device thread.
fn own(
    factory: Box<dyn EngineFactory>,
    slots: usize,
    tell: oneshot::Sender<Result<Ready, EngineError>>,
    ports: &DevicePorts,
) {
    let name = factory.device();
    let life = std::panic::AssertUnwindSafe(|| {
        let made = factory.make().and_then(|mut engine| {
            let slots = (0..slots).map(|_| engine.allocate()).collect::<Result<_, _>>()?;
            let ready = Ready { spec: engine.spec().clone(), description: engine.describe(), slots };
            Ok((engine, ready))
        });
        match made {
            Err(error) => drop(tell.send(Err(error))),
            Ok((mut engine, ready)) => {
                if tell.send(Ok(ready)).is_ok() {
                    serve(engine.as_mut(), ports);
                }
            }
        }
    });
    if std::panic::catch_unwind(life).is_err() {
        ports.faults.report(Fault::defect(Stage::Device, &format!("the thread of {name} panicked")));
    }
}

/// Takes batches until there are none or the run is cancelled.
fn serve(engine: &mut dyn Engine, ports: &DevicePorts) {
    let meter = &ports.meters.device;
    while let Ok(Batch { sequence, slot, rows }) = meter.wait(|| ports.batches.recv_blocking()) {
        if ports.faults.cancel().is_cancelled() {
            return;
        }
        match meter.work(|| engine.submit(slot, rows.len())) {
            Ok(completion) => {
                let flight = Flight { sequence, rows, completion };
                if meter.wait(|| ports.flights.send_blocking(flight)).is_err() {
                    return;
                }
            }
            Err(Rejected { error, .. }) => return ports.faults.report(failed(&error, &rows)),
        }
    }
}

/// The fault of a batch that its engine did not complete.
pub(crate) fn failed(error: &EngineError, rows: &[Row]) -> Fault {
    let fault = Fault::engine(error);
    match rows.first() {
        Some(Row { context, .. }) => {
            fault.at(format!("batch of {} patches, the first in {}", rows.len(), context.step.read))
        }
        None => fault,
    }
}

/// Waits for all of the devices' threads to end. They end when the channel of batches is closed and empty, or on cancellation.
pub(crate) async fn join(threads: Vec<DeviceThread>, faults: &Faults) {
    for DeviceThread { name, thread } in threads {
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
}

impl Device {
    /// Parts the device into its slots and its thread.
    pub(crate) fn into_parts(self) -> (Vec<Slot>, DeviceThread) {
        (self.slots, DeviceThread { name: self.name, thread: self.thread })
    }
}
