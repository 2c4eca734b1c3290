//! The binary from end to end: a child process with real files, S3 over TCP and TorchScript modules.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop on what it did not expect")]

mod bad_network;
mod broken_data;
mod daemon;
mod daemon_access;
mod deployment;
mod doctor;
mod full_disk;
mod golden;
mod inspect;
mod interop;
mod kills;
mod large_objects;
mod main_job;
mod manifests;
mod memory;
mod misbehaving_models;
mod model_forms;
mod odd_uses;
mod otlp;
mod page;
mod plan;
mod predecessor;
mod read_once;
mod refusals;
mod reports;
mod shards;
mod signals;
mod verify;
