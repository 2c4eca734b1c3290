//! Recompute: random windows of a stored output, each run as one patch by itself, against what is stored.
//!
//! A window lies anywhere, not on the lattice, so what is compared was made from other patches. Its outermost voxels see less than the
//! network wants; half an overlap of them is left out, as it is where patches are joined.

use haloflow_engine::{EngineFactory, EngineSpec, Rejected, Slot};
use haloflow_geometry::{Box3, Geometry, Patch, Zyx};
use haloflow_volume::{Brick, CpuPool, Environment, VolumeReader};
use serde::Serialize;

use crate::after;
use crate::cast::{Cast, NonFinite, cast};
use crate::cut::{Cutting, cut};
use crate::fault::{Fault, FaultKind, Stage};
use crate::normalise::{Affine, Normalisation, Normaliser, inverses};
use crate::number::{Number, with_number};
use crate::open::normalisers;
use crate::recipe;
use crate::sample::values;
use crate::settings::RunSettings;
use crate::statistics::{Voxels, percentiles};
use crate::verify::{Stored, all};

/// How far recomputed windows are from what is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Recomputed {
    /// Windows that were run.
    pub windows: usize,
    /// Voxels that were compared, all channels.
    pub voxels: u64,
    /// Mean of the absolute difference.
    pub mean_difference: f64,
    /// Greatest absolute difference.
    pub greatest_difference: f64,
    /// Standard deviation of what is stored there.
    pub deviation: f64,
}

impl Recomputed {
    /// The mean difference over the standard deviation: 0 is no difference, 1 is as far off as any other voxel. A difference where
    /// everything stored is the same is infinite.
    #[must_use]
    pub fn relative(&self) -> f64 {
        if self.mean_difference == 0.0 { 0.0 } else { self.mean_difference / self.deviation }
    }
}

/// Which windows.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// How many.
    pub count: usize,
    /// The same seed gives the same windows.
    pub seed: u64,
}

/// A window that is run.
struct Window {
    patch: Patch,
    brick: Brick,
    normalisers: Vec<Normaliser>,
    /// What of it is compared.
    compared: Box3,
}

/// Runs random windows of the output at `place` on an engine and compares them with what is stored. `settings` are those of the
/// run that made it.
///
/// # Errors
/// `Data` if there is no ledger, if the run was another one, or if no voxel can be compared; what the engine or the stores fail with.
pub async fn recompute(
    place: &str,
    settings: &RunSettings,
    factory: Box<dyn EngineFactory>,
    environment: &Environment,
    windows: Windows,
) -> Result<Recomputed, Fault> {
    let told = |error| Fault::volume(Stage::Read, &error);
    let cpu = CpuPool::new(settings.resources.threads).map_err(told)?;
    let mut found = all(place, environment).await?;
    let stored = found.swap_remove(0);
    check_same(&stored, settings)?;
    let input = VolumeReader::open(&settings.input, environment, &cpu).await.map_err(told)?;
    let mut layout = settings.layout.clone();
    layout.block = Some(stored.block);
    let geometry = layout.geometry(settings.lattice()?, input.shape(), None);
    let mut random = fastrand::Rng::with_seed(windows.seed);
    let mut prepared = Vec::new();
    for _ in 0..windows.count {
        prepared.push(window(&stored, settings, &input, &geometry, &mut random).await?);
    }
    let compared: Vec<Box3> = prepared.iter().map(|window| window.compared).collect();
    let cutting = (geometry.patch, settings.values.padding);
    let (told_to, element) = (settings.values.clone(), input.element());
    let running = move || run(factory, &prepared, cutting, (&told_to, element));
    let results = tokio::task::spawn_blocking(running).await;
    let results = results.map_err(|error| Fault::panicked(Stage::Device, &error))??;
    let mut sums = Sums::default();
    for channel in 0..stored.head.channels {
        let reader = stored.reader(channel, environment, &cpu).await?;
        let rules = Cast { nonfinite: NonFinite::Replace(0.0), ..settings.cast(reader.element()) };
        for (region, channels) in compared.iter().zip(&results) {
            let brick = reader.read(*region).await.map_err(told)?;
            // It cannot fail: what is not finite is replaced.
            let made = cast(&channels[channel], &rules).map(|(bytes, _)| bytes).unwrap_or_default();
            sums.add(&values_of(&brick), &values(rules.element, &made));
        }
    }
    sums.figures(windows.count)
}

fn values_of(brick: &Brick) -> Vec<f32> {
    brick.channels.first().map(|bytes| values(brick.element, bytes)).unwrap_or_default()
}

/// Refuses another network, or other numbers, than those that made the output.
fn check_same(stored: &Stored, settings: &RunSettings) -> Result<(), Fault> {
    let mine = settings.network.clone().into_iter().chain(recipe::made_by(settings));
    let differing: Vec<String> = mine
        .filter_map(|(name, is)| {
            let was = stored.head.recipe.get(&name).map_or("nothing", String::as_str);
            (was != is).then(|| format!("`{name}` was {was} and is {is}"))
        })
        .collect();
    if differing.is_empty() {
        return Ok(());
    }
    let output = stored.selection.places.join(", ");
    let message =
        format!("the output {output} was made otherwise: {}; give what it was made with", differing.join(", "));
    Err(Fault::new(FaultKind::Data, Stage::Open, message))
}

/// A random window, its voxels, and what of it can be compared.
async fn window(
    stored: &Stored,
    settings: &RunSettings,
    input: &VolumeReader,
    geometry: &Geometry,
    random: &mut fastrand::Rng,
) -> Result<Window, Fault> {
    let told = |error| Fault::volume(Stage::Read, &error);
    let Geometry { volume, patch, overlap, align, tile, .. } = *geometry;
    let start: Zyx = std::array::from_fn(|axis| {
        let places = volume[axis].saturating_sub(patch[axis]) / align[axis] + 1;
        random.usize(0..places) * align[axis]
    });
    let valid = std::array::from_fn(|axis| patch[axis].min(volume[axis] - start[axis]));
    let patch = Patch { start, valid };
    let data = patch.data();
    let mut compared = Box3::new(
        std::array::from_fn(|axis| start[axis] + if start[axis] == 0 { 0 } else { overlap[axis].div_ceil(2) }),
        std::array::from_fn(|axis| {
            data.stop[axis] - if data.stop[axis] == volume[axis] { 0 } else { overlap[axis].div_ceil(2) }
        }),
    );
    let brick = input.read(data).await.map_err(told)?;
    let bounds = stored.head.normalisation();
    let mut normalisers = normalisers(&settings.values, &bounds, input.element(), haloflow_engine::ElementKind::F32);
    if let Normalisation::Percentile { percentiles: q } = settings.values.normalisation {
        // The block in its middle, whose numbers hold for no other.
        let middle = std::array::from_fn(|axis| (compared.start[axis] + compared.stop[axis]) / 2 / tile[axis]);
        let block = Box3::of_cell(middle, tile).intersect(&Box3::of_shape(volume));
        compared = compared.intersect(&block);
        let halo = settings.layout.effective_halo();
        let around = Box3::new(
            std::array::from_fn(|axis| block.start[axis].saturating_sub(halo[axis])),
            std::array::from_fn(|axis| (block.stop[axis] + halo[axis]).min(volume[axis])),
        );
        let brick = input.read(around).await.map_err(told)?;
        let of_channel = |bytes: &haloflow_volume::AlignedBytes| {
            let voxels = Voxels { element: brick.element, bytes };
            let [low, high] = percentiles(&voxels, q).unwrap_or([0.0, 1.0]);
            Normaliser::shift_and_scale(low, high - low, settings.values.eps).with_clip(settings.values.clip)
        };
        normalisers = brick.channels.iter().map(of_channel).collect();
    }
    Ok(Window { patch, brick, normalisers, compared })
}

/// Runs the windows; for each, what it gives to the voxels that are compared, channel by channel, before the cast.
fn run(
    factory: Box<dyn EngineFactory>,
    windows: &[Window],
    (size, padding): (Zyx, crate::cut::Padding),
    (values, element): (&crate::settings::Values, haloflow_volume::Element),
) -> Result<Vec<Vec<Vec<f32>>>, Fault> {
    let failed = |error: haloflow_engine::EngineError| Fault::engine(&error);
    let rejected = |Rejected { error, .. }: Rejected| failed(error);
    let mut engine = factory.make().map_err(failed)?;
    let spec = engine.spec().clone();
    let cutting = Cutting { size, padding, kind: spec.input };
    let mut slot = engine.allocate().map_err(failed)?;
    let mut results = Vec::new();
    for batch in windows.chunks(spec.batch) {
        slot.input.bytes_mut().fill(0);
        for (window, row) in batch.iter().zip(slot.input.bytes_mut().chunks_exact_mut(spec.input_row_bytes())) {
            let normalisers: Vec<_> =
                window.normalisers.iter().map(|made| made.clone().tabulated(element, spec.input)).collect();
            cut(&window.brick, &window.patch, &normalisers, &cutting, row);
        }
        slot = engine.submit(slot, batch.len()).map_err(rejected)?.wait().map_err(rejected)?;
        results.extend(batch.iter().enumerate().map(|(row, window)| result(&spec, &slot, row, window, values)));
    }
    Ok(results)
}

fn result(
    spec: &EngineSpec,
    slot: &Slot,
    row: usize,
    window: &Window,
    values: &crate::settings::Values,
) -> Vec<Vec<f32>> {
    let bytes = &slot.output.bytes()[row * spec.output_row_bytes()..(row + 1) * spec.output_row_bytes()];
    let mut all = vec![0.0; spec.channels_out * spec.patch_voxels()];
    with_number!(spec.output, N => N::widen(bytemuck::cast_slice(bytes), &mut all));
    let ways = match values.denormalise {
        true => inverses(&window.normalisers, spec.channels_out),
        false => vec![Affine::IDENTITY; spec.channels_out],
    };
    let compared = window.compared.relative_to(window.patch.start);
    let [_, height, width] = spec.patch;
    all.chunks_exact(spec.patch_voxels())
        .zip(ways)
        .map(|(channel, way)| {
            let places = compared.indices().map(|[z, y, x]| channel[(z * height + y) * width + x]);
            let mut made: Vec<f32> = places.map(|value| way.apply(value)).collect();
            after::apply(&values.after, &mut made);
            made
        })
        .collect()
}

/// Sums over everything that is compared.
#[derive(Debug, Default)]
struct Sums {
    voxels: u64,
    difference: f64,
    greatest: f64,
    sum: f64,
    squares: f64,
}

impl Sums {
    fn add(&mut self, stored: &[f32], made: &[f32]) {
        for (&stored, &made) in stored.iter().zip(made) {
            let (stored, made) = (f64::from(stored), f64::from(made));
            let difference = (stored - made).abs();
            self.voxels += 1;
            self.difference += difference;
            self.greatest = self.greatest.max(difference);
            self.sum += stored;
            self.squares += stored * stored;
        }
    }

    fn figures(&self, windows: usize) -> Result<Recomputed, Fault> {
        if self.voxels == 0 {
            let message = "no voxel could be compared: `overlap` leaves nothing of a window";
            return Err(Fault::new(FaultKind::Data, Stage::Merge, message));
        }
        let count = self.voxels as f64;
        let mean = self.sum / count;
        Ok(Recomputed {
            windows,
            voxels: self.voxels,
            mean_difference: self.difference / count,
            greatest_difference: self.greatest,
            deviation: (self.squares / count - mean * mean).max(0.0).sqrt(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_those_of_all_voxels() {
        let mut sums = Sums::default();
        sums.add(&[0.0, 2.0], &[0.0, 3.0]);
        sums.add(&[4.0, 6.0], &[4.0, 9.0]);
        let figures = sums.figures(2).unwrap();
        assert_eq!((figures.voxels, figures.mean_difference, figures.greatest_difference), (4, 1.0, 3.0));
        assert_eq!((figures.deviation, figures.relative()), (5_f64.sqrt(), 1.0 / 5_f64.sqrt()));
        assert!(Sums::default().figures(0).is_err());
        assert_eq!(Recomputed::default().relative(), 0.0);
    }
}
