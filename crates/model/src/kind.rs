//! Words with a meaning: element kinds and modes of compilation.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The kind of number a model computes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// IEEE binary32.
    #[default]
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        })
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::F32, Self::F16, Self::Bf16].into_iter().find(|kind| kind.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is no kind; allowed are f32, f16, bf16"))
    }
}

/// How hard the compiler tries, by the names that `torch.compile` gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompileMode {
    /// A balance.
    #[default]
    Default,
    /// As `Default`, and CUDA graphs.
    ReduceOverhead,
    /// Tries kernels and keeps the fastest, and CUDA graphs.
    MaxAutotune,
    /// Tries kernels and keeps the fastest.
    MaxAutotuneNoCudagraphs,
}

impl CompileMode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Default, Self::ReduceOverhead, Self::MaxAutotune, Self::MaxAutotuneNoCudagraphs];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::ReduceOverhead => "reduce-overhead",
            Self::MaxAutotune => "max-autotune",
            Self::MaxAutotuneNoCudagraphs => "max-autotune-no-cudagraphs",
        }
    }

    /// Whether it asks for CUDA graphs. They are taken of the running package and are no part of it.
    #[must_use]
    pub const fn graph(self) -> bool {
        matches!(self, Self::ReduceOverhead | Self::MaxAutotune)
    }

    /// The mode that a package is made in: the same without graphs.
    #[must_use]
    pub const fn of_package(self) -> Self {
        match self {
            Self::Default | Self::ReduceOverhead => Self::Default,
            Self::MaxAutotune | Self::MaxAutotuneNoCudagraphs => Self::MaxAutotuneNoCudagraphs,
        }
    }
}

impl FromStr for CompileMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| format!("`{text}` is no mode; allowed are {names}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_and_written() {
        for (text, kind) in [("f32", Kind::F32), ("f16", Kind::F16), ("bf16", Kind::Bf16)] {
            assert_eq!((text.parse(), kind.to_string().as_str()), (Ok(kind), text));
        }
        assert!("F32".parse::<Kind>().unwrap_err().contains("`F32` is no kind; allowed are f32"));
    }

    #[test]
    fn two_modes_ask_for_graphs_and_share_their_packages() {
        let modes: Vec<CompileMode> = CompileMode::ALL.iter().map(|mode| mode.name().parse().unwrap()).collect();
        assert_eq!(modes, CompileMode::ALL);
        assert_eq!(modes.iter().filter(|mode| mode.graph()).count(), 2);
        assert!(modes.iter().all(|mode| !mode.of_package().graph()));
        assert!("fast".parse::<CompileMode>().unwrap_err().contains("max-autotune-no-cudagraphs"));
    }
}
