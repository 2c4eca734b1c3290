//! Whole runs with fake engines over a store in memory: no library, no device, no network.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cancellation;
mod checks;
mod engines;
mod faults;
mod forecast;
mod golden;
mod inputs;
mod laws;
mod memory;
mod models;
mod order;
mod parts;
mod pyramid;
mod resume;
mod shapes;
mod skip;
mod stopping;
mod support;
mod whole;
