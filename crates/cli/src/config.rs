//! The file of a run and the command line, laid over each other.

use std::path::Path;

use clap::CommandFactory;

use crate::args::{Cli, RunArgs, RunCommand};
use crate::serve::{ServeArgs, ServeCommand};

/// The keys as they hold: the file's, where there is one, with the command line's laid over them.
///
/// # Errors
/// A sentence: the file cannot be read, is no TOML, or has a key or value that does not exist.
pub(crate) fn effective(command: &RunCommand) -> Result<RunArgs, String> {
    let Some(path) = &command.config else { return Ok(command.args.clone()) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("`--config {}` cannot be read: {error}", path.display()))?;
    let mut keys = parse(&text, path)?;
    let typed = toml::Table::try_from(&command.args).map_err(|error| error.to_string())?;
    keys.extend(typed);
    keys.try_into().map_err(|error: toml::de::Error| format!("{}: {}", path.display(), one_line(&error)))
}

/// The daemon's keys as they hold, and those of the file that jobs are laid over.
///
/// # Errors
/// As [`effective`].
pub(crate) fn serving(command: &ServeCommand) -> Result<(ServeArgs, RunArgs), String> {
    let Some(path) = &command.config else { return Ok((command.args.clone(), RunArgs::default())) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("`--config {}` cannot be read: {error}", path.display()))?;
    let told = |error: toml::de::Error| format!("{}: {}", path.display(), one_line(&error));
    let jobs = parse(&text, path)?.try_into().map_err(told)?;
    let file: toml::Table = toml::from_str(&text).map_err(told)?;
    let mut keys = match file.get(SERVE) {
        Some(toml::Value::Table(keys)) => keys.clone(),
        _ => toml::Table::new(),
    };
    keys.extend(toml::Table::try_from(&command.args).map_err(|error| error.to_string())?);
    let args =
        keys.try_into().map_err(|error| format!("{}: in the table `{SERVE}`: {}", path.display(), one_line(&error)))?;
    Ok((args, jobs))
}

/// The table of a file that has the daemon's keys. A run takes no notice of it.
const SERVE: &str = "serve";

/// Reads a file's keys, by their first names.
fn parse(text: &str, path: &Path) -> Result<toml::Table, String> {
    let told = |error: toml::de::Error| format!("{}: {}", path.display(), one_line(&error));
    let mut keys: toml::Table = toml::from_str(text).map_err(told)?;
    if keys.get(SERVE).is_some_and(toml::Value::is_table) {
        keys.remove(SERVE);
    }
    let known = known_keys();
    if let Some(key) = keys.keys().find(|key| !known.contains(key)) {
        return Err(format!("{}: {}", path.display(), unknown(key, &known)));
    }
    // Through the arguments and back, so that every key has its first name and its value has been checked.
    let args: RunArgs = keys.try_into().map_err(told)?;
    toml::Table::try_from(args).map_err(|error| error.to_string())
}

/// Every key that a file may have: the names and aliases of the flags of `haloflow run`.
pub(crate) fn known_keys() -> Vec<String> {
    let cli = Cli::command();
    let run = cli.find_subcommand("run").into_iter().flat_map(clap::Command::get_arguments);
    let shown = run.filter(|argument| !argument.is_hide_set());
    let names = shown.flat_map(|argument| argument.get_long_and_visible_aliases().unwrap_or_default());
    names.filter(|name| !["config", "help"].contains(name)).map(str::to_owned).collect()
}

/// The sentence about a key that does not exist.
pub(crate) fn unknown(key: &str, known: &[String]) -> String {
    let nearest = nearest(key, known).map(|key| format!("; did you mean `{key}`?")).unwrap_or_default();
    format!("there is no key `{key}`{nearest}")
}

fn nearest<'a>(unknown: &str, known: &'a [String]) -> Option<&'a String> {
    let scored = known.iter().map(|key| (strsim::jaro_winkler(unknown, key), key));
    scored.filter(|(score, _)| *score > 0.7).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, key)| key)
}

fn one_line(error: &toml::de::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Command;

    fn command(line: &[&str]) -> RunCommand {
        let cli = Cli::try_parse_from([&["haloflow", "run"], line].concat()).unwrap();
        let Command::Run(command) = cli.command else { panic!("not a run") };
        *command
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let file = file(
            "in-spec = 'a.zarr'\npatch = 32\nnormalize = false\nclip-norm = true\noverlap = [4, 5, 6]\nno-amp = true\n",
        );
        let path = file.path().to_str().unwrap();
        let args = effective(&command(&["--config", path, "--patch", "16", "24", "32", "--no-amp=false"])).unwrap();
        assert_eq!(args.input.as_deref(), Some("a.zarr"));
        assert_eq!(args.patch, Some(vec![16, 24, 32]));
        assert_eq!(args.normalize.as_deref(), Some("false"));
        assert_eq!(args.clip_norm, Some(vec![]));
        assert_eq!(args.overlap, Some(vec![4, 5, 6]));
        assert_eq!(args.no_amp, Some(false));
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        let file = file("overlop = 4\n");
        let told = effective(&command(&["--config", file.path().to_str().unwrap()])).unwrap_err();
        assert!(told.ends_with("there is no key `overlop`; did you mean `overlap`?"), "{told}");
    }

    #[test]
    fn the_default_file_says_what_the_defaults_are() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/default.toml");
        let text = std::fs::read_to_string(path).unwrap();
        for key in known_keys() {
            let alias = ["in-spec", "out-spec", "weights"].contains(&key.as_str());
            let told = text.lines().any(|line| line.trim_start_matches("# ").starts_with(&format!("{key} =")));
            assert!(alias || told, "config/default.toml does not tell of `{key}`");
        }
        let needed = ["--in", "a", "--out", "b", "--model", "c"];
        let machine = crate::machine::Machine { cores: 4, memory: 1 << 34, cuda_devices: 0 };
        let of = |line: &[&str]| {
            let args = effective(&command(line)).unwrap();
            format!("{:?}", crate::settings::settings(&args, &machine).unwrap())
        };
        // The level and the compressor are the only keys for which being left out is told apart from the default.
        let typed = [&needed[..], &["--level", "0", "--compressor", "blosc:3", "--zarr-format", "3"]].concat();
        assert_eq!(of(&[&["--config", path], &needed[..]].concat()), of(&typed));
    }

    #[test]
    fn the_default_file_and_the_guide_know_every_key_of_the_daemon() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/default.toml");
        let text = std::fs::read_to_string(path).unwrap();
        let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SERVICE.md")).unwrap();
        let (_, table) = text.split_once("[serve]").unwrap();
        let cli = Cli::command();
        for argument in cli.find_subcommand("serve").unwrap().get_arguments() {
            let key = argument.get_long().unwrap_or("config");
            if ["config", "help"].contains(&key) {
                continue;
            }
            let told = table.lines().any(|line| line.trim_start_matches("# ").starts_with(&format!("{key} =")));
            assert!(told, "config/default.toml does not tell of `{key}`");
            let variable = format!("HALOFLOW_{}", key.to_uppercase().replace('-', "_"));
            assert!(guide.contains(&variable), "docs/SERVICE.md does not tell of {variable}");
        }
        let machine = crate::machine::Machine { cores: 4, memory: 1 << 34, cuda_devices: 0 };
        let of = |config: Option<&str>| {
            let command = ServeCommand { config: config.map(Into::into), args: ServeArgs::default() };
            let (args, jobs) = serving(&command).unwrap();
            format!("{:?}", crate::serve::serving(&args, &jobs, &machine).unwrap())
        };
        assert_eq!(of(Some(path)), of(None));
    }

    #[test]
    fn the_table_of_the_daemon_is_nothing_to_a_run() {
        let file = file("patch = 32\n[serve]\nrate = 7.0\n");
        let path = file.path().to_str().unwrap();
        assert_eq!(effective(&command(&["--config", path])).unwrap().patch, Some(vec![32]));
        let command = ServeCommand { config: Some(path.into()), args: ServeArgs::default() };
        let (args, jobs) = serving(&command).unwrap();
        assert_eq!((args.rate, jobs.patch), (Some(7.0), Some(vec![32])));
    }

    #[test]
    fn a_run_uses_the_processor_or_gpus() {
        let machine = crate::machine::Machine { cores: 4, memory: 1 << 34, cuda_devices: 2 };
        let of = |line: &[&str]| {
            let needed = ["--in", "a", "--out", "b", "--model", "c"];
            crate::settings::settings(&command(&[&needed, line].concat()).args, &machine)
        };
        let told = of(&["--devices", "cpu", "cuda:1"]).unwrap_err();
        assert!(told[0].starts_with("`devices` names cpu and cuda"), "{told:?}");
        assert!(of(&["--compile", "--batch", "auto"]).unwrap().find_batch);
        for (mode, graph) in [("default", false), ("reduce-overhead", true), ("max-autotune-no-cudagraphs", false)] {
            let engines = of(&["--devices", "cuda", "--compile", "--compile-mode", mode]).unwrap().engines;
            assert_eq!(engines.iter().map(|engine| engine.graph).collect::<Vec<_>>(), [graph; 2]);
        }
    }

    #[test]
    fn a_wrong_value_names_its_key() {
        let file = file("batch = 'many'\n");
        let told = effective(&command(&["--config", file.path().to_str().unwrap()])).unwrap_err();
        assert!(told.contains("batch"), "{told}");
    }

    #[test]
    fn flags_take_what_the_predecessor_took() {
        let args = command(&[
            "--in-spec",
            "in.json",
            "--out-spec",
            "a.json",
            "b.json",
            "--model-type",
            "denoise-net",
            "--weights",
            "w.pt",
            "--t",
            "0",
            "--c",
            "0",
            "--patch",
            "64",
            "64",
            "64",
            "--overlap",
            "10",
            "--block",
            "256",
            "256",
            "256",
            "--batch",
            "64",
            "--devices",
            "cuda:0",
            "cuda:1",
            "--no-amp",
            "--tf32",
            "--cudnn-benchmark",
            "--compile",
            "--compile-mode",
            "max-autotune",
            "--compile-dynamic",
            "auto",
            "--max-inflight-batches",
            "64",
            "--seam-mode",
            "blend",
            "--trim-voxels",
            "5",
            "--halo",
            "5",
            "--min-blend-weight",
            "0.05",
            "--eps",
            "1e-6",
            "--norm-lower",
            "0.5",
            "--norm-upper",
            "99.9",
            "--normalize",
            "percentile",
            "--clip-norm",
            "-1",
            "5",
            "--no-output-denormalize",
            "--metrics-json",
            "m.json",
            "--metrics-interval",
            "0.5",
            "--prep-workers",
            "4",
            "--writer-workers",
            "4",
        ])
        .args;
        assert_eq!(args.output, Some(vec!["a.json".into(), "b.json".into()]));
        assert_eq!(args.clip_norm, Some(vec![-1.0, 5.0]));
        assert_eq!(args.devices.map(|devices| devices.len()), Some(2));
    }
}
