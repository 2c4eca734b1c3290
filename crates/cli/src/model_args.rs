//! What a person types after `haloflow model`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Prints what is known of a model and checks its files
    Inspect(InspectCommand),
    /// Makes a bundle of a network's class and its weights, with Python
    Export(Box<ExportCommand>),
    /// Compiles a bundle for a device and a shape, with Python
    Compile(Box<CompileCommand>),
}

#[derive(Debug, Args)]
pub(crate) struct InspectCommand {
    /// A bundle, a single file, or a BioImage.IO folder
    pub(crate) path: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) places: Places,
}

/// Where things are that a command needs.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Places {
    /// Python with torch [default: the set-up's]
    #[arg(long, value_name = "FILE")]
    pub(crate) python: Option<PathBuf>,
    /// Folder for what is made once [default: ~/.cache/haloflow]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) cache: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportCommand {
    /// The network's class
    #[arg(
        long,
        value_name = "package.module:Class",
        conflicts_with = "model_type",
        required_unless_present = "model_type"
    )]
    pub(crate) module: Option<String>,
    /// What the class is made with
    #[arg(long, value_name = "JSON")]
    pub(crate) args: Option<String>,
    /// A known network, such as denoise-net, or a name of the registry
    #[arg(long, value_name = "NAME")]
    pub(crate) model_type: Option<String>,
    /// A TOML file with more names
    #[arg(long, value_name = "FILE")]
    pub(crate) registry: Option<PathBuf>,
    /// The weights; without them the network keeps the random ones that it starts with
    #[arg(long, value_name = "FILE")]
    pub(crate) weights: Option<PathBuf>,
    /// Patch that the network is exported with, voxels, z y x
    #[arg(long, value_name = "Z Y X", num_args = 3, default_values_t = [64, 64, 64])]
    pub(crate) patch: Vec<usize>,
    /// Input channels
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) channels_in: usize,
    /// The bundle to make
    #[arg(short, long, value_name = "FOLDER")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) places: Places,
    /// Handed on to Python as they are
    #[arg(last = true, value_name = "MORE")]
    pub(crate) more: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CompileCommand {
    /// The bundle, or an exported program
    pub(crate) path: PathBuf,
    /// cpu or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub(crate) device: String,
    /// Patches per batch [default: 64 on CUDA, 4 on cpu]
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<usize>,
    /// Patch, voxels, z y x [default: the model's]
    #[arg(long, value_name = "Z Y X", num_args = 3)]
    pub(crate) patch: Option<Vec<usize>>,
    /// f32, f16 or bf16 [default: f16 on CUDA, f32 on cpu]
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// default, reduce-overhead, max-autotune or max-autotune-no-cudagraphs
    #[arg(long, value_name = "MODE", default_value = "default")]
    pub(crate) mode: String,
    /// Let the number of patches of a batch change
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) dynamic: bool,
    /// The package to write [default: in the bundle, under compiled/]
    #[arg(long, value_name = "FILE.pt2")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) places: Places,
}
