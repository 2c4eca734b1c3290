//! What a run is told to do: the validated twin of what a person typed.

use std::time::Duration;

use haloflow_geometry::{Geometry, Lattice, Plan, Seam, Selection, Zyx};
use haloflow_volume::{Element, InputOptions, OutputRequest};

use crate::after::VoxelStep;
use crate::cast::{Cast, NonFinite, Rounding};
use crate::cut::Padding;
use crate::fault::{Fault, FaultKind, Stage};
use crate::normalise::Normalisation;
use crate::pyramid::Pyramid;
use crate::recipe::Recipe;
use crate::skip::Skip;
use crate::watchdog::Watchdog;

/// Everything that a run is told. What runs the network is told apart, by the engines' factories.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Where the volume is.
    pub input: InputOptions,
    /// Where the result goes. Its block and its default element kind are filled in by the run.
    pub output: OutputRequest,
    /// Tiles and patches.
    pub layout: Layout,
    /// What is done to voxels.
    pub values: Values,
    /// What may be used.
    pub resources: Resources,
    /// The coarser levels of the result.
    pub pyramid: Pyramid,
    /// What of that need not be computed.
    pub skip: Skip,
    /// Which part of the volume is computed.
    pub part: Part,
    /// What else decides about the result: the network's files and how they are run. A run is resumed only if it is the same. Empty
    /// while the network is not known.
    pub network: Recipe,
}

/// Which part of the volume a run computes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// One of several parts of one size, each for a process of its own.
    Shard {
        /// From 0 on.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// These tiles.
    Tiles(Selection),
}

impl Part {
    /// The plan of this part.
    pub(crate) fn of(&self, plan: Plan) -> Plan {
        match self {
            Self::Whole => plan,
            Self::Shard { index, count } => {
                let shard = Selection::shard(plan.tiles(), *index, *count);
                plan.select(&shard)
            }
            Self::Tiles(tiles) => plan.select(tiles),
        }
    }
}

/// Tiles and patches. Sizes are voxels, z y x.
#[derive(Clone, Debug)]
pub struct Layout {
    /// What the network sees.
    pub patch: Zyx,
    /// Least overlap of neighbouring patches.
    pub overlap: Zyx,
    /// Tile size; unset is 256 in the block lattice and follows the output's chunks in the volume lattice.
    pub block: Option<Zyx>,
    /// Where patches lie; unset is the volume lattice unless the normalisation differs from block to block.
    pub lattice: Option<LatticeChoice>,
    /// Real data around a block, for the block lattice; unset is derived.
    pub halo: Option<Zyx>,
    /// Patches start on multiples of this.
    pub align: Zyx,
    /// How patches are joined.
    pub seam: Seam,
}

/// The two lattices, as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatticeChoice {
    /// One lattice over the whole volume.
    Volume,
    /// One lattice per block.
    Block,
}

/// What is done to voxels.
#[derive(Clone, Debug)]
pub struct Values {
    /// How they are normalised.
    pub normalisation: Normalisation,
    /// The level of the input's pyramid that statistics of the whole volume are taken from; unset is the level that is run.
    pub statistics_level: Option<usize>,
    /// Least span of a normalisation.
    pub eps: f64,
    /// Bounds to clip normalised voxels to.
    pub clip: Option<[f32; 2]>,
    /// Whether results are brought back into the input's range: each output channel into that of the input channel of the same
    /// number if there are as many, else all into that of the first.
    pub denormalise: bool,
    /// What is done to every voxel of the result after that, in order.
    pub after: Vec<VoxelStep>,
    /// What stands in a patch where it reaches past the data.
    pub padding: Padding,
    /// How integer outputs are rounded.
    pub rounding: Rounding,
    /// What is done with NaN and infinity.
    pub nonfinite: NonFinite,
}

/// What may be used.
#[derive(Clone, Debug)]
pub struct Resources {
    /// Bytes for everything large that the pipeline holds; libtorch's own memory is not in it.
    pub memory: u64,
    /// Patches per batch.
    pub batch: usize,
    /// Batches in flight, over all devices, at most.
    pub max_inflight_batches: usize,
    /// Steps that are read and prepared at one time, at least.
    pub prep_workers: usize,
    /// Tiles that are cast, encoded and stored at one time.
    pub writer_workers: usize,
    /// Threads of the CPU pool.
    pub threads: std::num::NonZeroUsize,
    /// When a stage counts as stalled; unset is never.
    pub watchdog: Option<Watchdog>,
    /// How long a run that is asked to stop may take for what it has begun.
    pub drain_timeout: Duration,
    /// The most blocks that are set aside when they fail, while the others go on; with 0 the first fault ends the run.
    pub quarantine: usize,
}

/// A volume larger than any patch, to check sizes against before the real one is known.
const LARGE: Zyx = [1 << 20; 3];

/// Tile size of the block lattice if none is given, voxels along each axis.
const DEFAULT_BLOCK: usize = 256;

impl RunSettings {
    /// Checks what can be checked without looking at any data.
    ///
    /// # Errors
    /// Names the key, the value and what is allowed.
    pub fn check(&self) -> Result<(), Fault> {
        let geometry = self.layout.geometry(self.lattice()?, LARGE, None);
        geometry.check().map_err(|error| Fault::geometry(&error))?;
        self.values.check()?;
        self.resources.check()?;
        self.resources.check_batch(self.layout.patch, self.input.c.len())?;
        let (block, patch) = (self.layout.block.unwrap_or(patch_or_more(self.layout.patch)), self.layout.patch);
        if let Some(axis) = (0..3).find(|&axis| block[axis] < patch[axis]) {
            let name = haloflow_geometry::AXES[axis];
            let (block, patch) = (block[axis], patch[axis]);
            return Err(usage(format!(
                "`block` is {block} and `patch` is {patch} (axis {name}); a block must be at least as large as a patch"
            )));
        }
        Ok(())
    }

    /// The lattice that will be used.
    ///
    /// # Errors
    /// If the volume lattice was asked for with a normalisation that differs from block to block.
    pub fn lattice(&self) -> Result<LatticeChoice, Fault> {
        match (self.layout.lattice, self.values.normalisation.depends_on_block()) {
            (Some(LatticeChoice::Volume), true) => Err(usage(
                "`lattice` is volume and `normalize` is percentile, whose numbers differ from block to block; use `--lattice block`, or \
                 `--normalize volume` for the percentiles of the whole volume"
                    .into(),
            )),
            (Some(choice), _) => Ok(choice),
            (None, true) => Ok(LatticeChoice::Block),
            (None, false) => Ok(LatticeChoice::Volume),
        }
    }

    /// The kind of number that is stored unless another is asked for: the input's if results are brought back into the input's
    /// range, else f32.
    #[must_use]
    pub const fn default_element(&self, input: Element) -> Element {
        if self.values.denormalise { input } else { Element::F32 }
    }

    /// The rules for casting to `element`.
    #[must_use]
    pub const fn cast(&self, element: Element) -> Cast {
        Cast { element, rounding: self.values.rounding, nonfinite: self.values.nonfinite }
    }
}

impl Layout {
    /// The grid that tiles lie on if it is settled before the output is known: the block lattice's blocks, or those asked for.
    #[must_use]
    pub fn settled_block(&self, lattice: LatticeChoice) -> Option<Zyx> {
        self.block.or_else(|| (lattice == LatticeChoice::Block).then(|| patch_or_more(self.patch)))
    }

    /// The geometry over `volume`. `unit` is what the output is written in; tiles of the volume lattice are the least multiple of
    /// it that is no smaller than a patch, unless blocks were asked for.
    #[must_use]
    pub fn geometry(&self, lattice: LatticeChoice, volume: Zyx, unit: Option<Zyx>) -> Geometry {
        let patch = self.patch;
        let units = unit.unwrap_or([1; 3]);
        let tile = self
            .settled_block(lattice)
            .unwrap_or_else(|| std::array::from_fn(|axis| (patch[axis].div_ceil(units[axis]) * units[axis]).max(1)));
        let lattice = match lattice {
            LatticeChoice::Volume => Lattice::Volume,
            LatticeChoice::Block => Lattice::Block { halo: self.effective_halo() },
        };
        Geometry { volume, tile, patch, overlap: self.overlap, align: self.align, lattice, seam: self.seam }
    }

    /// The halo that is used: what was asked for or is derived, and never less than what is trimmed.
    #[must_use]
    pub fn effective_halo(&self) -> Zyx {
        self.seam.raised_halo(self.halo.unwrap_or(self.seam.default_halo(self.patch)))
    }
}

impl Values {
    fn check(&self) -> Result<(), Fault> {
        match self.normalisation {
            Normalisation::Percentile { percentiles } | Normalisation::Volume { percentiles } => {
                ordered("norm-lower` and `norm-upper", percentiles, "between 0 and 100", |q| {
                    (0.0..=100.0).contains(&q)
                })?;
            }
            Normalisation::Global { bounds } => {
                ordered("norm-lower` and `norm-upper", bounds, "finite", |bound| (bound as f32).is_finite())?;
            }
            Normalisation::ZScore { .. } | Normalisation::None => {}
        }
        if let Some(clip) = self.clip {
            ordered("clip-norm", clip.map(f64::from), "finite", f64::is_finite)?;
        }
        if self.eps as f32 > 0.0 && (self.eps as f32).is_finite() {
            return Ok(());
        }
        Err(usage(format!("`eps` is {}; it must be above 0", self.eps)))
    }
}

impl Resources {
    fn check(&self) -> Result<(), Fault> {
        let counts = [
            ("batch", self.batch),
            ("max-inflight-batches", self.max_inflight_batches),
            ("prep-workers", self.prep_workers),
            ("writer-workers", self.writer_workers),
        ];
        match counts.iter().find(|(_, count)| *count == 0) {
            Some((key, _)) => Err(usage(format!("`{key}` is 0; it must be at least 1"))),
            None => Ok(()),
        }
    }

    /// Refuses a batch that no slot could hold, before a device tries to: a voxel takes at least two bytes.
    fn check_batch(&self, patch: Zyx, channels: usize) -> Result<(), Fault> {
        let least = [self.batch, channels, 2]
            .iter()
            .chain(&patch)
            .try_fold(1_u64, |product, &factor| product.checked_mul(factor as u64));
        if least.is_some_and(|least| least <= self.memory) {
            return Ok(());
        }
        let ([z, y, x], batch) = (patch, self.batch);
        Err(usage(format!(
            "`batch` is {batch} and `patch` is {z} x {y} x {x}: such a batch alone needs more than the {} bytes of `memory`; give more memory, \
             or make `batch` or `patch` smaller",
            self.memory
        )))
    }
}

/// Checks that two numbers are in range and in order.
fn ordered(keys: &str, [low, high]: [f64; 2], range: &str, allowed: impl Fn(f64) -> bool) -> Result<(), Fault> {
    if allowed(low) && allowed(high) && low < high {
        return Ok(());
    }
    Err(usage(format!("`{keys}` are {low} and {high}; they must be {range}, and the first below the second")))
}

fn patch_or_more(patch: Zyx) -> Zyx {
    patch.map(|size| size.max(DEFAULT_BLOCK))
}

fn usage(message: String) -> Fault {
    Fault::new(FaultKind::Usage, Stage::Plan, message)
}
