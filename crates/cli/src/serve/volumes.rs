//! What the page shows of a job's volumes.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use haloflow_geometry::Box3;
use haloflow_service::runner::{MOST_BYTES, NotShown, Piece, Side, SideInfo, Slice, Wanted};
use haloflow_volume::{Brick, CpuPool, Element, Environment, InputOptions, Place, VolumeError, VolumeReader};
use serde_json::Value;

use crate::args::RunArgs;

/// Voxels of a slice that are read at most.
const MOST_VOXELS: usize = 1 << 26;

/// Places that are remembered.
const MOST_PLACES: usize = 256;

/// Reads what is asked for, by requests of its own.
pub(super) struct Volumes {
    environment: Environment,
    places: Mutex<HashMap<String, Place>>,
}

impl Volumes {
    pub(super) fn new(environment: Environment) -> Self {
        Self { environment, places: Mutex::default() }
    }

    /// The size of a side.
    pub(super) async fn side(&self, config: &Value, side: Side) -> Result<SideInfo, NotShown> {
        let reader = self.open(&options(config, side)?).await?;
        Ok(SideInfo { shape: reader.shape(), element: reader.element().to_string() })
    }

    /// A slice of a side. `z` counts voxels of the level that the job reads.
    pub(super) async fn slice(&self, config: &Value, side: Side, z: usize, pixels: usize) -> Result<Slice, NotShown> {
        let options = options(config, side)?;
        let reader = self.open(&options).await?;
        let [depth, ..] = reader.shape();
        if z >= depth {
            return Err(NotShown(format!("z is {z}; it must be 0 to {}", depth.saturating_sub(1))));
        }
        let reader = self.coarsest(reader, &options, pixels).await?;
        let [coarse, height, width] = reader.shape();
        if height.saturating_mul(width) > MOST_VOXELS {
            return Err(NotShown(format!(
                "a slice of {height} x {width} voxels is too large to be shown, and there is no coarser level"
            )));
        }
        let z = (z * coarse / depth.max(1)).min(coarse.saturating_sub(1));
        let brick = reader.read(Box3 { start: [z, 0, 0], stop: [z + 1, height, width] }).await.map_err(told)?;
        Ok(shrunk(&brick, height, width, pixels.max(1)))
    }

    /// The coarsest level that still has enough pixels.
    async fn coarsest(
        &self,
        finest: VolumeReader,
        options: &InputOptions,
        pixels: usize,
    ) -> Result<VolumeReader, NotShown> {
        let mut best = finest;
        for level in options.level + 1..best.description().levels {
            let next = self.open(&InputOptions { level, level_given: true, ..options.clone() }).await?;
            let [_, height, width] = next.shape();
            if height.max(width) < pixels {
                break;
            }
            best = next;
        }
        Ok(best)
    }

    /// An object of a side as it is stored.
    pub(super) async fn object(
        &self,
        config: &Value,
        side: Side,
        key: &str,
        wanted: Wanted,
    ) -> Result<Option<Piece>, NotShown> {
        let source = options(config, side)?.source;
        let known = self.places.lock().unwrap_or_else(PoisonError::into_inner).get(&source).cloned();
        let place = match known {
            Some(place) => place,
            None => {
                let place = Place::find(&source, &self.environment).await.map_err(told)?;
                let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
                if places.len() >= MOST_PLACES {
                    places.clear();
                }
                places.insert(source, place.clone());
                place
            }
        };
        let wanted = match wanted {
            Wanted::All => haloflow_volume::Wanted::All,
            Wanted::Between(start, stop) => haloflow_volume::Wanted::Between(start, stop),
            Wanted::From(start) => haloflow_volume::Wanted::From(start),
            Wanted::Last(count) => haloflow_volume::Wanted::Last(count),
        };
        let piece = place.object(key, wanted, MOST_BYTES).await.map_err(told)?;
        Ok(piece.map(|haloflow_volume::Piece { bytes, start, stop, size }| Piece { bytes, start, stop, size }))
    }

    async fn open(&self, options: &InputOptions) -> Result<VolumeReader, NotShown> {
        let cpu = CpuPool::new(NonZeroUsize::MIN).map_err(told)?;
        VolumeReader::open(options, &self.environment, &cpu).await.map_err(told)
    }
}

fn told(error: VolumeError) -> NotShown {
    NotShown(error.to_string())
}

/// How a side is opened: one channel of it.
fn options(config: &Value, side: Side) -> Result<InputOptions, NotShown> {
    let args: RunArgs = serde_json::from_value(config.clone()).map_err(|error| NotShown(error.to_string()))?;
    let first = |channels: &Option<Vec<usize>>| channels.as_ref().and_then(|channels| channels.first().copied());
    let (source, level, t, c) = match side {
        Side::Input => (args.input, args.level.unwrap_or(0), args.t.unwrap_or(0), first(&args.c).unwrap_or(0)),
        Side::Output => {
            let source = args.output.and_then(|outputs| outputs.into_iter().next());
            (source, 0, args.out_t.unwrap_or(0), args.out_c.unwrap_or(0))
        }
    };
    let source = source.ok_or_else(|| NotShown("the job names no such volume".into()))?;
    Ok(InputOptions { source, level, level_given: args.level.is_some(), t, c: vec![c], cache_bytes: 0, requests: 16 })
}

/// Every n-th voxel along y and x, so that no more than about `pixels` are left.
fn shrunk(brick: &Brick, height: usize, width: usize, pixels: usize) -> Slice {
    let step = height.max(width).div_ceil(pixels).max(1);
    let picked = |y: usize| (0..width).step_by(step).map(move |x| y * width + x);
    let places = (0..height).step_by(step).flat_map(picked);
    let values = brick.channels.first().map(|channel| {
        macro_rules! read {
            ($kind:ty) => {{
                let voxels = channel.as_slice::<$kind>();
                places.map(|place| voxels[place] as f32).collect()
            }};
        }
        match brick.element {
            Element::U8 => read!(u8),
            Element::I8 => read!(i8),
            Element::U16 => read!(u16),
            Element::I16 => read!(i16),
            Element::U32 => read!(u32),
            Element::I32 => read!(i32),
            Element::U64 => read!(u64),
            Element::I64 => read!(i64),
            Element::F32 => read!(f32),
            Element::F64 => read!(f64),
            Element::F16 => {
                let voxels = channel.as_slice::<half::f16>();
                places.map(|place| voxels[place].to_f32()).collect()
            }
        }
    });
    let count = |size: usize| u32::try_from(size.div_ceil(step)).unwrap_or(u32::MAX);
    Slice { width: count(width), height: count(height), values: values.unwrap_or_default() }
}
