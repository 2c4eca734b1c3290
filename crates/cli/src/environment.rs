//! Variables `HALOFLOW_…` as configuration: every flag `--some-key` has one, `HALOFLOW_SOME_KEY`, and is as if it had been typed
//! where it was not. A flag that takes several values takes them separated by spaces, or as a JSON list.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

/// The command line with the flags that the environment adds, behind the subcommand. `variable` looks a variable up.
pub(crate) fn with_variables(
    cli: &Command,
    line: Vec<OsString>,
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<OsString> {
    let Some(place) = line.iter().skip(1).position(|word| !word.to_string_lossy().starts_with('-')) else {
        return line;
    };
    let place = place + 1;
    let Some(command) = line[place].to_str().and_then(|name| cli.find_subcommand(name)) else { return line };
    let (before, typed) = line.split_at(place + 1);
    let mut whole = before.to_vec();
    for argument in command.get_arguments().filter(|argument| !is_typed(argument, typed)) {
        let Some(name) = argument.get_long().filter(|name| !["help", "version"].contains(name)) else { continue };
        let value = variable(&format!("HALOFLOW_{}", name.to_uppercase().replace('-', "_")));
        if let Some(value) = value.filter(|value| !value.trim().is_empty()) {
            whole.extend(flag(argument, name, &value));
        }
    }
    whole.extend_from_slice(typed);
    whole
}

fn is_typed(argument: &Arg, typed: &[OsString]) -> bool {
    let names = argument.get_long_and_visible_aliases().unwrap_or_default();
    typed.iter().any(|word| {
        let word = word.to_string_lossy();
        let word = word.strip_prefix("--").and_then(|word| word.split('=').next());
        word.is_some_and(|word| names.contains(&word))
    })
}

fn flag(argument: &Arg, name: &str, value: &str) -> Vec<OsString> {
    if matches!(argument.get_action(), ArgAction::SetTrue) {
        let wanted = ["1", "true", "yes", "on"].contains(&value.trim().to_lowercase().as_str());
        return if wanted { vec![format!("--{name}").into()] } else { Vec::new() };
    }
    let several = argument.get_num_args().is_some_and(|count| count.max_values() > 1);
    if !several {
        return vec![format!("--{name}={value}").into()];
    }
    let list: Option<Vec<serde_json::Value>> =
        value.trim_start().starts_with('[').then(|| serde_json::from_str(value).ok()).flatten();
    let words: Vec<String> = match list {
        Some(list) => list.iter().map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned)).collect(),
        None => value.split_whitespace().map(str::to_owned).collect(),
    };
    std::iter::once(format!("--{name}").into()).chain(words.into_iter().map(OsString::from)).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    fn line(words: &str, variables: &[(&str, &str)]) -> Vec<String> {
        let line = words.split(' ').map(OsString::from).collect();
        let found =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let line = with_variables(&Cli::command(), line, found);
        line.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn a_variable_is_a_flag_that_was_not_typed() {
        let variables = [
            ("HALOFLOW_PATCH", "32 48 64"),
            ("HALOFLOW_OUT", "[\"/a b\", \"c\"]"),
            ("HALOFLOW_MODEL", "my net.ts"),
            ("HALOFLOW_BATCH", "3"),
            ("HALOFLOW_IN", ""),
            ("HALOFLOW_LISTEN", "not for run"),
        ];
        let found = line("haloflow run --batch=2 --in-spec x", &variables);
        let wanted = [
            "haloflow",
            "run",
            "--out",
            "/a b",
            "c",
            "--model=my net.ts",
            "--patch",
            "32",
            "48",
            "64",
            "--batch=2",
            "--in-spec",
            "x",
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_has_no_command_stays_as_it_is() {
        for words in ["haloflow", "haloflow --help", "haloflow nonsense"] {
            assert_eq!(line(words, &[("HALOFLOW_PATCH", "1")]).join(" "), words);
        }
        let found = line("haloflow serve", &[("HALOFLOW_LISTEN", "0.0.0.0:1"), ("HALOFLOW_READ", "/a /b")]);
        assert_eq!(found, ["haloflow", "serve", "--listen=0.0.0.0:1", "--read", "/a", "/b"]);
        let found =
            line("haloflow submit --priority 1", &[("HALOFLOW_WATCH", "true"), ("HALOFLOW_SERVER", "http://x")]);
        assert_eq!(found, ["haloflow", "submit", "--server=http://x", "--watch", "--priority", "1"]);
    }
}
