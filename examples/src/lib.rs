//! What the demo, the benchmark and the end-to-end tests share: an S3 server in this process, and volumes that go to storage and
//! back whole.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod faults;
mod files;
pub mod s3;
pub mod volume;
