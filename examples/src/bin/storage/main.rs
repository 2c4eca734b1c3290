//! Reading from object storage, side by side: haloflow's reader, the crate `zarrs` and tensorstore's Python client fetch and decode the same
//! volume from the same S3 server on this machine, one after the other, several times.
#![expect(clippy::print_stdout, reason = "telling the person at the terminal is the job")]

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use futures::{StreamExt, TryStreamExt, stream};
use haloflow_examples::s3::S3Server;
use haloflow_examples::volume::{NewVolume, input};
use haloflow_geometry::{Box3, Read};
use haloflow_volume::{AlignedBytes, CpuPool, Element, Environment, Leftovers, VolumeReader};
use object_store::aws::AmazonS3Builder;
use zarrs::array::Array;
use zarrs_object_store::AsyncObjectStore;

/// Measures reading and decoding from S3 on loopback, beside zarrs and tensorstore's Python client.
#[derive(Debug, Parser)]
struct Args {
    /// Voxels along each side of the volume
    #[arg(long, default_value_t = 384)]
    size: usize,
    /// Voxels along each side of a chunk
    #[arg(long, default_value_t = 64)]
    chunk: usize,
    /// How often each reads the volume; the best time counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

const BUCKET: &str = "bench";
const VOLUME: &str = "volume.zarr";

fn main() -> Result<()> {
    let args = Args::parse();
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let folder = tempfile::tempdir()?;
    let server = S3Server::start_swift(folder.path(), BUCKET)?;
    let environment = Environment::new(server.variables());
    let cpu = CpuPool::new(cores)?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(write(&args, &folder.path().join(BUCKET).join(VOLUME), &cpu))?;
    let raw = (args.size.pow(3) * Element::U16.size()) as f64 / 1e6;
    println!(
        "{0} x {0} x {0} u16, {raw:.0} MB, chunks of {1}, Zstandard in blosc, {cores} cores",
        args.size, args.chunk
    );
    let python = python()?;
    let at_once = 4 * cores.get();
    let [mut ours, mut our_chunks, mut chunks, mut whole, mut tensorstores] = [f64::INFINITY; 5];
    for _ in 0..args.rounds {
        ours = ours.min(runtime.block_on(read(&environment, &cpu))?);
        our_chunks = our_chunks.min(runtime.block_on(read_chunks(&environment, &cpu, at_once))?);
        chunks = chunks.min(runtime.block_on(zarrs(&server, Some(at_once)))?);
        whole = whole.min(runtime.block_on(zarrs(&server, None))?);
        tensorstores = tensorstores.min(tensorstore(&python, &server)?);
    }
    let told = |name: &str, seconds: f64, ours: f64| {
        println!("{name:<16}{seconds:.3} s  {:>5.0} MB/s, haloflow over it {:.2}", raw / seconds, seconds / ours);
    };
    println!("the whole array:");
    for (name, seconds) in [("haloflow", ours), ("tensorstore", tensorstores), ("zarrs", whole)] {
        told(name, seconds, ours);
    }
    println!("{at_once} chunks at a time, each let go of:");
    for (name, seconds) in [("haloflow", our_chunks), ("zarrs", chunks)] {
        told(name, seconds, our_chunks);
    }
    Ok(())
}

/// Writes blobs with noise.
async fn write(args: &Args, place: &Path, cpu: &CpuPool) -> Result<()> {
    let url = place.to_str().context("the temporary folder has a name that is no text")?.to_owned();
    let new = NewVolume { url, shape: [args.size; 3], element: Element::U16, chunk: [args.chunk; 3] };
    let voxel = |[z, y, x]: [usize; 3]| {
        let far = [z, y, x].map(|axis| (axis % 32).abs_diff(16)).iter().map(|far| far * far).sum::<usize>();
        let noise = (z * 73_856_093) ^ (y * 19_349_663) ^ (x * 83_492_791);
        (200 + 4000_usize.saturating_sub(40 * far) + (noise >> 7 & 63)) as u16
    };
    let voxels: Vec<u16> = Box3::of_shape(new.shape).indices().map(voxel).collect();
    new.write(AlignedBytes::from_slice(&voxels), &Environment::empty(), cpu).await
}

/// Seconds in which haloflow reads the whole volume, a layer of chunks at a time and four layers at one time.
async fn read(environment: &Environment, cpu: &CpuPool) -> Result<f64> {
    let reader = VolumeReader::open(&input(&format!("s3://{BUCKET}/{VOLUME}")), environment, cpu).await?;
    let whole = Box3::of_shape(reader.shape());
    let layer = [reader.unit()[0], whole.stop[1], whole.stop[2]];
    let began = Instant::now();
    let layers = stream::iter(whole.cells(layer).indices()).map(|cell| {
        let (reader, region) = (reader.clone(), Box3::of_cell(cell, layer).intersect(&whole));
        tokio::spawn(async move { reader.read(region).await })
    });
    let bricks: Vec<_> = layers.buffered(4).try_collect().await?;
    let took = began.elapsed().as_secs_f64();
    bricks.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(took)
}

/// Seconds in which haloflow reads every chunk, `at_once` at one time, and lets go of each.
async fn read_chunks(environment: &Environment, cpu: &CpuPool, at_once: usize) -> Result<f64> {
    let reader = VolumeReader::open(&input(&format!("s3://{BUCKET}/{VOLUME}")), environment, cpu).await?;
    let (whole, unit) = (Box3::of_shape(reader.shape()), reader.unit());
    let cells = whole.cells(unit);
    // Reads of a run that share nothing.
    let leftovers = Leftovers::new(0, |_| Vec::new());
    let began = Instant::now();
    let reading = cells.indices().enumerate().map(|(order, cell)| {
        let (reader, region) = (reader.clone(), Box3::of_cell(cell, unit).intersect(&whole));
        let turn = leftovers.begin(Read { order: order as u64, region });
        async move { anyhow::Ok(tokio::spawn(async move { reader.read_in_turn(&turn).await }).await??.region) }
    });
    let read: Vec<Box3> = stream::iter(reading).buffer_unordered(at_once).try_collect().await?;
    let took = began.elapsed().as_secs_f64();
    ensure!(read.iter().map(Box3::voxels).sum::<usize>() == whole.voxels(), "haloflow read too few voxels");
    Ok(took)
}

/// Seconds in which zarrs reads the volume as its benchmark tool does, in one of its two ways: chunk by chunk, `at_once` of them in tasks
/// of their own, and lets go of each; or the whole array in one go.
async fn zarrs(server: &S3Server, at_once: Option<usize>) -> Result<f64> {
    let variables: HashMap<String, String> = server.variables().into_iter().collect();
    let variable = |name: &str| variables.get(name).cloned().unwrap_or_default();
    let bucket = AmazonS3Builder::new()
        .with_bucket_name(BUCKET)
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_access_key_id(variable("AWS_ACCESS_KEY_ID"))
        .with_secret_access_key(variable("AWS_SECRET_ACCESS_KEY"))
        .build()?;
    let array = Arc::new(Array::async_open(Arc::new(AsyncObjectStore::new(bucket)), &format!("/{VOLUME}/0")).await?);
    let voxels = array.shape().iter().product::<u64>() as usize;
    let began = Instant::now();
    let Some(at_once) = at_once else {
        let read: Vec<u16> = array.async_retrieve_array_subset(&array.subset_all()).await?;
        let took = began.elapsed().as_secs_f64();
        ensure!(read.len() == voxels, "zarrs read {} voxels", read.len());
        return Ok(took);
    };
    let grid = array.chunk_grid_shape();
    let all = Box3::of_shape([grid[0], grid[1], grid[2]].map(|count| count as usize));
    let reading = all.indices().map(|index| {
        let array = Arc::clone(&array);
        async move {
            let read =
                tokio::spawn(
                    async move { array.async_retrieve_chunk::<Vec<u16>>(&index.map(|place| place as u64)).await },
                );
            anyhow::Ok(read.await??.len())
        }
    });
    let read: Vec<usize> = stream::iter(reading).buffer_unordered(at_once).try_collect().await?;
    let took = began.elapsed().as_secs_f64();
    ensure!(read.iter().sum::<usize>() >= voxels, "zarrs read too few voxels");
    Ok(took)
}

/// The interpreter of the environment that the interop tests use.
fn python() -> Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/interop/environment.py");
    let output = Command::new("python3").arg(script).output().context("python3 cannot be started")?;
    ensure!(output.status.success(), "tensorstore was not installed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Seconds in which tensorstore reads the whole volume, as it measures them itself.
fn tensorstore(python: &str, server: &S3Server) -> Result<f64> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/storage/read.py");
    let mut command = Command::new(python);
    command.arg(script).args([&server.endpoint(), BUCKET, &format!("{VOLUME}/0")]).envs(server.variables());
    let output = command.output().context("tensorstore cannot be started")?;
    ensure!(output.status.success(), "tensorstore failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}
