//! What a person types, on the command line or in a file: the same keys, with the same names.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use serde::{Deserialize, Deserializer, Serialize};

use crate::client::ClientCommand;
use crate::doctor_args::DoctorCommand;
use crate::inspect::InspectCommand;
use crate::model_args::ModelCommand;
use crate::plan::PlanCommand;
use crate::serve::ServeCommand;
use crate::typed::{BatchSize, ShardValue};
use crate::verify::VerifyCommand;

/// Runs neural networks over whole microscopy volumes.
#[derive(Debug, Parser)]
#[command(name = "haloflow", version, about, long_about = None, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Streams a volume through a network and writes the result
    Run(Box<RunCommand>),
    /// Tells what a run would do, need and take; no output is touched
    Plan(Box<PlanCommand>),
    /// Compares an output with the record of what was stored, measures its seams, and recomputes parts of it
    Verify(Box<VerifyCommand>),
    /// Tells what is stored at a place: axes, levels, chunks, codecs, sizes
    Inspect(InspectCommand),
    /// Runs jobs that come over HTTP, one after the other or several at a time, with a page to look at
    Serve(Box<ServeCommand>),
    #[command(flatten)]
    Client(ClientCommand),
    /// Tells whether a run could work here: libtorch, GPUs, the model, storage, credentials, clocks, memory, disks
    Doctor(Box<DoctorCommand>),
    /// Shows, exports and compiles models
    #[command(subcommand)]
    Model(ModelCommand),
}

#[derive(Debug, Args)]
pub(crate) struct RunCommand {
    /// A TOML file with any of the keys below, by the same names; what is typed on the command line wins
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) args: RunArgs,
}

/// The keys of a run. All are optional here: what is left out gets its default when the settings are made.
#[derive(Clone, Debug, Default, PartialEq, Args, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct RunArgs {
    /// The volume: a Zarr array or OME-Zarr image as URL or path, or a TensorStore spec (JSON or a .json file)
    #[arg(long = "in", visible_alias = "in-spec", value_name = "URL|SPEC", help_heading = "Data")]
    #[serde(rename = "in", alias = "in-spec", skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<String>,

    /// The result: a URL or path for an OME-Zarr image, or a spec for a bare array; one per output channel
    #[arg(long = "out", visible_alias = "out-spec", value_name = "URL|SPEC", num_args = 1.., help_heading = "Data")]
    #[serde(
        rename = "out",
        alias = "out-spec",
        deserialize_with = "one_or_many",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) output: Option<Vec<String>>,

    /// Level of the input's pyramid [default: 0]
    #[arg(long, value_name = "N", help_heading = "Data")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) level: Option<usize>,

    /// Time point to read [default: 0]
    #[arg(long, value_name = "N", help_heading = "Data")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) t: Option<usize>,

    /// Channel to read; several for a network with several input channels [default: 0]
    #[arg(long, value_name = "N", num_args = 1.., help_heading = "Data")]
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub(crate) c: Option<Vec<usize>>,

    /// Time point to write [default: 0 in a new array, as read where a spec gives the shape]
    #[arg(long, value_name = "N", help_heading = "Data")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) out_t: Option<usize>,

    /// Channel to write [default: 0 in a new array, as read where a spec gives the shape]
    #[arg(long, value_name = "N", help_heading = "Data")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) out_c: Option<usize>,

    /// Put all output channels into one array, along its channel axis
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Data")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stack_channels: Option<bool>,

    /// Delete an output that exists
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Data")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) overwrite: Option<bool>,

    /// Go on with an output that the same run has begun: true, false, or explain to print what would be computed and touch nothing
    /// [default: true, or false with --overwrite]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "true|false|explain", help_heading = "Data")]
    #[serde(deserialize_with = "word", skip_serializing_if = "Option::is_none")]
    pub(crate) resume: Option<String>,

    /// Kind of number to store: uint8 … float32 [default: the input's, or float32 with --no-output-denormalize]
    #[arg(long, value_name = "KIND", help_heading = "Data")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) out_dtype: Option<String>,

    /// Chunk of the output in voxels, z y x or one for all [default: the input's where it fits]
    #[arg(long, value_name = "Z Y X", num_args = 1..=3, help_heading = "Data")]
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub(crate) chunk: Option<Vec<usize>>,

    /// Shard of the output in voxels, a multiple of the chunk [default: no shards]; I/N is understood as --part
    #[arg(long, value_name = "Z Y X", num_args = 1..=3, help_heading = "Data")]
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub(crate) shard: Option<Vec<ShardValue>>,

    /// Zarr format of the output: 3 (OME-Zarr 0.5) or 2 (OME-Zarr 0.4) [default: 3]
    #[arg(long, value_name = "2|3", help_heading = "Data")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zarr_format: Option<u8>,

    /// Compression of the output: blosc (with zstd), blosc-lz4, blosc-zlib, zstd or gzip, each with an optional :LEVEL, or none
    /// [default: blosc:3]
    #[arg(long, value_name = "NAME", help_heading = "Data")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) compressor: Option<String>,

    /// Levels of the result's pyramid, full resolution counted, or auto: written in the same pass [default: 1]
    #[arg(long, value_name = "N|auto", help_heading = "Data")]
    #[serde(deserialize_with = "word", skip_serializing_if = "Option::is_none")]
    pub(crate) pyramid: Option<String>,

    /// How the voxels of a coarser level are made: mean (intensities), mode (labels) or max (masks) [default: mean]
    #[arg(long, value_name = "HOW", help_heading = "Data")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) downsample: Option<String>,

    /// Do not compute blocks of which no chunk of the input is stored: for networks that make 0 of 0
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Data")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skip_empty: Option<bool>,

    /// A volume, of any size and kind, that covers the same space: blocks in which it is 0 everywhere are not computed
    #[arg(long, value_name = "URL|SPEC", help_heading = "Data")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mask: Option<String>,

    /// Do not look for credentials and do not sign requests, for public buckets
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Data")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) anonymous: Option<bool>,

    /// The network: a bundle (folder or zip), a TorchScript module, an AOTInductor package, an exported program, a BioImage.IO
    /// folder, or weights with --model-type. Modules and packages are code: name only what you trust
    #[arg(long, visible_alias = "weights", value_name = "PATH", help_heading = "Network")]
    #[serde(alias = "weights", skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<PathBuf>,

    /// Name of the architecture that the weights are for; they are exported once. A model that carries its own needs none
    #[arg(long, value_name = "NAME", help_heading = "Network")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model_type: Option<String>,

    /// A TOML file with more names for --model-type
    #[arg(long, value_name = "FILE", help_heading = "Network")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) registry: Option<PathBuf>,

    /// Where to run it: cpu, cuda:N, or cuda for all [default: cuda if there is one, else cpu]
    #[arg(long, value_name = "DEVICE", num_args = 1.., help_heading = "Network")]
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub(crate) devices: Option<Vec<String>>,

    /// Patches per batch, or auto for the most that fit into the devices' memory [default: 64 on CUDA, 4 on cpu]
    #[arg(long, value_name = "N|auto", help_heading = "Network")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) batch: Option<BatchSize>,

    /// Kind of number the network computes in: f32, f16 or bf16 [default: f16 on CUDA, f32 on cpu]
    #[arg(long, value_name = "KIND", help_heading = "Network")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,

    /// Compute in f32 on CUDA too
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Network")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) no_amp: Option<bool>,

    /// Let CUDA round f32 products and convolutions to TF32
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Network")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tf32: Option<bool>,

    /// Let cuDNN try its algorithms at warm-up and keep the fastest
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Network")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cudnn_benchmark: Option<bool>,

    /// Run the compiled form of the network: its own, the cache's, or one that Python makes; the module runs where that fails,
    /// unless `required` [default: false]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "true|false|required", help_heading = "Network")]
    #[serde(deserialize_with = "word", skip_serializing_if = "Option::is_none")]
    pub(crate) compile: Option<String>,

    /// default, reduce-overhead, max-autotune or max-autotune-no-cudagraphs [default: default]
    #[arg(long, value_name = "MODE", help_heading = "Network")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) compile_mode: Option<String>,

    /// auto, true or false [default: auto]
    #[arg(long, value_name = "WHEN", help_heading = "Network")]
    #[serde(deserialize_with = "word", skip_serializing_if = "Option::is_none")]
    pub(crate) compile_dynamic: Option<String>,

    /// Folder for what is exported, compiled and unpacked once [default: ~/.cache/haloflow]
    #[arg(long, value_name = "FOLDER", help_heading = "Network")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache: Option<PathBuf>,

    /// Python with torch, for exporting and compiling [default: the set-up's]
    #[arg(long, value_name = "FILE", help_heading = "Network")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) python: Option<PathBuf>,

    /// Removed
    #[arg(long, hide = true, num_args = 0, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) no_compile_dynamic: Option<bool>,

    /// Patch that the network sees, voxels, z y x or one for all [default: 64 64 64]
    #[arg(long, value_name = "Z Y X", num_args = 1..=3, help_heading = "Patches and seams")]
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub(crate) patch: Option<Vec<usize>>,

    /// Least overlap of neighbouring patches, voxels [default: 10]
    #[arg(long, value_name = "Z Y X", num_args = 1..=3, help_heading = "Patches and seams")]
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub(crate) overlap: Option<Vec<usize>>,

    /// Block that is worked on and written at a time, voxels [default: 256 256 256, or what the chunks suggest with --lattice volume]
    #[arg(long, value_name = "Z Y X", num_args = 1..=3, help_heading = "Patches and seams")]
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub(crate) block: Option<Vec<usize>>,

    /// volume (no block face can be seen) or block [default: volume, or block with --normalize percentile]
    #[arg(long, value_name = "LATTICE", help_heading = "Patches and seams")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lattice: Option<String>,

    /// Neighbouring data around a block, voxels, with --lattice block [default: derived]
    #[arg(long, value_name = "Z Y X", num_args = 1..=3, help_heading = "Patches and seams")]
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub(crate) halo: Option<Vec<usize>>,

    /// Patches start on multiples of this: the network's pooling grid [default: 1]
    #[arg(long, value_name = "Z Y X", num_args = 1..=3, help_heading = "Patches and seams")]
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub(crate) align: Option<Vec<usize>>,

    /// trim or blend [default: trim]
    #[arg(long, value_name = "MODE", help_heading = "Patches and seams")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seam_mode: Option<String>,

    /// Voxels cut from each inner face of a patch with --seam-mode trim [default: 5]
    #[arg(long, value_name = "Z Y X", num_args = 1..=3, help_heading = "Patches and seams")]
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub(crate) trim_voxels: Option<Vec<usize>>,

    /// Least weight of a voxel with --seam-mode blend [default: 0.05]
    #[arg(long, value_name = "W", help_heading = "Patches and seams")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) min_blend_weight: Option<f32>,

    /// Outermost voxels of inner faces that get no weight with --seam-mode blend [default: 0]
    #[arg(long, value_name = "Z Y X", num_args = 1..=3, help_heading = "Patches and seams")]
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub(crate) margin: Option<Vec<usize>>,

    /// What stands in a patch past the volume's end: reflect, edge or zero [default: reflect]
    #[arg(long, value_name = "PADDING", help_heading = "Patches and seams")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pad: Option<String>,

    /// percentile (of each block), volume (percentiles of the volume), zscore, global (given bounds) or false [default: percentile]
    #[arg(long, value_name = "HOW", help_heading = "Values")]
    #[serde(deserialize_with = "word", skip_serializing_if = "Option::is_none")]
    pub(crate) normalize: Option<String>,

    /// Lower percentile, or lower bound with --normalize global [default: 0.5]
    #[arg(long, value_name = "X", allow_negative_numbers = true, help_heading = "Values")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) norm_lower: Option<f64>,

    /// Upper percentile, or upper bound with --normalize global [default: 99.9]
    #[arg(long, value_name = "X", allow_negative_numbers = true, help_heading = "Values")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) norm_upper: Option<f64>,

    /// Level of the pyramid that statistics of the whole volume are taken from [default: the level that is read]
    #[arg(long, value_name = "N", help_heading = "Values")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) norm_level: Option<usize>,

    /// Mean, for --normalize zscore; together with --norm-sd it saves a pass over the volume
    #[arg(long, value_name = "X", allow_negative_numbers = true, help_heading = "Values")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) norm_mean: Option<f64>,

    /// Standard deviation, for --normalize zscore
    #[arg(long, value_name = "X", help_heading = "Values")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) norm_sd: Option<f64>,

    /// Least span of a normalisation [default: 1e-6]
    #[arg(long, value_name = "X", help_heading = "Values")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) eps: Option<f64>,

    /// Clip normalised voxels to these bounds, or to 0 and 1 if none are given [default: no clipping]
    #[arg(long, value_name = "LO HI", num_args = 0..=2, allow_negative_numbers = true, help_heading = "Values")]
    #[serde(deserialize_with = "clip", skip_serializing_if = "Option::is_none")]
    pub(crate) clip_norm: Option<Vec<f32>>,

    /// Store what the network gives, without bringing it back into the input's range
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Values")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) no_output_denormalize: Option<bool>,

    /// How integers are rounded: nearest-even or truncate [default: nearest-even]
    #[arg(long, value_name = "HOW", help_heading = "Values")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rounding: Option<String>,

    /// What to do with NaN and infinity: fail, replace (by 0) or a value to store instead [default: fail]
    #[arg(long, value_name = "HOW", allow_negative_numbers = true, help_heading = "Values")]
    #[serde(deserialize_with = "word", skip_serializing_if = "Option::is_none")]
    pub(crate) nonfinite: Option<String>,

    /// Memory for everything but libtorch's own, such as 16GiB [default: 60 % of what the machine or container has]
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<String>,

    /// Batches in flight at most, over all devices [default: 64]
    #[arg(long, value_name = "N", help_heading = "Resources")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_inflight_batches: Option<usize>,

    /// Blocks read and prepared at one time, at least [default: 4]
    #[arg(long, value_name = "N", help_heading = "Resources")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prep_workers: Option<usize>,

    /// Blocks encoded and written at one time [default: 16]
    #[arg(long, value_name = "N", help_heading = "Resources")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) writer_workers: Option<usize>,

    /// Threads for decoding, preparing, merging and encoding [default: one per core, half of them if the network runs on cpu]
    #[arg(long, value_name = "N", help_heading = "Resources")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) threads: Option<usize>,

    /// Storage requests at one time [default: 64]
    #[arg(long, value_name = "N", help_heading = "Resources")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requests: Option<usize>,

    /// Seconds for which a storage request that failed is repeated [default: 300]
    #[arg(long, value_name = "SECONDS", help_heading = "Resources")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_deadline: Option<f64>,

    /// Seconds without a byte after which a storage request counts as failed [default: 60]
    #[arg(long, value_name = "SECONDS", help_heading = "Resources")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stall_timeout: Option<f64>,
    /// Compute one of several equal parts of the volume, each in a process of its own: 0/8 to 7/8, or auto for the one that the
    /// environment of a Kubernetes indexed job, an AWS Batch array or a Slurm array names [default: all of it]
    #[arg(long, value_name = "I/N|auto", help_heading = "Resources")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<String>,

    /// A stage that does not move for this long ends the run, with a diagnosis: 90s, 5min, 2h; 0 is never [default: 5min]
    #[arg(long, value_name = "TIME", help_heading = "Stopping")]
    #[serde(deserialize_with = "word", skip_serializing_if = "Option::is_none")]
    pub(crate) watchdog: Option<String>,

    /// Where that diagnosis is written [default: haloflow-diagnosis.json]
    #[arg(long, value_name = "FILE", help_heading = "Stopping")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) diagnosis: Option<PathBuf>,

    /// How long a run that is asked to stop may take to finish and record what it has begun [default: 25s]
    #[arg(long, value_name = "TIME", help_heading = "Stopping")]
    #[serde(deserialize_with = "word", skip_serializing_if = "Option::is_none")]
    pub(crate) drain_timeout: Option<String>,

    /// The most blocks that are set aside after they could not be read or stored three times, while the others go on: damaged data, or a
    /// store that keeps failing. 0: the first fault ends the run [default: 100]
    #[arg(long, value_name = "BLOCKS", help_heading = "Stopping")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) quarantine: Option<usize>,

    /// A file or URL that appears when the machine is about to be taken away: the run stops as it does on SIGTERM
    #[arg(long, value_name = "FILE|URL", help_heading = "Stopping")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) interruption_notice: Option<String>,

    /// Write the report as JSON, also if the run fails
    #[arg(long, value_name = "FILE", help_heading = "Reporting")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics_json: Option<PathBuf>,

    /// Write what was done when, in Chrome's trace format, for ui.perfetto.dev
    #[arg(long, value_name = "FILE", help_heading = "Reporting")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<PathBuf>,

    /// Send traces to this OpenTelemetry collector, over OTLP/HTTP; OTEL_EXPORTER_OTLP_ENDPOINT does so too
    #[arg(long, value_name = "URL", help_heading = "Reporting")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) otlp_endpoint: Option<String>,
    /// Seconds between two samples of the progress in that report [default: 0.5]
    #[arg(long, value_name = "SECONDS", help_heading = "Reporting")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics_interval: Option<f64>,

    /// text or json [default: text]
    #[arg(long, value_name = "FORMAT", help_heading = "Reporting")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) log_format: Option<String>,

    /// error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL", help_heading = "Reporting")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) log_level: Option<String>,
}

/// A single value or a list of them.
fn one_or_many<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<Vec<T>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "one value, or a list of them in brackets, of the kind that the key takes (sizes are whole numbers from 0)"
    )]
    enum OneOrMany<T> {
        One(T),
        Many(Vec<T>),
    }
    Ok(Some(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(value) => vec![value],
        OneOrMany::Many(values) => values,
    }))
}

/// A word that may also be typed as a boolean or a number.
fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a word, a number, true or false")]
    enum Word {
        Bool(bool),
        Number(f64),
        Text(String),
    }
    Ok(Some(match Word::deserialize(deserializer)? {
        Word::Bool(value) => value.to_string(),
        Word::Number(value) => value.to_string(),
        Word::Text(text) => text,
    }))
}

/// `true`, `false` or two bounds.
fn clip<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<f32>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "true, false or two bounds in brackets")]
    enum Clip {
        Switch(bool),
        Bounds(Vec<f32>),
    }
    Ok(match Clip::deserialize(deserializer)? {
        Clip::Switch(true) => Some(Vec::new()),
        Clip::Switch(false) => None,
        Clip::Bounds(bounds) => Some(bounds),
    })
}
