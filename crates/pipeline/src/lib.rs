//! The stages of a run, one file each, in the order of the data's way:
//!
//! [`open`](mod@open) → [`read`](mod@read) → [`batch`](mod@batch) → [`device`](mod@device) → [`merge`](mod@merge) →
//! [`write`](mod@write); [`wiring`](mod@wiring) makes the channels between them and [`run`](mod@run) is their life.
//!
//! Data flows one way. Every channel is bounded, every large buffer holds a lease of one budget, the first fault wins.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod accumulate;
pub mod after;
pub mod blocks;
pub mod budget;
pub mod cast;
pub mod cut;
pub mod fault;
pub mod forecast;
pub mod histogram;
pub mod live;
pub mod memory;
pub mod meter;
pub mod normalise;
pub mod progress;
pub mod pyramid;
pub mod quarantine;
pub mod recipe;
pub mod recompute;
pub mod report;
pub mod resume;
pub mod settings;
pub mod skip;
pub mod statistics;
pub mod trace;
pub mod verify;
pub mod watchdog;

mod batch;
mod board;
mod device;
mod home;
mod merge;
mod messages;
mod number;
mod open;
mod read;
mod record;
mod run;
mod sample;
mod shared;
mod whole;
mod wiring;
mod write;

#[cfg(test)]
#[path = "../tests/pipeline/inputs.rs"]
mod golden_inputs;

pub use fault::{Fault, FaultKind, Stage};
pub use open::check;
pub use progress::Progress;
pub use report::Report;
pub use run::Run;
pub use settings::{LatticeChoice, Layout, Part, Resources, RunSettings, Values};
