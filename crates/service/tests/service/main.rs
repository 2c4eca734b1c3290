//! The daemon over real sockets, with a runner that runs nothing.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop on what it did not expect")]

mod access;
mod fake;
mod jobs;
mod looks;
mod pressure;
mod restart;
mod scene;
