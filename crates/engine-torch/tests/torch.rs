//! libtorch behind the seam: what modules give, and what becomes of those that misbehave.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop on what it did not expect")]

use std::path::{Path, PathBuf};

use half::f16;
use haloflow_engine::fake::{read_elements, write_elements};
use haloflow_engine::{ElementKind, Engine, EngineError, EngineErrorKind, EngineFactory, Slot};
use haloflow_engine_torch::{TorchDevice, TorchFactory, TorchOptions, cuda_devices, versions};

const PATCH: [usize; 3] = [6, 7, 8];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models").join(format!("{name}.pt"))
}

fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.pt"))
}

fn options(model: PathBuf) -> TorchOptions {
    TorchOptions { channels_out: Some(1), intra_op_threads: 2, ..TorchOptions::new(model, TorchDevice::Cpu, 4, PATCH) }
}

fn make(options: TorchOptions) -> Result<Box<dyn Engine>, EngineError> {
    Box::new(TorchFactory::new(options)).make()
}

fn error_of(options: TorchOptions) -> EngineError {
    make(options).err().expect("this engine cannot be made")
}

/// Values of both signs that f16 holds exactly.
fn values(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37) % 509) as f32 / 8.0 - 20.0).collect()
}

fn filled(engine: &mut dyn Engine, values: &[f32]) -> Slot {
    let mut slot = engine.allocate().unwrap();
    let bytes = values.len() * engine.spec().input.size();
    write_elements(engine.spec().input, values, &mut slot.input.bytes_mut()[..bytes]);
    slot
}

/// Runs `values` as rows and gives their output.
fn run(engine: &mut dyn Engine, values: &[f32]) -> Vec<f32> {
    let rows = values.len() / engine.spec().patch_voxels();
    let slot = filled(engine, values);
    let slot = engine.submit(slot, rows).unwrap().wait().unwrap();
    read_elements(engine.spec().output, &slot.output.bytes()[..rows * engine.spec().output_row_bytes()])
}

/// Rounds to what `kind` holds.
fn rounded(value: f32, kind: ElementKind) -> f32 {
    if kind == ElementKind::F16 { f16::from_f32(value).to_f32() } else { value }
}

/// The golden models' formulas, for the voxel `i` of an output channel, each operation rounded to `kind`.
/// libtorch rounds a number that is added to `kind` first, and one that is multiplied with not.
fn formula(model: &str, channel: usize, x: f32, i: usize, kind: ElementKind) -> f32 {
    let k = (i / (PATCH[1] * PATCH[2])) % PATCH[0];
    match (model, channel) {
        ("affine", _) => rounded(rounded(x * 0.5, kind) + rounded(0.1, kind), kind),
        ("edge", _) => rounded(x + rounded(k as f32 * 0.05, kind), kind),
        ("two", 1) => rounded(1.0 - x, kind),
        _ => x,
    }
}

#[test]
fn golden_models_follow_their_formulas_bit_for_bit() {
    for kind in [ElementKind::F32, ElementKind::F16] {
        for (model, channels) in [("identity", 1), ("affine", 1), ("edge", 1), ("two", 2)] {
            let options = TorchOptions { kind, channels_out: Some(channels), ..options(golden(model)) };
            let mut engine = make(options).unwrap();
            assert_eq!((engine.spec().input, engine.spec().output), (kind, kind));
            let voxels = engine.spec().patch_voxels();
            let input = values(4 * voxels);
            for _ in 0..3 {
                let output = run(engine.as_mut(), &input);
                for (i, y) in output.iter().enumerate() {
                    let (row, channel, voxel) = (i / (channels * voxels), i / voxels % channels, i % voxels);
                    let expected = formula(model, channel, input[row * voxels + voxel], voxel, kind);
                    assert_eq!(y.to_bits(), expected.to_bits(), "{model} {kind} at {i}");
                }
            }
        }
    }
}

#[test]
fn a_convolution_gives_the_same_rows_whatever_the_batch() {
    let mut rows = Vec::new();
    for pad_short in [false, true] {
        let mut engine = make(TorchOptions { pad_short, ..options(golden("box3")) }).unwrap();
        let input = values(2 * engine.spec().patch_voxels());
        rows.push(run(engine.as_mut(), &input));
    }
    assert!(rows[0].iter().any(|y| *y != 0.0));
    assert_eq!(rows[0], rows[1]);
}

#[test]
fn the_laws_of_the_seam_hold() {
    for kind in [ElementKind::F32, ElementKind::F16, ElementKind::Bf16] {
        for pad_short in [false, true] {
            let factory = || -> Box<dyn EngineFactory> {
                Box::new(TorchFactory::new(TorchOptions { kind, pad_short, ..options(golden("identity")) }))
            };
            assert_eq!(haloflow_engine::conformance::check(factory), Ok(()), "{kind}, padded: {pad_short}");
        }
    }
}

#[test]
fn a_module_that_throws_gives_the_slot_back_and_stays_usable() {
    for model in ["throws", "in_place"] {
        let mut engine = make(options(own(model))).unwrap();
        let good = values(2 * engine.spec().patch_voxels());
        let before = run(engine.as_mut(), &good);
        let mut bad = good.clone();
        bad[0] = 101.0;
        let slot = filled(engine.as_mut(), &bad);
        let submitted = slot.input.bytes().to_vec();
        let rejected = engine.submit(slot, 2).err().expect("the module throws");
        assert_eq!(rejected.error.kind, EngineErrorKind::Run);
        assert_eq!(rejected.error.to_string(), "cpu: ValueError: voxel too bright");
        assert!(rejected.slot.input.bytes() == submitted, "{model}: the input changed");
        assert_eq!(run(engine.as_mut(), &good), before);
    }
}

#[test]
fn what_is_no_module_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.pt");
    std::fs::write(&text, "not a module").unwrap();
    for path in [text, folder.path().join("missing.pt"), folder.path().to_path_buf()] {
        let error = error_of(options(path.clone()));
        assert_eq!(error.kind, EngineErrorKind::Load);
        assert!(error.message.contains(path.to_str().unwrap()), "{error}");
        assert!(error.message.lines().count() == 1 && error.message.len() < 300, "{error}");
    }
}

#[test]
fn an_output_that_does_not_fit_is_refused() {
    let table = [
        (golden("two"), "the model gave 2 output channels for 1 output"),
        (own("halves"), "the model gave patches of 3 x 4 x 4 voxels for patches of 6 x 7 x 8"),
        (own("list_of_two"), "the model gave 2 output channels for 1 output"),
    ];
    for (model, message) in table {
        let error = error_of(options(model));
        assert_eq!(error.kind, EngineErrorKind::Shape);
        assert!(error.message.contains(message), "{error}");
    }
    let error = error_of(TorchOptions { batch: 0, ..options(golden("identity")) });
    assert_eq!(error.kind, EngineErrorKind::Shape);
}

#[test]
fn the_model_decides_the_channels_where_nobody_else_does() {
    let engine = make(TorchOptions { channels_out: None, ..options(golden("two")) }).unwrap();
    assert_eq!(engine.spec().channels_out, 2);
}

#[test]
fn one_tensor_in_a_wrapping_is_enough() {
    for model in ["first_of_tuple", "dict_of_one", "drops"] {
        let mut engine = make(options(own(model))).unwrap();
        let input = values(3 * engine.spec().patch_voxels());
        assert_eq!(run(engine.as_mut(), &input), input, "{model}");
    }
}

#[test]
fn only_floating_point_weights_change_their_kind() {
    for kind in [ElementKind::F32, ElementKind::F16, ElementKind::Bf16] {
        let mut engine = make(TorchOptions { kind, ..options(own("gathers")) }).unwrap();
        let input: Vec<f32> = (0..engine.spec().patch_voxels()).map(|i| (i % 8) as f32).collect();
        let output = run(engine.as_mut(), &input);
        assert!(output.iter().enumerate().all(|(i, y)| *y == (7 - i % 8) as f32 * 0.5), "{kind}");
    }
}

#[test]
fn a_device_that_does_not_exist_is_told_with_those_that_do() {
    let error = error_of(TorchOptions { device: TorchDevice::Cuda(99), ..options(golden("identity")) });
    assert_eq!((error.kind, error.device.as_str()), (EngineErrorKind::NoSuchDevice, "cuda:99"));
    let count =
        if cuda_devices() == 0 { "no CUDA device".to_owned() } else { format!("{} CUDA device", cuda_devices()) };
    assert!(error.message.contains(&count), "{error}");
}

#[test]
fn a_report_names_the_model_and_the_library() {
    let engine = make(options(golden("identity"))).unwrap();
    assert!(versions().starts_with("libtorch 2.11.0"), "{}", versions());
    assert_eq!(engine.describe(), format!("TorchScript, f32, {}, 2 intra-op threads", versions()));
}
