//! Reading values, and collecting what is wrong with them.

use std::time::Duration;

use haloflow_geometry::Zyx;
use serde::{Deserialize, Serialize};

/// Patches per batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "a whole number of patches, or \"auto\"")]
pub(crate) enum BatchSize {
    /// As many.
    Patches(usize),
    /// As many as fit.
    Found(Auto),
}

/// The word `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Auto {
    Auto,
}

impl std::str::FromStr for BatchSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Found(Auto::Auto)),
            number => number.parse().map(Self::Patches).map_err(|_| "give a number, or auto".to_owned()),
        }
    }
}

/// A value of `shard`: a size of the output's shards, or a part of the volume as `part` takes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum ShardValue {
    /// Voxels along an axis.
    Voxels(usize),
    /// `I/N` or `auto`.
    Part(String),
}

impl std::str::FromStr for ShardValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(voxels) => Ok(Self::Voxels(voxels)),
            Err(_) if text == "auto" || text.contains('/') => Ok(Self::Part(text.to_owned())),
            Err(_) => Err("give voxels, or a part such as 0/8".to_owned()),
        }
    }
}

/// A time such as `300`, `90s`, `5min` or `2h`; seconds without a unit.
pub(crate) fn time(key: &str, typed: &str, errors: &mut Errors) -> Duration {
    let (number, unit) = typed.split_at(typed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(typed.len()));
    let seconds = match unit {
        "" | "s" => Some(1.0),
        "m" | "min" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    let time = seconds.zip(number.trim().parse::<f64>().ok()).map(|(unit, number)| unit * number);
    match time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(time) => time,
        None => {
            errors.tell(&format!("`{key}` is {typed}; give a time such as 90s, 5min or 2h"));
            Duration::ZERO
        }
    }
}

/// The sentences about everything that is wrong.
#[derive(Debug, Default)]
pub(crate) struct Errors(Vec<String>);

impl Errors {
    /// Adds a sentence.
    pub(crate) fn tell(&mut self, sentence: &str) {
        self.0.push(sentence.to_owned());
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value, if nothing is wrong.
    pub(crate) fn into_result<T>(self, value: T) -> Result<T, Vec<String>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}

/// The longest side of anything, voxels.
const LONGEST: usize = 1 << 20;

/// One value for all axes, or three.
pub(crate) fn triple(key: &str, typed: &[usize], errors: &mut Errors) -> Zyx {
    if let Some(side) = typed.iter().find(|side| **side > LONGEST) {
        errors.tell(&format!("`{key}` is {side}; it must be at most {LONGEST} voxels"));
        return [1; 3];
    }
    match *typed {
        [all] => [all; 3],
        [z, y, x] => [z, y, x],
        _ => {
            errors.tell(&format!("`{key}` has {} values; give one for all axes, or three: z y x", typed.len()));
            [1; 3]
        }
    }
}

/// The most of anything that is counted: more of them than any machine has use for.
pub(crate) const MOST: usize = 1 << 16;

/// A number of things from 1 to `most`. Something is returned for a wrong number too, so that all errors can be told.
pub(crate) fn count(key: &str, typed: Option<usize>, default: usize, most: usize, errors: &mut Errors) -> usize {
    match typed {
        Some(0) => errors.tell(&format!("`{key}` is 0; it must be at least 1")),
        Some(number) if number > most => errors.tell(&format!("`{key}` is {number}; it must be at most {most}")),
        _ => {}
    }
    typed.unwrap_or(default).clamp(1, most)
}

/// A time above zero, given in seconds.
pub(crate) fn seconds(key: &str, typed: Option<f64>, default: f64, errors: &mut Errors) -> Duration {
    let seconds = typed.unwrap_or(default);
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if seconds > 0.0 => time,
        _ => {
            errors.tell(&format!("`{key}` is {seconds}; it must be a number of seconds above 0 and below 10^19"));
            Duration::from_secs(1)
        }
    }
}

/// One of several words. Something is returned for a wrong word too, so that all errors can be told.
pub(crate) fn choose<T: Clone>(key: &str, typed: &str, words: &[(&str, T)], errors: &mut Errors) -> T {
    let found = words.iter().find(|(word, _)| *word == typed);
    if found.is_none() {
        let allowed: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        errors.tell(&format!("`{key}` is {typed}; allowed are {}", allowed.join(", ")));
    }
    found.unwrap_or(&words[0]).1.clone()
}

/// Checks two percentiles.
pub(crate) fn percentage([lower, upper]: [f64; 2], errors: &mut Errors) {
    if !(0.0 <= lower && lower < upper && upper <= 100.0) {
        errors.tell(&format!(
            "`norm-lower` is {lower} and `norm-upper` is {upper}; percentiles must rise within 0 to 100"
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Auto, BatchSize, Errors, time};

    #[test]
    fn times_have_units() {
        let mut errors = Errors::default();
        for (typed, seconds) in [("300", 300.0), ("1.5s", 1.5), ("5min", 300.0), ("2 h", 7200.0), ("0", 0.0)] {
            assert_eq!(time("watchdog", typed, &mut errors), Duration::from_secs_f64(seconds), "{typed}");
        }
        assert!(errors.is_empty());
        for wrong in ["", "-1s", "5 days", "soon", "nan"] {
            let mut errors = Errors::default();
            time("watchdog", wrong, &mut errors);
            let told = errors.into_result(()).unwrap_err();
            assert_eq!(told, [format!("`watchdog` is {wrong}; give a time such as 90s, 5min or 2h")]);
        }
    }

    #[test]
    fn a_batch_is_a_number_or_auto() {
        assert_eq!("64".parse(), Ok(BatchSize::Patches(64)));
        assert_eq!("auto".parse(), Ok(BatchSize::Found(Auto::Auto)));
        assert!("all".parse::<BatchSize>().is_err());
        let keys: std::collections::HashMap<String, BatchSize> = toml::from_str("a = 'auto'\nb = 8").unwrap();
        assert_eq!((keys["a"], keys["b"]), (BatchSize::Found(Auto::Auto), BatchSize::Patches(8)));
    }
}
