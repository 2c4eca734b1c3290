//! From what was typed to what it means. All errors are collected, then told together.

use std::num::NonZeroUsize;
use std::time::Duration;

use haloflow_engine::ElementKind;
use haloflow_engine_torch::{TorchDevice, TorchOptions};
use haloflow_geometry::Seam;
use haloflow_pipeline::cast::{NonFinite, Rounding};
use haloflow_pipeline::cut::Padding;
use haloflow_pipeline::normalise::Normalisation;
use haloflow_pipeline::pyramid::{Downsampling, Pyramid};
use haloflow_pipeline::recipe::Recipe;
use haloflow_pipeline::skip::Skip;
use haloflow_pipeline::watchdog::Watchdog;
use haloflow_pipeline::{LatticeChoice, Layout, Part, Resources, RunSettings, Values};
use haloflow_volume::{InputOptions, Levels, Network, OutputRequest, ZarrFormat};

use crate::args::RunArgs;
use crate::compile::{Compiling, Wish};
use crate::machine::Machine;
use crate::typed::{BatchSize, Errors, MOST, choose, count, percentage, seconds, time, triple};

/// The most threads that the pool may have.
const MOST_THREADS: usize = 1024;

/// A run as it was asked for, checked as far as it can be without looking at files or devices.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) run: RunSettings,
    /// One per device, in the order given.
    pub(crate) engines: Vec<TorchOptions>,
    /// Whether to print what would be computed, and do nothing.
    pub(crate) explain: bool,
    /// Whether the batch is still to be found, by trying what fits.
    pub(crate) find_batch: bool,
    pub(crate) network: Network,
    /// Between two samples of the progress.
    pub(crate) metrics_interval: Duration,
}

/// Makes the settings of a run on `machine`.
///
/// # Errors
/// One sentence per key that cannot work.
pub(crate) fn settings(args: &RunArgs, machine: &Machine) -> Result<Settings, Vec<String>> {
    let mut errors = Errors::default();
    if args.no_compile_dynamic.is_some() {
        errors.tell("`no-compile-dynamic` was removed; use `--compile-dynamic auto|true|false`");
    }
    let devices = devices(args, machine, &mut errors);
    let on_cuda = devices.iter().any(|device| matches!(device, TorchDevice::Cuda(_)));
    let run = RunSettings {
        input: input(args, &mut errors),
        output: output(args, &mut errors),
        layout: layout(args, &mut errors),
        values: values(args, &mut errors),
        resources: resources(args, machine, on_cuda, &mut errors),
        pyramid: pyramid(args, &mut errors),
        skip: Skip { empty: args.skip_empty.unwrap_or(false), mask: args.mask.clone() },
        part: Part::Whole,
        network: Recipe::new(),
    };
    let explain = args.resume.as_deref() == Some("explain");
    let engines = engines(args, machine, &run, &devices, &mut errors);
    if errors.is_empty()
        && let Err(fault) = run.check()
    {
        errors.tell(&fault.message);
    }
    let metrics_interval = seconds("metrics-interval", args.metrics_interval, 0.5, &mut errors);
    let network = network(args, &mut errors);
    let find_batch = matches!(args.batch, Some(BatchSize::Found(_)));
    errors.into_result(Settings { run, engines, explain, find_batch, network, metrics_interval })
}

/// How remote stores are talked to.
pub(crate) fn network(args: &RunArgs, errors: &mut Errors) -> Network {
    Network {
        requests: args.requests.unwrap_or(64).max(1),
        deadline: seconds("request-deadline", args.request_deadline, 300.0, errors),
        stall: seconds("stall-timeout", args.stall_timeout, 60.0, errors),
        anonymous: args.anonymous.unwrap_or(false),
    }
}

/// A sentence for each key that was set and changes nothing.
pub(crate) fn idle(args: &RunArgs, settings: &Settings) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut tell = |idle: bool, sentence: &str| {
        if idle {
            sentences.push(sentence.to_owned());
        }
    };
    let layout = &settings.run.layout;
    let volume = settings.run.lattice() == Ok(LatticeChoice::Volume);
    tell(volume && layout.halo.is_some(), "`halo` does nothing in the volume lattice; it needs `--lattice block`");
    let trims = matches!(layout.seam, Seam::Trim { .. });
    let differs = |typed: &Option<Vec<usize>>, default: usize| typed.iter().flatten().any(|size| *size != default);
    tell(
        trims && differs(&args.margin, 0),
        "`margin` does nothing with `--seam-mode trim`; it needs `--seam-mode blend`",
    );
    tell(!trims && differs(&args.trim_voxels, 5), "`trim-voxels` does nothing with `--seam-mode blend`");
    let normalisation = settings.run.values.normalisation;
    let whole = matches!(normalisation, Normalisation::Volume { .. } | Normalisation::ZScore { given: None });
    tell(
        args.norm_level.is_some() && !whole,
        "`norm-level` does nothing here; it needs statistics of the volume: `--normalize volume`, or zscore without `norm-mean`",
    );
    let given = args.norm_mean.is_some() || args.norm_sd.is_some();
    let zscore = matches!(normalisation, Normalisation::ZScore { .. });
    tell(given && !zscore, "`norm-mean` and `norm-sd` do nothing here; they need `--normalize zscore`");
    let (most, devices) = (settings.run.resources.max_inflight_batches, settings.engines.len());
    tell(
        most < devices,
        &format!(
            "`max-inflight-batches` is {most}, less than the {devices} devices; every device has at least one batch"
        ),
    );
    sentences
}

fn input(args: &RunArgs, errors: &mut Errors) -> InputOptions {
    let source = args.input.clone().unwrap_or_default();
    if source.is_empty() {
        errors.tell("`in` is missing: name the volume, for example `--in s3://bucket/volume.zarr`");
    }
    InputOptions {
        source,
        level: args.level.unwrap_or(0),
        level_given: args.level.is_some(),
        t: args.t.unwrap_or(0),
        c: args.c.clone().unwrap_or_else(|| vec![0]),
        // The run sizes the cache when it knows the volume.
        cache_bytes: 0,
        requests: count("requests", args.requests, 64, MOST, errors),
    }
}

fn output(args: &RunArgs, errors: &mut Errors) -> OutputRequest {
    let targets = args.output.clone().unwrap_or_default();
    if targets.is_empty() {
        errors.tell("`out` is missing: name where the result goes, for example `--out s3://bucket/result.zarr`");
    }
    let element = args.out_dtype.as_deref().and_then(|kind| match kind.parse() {
        Ok(element) => Some(element),
        Err(error) => {
            errors.tell(&format!("`out-dtype` is {kind}: {error}"));
            None
        }
    });
    let format = match args.zarr_format {
        None => None,
        Some(2) => Some(ZarrFormat::V2),
        Some(3) => Some(ZarrFormat::V3),
        Some(other) => {
            errors.tell(&format!("`zarr-format` is {other}; allowed are 2 and 3"));
            None
        }
    };
    let words = [("true", true), ("false", false), ("explain", true)];
    let by_default = if args.overwrite == Some(true) { "false" } else { "true" };
    OutputRequest {
        targets,
        stack_channels: args.stack_channels.unwrap_or(false),
        element,
        default_element: haloflow_volume::Element::F32,
        chunk: args.chunk.as_ref().map(|chunk| triple("chunk", chunk, errors)),
        shard: crate::part::shard_sizes(args).map(|shard| triple("shard", &shard, errors)),
        format,
        compressor: args.compressor.clone(),
        t: args.out_t,
        c: args.out_c,
        input_t: args.t.unwrap_or(0),
        input_c: args.c.as_ref().and_then(|channels| channels.first().copied()).unwrap_or(0),
        overwrite: args.overwrite.unwrap_or(false),
        resume: choose("resume", args.resume.as_deref().unwrap_or(by_default), &words, errors),
        shared: false,
        block: None,
        provenance: serde_json::json!({ "model": args.model.as_ref().map(|model| model.display().to_string()) }),
    }
}

fn pyramid(args: &RunArgs, errors: &mut Errors) -> Pyramid {
    let levels = match (args.pyramid.as_deref(), args.pyramid.as_deref().map(str::parse)) {
        (None, _) | (_, Some(Ok(1))) => Levels::One,
        (Some("auto"), _) => Levels::Auto,
        (_, Some(Ok(count @ 1..))) => Levels::Count(count),
        (typed, _) => {
            let typed = typed.unwrap_or_default();
            errors.tell(&format!("`pyramid` is {typed}; give a number of levels of at least 1, or auto"));
            Levels::One
        }
    };
    let methods = [("mean", Downsampling::Mean), ("mode", Downsampling::Mode), ("max", Downsampling::Max)];
    Pyramid { levels, method: choose("downsample", args.downsample.as_deref().unwrap_or("mean"), &methods, errors) }
}

fn layout(args: &RunArgs, errors: &mut Errors) -> Layout {
    let three = |key: &str, typed: &Option<Vec<usize>>, default: usize, errors: &mut Errors| {
        typed.as_ref().map_or([default; 3], |typed| triple(key, typed, errors))
    };
    let trim = three("trim-voxels", &args.trim_voxels, 5, errors);
    let margin = three("margin", &args.margin, 0, errors);
    let floor = args.min_blend_weight.unwrap_or(0.05);
    let seam = choose(
        "seam-mode",
        args.seam_mode.as_deref().unwrap_or("trim"),
        &[("trim", Seam::Trim { voxels: trim }), ("blend", Seam::Blend { floor, margin })],
        errors,
    );
    let lattice = args.lattice.as_deref();
    Layout {
        patch: three("patch", &args.patch, 64, errors),
        overlap: three("overlap", &args.overlap, 10, errors),
        block: args.block.as_ref().map(|block| triple("block", block, errors)),
        lattice: lattice.map(|text| {
            choose("lattice", text, &[("volume", LatticeChoice::Volume), ("block", LatticeChoice::Block)], errors)
        }),
        halo: args.halo.as_ref().map(|halo| triple("halo", halo, errors)),
        align: three("align", &args.align, 1, errors),
        seam,
    }
}

fn values(args: &RunArgs, errors: &mut Errors) -> Values {
    let clip = match args.clip_norm.as_deref() {
        None => None,
        Some([]) => Some([0.0, 1.0]),
        Some(&[low, high]) if low < high => Some([low, high]),
        Some(other) => {
            errors.tell(&format!(
                "`clip-norm` is {other:?}; give no value (clips to 0 and 1) or two, the lower one first"
            ));
            None
        }
    };
    let eps = args.eps.unwrap_or(1e-6);
    if !(eps > 0.0 && eps.is_finite()) {
        errors.tell(&format!("`eps` is {eps}; it must be above 0"));
    }
    let words = [("nearest-even", Rounding::NearestEven), ("truncate", Rounding::Truncate)];
    let paddings = [("reflect", Padding::Reflect), ("edge", Padding::Edge), ("zero", Padding::Zero)];
    Values {
        normalisation: normalisation(args, errors),
        statistics_level: args.norm_level,
        eps,
        clip,
        denormalise: !args.no_output_denormalize.unwrap_or(false),
        after: Vec::new(),
        padding: choose("pad", args.pad.as_deref().unwrap_or("reflect"), &paddings, errors),
        rounding: choose("rounding", args.rounding.as_deref().unwrap_or("nearest-even"), &words, errors),
        nonfinite: nonfinite(args.nonfinite.as_deref().unwrap_or("fail"), errors),
    }
}

fn nonfinite(text: &str, errors: &mut Errors) -> NonFinite {
    match (text, text.parse::<f32>()) {
        ("fail", _) => NonFinite::Fail,
        ("replace", _) => NonFinite::Replace(0.0),
        (_, Ok(value)) if value.is_finite() => NonFinite::Replace(value),
        _ => {
            errors.tell(&format!("`nonfinite` is {text}; allowed are fail, replace, or a number to store instead"));
            NonFinite::Fail
        }
    }
}

fn normalisation(args: &RunArgs, errors: &mut Errors) -> Normalisation {
    let how = args.normalize.as_deref().unwrap_or("percentile");
    let bounds = [args.norm_lower.unwrap_or(0.5), args.norm_upper.unwrap_or(99.9)];
    let given = match (args.norm_mean, args.norm_sd) {
        (Some(mean), Some(sd)) if sd > 0.0 => Some([mean, sd]),
        (None, None) => None,
        (Some(_), Some(sd)) => {
            errors.tell(&format!("`norm-sd` is {sd}; it must be above 0"));
            None
        }
        _ => {
            errors.tell("`norm-mean` and `norm-sd` go together: give both or neither");
            None
        }
    };
    match how {
        "percentile" | "volume" => percentage(bounds, errors),
        "global" if bounds[0] >= bounds[1] => {
            errors.tell(&format!(
                "`norm-lower` is {} and `norm-upper` is {}; the lower bound must be below the upper",
                bounds[0], bounds[1]
            ));
        }
        _ => {}
    }
    choose(
        "normalize",
        how,
        &[
            ("percentile", Normalisation::Percentile { percentiles: bounds }),
            ("volume", Normalisation::Volume { percentiles: bounds }),
            ("zscore", Normalisation::ZScore { given }),
            ("global", Normalisation::Global { bounds }),
            ("false", Normalisation::None),
            ("none", Normalisation::None),
        ],
        errors,
    )
}

fn resources(args: &RunArgs, machine: &Machine, on_cuda: bool, errors: &mut Errors) -> Resources {
    let threads = if on_cuda { machine.cores } else { machine.cores.div_ceil(2) };
    let asked = match args.batch {
        Some(BatchSize::Patches(patches)) => Some(patches),
        Some(BatchSize::Found(_)) | None => None,
    };
    Resources {
        memory: memory(args, machine, errors),
        batch: count("batch", asked, if on_cuda { 64 } else { 4 }, MOST, errors),
        max_inflight_batches: count("max-inflight-batches", args.max_inflight_batches, 64, MOST, errors),
        prep_workers: count("prep-workers", args.prep_workers, 4, MOST, errors),
        writer_workers: count("writer-workers", args.writer_workers, 16, MOST, errors),
        watchdog: watchdog(args, errors),
        drain_timeout: time("drain-timeout", args.drain_timeout.as_deref().unwrap_or("25s"), errors),
        quarantine: args.quarantine.unwrap_or(100),
        threads: NonZeroUsize::new(count("threads", args.threads, threads, MOST_THREADS, errors))
            .unwrap_or(NonZeroUsize::MIN),
    }
}

/// The budget, bytes.
pub(crate) fn memory(args: &RunArgs, machine: &Machine, errors: &mut Errors) -> u64 {
    match args.memory.as_deref().map(str::parse::<bytesize::ByteSize>) {
        None => machine.memory / 5 * 3,
        Some(Ok(size)) => size.as_u64(),
        Some(Err(_)) => {
            let typed = args.memory.as_deref().unwrap_or_default();
            errors.tell(&format!("`memory` is {typed}; give a size such as 16GiB or 800MB"));
            machine.memory
        }
    }
}

fn watchdog(args: &RunArgs, errors: &mut Errors) -> Option<Watchdog> {
    let limit = time("watchdog", args.watchdog.as_deref().unwrap_or("5min"), errors);
    let diagnosis = args.diagnosis.clone().unwrap_or_else(|| "haloflow-diagnosis.json".into());
    (!limit.is_zero()).then_some(Watchdog { limit, diagnosis })
}

/// The devices by name; `cuda` stands for all.
pub(crate) fn devices(args: &RunArgs, machine: &Machine, errors: &mut Errors) -> Vec<TorchDevice> {
    let default = if machine.cuda_devices > 0 { "cuda" } else { "cpu" };
    let typed = args.devices.clone().unwrap_or_else(|| vec![default.into()]);
    let mut devices = Vec::new();
    for name in &typed {
        match name.parse() {
            _ if name == "cuda" && machine.cuda_devices > 0 => {
                devices.extend((0..machine.cuda_devices).map(TorchDevice::Cuda))
            }
            Ok(TorchDevice::Cuda(index)) if index >= machine.cuda_devices => errors.tell(&format!(
                "`devices` names {name}, and this machine has {} CUDA devices; `cpu` works everywhere",
                machine.cuda_devices
            )),
            Ok(device) => devices.push(device),
            Err(error) => errors.tell(&format!("`devices`: {error}")),
        }
    }
    if devices.contains(&TorchDevice::Cpu) && devices.iter().any(|device| *device != TorchDevice::Cpu) {
        errors.tell("`devices` names cpu and cuda; their results differ in the last bits, so that one run uses one or the other");
    }
    if typed.is_empty() {
        errors.tell("`devices` is empty; name at least one, such as cpu or cuda:0");
    }
    if let Some(twice) = devices.iter().enumerate().find(|(i, device)| devices[..*i].contains(device)) {
        errors.tell(&format!("`devices` names {} twice; every device runs one engine", twice.1));
    }
    devices
}

fn engines(
    args: &RunArgs,
    machine: &Machine,
    run: &RunSettings,
    devices: &[TorchDevice],
    errors: &mut Errors,
) -> Vec<TorchOptions> {
    let Some(model) = args.model.clone() else {
        errors.tell("`model` is missing: name a bundle or a TorchScript module, for example `--model net.ts`");
        return Vec::new();
    };
    let kinds = [("f32", ElementKind::F32), ("f16", ElementKind::F16), ("bf16", ElementKind::Bf16)];
    let asked = args.kind.as_deref().map(|kind| choose("kind", kind, &kinds, errors));
    if asked.is_some_and(|kind| kind != ElementKind::F32) && args.no_amp == Some(true) {
        errors.tell("`kind` and `no-amp` contradict each other: leave one out");
    }
    let compiling = Compiling::read(args, errors);
    let on_cpu = devices.iter().filter(|device| **device == TorchDevice::Cpu).count().max(1);
    devices
        .iter()
        .map(|&device| TorchOptions {
            model: model.clone(),
            compiled: None,
            device,
            batch: run.resources.batch,
            patch: run.layout.patch,
            channels_in: run.input.c.len(),
            channels_out: None,
            kind: asked.unwrap_or(match device {
                TorchDevice::Cuda(_) if !args.no_amp.unwrap_or(false) => ElementKind::F16,
                _ => ElementKind::F32,
            }),
            pad_short: compiling.wish != Wish::Off && !compiling.dynamic,
            intra_op_threads: if device == TorchDevice::Cpu { (machine.cores / on_cpu).max(1) } else { 1 },
            tf32: args.tf32.unwrap_or(false),
            cudnn_benchmark: args.cudnn_benchmark.unwrap_or(false),
            graph: compiling.graph() && device != TorchDevice::Cpu,
            through_ring: false,
            timeline: None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn args(line: &str) -> RunArgs {
        let words = "haloflow run --in a --out b --model c --devices cuda".split(' ').chain(line.split_whitespace());
        let Command::Run(command) = Cli::try_parse_from(words).unwrap().command else { panic!("not a run") };
        command.args
    }

    const MACHINE: Machine = Machine { cores: 4, memory: 1 << 34, cuda_devices: 2 };

    #[test]
    fn keys_that_change_nothing_are_told() {
        for (line, key) in [
            ("--normalize volume --halo 8", "`halo`"),
            ("--margin 1", "`margin`"),
            ("--seam-mode blend --trim-voxels 4", "`trim-voxels`"),
            ("--norm-level 1", "`norm-level`"),
            ("--normalize global --norm-mean 1 --norm-sd 2", "`norm-mean`"),
            ("--max-inflight-batches 1", "`max-inflight-batches`"),
        ] {
            let args = args(line);
            let told = idle(&args, &settings(&args, &MACHINE).unwrap());
            assert!(told.len() == 1 && told[0].starts_with(key), "{line}: {told:?}");
        }
        for line in [
            "--halo 8 --margin 0 --trim-voxels 4",
            "--seam-mode blend --margin 1 --trim-voxels 5",
            "--normalize volume --norm-level 1",
            "--normalize zscore --norm-mean 1 --norm-sd 2",
        ] {
            let args = args(line);
            assert_eq!(idle(&args, &settings(&args, &MACHINE).unwrap()), Vec::<String>::new(), "{line}");
        }
    }

    #[test]
    fn a_pyramid_is_a_number_of_levels_or_auto() {
        let of = |line: &str| settings(&args(line), &MACHINE).map(|settings| settings.run.pyramid);
        assert_eq!(of("").unwrap(), Pyramid::default());
        assert_eq!(of("--pyramid auto").unwrap().levels, Levels::Auto);
        let pyramid = of("--pyramid 3 --downsample mode").unwrap();
        assert_eq!((pyramid.levels, pyramid.method), (Levels::Count(3), Downsampling::Mode));
        for wrong in ["--pyramid 0", "--pyramid many", "--downsample median"] {
            assert!(of(wrong).unwrap_err()[0].contains("; "), "{wrong}");
        }
    }

    #[test]
    fn an_interval_is_above_zero() {
        for key in ["metrics-interval", "request-deadline", "stall-timeout"] {
            for wrong in ["0", "nan", "inf"] {
                let told = settings(&args(&format!("--{key} {wrong}")), &MACHINE).unwrap_err();
                assert!(told[0].starts_with(&format!("`{key}` is ")), "{told:?}");
            }
        }
    }
}
