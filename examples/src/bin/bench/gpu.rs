//! A real network on GPUs: the bare module on data that is on the device already, and whole runs of the program `haloflow` beside it,
//! from a local disk and through an S3 server on loopback.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use half::f16;
use haloflow_engine::ElementKind;
use haloflow_engine_torch::{CompiledForm, DeviceBench, TorchDevice, TorchOptions, cuda_devices};
use haloflow_examples::s3::S3Server;
use haloflow_geometry::Box3;
use haloflow_volume::CpuPool;
use serde::Serialize;
use serde_json::Value;

use crate::synthetic::{Synthetic, gamma, voxels};

const BUCKET: &str = "bench";
const PATCH: usize = 64;
/// What becomes 0 and 1 in the volume lattice; the blocks' own percentiles differ little from it.
const BOUNDS: [f32; 2] = [0.0, 500.0];
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
    /// The most memory that a run on one device may have.
    #[arg(long, default_value = "4GiB")]
    memory: String,
    /// The most memory that the runs which are compared over the number of devices may have, all the same.
    #[arg(long, default_value = "8GiB")]
    scaling_memory: String,
    /// Runs whose name does not contain this are left out.
    #[arg(long, default_value = "")]
    only: String,
    /// Where the volumes lie; unset is the system's folder for temporary files.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Writes the figures to this file too, and the trace of every run beside it.
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
    /// Voxels of all patches over voxels of the volume.
    redundancy: f64,
    /// The bare module's time for as many batches over the run's.
    over_bare: f64,
    /// The part of the time in which a device computed, by its own clock.
    busy: f64,
    /// The time of the same run on one device over this one's.
    over_one: Option<f64>,
    /// Whether the bytes of the output are those of the same form's and lattice's first run.
    same_bytes: bool,
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
    let server = S3Server::start_swift(folder.path(), BUCKET)?;
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
    let mut rows: Vec<Row> = Vec::new();
    let mut outputs: BTreeMap<(Form, &str), u64> = BTreeMap::new();
    let mut alone: BTreeMap<(&str, bool), f64> = BTreeMap::new();
    for Case { form, cut, s3, count, scaling } in plan(devices) {
        let memory = if scaling { &bench.arguments.scaling_memory } else { &bench.arguments.memory };
        let name = format!(
            "{}, {}, {}, {count} GPU{}, {memory}",
            form.name(),
            cut.name(),
            if s3 { "S3" } else { "disk" },
            if count == 1 { "" } else { "s" }
        );
        if name.contains(&bench.arguments.only) {
            match bench.whole(name.clone(), (form, cut, s3, count), memory) {
                Ok(mut row) => {
                    let output = bench.folder.path().join(BUCKET).join("out.ome.zarr").join("0");
                    let digest = digest(&output)?;
                    row.same_bytes = *outputs.entry((form, cut.name())).or_insert(digest) == digest;
                    if scaling {
                        let one = *alone.entry((cut.name(), s3)).or_insert(row.seconds);
                        row.over_one = (count > 1).then_some(one / row.seconds);
                    }
                    println!("{name}: {:.2} s", row.seconds);
                    rows.push(row);
                }
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

/// One run.
struct Case {
    form: Form,
    cut: Cut,
    s3: bool,
    /// Devices.
    count: usize,
    /// Whether it is one of those that are compared over the number of devices.
    scaling: bool,
}

/// The runs: on one device every form, and the package with every lattice and store; then the package on one device, two, four and so on.
fn plan(devices: usize) -> Vec<Case> {
    let everywhere = |count, scaling| {
        [false, true].into_iter().flat_map(move |s3| {
            [Cut::Block, Cut::Volume].map(|cut| Case { form: Form::Package, cut, s3, count, scaling })
        })
    };
    let forms = [Form::TorchScript, Form::PackageInGraph];
    let forms = forms.map(|form| Case { form, cut: Cut::Block, s3: false, count: 1, scaling: false });
    let mut runs: Vec<Case> = forms.into_iter().chain(everywhere(1, false)).collect();
    if devices > 1 {
        let counts = std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count <= devices);
        runs.extend(counts.flat_map(|count| everywhere(count, true)));
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
        let batch = self.batch();
        // The device's memory is free again when its thread has ended.
        let bare = std::thread::spawn(move || DeviceBench::new(&options)?.bare(&batch, warm_up + measured));
        let times = bare.join().ok().context("the device's thread panicked")??;
        Ok(times[warm_up..].iter().sum::<f64>() / measured as f64)
    }

    /// A batch as the runs have them: patches of the volume, normalised.
    fn batch(&self) -> Vec<u8> {
        let [low, high] = BOUNDS;
        let rows = Box3::of_shape([self.arguments.batch * PATCH, PATCH, PATCH]);
        let normalised = |voxel: u16| f16::from_f32(((f32::from(voxel) - low) / (high - low)).clamp(0.0, 5.0));
        bytemuck::cast_slice(&voxels(rows, gamma).into_iter().map(normalised).collect::<Vec<f16>>()).to_vec()
    }

    /// A run of the program.
    fn whole(&self, name: String, (form, cut, s3, devices): (Form, Cut, bool, usize), memory: &str) -> Result<Row> {
        let metrics = self.folder.path().join("metrics.json");
        let trace = match &self.arguments.json {
            Some(json) => json.with_file_name(format!("{}.trace.json", name.replace(", ", "-").replace(' ', "_"))),
            None => self.folder.path().join("trace.json"),
        };
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
        program.args(["--batch", &self.arguments.batch.to_string(), "--memory", memory]);
        program.arg("--devices").args((0..devices).map(|device| format!("cuda:{device}")));
        program.args(cut.flags()).args(form.flags()).arg("--metrics-json").arg(&metrics).arg("--trace").arg(&trace);
        let ended = program.envs(self.server.variables()).output().context("the program cannot be started")?;
        if !ended.status.success() {
            bail!("{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr).trim());
        }
        let report: Value = serde_json::from_slice(&std::fs::read(&metrics)?)?;
        let trace: Value = serde_json::from_slice(&std::fs::read(&trace)?)?;
        let computed = computed(&trace).context("the trace lacks the device's spans")?;
        self.row(name, form, (devices, computed), &report).context("the report lacks a figure")
    }

    fn row(&self, name: String, form: Form, (devices, computed): (usize, f64), report: &Value) -> Option<Row> {
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
            redundancy: patches * PATCH.pow(3) as f64 / self.arguments.size.pow(3) as f64,
            busy: computed / devices as f64 / seconds,
            over_one: None,
            same_bytes: false,
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

/// Seconds that devices computed, all together.
fn computed(trace: &Value) -> Option<f64> {
    let spans = trace["traceEvents"].as_array()?.iter().filter(|event| event["name"] == "compute");
    let micros: Vec<f64> = spans.map(|span| span["dur"].as_f64()).collect::<Option<_>>()?;
    (!micros.is_empty()).then(|| micros.iter().sum::<f64>() / 1e6)
}

/// What stands in a folder: names and bytes.
fn digest(folder: &Path) -> Result<u64> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    entries.sort();
    let mut hasher = std::hash::DefaultHasher::new();
    for entry in entries {
        entry.file_name().hash(&mut hasher);
        if entry.is_dir() {
            digest(&entry)?.hash(&mut hasher);
        } else {
            std::fs::read(&entry)?.hash(&mut hasher);
        }
    }
    Ok(hasher.finish())
}

fn table(rows: &[Row]) -> String {
    let mut lines = vec![format!(
        "{:<50}{:>8}{:>7}{:>9}{:>9}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7}",
        "run",
        "seconds",
        "start",
        "Mvox/s",
        "patch",
        "factor",
        "bare",
        "busy",
        "one",
        "same",
        "user",
        "system",
        "GiB",
        "read"
    )];
    lines.extend(rows.iter().map(|row| {
        format!(
            "{:<50}{:>8.2}{:>7.2}{:>9.1}{:>9.1}{:>7.3}{:>7.3}{:>7.3}{:>7}{:>7}{:>7.1}{:>7.1}{:>7.2}{:>7.3}",
            row.name,
            row.seconds,
            row.start_seconds,
            row.volume_megavoxels_per_second,
            row.patch_megavoxels_per_second,
            row.redundancy,
            row.over_bare,
            row.busy,
            row.over_one.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            if row.same_bytes { "yes" } else { "NO" },
            row.cpu_user_seconds,
            row.cpu_system_seconds,
            row.peak_resident_gib,
            row.bytes_read_over_stored
        )
    }));
    lines.push(
        "\nseconds: first read to last write; start: all before; Mvox/s of the volume and of its patches; factor: voxels of the patches over \
         voxels of the volume; bare: the bare module's time for as many batches, over the run's; busy: the part of the time in which a device \
         computed; one: the time on one device over this; same: whether the output's bytes are those of the first run in this form and lattice; \
         user, system: CPU seconds; GiB: most memory resident; read: bytes read over bytes stored"
            .to_owned(),
    );
    lines.join("\n")
}
