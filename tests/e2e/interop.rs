//! What others wrote is read, and what haloflow wrote is read by others: zarr-python, tensorstore and ome-zarr-py, and the official
//! schemas.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use haloflow_geometry::{Box3, Zyx};
use haloflow_tests::scene::{SHAPE, Scene, noisy};
use haloflow_volume::{AlignedBytes, CpuPool, Element, Environment, VolumeError, VolumeErrorKind, VolumeReader};
use serde::Deserialize;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("interop").join(name)
}

pub(crate) fn well(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// A Python with the packages; made once, which takes a minute or two.
pub(crate) fn python(environment: &str) -> Command {
    let told = well(Command::new("python3").arg(script("environment.py")).arg(environment));
    Command::new(String::from_utf8(told.stdout).unwrap().trim())
}

#[test]
fn images_with_pyramids_are_valid_and_read_alike_by_others() {
    let scene = Scene::new();
    std::fs::write(scene.path("finest"), bytemuck::cast_slice(&noisy(SHAPE))).unwrap();
    for keys in [
        "--zarr-format 3 --chunk 8",
        "--zarr-format 2 --chunk 8",
        "--zarr-format 3 --chunk 8 --shard 16",
        "--zarr-format 2 --chunk 8 --compressor blosc-lz4:5",
        "--zarr-format 3 --chunk 8 --compressor blosc-zlib:1",
        "--zarr-format 3 --chunk 8 --compressor zstd",
        "--zarr-format 2 --chunk 8 --compressor gzip:6",
    ] {
        let _ = scene.job().keys("--pyramid 3 --block 16 16 32 --overwrite").keys(keys).end().well();
        well(python("interop").arg(script("check.py")).arg(scene.path("out.zarr")).arg(scene.path("finest")).arg("3"));
    }
}

/// An array that others wrote.
#[derive(Debug, Deserialize)]
struct Fixture {
    path: String,
    /// The file of its values, f64.
    values: PathBuf,
    shape: Zyx,
    /// What a refusal must name, if it cannot be read.
    refused: Option<String>,
}

async fn read(path: &str) -> Result<Vec<f64>, VolumeError> {
    let cpu = CpuPool::new(NonZeroUsize::MIN)?;
    let options = haloflow_examples::volume::input(path);
    let reader = VolumeReader::open(&options, &Environment::empty(), &cpu).await?;
    let brick = reader.read(Box3::of_shape(reader.shape())).await?;
    Ok(numbers(brick.element, &brick.channels[0]))
}

fn numbers(element: Element, voxels: &AlignedBytes) -> Vec<f64> {
    macro_rules! of {
        ($kind:ty) => {
            voxels.as_slice::<$kind>().iter().map(|&value| value as f64).collect()
        };
    }
    match element {
        Element::U8 => of!(u8),
        Element::I8 => of!(i8),
        Element::U16 => of!(u16),
        Element::I16 => of!(i16),
        Element::U32 => of!(u32),
        Element::I32 => of!(i32),
        Element::U64 => of!(u64),
        Element::I64 => of!(i64),
        Element::F32 => of!(f32),
        Element::F64 => of!(f64),
        // All the fixtures' are whole numbers below 2048, of which none needs rounding.
        Element::F16 => voxels.as_slice::<u16>().iter().map(|&bits| half(bits)).collect(),
    }
}

/// A whole number below 2048 in half precision (IEEE 754 binary16).
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10), f64::from(bits & 1023));
    if bits == 0 { 0.0 } else { (1.0 + fraction / 1024.0) * 2.0_f64.powi(exponent - 15) }
}

#[test]
fn arrays_of_other_writers_are_read_right_or_refused_by_name() {
    let scene = Scene::empty();
    let told = well(python("interop").arg(script("fixtures.py")).arg(scene.path("fixtures")));
    let fixtures: Vec<Fixture> = serde_json::from_slice(&told.stdout).unwrap();
    assert!(fixtures.len() >= 50);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut wrong = Vec::new();
    for fixture in &fixtures {
        let expected = std::fs::read(&fixture.values).unwrap();
        let expected = expected.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes));
        assert_eq!(expected.len(), fixture.shape.iter().product::<usize>());
        let right = match (runtime.block_on(read(&fixture.path)), &fixture.refused) {
            (Ok(values), None) => {
                expected.zip(values).all(|(one, other)| one == other || one.is_nan() && other.is_nan())
            }
            (Err(error), Some(word)) => error.kind == VolumeErrorKind::Data && error.message.contains(word),
            (Err(error), None) => {
                wrong.push(format!("{error}"));
                false
            }
            (Ok(_), Some(_)) => false,
        };
        if !right {
            wrong.push(fixture.path.clone());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
