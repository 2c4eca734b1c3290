//! Planning an output: every check is made before anything is created or touched.

use haloflow_geometry::{Box3, Zyx};
use serde_json::{Value, json};

use crate::address::in_memory;
use crate::axes::AxisMap;
use crate::documents::{Seal, documents, unsealed, write_missing};
use crate::layout::Layout;
use crate::ledger::{FOLDER, Ledger};
use crate::spec::Source;
use crate::target::{Found, Target};
use crate::writer::{ArrayTarget, Level, in_flight};
use crate::{
    CpuPool, Element, Environment, InputDescription, Levels, StorageCounters, VolumeError, VolumeWriter, ZarrFormat,
};

/// The output as asked for.
#[derive(Clone, Debug)]
pub struct OutputRequest {
    /// One per output channel, or a single one if channels are stacked: a URL, a path, a TensorStore spec as inline JSON, or the path
    /// of a file that holds one (it ends in `.json`). A URL or path makes an OME-Zarr group, a spec a bare array.
    pub targets: Vec<String>,
    /// Whether all output channels go into one array, along its channel axis.
    pub stack_channels: bool,
    /// The kind of number, if asked for.
    pub element: Option<Element>,
    /// The kind of number if neither `element` nor a spec says.
    pub default_element: Element,
    /// Chunk shape z, y, x, voxels; unset follows the input.
    pub chunk: Option<Zyx>,
    /// Shard shape z, y, x, voxels, a multiple of the chunk; unset writes no shards.
    pub shard: Option<Zyx>,
    /// Version of the Zarr format; unset is v3, or what a spec says.
    pub format: Option<ZarrFormat>,
    /// `blosc` (with Zstandard), `blosc-lz4`, `blosc-zlib`, `zstd`, `gzip`, each optionally with `:LEVEL`, or `none`; unset is `blosc:3`.
    pub compressor: Option<String>,
    /// Time point to write; unset is 0 in a new array and `input_t` where a spec gives the shape.
    pub t: Option<usize>,
    /// Channel to write; as `t`.
    pub c: Option<usize>,
    /// The time point that is read.
    pub input_t: usize,
    /// The (first) channel that is read.
    pub input_c: usize,
    /// Whether existing outputs are deleted.
    pub overwrite: bool,
    /// Whether outputs that a run has begun and not finished are taken as they are. If not, or if they are finished, they exist.
    pub resume: bool,
    /// Whether other processes write to the same outputs, so that finished ones are no surprise.
    pub shared: bool,
    /// The lattice on which tiles will be written, z, y, x, voxels. On each axis the write unit must divide it, unless one block
    /// covers the axis.
    pub block: Option<Zyx>,
    /// Stored in the output's attributes under `haloflow`.
    pub provenance: Value,
}

/// An output of which everything has been checked and nothing created.
#[derive(Debug)]
pub struct OutputPlan {
    request: OutputRequest,
    /// At least one; all have the same unit and element.
    targets: Vec<Target>,
    unit: Zyx,
    element: Element,
    /// Units that are encoded and put at one time, at most.
    in_flight: usize,
    /// The input's channel names and colours.
    omero: Option<Value>,
    cpu: CpuPool,
    counters: StorageCounters,
    ledger: Ledger,
    begun: Option<Begun>,
    /// Whether the ledger tells of an earlier run into an array that is opened once more.
    stale: bool,
}

/// A run that an output was begun by.
#[derive(Clone, Debug)]
pub struct Begun {
    /// The head of its ledger.
    pub head: Value,
    /// Whether every tile was stored.
    pub complete: bool,
}

impl Begun {
    async fn find(ledger: &Ledger) -> Result<Option<Self>, VolumeError> {
        let Some(head) = ledger.head().await? else { return Ok(None) };
        Ok(Some(Self { head, complete: ledger.is_complete().await? }))
    }
}

/// One array may hold several outputs, by time point and channel, each of a run of its own.
fn ledger_folder(request: &OutputRequest) -> String {
    let name = |index: Option<usize>| index.map_or_else(String::new, |index| index.to_string());
    format!("{FOLDER}/t{}c{}", name(request.t), name(request.c))
}

impl OutputPlan {
    /// Makes every check that needs no channel count: specs, kinds, shapes, chunks, codecs, whether outputs exist, whether they collide with
    /// each other or with the input. Reads metadata and lists; changes nothing.
    ///
    /// # Errors
    /// `Usage` for a value that is not allowed; `Exists` if an output exists and is to be neither opened nor overwritten;
    /// `Data` if an existing array cannot hold the result; `Unavailable` if a store cannot be reached.
    pub async fn check(
        request: OutputRequest,
        input: &InputDescription,
        environment: &Environment,
        cpu: &CpuPool,
    ) -> Result<Self, VolumeError> {
        if request.stack_channels && request.targets.len() > 1 {
            return Err(VolumeError::usage(format!(
                "channels are to be stacked in one output, but {} outputs are given: give one",
                request.targets.len()
            )));
        }
        let mut sources = Vec::new();
        for target in &request.targets {
            sources.push(Source::read(target, environment).await?);
        }
        check_collisions(&sources, input)?;
        let Some(first) = sources.first() else {
            return Err(VolumeError::usage("there is no output: give at least one"));
        };
        let mut exist = Vec::new();
        for source in &sources {
            exist.push(source.location().exists().await?);
        }
        // After the outputs were found to exist: whoever makes them has made the head before.
        let ledger = Ledger::new(first.location().at(&ledger_folder(&request)));
        let is_there = exist.contains(&true) && !first.location().is_file();
        let found = if is_there { Begun::find(&ledger).await? } else { None };
        let stale = found.is_some();
        let begun = found.filter(|begun| request.resume && (request.shared || !begun.complete));
        let mut targets = Vec::new();
        for (source, exists) in sources.iter().zip(exist) {
            targets.push(Target::check(source, &request, input, Found { exists, begun: begun.is_some() }).await?);
        }
        let first = &targets[0];
        let stale = stale && begun.is_none() && first.blueprint.is_none();
        let (unit, element) = (first.unit(), first.layout.element);
        if let Some(other) = targets.iter().find(|target| (target.unit(), target.layout.element) != (unit, element)) {
            return Err(VolumeError::usage(format!(
                "all outputs must have the same chunks and element kind, but {} has {unit:?} of {element} and {} has {:?} of {}",
                first.location.url,
                other.location.url,
                other.unit(),
                other.layout.element
            )));
        }
        let omero = input.omero.clone();
        let bytes = targets.iter().map(|target| target.layout.codec.decoded_size()).max().unwrap_or(0);
        let in_flight = in_flight(bytes, cpu);
        Ok(Self {
            request,
            targets,
            unit,
            element,
            in_flight,
            omero,
            cpu: cpu.clone(),
            counters: StorageCounters::default(),
            ledger,
            begun,
            stale,
        })
    }

    /// The same output with coarser levels, written in tiles of `tile` voxels.
    ///
    /// # Errors
    /// `Usage` if an output is no OME-Zarr image, or if tiles would share a chunk on some level.
    pub fn with_pyramid(mut self, levels: Levels, tile: Zyx) -> Result<Self, VolumeError> {
        if levels != Levels::One {
            self.targets.iter_mut().try_for_each(|target| target.plan_pyramid(levels, tile))?;
        }
        Ok(self)
    }

    /// For each coarser level, how many voxels of the finest one of its voxels stands for along z, y, x.
    #[must_use]
    pub fn factors(&self) -> Vec<Zyx> {
        self.targets.first().into_iter().flat_map(|target| target.coarser.iter().map(|level| level.factors)).collect()
    }

    /// Where it is recorded what is stored.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The run that has begun this output and that may be gone on with.
    #[must_use]
    pub fn begun(&self) -> Option<&Begun> {
        self.begun.as_ref()
    }

    /// What the output's arrays look like: names and values of what decides about their bytes.
    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let first = &self.targets[0];
        let compressor = first.blueprint.as_ref().map_or_else(
            || first.layout.compressor.clone(),
            |blueprint| {
                let metadata = blueprint.metadata(&json!({}));
                metadata.get("codecs").unwrap_or(&metadata["compressor"]).to_string()
            },
        );
        vec![
            ("out", self.urls().join(" ")),
            ("out-dtype", self.element.to_string()),
            ("chunk", format!("{:?}", first.map.spatial(first.layout.unit()))),
            ("shard", format!("{:?}", self.unit)),
            ("zarr-format", format!("{:?}", first.layout.format)),
            ("compressor", compressor),
            ("stack-channels", self.request.stack_channels.to_string()),
            ("out-t", first.t.to_string()),
            ("out-c", first.c.to_string()),
            ("pyramid", (first.coarser.len() + 1).to_string()),
        ]
    }

    /// Spatial shape of the unit of writing, z, y, x, voxels: the shard if there is one, else the chunk.
    #[must_use]
    pub fn unit(&self) -> Zyx {
        self.unit
    }

    /// The kind of number of the output.
    #[must_use]
    pub fn element(&self) -> Element {
        self.element
    }

    /// Where the outputs will be.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.targets.iter().map(|target| target.location.url.clone()).collect()
    }

    /// How many arrays there will be.
    #[must_use]
    pub fn arrays(&self) -> usize {
        self.targets.len()
    }

    /// Whether all channels go into one array.
    #[must_use]
    pub fn stacked(&self) -> bool {
        self.request.stack_channels
    }

    /// How many objects hold the result, on all levels, if the network gives so many channels.
    #[must_use]
    pub fn objects(&self, channels_out: usize) -> u64 {
        let levels = |target: &Target| {
            let finest = std::iter::once(&target.layout);
            let cells = |layout: &Layout| {
                let (shape, unit) = (target.map.spatial(&layout.shape), target.map.spatial(&layout.chunk));
                Box3::of_shape(shape).cells(unit).voxels() as u64
            };
            finest.chain(target.coarser.iter().map(|level| &level.layout)).map(cells).sum::<u64>()
        };
        let per_chunk = |target: &Target| AxisMap::along(target.map.c, &target.layout.chunk).max(1);
        let groups = |target: &Target| if self.stacked() { channels_out.div_ceil(per_chunk(target)) } else { 1 };
        self.targets.iter().map(|target| levels(target) * groups(target) as u64).sum()
    }

    /// The same output in the memory of `environment`, as if nothing were there yet.
    #[must_use]
    pub fn in_memory(mut self, environment: &Environment) -> Self {
        for (number, target) in self.targets.iter_mut().enumerate() {
            target.location = in_memory(format!("out/{number}").into(), environment);
            target.array = if target.is_group { target.location.at("0") } else { target.location.clone() };
            target.delete = false;
            for (level, coarser) in (1..).zip(&mut target.coarser) {
                coarser.array = target.location.at(&format!("{level}"));
            }
        }
        let ledger = Ledger::new(self.targets[0].location.at(FOLDER));
        Self { ledger, begun: None, stale: false, counters: StorageCounters::default(), ..self }
    }

    /// The most bytes that writing holds besides the tiles handed to it: assembled and encoded units in flight, if no encoded unit
    /// is larger than a decoded one.
    #[must_use]
    pub fn transfer_bytes(&self) -> u64 {
        let unit = self.targets.iter().map(|target| target.layout.codec.decoded_size()).max().unwrap_or(0);
        (2 * self.in_flight as u64).saturating_mul(unit as u64)
    }

    /// How many units are encoded and put at one time at most.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The same output with at most so many units encoded and put at one time, and at least one.
    #[must_use]
    pub fn with_in_flight(self, units: usize) -> Self {
        Self { in_flight: self.in_flight.min(units).max(1), ..self }
    }

    /// Deletes what is to be overwritten and creates the ledger's head, unless another process has done so: gives the head that
    /// holds.
    ///
    /// Cancellation: leaves an output that is incomplete; whoever comes next may go on with it.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn begin(&mut self, channels_out: usize, head: &Value) -> Result<Value, VolumeError> {
        self.check_channels(channels_out)?;
        if let Some(begun) = &self.begun {
            return Ok(begun.head.clone());
        }
        self.clear().await?;
        if self.stale {
            self.ledger.clear().await?;
        }
        if self.ledger.create(head).await? {
            return Ok(head.clone());
        }
        let held = self.ledger.head().await?;
        held.ok_or_else(|| VolumeError::data(format!("the ledger {} is gone while a run begins", self.ledger.url())))
    }

    async fn clear(&mut self) -> Result<(), VolumeError> {
        for target in self.targets.iter_mut().filter(|target| target.delete) {
            target.location.delete_all().await?;
            target.delete = false;
        }
        Ok(())
    }

    /// Deletes what is to be overwritten, then writes the metadata of every array and group that has none. `provenance`, unless null,
    /// replaces the request's.
    ///
    /// Cancellation: leaves an output that is incomplete; calling again needs `overwrite`.
    ///
    /// # Errors
    /// `Data` if `channels_out` does not fit the targets: nothing has been deleted or created then. `Unavailable` if the store refuses.
    pub async fn create(mut self, channels_out: usize, provenance: Value) -> Result<VolumeWriter, VolumeError> {
        self.check_channels(channels_out)?;
        for target in &mut self.targets {
            target.location = target.location.clone().with_counters(&self.counters);
            target.array = target.array.clone().with_counters(&self.counters);
            if let Some(blueprint) = target.blueprint.as_mut().filter(|_| self.request.stack_channels) {
                blueprint.set_channels(channels_out);
                target.layout = Layout::read(&blueprint.metadata(&json!({})), &target.array.url)?;
            }
            for level in &mut target.coarser {
                level.array = level.array.clone().with_counters(&self.counters);
                if self.request.stack_channels {
                    level.blueprint.set_channels(channels_out);
                    level.layout = Layout::read(&level.blueprint.metadata(&json!({})), &level.array.url)?;
                }
            }
        }
        let provenance = if provenance.is_null() { self.request.provenance.clone() } else { provenance };
        self.clear().await?;
        let mut complete = provenance.clone();
        if complete.is_object() {
            complete["complete"] = true.into();
        }
        let mut seal = Seal { documents: Vec::new(), omero: self.omero, first: self.request.input_c };
        for target in &self.targets {
            let now = documents(target, &provenance);
            write_missing(&now).await?;
            seal.documents.push(unsealed(&now, documents(target, &complete)));
        }
        let levels = levels_of(self.targets, channels_out);
        Ok(VolumeWriter::new(levels, self.in_flight, seal, self.cpu, self.counters))
    }

    /// Checks that so many output channels fit the targets: one per array, or as many as the channel axis of a stacked array has
    /// where it is fixed.
    ///
    /// # Errors
    /// `Data` if they do not.
    pub fn check_channels(&self, channels_out: usize) -> Result<(), VolumeError> {
        let outputs = self.targets.len();
        if !self.request.stack_channels {
            if channels_out == outputs {
                return Ok(());
            }
            return Err(VolumeError::data(format!(
                "there are {channels_out} output channels but {outputs} outputs: give one output per channel, or one output with stacked channels"
            )));
        }
        let fixed = self
            .targets
            .iter()
            .find(|target| target.blueprint.as_ref().is_none_or(|blueprint| blueprint.given.contains_key("shape")));
        let size =
            fixed.map(|target| (target.map.c.map_or(1, |place| target.layout.shape[place]), &target.location.url));
        match size {
            Some((size, url)) if size != channels_out => Err(VolumeError::data(format!(
                "there are {channels_out} output channels but {url} has {size} along its channel axis: they must be equal"
            ))),
            _ if channels_out == 0 => Err(VolumeError::data("there are 0 output channels: there must be at least 1")),
            _ => Ok(()),
        }
    }
}

fn check_collisions(sources: &[Source], input: &InputDescription) -> Result<(), VolumeError> {
    for (place, source) in sources.iter().enumerate() {
        let location = source.location();
        if location.read_only {
            return Err(VolumeError::usage(format!(
                "the output {} is on a web server, which can only be read",
                location.url
            )));
        }
        if location.overlaps(&input.url) {
            return Err(VolumeError::usage(format!(
                "the output {} is, holds or lies in the input {}: choose another place",
                location.url, input.url
            )));
        }
        if let Some(other) = sources[..place].iter().find(|other| location.overlaps(&other.location().url)) {
            return Err(VolumeError::usage(format!(
                "the outputs {} and {} are one place, or one lies in the other: give each its own",
                other.location().url,
                location.url
            )));
        }
    }
    Ok(())
}

/// The arrays of each level, the finest first.
fn levels_of(targets: Vec<Target>, channels: usize) -> Vec<Level> {
    let mut levels: Vec<Vec<ArrayTarget>> = Vec::new();
    for target in targets {
        let of = |location, layout| ArrayTarget { location, layout, map: target.map, t: target.t, c: target.c };
        let arrays = std::iter::once(of(target.array, target.layout));
        let arrays = arrays.chain(target.coarser.into_iter().map(|level| of(level.array, level.layout)));
        for (number, array) in arrays.enumerate() {
            match levels.get_mut(number) {
                Some(level) => level.push(array),
                None => levels.push(vec![array]),
            }
        }
    }
    levels.into_iter().map(|arrays| Level::new(arrays, channels)).collect()
}
