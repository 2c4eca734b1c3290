//! The way of a batch over a device: up, through the model, down, on three streams that overlap.
//!
//! While batch n is computed, batch n+1 is uploaded and batch n−1 downloaded. The order is kept by events alone; the host waits
//! for nothing here. All buffers of the device are made at start-up and belong to the ring until it is dropped, so that no tensor
//! ever has to be kept alive for another stream's sake. The output goes through a buffer of the ring too: one copy on the device
//! (tens of microseconds) brings it into the slot's kind and frees the model's own output at once.

use std::sync::Arc;

use haloflow_engine::{EngineErrorKind, EngineSpec, Slot, Timeline};
use tch::{Device, Tensor};

use crate::cause::Cause;
use crate::clock::{Clock, Marks};
use crate::ffi::{HostTensor, copy_without_waiting};
use crate::shape::{check_channels, output_channels, tensor_size, torch_kind};
use crate::stream::{Event, Stream};

/// Places for a batch on the device. Two are enough: one is computed on while the other is filled or emptied.
const STATIONS: usize = 2;

/// Streams and buffers of one device.
pub(crate) struct Ring {
    device: Device,
    spec: EngineSpec,
    upload: Stream,
    compute: Stream,
    download: Stream,
    stations: Vec<Station>,
    batches: usize,
    clock: Option<Clock>,
}

/// A place for a batch on the device, and the events that tell when it may be used again.
struct Station {
    input: Tensor,
    output: Tensor,
    /// The input is there.
    uploaded: Event,
    /// The input is not needed any more and the output is there.
    computed: Event,
    /// The output is not needed any more.
    downloaded: Event,
}

/// A batch's turn at a station.
struct Turn<'a> {
    station: &'a Station,
    marks: Option<&'a Marks>,
    /// Rows that are wanted.
    rows: usize,
    /// Rows that are run: all of a batch if short ones are padded.
    run_rows: usize,
}

impl Turn<'_> {
    /// Records the begin or the end of a step, if a time line is kept.
    fn mark(&self, stream: &Stream, i: usize) -> Result<(), Cause> {
        Ok(self.marks.map_or(Ok(()), |marks| stream.record(&marks.events[i]))?)
    }
}

/// A batch on its way: what its slot must be kept for.
pub(crate) struct Passage {
    /// Happens when the slot's input has been read and its output written.
    pub(crate) done: Event,
    /// When its three steps began and ended, if a time line is kept.
    pub(crate) marks: Option<Marks>,
}

impl Ring {
    /// Streams of `device`; from now on the calling thread, which must be the device's own, computes on one of them.
    pub(crate) fn streams(device: Device) -> Result<[Stream; 3], Cause> {
        let compute = Stream::new(device, false)?;
        // Copies are short and others wait for them.
        let [upload, download] = [Stream::new(device, true)?, Stream::new(device, true)?];
        compute.make_current()?;
        Ok([upload, compute, download])
    }

    /// A ring for batches of `spec`.
    pub(crate) fn new(
        device: Device,
        spec: EngineSpec,
        [upload, compute, download]: [Stream; 3],
        timeline: Option<Arc<Timeline>>,
        name: &str,
    ) -> Result<Self, Cause> {
        let stations = (0..STATIONS).map(|_| Station::new(device, &spec)).collect::<Result<_, _>>()?;
        // The buffers may lie where the warm-up's still running work has its own.
        compute.synchronize()?;
        let clock = timeline.map(|timeline| Clock::new(device, &compute, timeline, name)).transpose()?;
        Ok(Self { device, spec, upload, compute, download, stations, batches: 0, clock })
    }

    /// Puts a batch on its way: `rows` rows of `slot` go up, through `run` and down. Returns as soon as all of it has been put on
    /// the streams.
    pub(crate) fn pass(
        &mut self,
        slot: &mut Slot,
        rows: usize,
        run: impl FnOnce(&Tensor) -> Result<Tensor, Cause>,
    ) -> Result<Passage, Cause> {
        let started = self.start(slot, rows, run);
        if started.is_err() {
            // The slot goes back now, and a copy may still be under way.
            self.synchronize().map_err(lost)?;
        }
        started
    }

    fn start(
        &mut self,
        slot: &mut Slot,
        rows: usize,
        run: impl FnOnce(&Tensor) -> Result<Tensor, Cause>,
    ) -> Result<Passage, Cause> {
        let station = &self.stations[self.batches % STATIONS];
        self.batches += 1;
        let marks = self.clock.as_ref().map(|clock| clock.marks(self.device)).transpose()?;
        let run_rows = if self.spec.pad_short { self.spec.batch } else { rows };
        let turn = Turn { station, marks: marks.as_ref(), rows, run_rows };
        let input = self.up(&turn, slot)?;
        let output = self.through(&turn, &input, run)?;
        self.down(&turn, slot, &output)?;
        // An event of its own, since the station's is recorded again before everybody has waited for it.
        let done = Event::new(self.device, false)?;
        self.download.record(&done)?;
        Ok(Passage { done, marks })
    }

    /// Uploads the rows, once nobody computes on the buffer any more.
    fn up(&self, turn: &Turn<'_>, slot: &mut Slot) -> Result<Tensor, Cause> {
        let Turn { station, run_rows, .. } = *turn;
        let input = station.input.f_narrow(0, 0, i64::try_from(run_rows).unwrap_or(i64::MAX))?;
        self.upload.wait(&station.computed)?;
        turn.mark(&self.upload, 0)?;
        self.on(&self.upload, || {
            let memory = &mut slot.input.bytes_mut()[..run_rows * self.spec.input_row_bytes()];
            let size = tensor_size(run_rows, self.spec.channels_in, self.spec.patch);
            let host = HostTensor::new(memory, &size, torch_kind(self.spec.input))?;
            Ok(copy_without_waiting(&input, host.tensor())?)
        })?;
        turn.mark(&self.upload, 1)?;
        self.upload.record(&station.uploaded)?;
        Ok(input)
    }

    /// Runs the model, once the input is there, and brings its output into the buffer, once nobody downloads from it any more.
    fn through(
        &self,
        turn: &Turn<'_>,
        input: &Tensor,
        run: impl FnOnce(&Tensor) -> Result<Tensor, Cause>,
    ) -> Result<Tensor, Cause> {
        let station = turn.station;
        self.compute.wait(&station.uploaded)?;
        turn.mark(&self.compute, 2)?;
        let given = run(input)?;
        check_channels(output_channels(&given.size(), turn.run_rows, self.spec.patch)?, self.spec.channels_out)?;
        let rows = i64::try_from(turn.rows).unwrap_or(i64::MAX);
        let output = station.output.f_narrow(0, 0, rows)?;
        self.compute.wait(&station.downloaded)?;
        copy_without_waiting(&output, &given.f_narrow(0, 0, rows)?)?;
        turn.mark(&self.compute, 3)?;
        self.compute.record(&station.computed)?;
        Ok(output)
    }

    /// Downloads the rows, once they are there.
    fn down(&self, turn: &Turn<'_>, slot: &mut Slot, output: &Tensor) -> Result<(), Cause> {
        self.download.wait(&turn.station.computed)?;
        turn.mark(&self.download, 4)?;
        self.on(&self.download, || {
            let memory = &mut slot.output.bytes_mut()[..turn.rows * self.spec.output_row_bytes()];
            let size = tensor_size(turn.rows, self.spec.channels_out, self.spec.patch);
            let host = HostTensor::new(memory, &size, torch_kind(self.spec.output))?;
            Ok(copy_without_waiting(host.tensor(), output)?)
        })?;
        turn.mark(&self.download, 5)?;
        Ok(self.download.record(&turn.station.downloaded)?)
    }

    /// Does `work` with `stream` as the thread's current one, and goes back to the compute stream whatever comes of it.
    fn on<T>(&self, stream: &Stream, work: impl FnOnce() -> Result<T, Cause>) -> Result<T, Cause> {
        stream.make_current()?;
        let done = work();
        self.compute.make_current()?;
        done
    }

    /// Blocks until the ring is idle. For shutdown and after failures.
    pub(crate) fn synchronize(&self) -> Result<(), Cause> {
        for stream in [&self.upload, &self.compute, &self.download] {
            stream.synchronize()?;
        }
        Ok(())
    }

    /// The stream that the model runs on.
    pub(crate) const fn compute(&self) -> &Stream {
        &self.compute
    }

    /// The stream that batches come up on, and that they go down on.
    pub(crate) const fn copies(&self) -> [&Stream; 2] {
        [&self.upload, &self.download]
    }

    /// The input and the output buffer of the first place.
    pub(crate) fn buffers(&self) -> [&Tensor; 2] {
        let [Station { input, output, .. }, ..] = &self.stations[..] else { unreachable!("a ring has stations") };
        [input, output]
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The buffers go back to libtorch, which knows of the compute stream only. A device that is lost uses nothing any more.
        drop(self.synchronize());
    }
}

impl Station {
    fn new(device: Device, spec: &EngineSpec) -> Result<Self, Cause> {
        let buffer =
            |channels, kind| Tensor::f_zeros(tensor_size(spec.batch, channels, spec.patch), (torch_kind(kind), device));
        Ok(Self {
            input: buffer(spec.channels_in, spec.input)?,
            output: buffer(spec.channels_out, spec.output)?,
            uploaded: Event::new(device, false)?,
            computed: Event::new(device, false)?,
            downloaded: Event::new(device, false)?,
        })
    }
}

/// What a failure told of at an event means: the work that failed cannot be named any more, and the device does not go on.
pub(crate) fn lost(cause: Cause) -> Cause {
    let kind = if cause.kind == EngineErrorKind::Run { EngineErrorKind::DeviceLost } else { cause.kind };
    Cause { kind, ..cause }
}
