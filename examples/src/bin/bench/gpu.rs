//! A real network on GPUs: the bare module on data that is on the device already, and whole runs of the program `haloflow` beside it,
//! from a local disk and through an S3 server on loopback.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use haloflow_engine::ElementKind;
use haloflow_engine_torch::{CompiledForm, DeviceBench, TorchDevice, TorchOptions, cuda_devices};
use haloflow_examples::s3::S3Server;
use haloflow_volume::CpuPool;
use serde::Serialize;
use serde_json::Value;

use crate::synthetic::{Synthetic, gamma};

const BUCKET: &str = "bench";
const PATCH: usize = 64;
/// Batches of the bare module that are not measured, and that are.
const BARE: (usize, usize) = (5, 40);

/// What is measured.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The network's bundle, with a package under `compiled` for this batch, patch 64 and f16.
    #[arg(long)]
    bundle: PathBuf,
    /// The program that is measured.
    #[arg(long, default_value = "haloflow")]
    haloflow: PathBuf,
    /// Voxels along each side of the volume.
    #[arg(long, default_value_t = 1024)]
    size: usize,
    /// Patches per batch.
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// The most memory that a run may have.
    #[arg(long, default_value = "4GiB")]
    memory: String,
    /// Runs whose name does not contain this are left out.
    #[arg(long, default_value = "")]
    only: String,
    /// Where the volumes lie; unset is the system's folder for temporary files.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Writes the figures to this file too.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// In which form the network runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    TorchScript,
    Package,
    PackageInGraph,
}

impl Form {
    const ALL: [Self; 3] = [Self::TorchScript, Self::Package, Self::PackageInGraph];

    const fn name(self) -> &'static str {
        match self {
            Self::TorchScript => "TorchScript",
            Self::Package => "package",
            Self::PackageInGraph => "package, graph",
        }
    }

    const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::TorchScript => &[],
            Self::Package => &["--compile", "required"],
            Self::PackageInGraph => &["--compile", "required", "--compile-mode", "reduce-overhead"],
        }
    }
}

/// How the volume is cut.
#[derive(Clone, Copy)]
enum Cut {
    Block,
    Volume,
}

impl Cut {
    const fn name(self) -> &'static str {
        match self {
            Self::Block => "block lattice",
            Self::Volume => "volume lattice",
        }
    }

    const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Block => &["--lattice", "block", "--block", "256", "--halo", "5", "--normalize", "percentile"],
            Self::Volume => &["--normalize", "global", "--norm-lower", "0", "--norm-upper", "500"],
        }
    }
}

/// One line of the table.
#[derive(Serialize)]
struct Row {
    name: String,
    /// From the first read to the last write.
    seconds: f64,
    /// Before that: opening, loading, warming up.
    start_seconds: f64,
    volume_megavoxels_per_second: f64,
    patch_megavoxels_per_second: f64,
    /// The bare module's time for as many batches over the run's.
    over_bare: f64,
    cpu_user_seconds: f64,
    cpu_system_seconds: f64,
    peak_resident_gib: f64,
    bytes_read_over_stored: f64,
}

/// Everything the rows share.
struct Bench {
    arguments: Arguments,
    folder: tempfile::TempDir,
    server: S3Server,
    /// Bytes of the stored volume.
    stored: u64,
    /// Milliseconds per batch of the bare module on one device.
    bare: BTreeMap<Form, f64>,
}

/// Measures, and tells the figures.
pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let devices = cuda_devices();
    if devices == 0 {
        println!("skipped: there is no CUDA device");
        return Ok(());
    }
    let folder = tempfile::tempdir_in(arguments.dir.clone().unwrap_or_else(std::env::temp_dir))?;
    let server = S3Server::start(folder.path(), BUCKET)?;
    let input = folder.path().join(BUCKET).join("in.ome.zarr");
    let cpu = CpuPool::new(std::thread::available_parallelism()?)?;
    let volume = Synthetic { size: arguments.size, chunk: [128; 3], voxel: gamma };
    volume.write(&input.display().to_string(), &cpu).await?;
    let mut bench = Bench { stored: bytes_under(&input)?, arguments, folder, server, bare: BTreeMap::new() };
    for form in Form::ALL {
        let milliseconds = bench.bare(form).with_context(|| format!("the bare module as {}", form.name()))?;
        let voxels = (bench.arguments.batch * PATCH.pow(3)) as f64;
        println!(
            "bare, {}: {milliseconds:.3} ms per batch, {:.1} Mvox/s of patches",
            form.name(),
            voxels / milliseconds / 1e3
        );
        bench.bare.insert(form, milliseconds);
    }
    let mut rows = Vec::new();
    for (form, cut, s3, count) in plan(devices) {
        let count_name = if count == 1 { "1 GPU".to_owned() } else { format!("{count} GPUs") };
        let name = format!("{}, {}, {}, {count_name}", form.name(), cut.name(), if s3 { "S3" } else { "disk" });
        if name.contains(&bench.arguments.only) {
            match bench.whole(name.clone(), form, cut, s3, count) {
                Ok(row) => rows.push(row),
                // One row that fails must not cost the others.
                Err(error) => println!("{name}: FAILED: {error:#}"),
            }
        }
    }
    println!("{}", table(&rows));
    if let Some(path) = &bench.arguments.json {
        let bare: BTreeMap<_, _> = bench.bare.iter().map(|(form, milliseconds)| (form.name(), milliseconds)).collect();
        let figures = serde_json::json!({ "bare_ms_per_batch": bare, "rows": rows });
        let text = serde_json::to_string_pretty(&figures)?;
        std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

/// The runs: every form once, and the package with every lattice, store and number of devices.
fn plan(devices: usize) -> Vec<(Form, Cut, bool, usize)> {
    let mut runs = vec![(Form::TorchScript, Cut::Block, false, 1), (Form::PackageInGraph, Cut::Block, false, 1)];
    let counts = std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count <= devices);
    for count in counts {
        for s3 in [false, true] {
            runs.extend([Cut::Block, Cut::Volume].map(|cut| (Form::Package, cut, s3, count)));
        }
    }
    runs
}

impl Bench {
    /// Milliseconds per batch of the bare module on data that is on the device.
    fn bare(&self, form: Form) -> Result<f64> {
        let compiled = match form {
            Form::TorchScript => None,
            _ => Some(CompiledForm { package: Ok(package(&self.arguments.bundle)?), required: true }),
        };
        let module = self.arguments.bundle.join("module.ts");
        let options = TorchOptions {
            compiled,
            kind: ElementKind::F16,
            pad_short: true,
            graph: form == Form::PackageInGraph,
            through_ring: true,
            ..TorchOptions::new(module, TorchDevice::Cuda(0), self.arguments.batch, [PATCH; 3])
        };
        let (warm_up, measured) = BARE;
        // The device's memory is free again when its thread has ended.
        let bare = std::thread::spawn(move || DeviceBench::new(&options)?.bare(warm_up + measured));
        let times = bare.join().ok().context("the device's thread panicked")??;
        Ok(times[warm_up..].iter().sum::<f64>() / measured as f64)
    }

    /// A run of the program.
    fn whole(&self, name: String, form: Form, cut: Cut, s3: bool, devices: usize) -> Result<Row> {
        let metrics = self.folder.path().join("metrics.json");
        let place = |volume: &str| match s3 {
            true => format!("s3://{BUCKET}/{volume}"),
            false => self.folder.path().join(BUCKET).join(volume).display().to_string(),
        };
        let mut program = Command::new(&self.arguments.haloflow);
        program.args([
            "run",
            "--overwrite",
            "--seam-mode",
            "blend",
            "--patch",
            "64",
            "--overlap",
            "10",
            "--align",
            "1",
        ]);
        program.args(["--clip-norm", "0", "5", "--out-dtype", "uint16"]);
        program
            .args(["--in", &place("in.ome.zarr"), "--out", &place("out.ome.zarr")])
            .arg("--model")
            .arg(&self.arguments.bundle);
        program.args(["--batch", &self.arguments.batch.to_string(), "--memory", &self.arguments.memory]);
        program.arg("--devices").args((0..devices).map(|device| format!("cuda:{device}")));
        program.args(cut.flags()).args(form.flags()).arg("--metrics-json").arg(&metrics);
        let ended = program.envs(self.server.variables()).output().context("the program cannot be started")?;
        if !ended.status.success() {
            bail!("{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr).trim());
        }
        let report: Value = serde_json::from_slice(&std::fs::read(&metrics)?)?;
        self.row(name, form, devices, &report).context("the report lacks a figure")
    }

    fn row(&self, name: String, form: Form, devices: usize, report: &Value) -> Option<Row> {
        let figure = |group: &str, key: &str| report[group][key].as_f64();
        let seconds = figure("seconds", "stream")?;
        let patches = figure("work", "patches")?;
        let batches = (patches / self.arguments.batch as f64).ceil();
        Some(Row {
            name,
            seconds,
            start_seconds: figure("seconds", "total")? - seconds,
            volume_megavoxels_per_second: report["voxels_per_second"].as_f64()? / 1e6,
            patch_megavoxels_per_second: patches * PATCH.pow(3) as f64 / seconds / 1e6,
            over_bare: batches * self.bare.get(&form)? / 1e3 / devices as f64 / seconds,
            cpu_user_seconds: figure("cpu_seconds", "user")?,
            cpu_system_seconds: figure("cpu_seconds", "system")?,
            peak_resident_gib: report["peak_resident_bytes"].as_f64()? / f64::from(1 << 30),
            bytes_read_over_stored: figure("storage_read", "bytes_read")? / self.stored as f64,
        })
    }
}

/// The package in a bundle that has one.
fn package(bundle: &Path) -> Result<PathBuf> {
    let folder = bundle.join("compiled");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("{} has no packages", bundle.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut packages = paths.filter(|path| path.extension().is_some_and(|extension| extension == "pt2"));
    packages.next().with_context(|| format!("{} holds no package", folder.display()))
}

fn bytes_under(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() { bytes_under(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

fn table(rows: &[Row]) -> String {
    let mut lines = vec![format!(
        "{:<42}{:>8}{:>8}{:>9}{:>9}{:>8}{:>7}{:>7}{:>7}{:>7}",
        "run", "seconds", "start", "Mvox/s", "patch", "bare", "user", "system", "GiB", "read"
    )];
    lines.extend(rows.iter().map(|row| {
        format!(
            "{:<42}{:>8.2}{:>8.2}{:>9.1}{:>9.1}{:>8.3}{:>7.1}{:>7.1}{:>7.2}{:>7.3}",
            row.name,
            row.seconds,
            row.start_seconds,
            row.volume_megavoxels_per_second,
            row.patch_megavoxels_per_second,
            row.over_bare,
            row.cpu_user_seconds,
            row.cpu_system_seconds,
            row.peak_resident_gib,
            row.bytes_read_over_stored
        )
    }));
    lines.push(
        "\nseconds: first read to last write; start: all before; Mvox/s of the volume and of its patches; bare: the bare module's time \
         for as many batches, over the run's; user, system: CPU seconds; GiB: most memory resident; read: bytes read over bytes stored"
            .to_owned(),
    );
    lines.join("\n")
}
