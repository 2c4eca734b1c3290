#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
//! Models as users have them, and the forms they run in.
//!
//! [`Model::open`] takes what was named: a bundle (a folder with `model.toml`, or a zip of one), a TorchScript module, an
//! AOTInductor package, an exported program, or a BioImage.IO folder. It checks every checksum and gives what can run: the
//! module, and compiled packages with the facts they were made for.
//!
//! What has to be made (a bundle of a checkpoint, a package of a program) is made by Python in a process of its own, once, and
//! kept in a [`Cache`]. Nothing is downloaded. A TorchScript module and a package are code that runs with the user's rights:
//! only what the user named is ever opened.
//!
//! This crate knows no libtorch: what the library and the devices of this machine are is told by the caller ([`Wanted`]).

mod archive;
mod bundle;
mod cache;
mod checksum;
mod error;
mod export;
mod facts;
mod kind;
mod model;
mod package;
mod python;
mod show;
pub mod zoo;

pub use bundle::Bundle;
pub use cache::Cache;
pub use checksum::{Sha256, sha256_of_file};
pub use error::{ModelError, ModelErrorKind};
pub use export::{ExportRequest, exported};
pub use facts::{Clip, ModelFacts, NormalisationFacts, OutputMeaning};
pub use kind::{CompileMode, Kind};
pub use model::{Form, Model};
pub use package::{Found, Package, PackageFacts, Wanted, compile_arguments, package_for};
pub use python::{Python, Told};
