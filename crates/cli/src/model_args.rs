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
    /// Measures the compiled form beside TorchScript, batch by batch in turns; compiles if need be
    Bench(Box<BenchCommand>),
    /// Runs a package on one batch, for the compiler to compare
    #[command(hide = true)]
    Trial(TrialCommand),
}

/// One batch for a package, in files.
#[derive(Debug, Args)]
pub(crate) struct TrialCommand {
    /// The package
    pub(crate) package: PathBuf,
    /// Where it is to run
    #[arg(long)]
    pub(crate) device: String,
    /// The kind of the batch and of what comes of it
    #[arg(long)]
    pub(crate) kind: String,
    /// Patches
    #[arg(long)]
    pub(crate) rows: usize,
    /// Input channels
    #[arg(long)]
    pub(crate) channels: usize,
    /// Patch, voxels, z y x
    #[arg(long, num_args = 3)]
    pub(crate) patch: Vec<usize>,
    /// The batch, C order
    #[arg(long)]
    pub(crate) input: PathBuf,
    /// Where the result goes, C order
    #[arg(long)]
    pub(crate) output: PathBuf,
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
    /// Compile it too, for this device: cpu or cuda:N
    #[arg(long, value_name = "DEVICE")]
    pub(crate) compile: Option<String>,
    /// Seed of the random weights and of the inputs that forms are compared on
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Replace a bundle that exists
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) described: Described,
}

/// What `model.toml` is to say.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "What the bundle says")]
pub(crate) struct Described {
    /// Which output is taken of several: an index, a key, or all
    #[arg(long, value_name = "INDEX|KEY|all")]
    pub(crate) take: Option<String>,
    /// The model's name
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// What it does
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// The kind it is meant to compute in: f32, f16 or bf16
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// intensity, probability or label
    #[arg(long, value_name = "MEANING")]
    pub(crate) output: Option<String>,
    /// A name for each input channel
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub(crate) input_names: Vec<String>,
    /// A name for each output channel
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub(crate) output_names: Vec<String>,
    /// What the sides of a patch must be divisible by
    #[arg(long, value_name = "Z Y X", num_args = 3)]
    pub(crate) divisible_by: Vec<String>,
    /// The grid of the poolings
    #[arg(long, value_name = "Z Y X", num_args = 3)]
    pub(crate) align: Vec<String>,
    /// How far an output voxel sees
    #[arg(long, value_name = "Z Y X", num_args = 3)]
    pub(crate) receptive_field: Vec<String>,
    /// percentile, volume, zscore, global or none
    #[arg(long, value_name = "HOW")]
    pub(crate) normalisation: Option<String>,
    /// Lower percentile or bound
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) norm_lower: Option<String>,
    /// Upper percentile or bound
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) norm_upper: Option<String>,
    /// Bounds that normalised voxels are clipped to
    #[arg(long, value_name = "LO HI", num_args = 2, allow_negative_numbers = true)]
    pub(crate) clip_norm: Vec<String>,
}

impl ExportCommand {
    /// The same for Python.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let path = |path: &PathBuf| path.display().to_string();
        let of = |values: &[String]| (!values.is_empty()).then(|| values.to_vec());
        let one = |value: &Option<String>| value.clone().map(|value| vec![value]);
        let described = &self.described;
        let options = [
            ("--module", one(&self.module)),
            ("--args", one(&self.args)),
            ("--model-type", one(&self.model_type)),
            ("--registry", self.registry.as_ref().map(|registry| vec![path(registry)])),
            ("--weights", self.weights.as_ref().map(|weights| vec![path(weights)])),
            ("--channels-in", Some(vec![self.channels_in.to_string()])),
            ("--patch", Some(self.patch.iter().map(usize::to_string).collect())),
            ("--out", Some(vec![path(&self.out)])),
            ("--seed", self.seed.map(|seed| vec![seed.to_string()])),
            ("--overwrite", self.overwrite.then(Vec::new)),
            ("--take", one(&described.take)),
            ("--name", one(&described.name)),
            ("--description", one(&described.description)),
            ("--kind", one(&described.kind)),
            ("--output", one(&described.output)),
            ("--input-names", of(&described.input_names)),
            ("--output-names", of(&described.output_names)),
            ("--divisible-by", of(&described.divisible_by)),
            ("--align", of(&described.align)),
            ("--receptive-field", of(&described.receptive_field)),
            ("--normalisation", one(&described.normalisation)),
            ("--norm-lower", one(&described.norm_lower)),
            ("--norm-upper", one(&described.norm_upper)),
            ("--clip-norm", of(&described.clip_norm)),
        ];
        let given = options.into_iter().filter_map(|(flag, values)| Some((flag, values?)));
        let words = given.flat_map(|(flag, values)| std::iter::once(flag.to_owned()).chain(values));
        std::iter::once("export".to_owned()).chain(words).collect()
    }
}

/// What a package is made for.
#[derive(Debug, Args)]
pub(crate) struct MadeFor {
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
    #[command(flatten)]
    pub(crate) places: Places,
}

impl MadeFor {
    /// The defaults for a device.
    pub(crate) fn device(path: PathBuf, device: String, places: Places) -> Self {
        let mode = haloflow_model::CompileMode::Default.name().to_owned();
        Self { path, device, batch: None, patch: None, kind: None, mode, dynamic: false, places }
    }
}

#[derive(Debug, Args)]
pub(crate) struct CompileCommand {
    #[command(flatten)]
    pub(crate) made_for: MadeFor,
    /// The package to write [default: in the bundle, under compiled/]
    #[arg(long, value_name = "FILE.pt2")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchCommand {
    #[command(flatten)]
    pub(crate) made_for: MadeFor,
    /// Batches through each form
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) batches: usize,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn export_hands_everything_on() {
        let line = "haloflow model export --module a.b:C --args {} --weights w.pt --patch 8 9 10 -o out --overwrite --take all \
                    --output-names x y --clip-norm -1 5";
        let Command::Model(ModelCommand::Export(command)) =
            Cli::try_parse_from(line.split_whitespace()).unwrap().command
        else {
            panic!("not an export")
        };
        assert_eq!(
            command.arguments().join(" "),
            "export --module a.b:C --args {} --weights w.pt --channels-in 1 --patch 8 9 10 --out out --overwrite --take all \
             --output-names x y --clip-norm -1 5"
        );
    }

    #[test]
    fn export_needs_a_class_or_a_name() {
        let parse = |line: &str| Cli::try_parse_from(line.split_whitespace());
        assert!(parse("haloflow model export -o out").is_err());
        assert!(parse("haloflow model export -o out --module a:B --model-type c").is_err());
        assert!(parse("haloflow model export -o out --model-type denoise-net").is_ok());
    }
}
