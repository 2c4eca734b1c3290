//! Random layouts that can work, over small volumes.

use std::num::NonZeroUsize;

use haloflow_geometry::{Seam, Zyx};
use haloflow_pipeline::cut::Padding;
use haloflow_pipeline::{LatticeChoice, Layout, RunSettings};
use haloflow_volume::{AlignedBytes, Element};
use proptest::array::{uniform3, uniform8};
use proptest::prelude::*;

use crate::inputs::noise;
use crate::support::{Volume, plain, settings};

/// How a property is tested. A run that hangs costs its whole time limit, so little of it is spent on shrinking.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, max_shrink_time: 60_000, ..ProptestConfig::with_cases(cases) }
}

/// A layout and what it is laid over.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) volume: Zyx,
    pub(crate) chunk: Zyx,
    pub(crate) layout: Layout,
    /// Free numbers for what else a test wants to vary.
    pub(crate) free: [usize; 8],
}

/// What a layout has to keep to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Longest axis, voxels.
    pub(crate) longest: usize,
    /// Least that is trimmed, or has no weight, or is a halo.
    pub(crate) reach: usize,
    /// Whether patches may be aligned.
    pub(crate) aligned: bool,
    /// The lattice, if it is not free.
    pub(crate) lattice: Option<LatticeChoice>,
}

pub(crate) const FREE: Rules = Rules { longest: 15, reach: 0, aligned: true, lattice: None };

#[derive(Clone, Copy, Debug)]
struct Axis {
    extent: usize,
    chunk: usize,
    patch: usize,
    overlap: usize,
    align: usize,
    block: usize,
    halo: usize,
    cut: usize,
}

/// Eight free numbers are folded into what is allowed, so that no case is thrown away.
fn axis(rules: Rules, blend: bool) -> impl Strategy<Value = Axis> {
    uniform8(0..1000_usize).prop_map(move |free| {
        let pick = |which: usize, low: usize, high: usize| low + free[which] % (high - low + 1);
        let align = if rules.aligned { [1, 1, 1, 2, 3][pick(0, 0, 4)] } else { 1 };
        // Blending needs an overlap, and one larger than twice its margin.
        let least = 2 * rules.reach + usize::from(blend);
        let patch = pick(1, least + align, least + align + 5);
        let overlap = pick(2, least, patch - align);
        let most = if blend { (overlap - 1) / 2 } else { overlap / 2 };
        let extent = if free[3].is_multiple_of(9) { 1 } else { pick(3, 1, rules.longest) };
        let cut = pick(5, rules.reach, most.max(rules.reach));
        let halo = pick(7, rules.reach.max(if blend { 0 } else { cut }), rules.reach + cut + 4);
        Axis {
            extent,
            chunk: pick(6, 1, extent.min(7)),
            patch,
            overlap,
            align,
            block: pick(4, patch, patch + 9),
            halo,
            cut,
        }
    })
}

pub(crate) fn shape(rules: Rules) -> impl Strategy<Value = Shape> {
    (any::<bool>(), any::<bool>(), any::<bool>(), 0.01_f32..=1.0).prop_flat_map(move |(block, blend, given, floor)| {
        let lattice = rules.lattice.unwrap_or(if block { LatticeChoice::Block } else { LatticeChoice::Volume });
        (uniform3(axis(rules, blend)), uniform8(0..1000_usize)).prop_map(move |(axes, free)| {
            let of = |size: fn(&Axis) -> usize| -> Zyx { [0, 1, 2].map(|index| size(&axes[index])) };
            let cut = of(|axis| axis.cut);
            let layout = Layout {
                patch: of(|axis| axis.patch),
                overlap: of(|axis| axis.overlap),
                block: (given || lattice == LatticeChoice::Block).then(|| of(|axis| axis.block)),
                lattice: Some(lattice),
                halo: (lattice == LatticeChoice::Block).then(|| of(|axis| axis.halo)),
                align: of(|axis| axis.align),
                seam: if blend { Seam::Blend { floor, margin: cut } } else { Seam::Trim { voxels: cut } },
            };
            Shape { volume: of(|axis| axis.extent), chunk: of(|axis| axis.chunk), layout, free }
        })
    })
}

impl Shape {
    /// A free number from `low` to `high`.
    pub(crate) fn pick(&self, which: usize, low: usize, high: usize) -> usize {
        low + self.free[which] % (high - low + 1)
    }

    pub(crate) fn devices(&self) -> usize {
        self.pick(0, 1, 3)
    }

    /// Settings with a random batch, padding and number of workers.
    pub(crate) fn settings(&self) -> RunSettings {
        let mut settings = settings(self.layout.clone(), plain(), self.pick(1, 1, 9));
        settings.values.padding = [Padding::Reflect, Padding::Edge, Padding::Zero][self.pick(2, 0, 2)];
        settings.resources.prep_workers = self.pick(3, 1, 4);
        settings.resources.writer_workers = self.pick(4, 1, 3);
        settings.resources.max_inflight_batches = self.pick(5, 1, 9);
        settings.resources.threads = NonZeroUsize::new(self.pick(6, 1, 2)).unwrap();
        settings
    }

    /// Numbers without a pattern, from -2048 to 2047 or as far of it as the kind reaches.
    pub(crate) fn volume(&self, element: Element) -> Volume {
        let count: usize = self.volume.iter().product();
        let values = (0..count).map(|i| noise(self.free[7] as u64, i) as i64 % 4096 - 2048);
        macro_rules! of {
            ($($name:ident $kind:ty),+) => {
                match element {
                    $(Element::$name => AlignedBytes::from_slice(&values.map(|value| value as $kind).collect::<Vec<_>>()),)+
                    other => panic!("{other} is not made"),
                }
            };
        }
        let voxels = of!(U8 u8, I8 i8, U16 u16, I16 i16, U32 i32, I32 i32, U64 i64, I64 i64, F32 f32, F64 f64);
        let mut volume = Volume::new(self.volume, element, voxels);
        if matches!(element, Element::U32 | Element::U64) {
            volume.channels[0].as_mut_slice::<u8>().chunks_mut(element.size()).for_each(|bytes| bytes[2..].fill(0));
        }
        volume
    }
}
