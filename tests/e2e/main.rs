//! The binary from end to end: a child process with real files, S3 over TCP and TorchScript modules.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop on what it did not expect")]

mod broken_data;
mod golden;
mod kills;
mod main_job;
mod memory;
mod misbehaving_models;
mod odd_uses;
mod predecessor;
mod refusals;
mod reports;
mod signals;
