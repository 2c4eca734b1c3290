//! The geometry of the predecessor, as its tables and cases record it.
#![allow(clippy::unwrap_used, reason = "a test that cannot read its vectors has failed")]

use std::ops::Range;
use std::path::Path;

use haloflow_geometry::{Box3, Geometry, Lattice, Plan, Seam, Zyx, blend_weights, ramp, starts, trim_range};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// numpy's cosine of f32 numbers may be one unit off the correctly rounded one.
const WEIGHT_TOLERANCE: f32 = 1.2e-7;

fn golden<T: DeserializeOwned>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The rows of a table, of which there must be `count`, so that no row is missed.
fn table<T: DeserializeOwned>(name: &str, count: usize) -> Vec<T> {
    let rows: Vec<T> = golden(&format!("tables/{name}.json"));
    assert_eq!(rows.len(), count, "{name}");
    rows
}

fn assert_weights(ours: &[f32], theirs: &[f32], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (i, (our, their)) in ours.iter().zip(theirs).enumerate() {
        assert!((our - their).abs() <= WEIGHT_TOLERANCE, "{what}: weight {i} is {our}, not {their}");
    }
}

#[derive(Deserialize)]
struct PatchStarts {
    #[serde(rename = "L")]
    length: usize,
    #[serde(rename = "P")]
    patch: usize,
    overlap: usize,
    starts: Vec<usize>,
}

#[test]
fn patch_starts() {
    for row in table::<PatchStarts>("patch_starts", 30) {
        assert_eq!(starts(&(0..row.length), row.patch, row.overlap, 1), row.starts, "length {}", row.length);
        // A span that starts elsewhere has the same lattice, moved.
        let moved: Vec<usize> = row.starts.iter().map(|start| start + 7).collect();
        assert_eq!(starts(&(7..row.length + 7), row.patch, row.overlap, 1), moved, "length {}", row.length);
    }
}

#[derive(Deserialize)]
struct PatchStarts3d {
    expanded_shape: Zyx,
    patch: Zyx,
    overlap: usize,
    starts: Vec<Zyx>,
}

#[test]
fn patch_starts_in_three_dimensions() {
    for row in table::<PatchStarts3d>("patch_starts_3d", 3) {
        let plan = Plan::new(Geometry {
            volume: row.expanded_shape,
            tile: row.expanded_shape,
            patch: row.patch,
            overlap: [row.overlap; 3],
            align: [1; 3],
            lattice: Lattice::Volume,
            seam: Seam::Trim { voxels: [0; 3] },
        })
        .unwrap();
        let steps = plan.steps(plan.widest()).flat_map(|step| step.patches().collect::<Vec<_>>());
        let ours: Vec<Zyx> = steps.map(|patch| plan.patch(patch).start).collect();
        assert_eq!(ours, row.starts);
    }
}

#[derive(Deserialize)]
struct Blocks {
    shape: Zyx,
    block: Zyx,
    blocks: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    k: usize,
    index: Zyx,
    core: [[usize; 2]; 3],
}

impl Block {
    fn core(&self) -> Box3 {
        Box3::new(self.core.map(|[start, _]| start), self.core.map(|[_, stop]| stop))
    }
}

/// The tiles of a plan are the blocks, in their order.
fn assert_blocks<'a>(plan: &Plan, blocks: impl ExactSizeIterator<Item = &'a Block>, what: &str) {
    let tiles = Box3::of_shape(plan.tiles());
    assert_eq!(tiles.voxels(), blocks.len(), "{what}");
    for (k, (tile, block)) in tiles.indices().zip(blocks).enumerate() {
        assert_eq!((k, tile, plan.tile(tile)), (block.k, block.index, block.core()), "{what}");
    }
}

#[test]
fn blocks() {
    for row in table::<Blocks>("blocks", 10) {
        let seam = Seam::Trim { voxels: [0; 3] };
        for lattice in [Lattice::Volume, Lattice::Block { halo: [0; 3] }] {
            let (overlap, align) = ([0; 3], [1; 3]);
            let geometry =
                Geometry { volume: row.shape, tile: row.block, patch: [1; 3], overlap, align, lattice, seam };
            assert_blocks(&Plan::new(geometry).unwrap(), row.blocks.iter(), &format!("{:?}", row.shape));
        }
    }
}

#[derive(Deserialize)]
struct TrimRange {
    #[serde(rename = "L")]
    length: usize,
    start: usize,
    size: usize,
    trim: usize,
    patch: [usize; 2],
    block: [usize; 2],
}

#[test]
fn trim_ranges() {
    for row in table::<TrimRange>("trim_ranges", 12) {
        let Range { start, end } = trim_range(row.start, row.size, row.length, row.trim);
        assert_eq!([start, end], row.block);
        assert_eq!([start - row.start, end - row.start], row.patch);
    }
}

#[derive(Deserialize)]
struct BlendWeights {
    #[serde(rename = "L")]
    length: usize,
    start: usize,
    size: usize,
    overlap: usize,
    floor: f32,
    weights: Vec<f32>,
}

#[test]
fn weights_of_blending() {
    for row in table::<BlendWeights>("blend_weights", 15) {
        let ours = blend_weights(row.start, row.size, row.length, row.overlap, row.floor, 0);
        assert_weights(&ours, &row.weights, &format!("start {} of {}", row.start, row.length));
    }
}

#[derive(Deserialize)]
struct Ramp {
    n: usize,
    ramp: Vec<f32>,
}

#[test]
fn ramps() {
    for row in table::<Ramp>("ramps", 18) {
        assert_weights(&ramp(row.n), &row.ramp, &format!("ramp of {}", row.n));
    }
}

#[derive(Deserialize)]
struct Config {
    patch: Zyx,
    overlap: usize,
    block: Zyx,
    batch_size: usize,
    use_compile: bool,
    min_blend_weight: f32,
    #[serde(flatten)]
    halo: Halo,
}

#[derive(Deserialize)]
struct Halo {
    seam_mode: String,
    trim_voxels: Option<usize>,
    halo: Option<usize>,
}

impl Halo {
    fn seam(&self, floor: f32) -> Seam {
        match self.seam_mode.as_str() {
            "trim" => Seam::Trim { voxels: [self.trim_voxels.unwrap(); 3] },
            "blend" => Seam::Blend { floor, margin: [0; 3] },
            other => unreachable!("no seam is called {other}"),
        }
    }

    fn used(&self, patch: Zyx) -> Zyx {
        let seam = self.seam(0.05);
        self.halo.map_or(seam.default_halo(patch), |halo| seam.raised_halo([halo; 3]))
    }
}

#[derive(Deserialize)]
struct HaloRule {
    patch: Zyx,
    halo_effective: usize,
    #[serde(flatten)]
    halo: Halo,
}

#[test]
fn halo_rules() {
    for row in table::<HaloRule>("halo_rules", 12) {
        assert_eq!(row.halo.used(row.patch), [row.halo_effective; 3]);
    }
}

#[derive(Deserialize)]
struct Case {
    shape: Zyx,
    config: Config,
    halo_effective: usize,
    blocks: Vec<CaseBlock>,
}

#[derive(Deserialize)]
struct CaseBlock {
    #[serde(flatten)]
    block: Block,
    halo_left: Zyx,
    expanded_shape: Zyx,
    patches: usize,
    batch_rows: Vec<usize>,
}

#[test]
fn the_blocks_of_every_case() {
    let names: Vec<String> = golden("cases/index.json");
    assert_eq!(names.len(), 36);
    for name in names {
        let Case { shape, config, halo_effective, blocks }: Case = golden(&format!("cases/{name}.json"));
        let halo = config.halo.used(config.patch);
        assert_eq!(halo, [halo_effective; 3], "{name}");
        let plan = Plan::new(Geometry {
            volume: shape,
            tile: config.block,
            patch: config.patch,
            overlap: [config.overlap; 3],
            align: [1; 3],
            lattice: Lattice::Block { halo },
            seam: config.halo.seam(config.min_blend_weight),
        })
        .unwrap();
        assert_blocks(&plan, blocks.iter().map(|block| &block.block), &name);
        blocks.iter().for_each(|block| assert_case_block(&plan, block, &config, &name));
    }
}

fn assert_case_block(plan: &Plan, block: &CaseBlock, config: &Config, name: &str) {
    let tile = block.block.index;
    let boxes: [Range<usize>; 3] = std::array::from_fn(|axis| plan.axes()[axis].tile_box(tile[axis]));
    let [z, y, x] = &boxes;
    assert_eq!(Box3::from_ranges(z, y, x).shape(), block.expanded_shape, "{name}");
    let left: Zyx = std::array::from_fn(|axis| block.block.core[axis][0] - boxes[axis].start);
    assert_eq!(left, block.halo_left, "{name}");
    let count: usize = (0..3).map(|axis| starts(&boxes[axis], config.patch[axis], config.overlap, 1).len()).product();
    assert_eq!(count, block.patches, "{name}");
    // The plan leaves out the patches that give nothing to the core.
    assert!((1..=count).contains(&plan.contributions(tile)), "{name}");
    let rows = |first: usize| if config.use_compile { config.batch_size } else { config.batch_size.min(count - first) };
    let batches: Vec<usize> = (0..count).step_by(config.batch_size).map(rows).collect();
    assert_eq!(batches, block.batch_rows, "{name}");
}
