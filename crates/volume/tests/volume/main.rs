//! Volumes through real stores: a folder, memory, and an S3 server on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod clouds;
mod collections;
mod credentials;
mod faults;
mod http;
mod laws;
mod network;
mod output;
mod played;
mod reading;
mod round_trip;
mod s3;
mod s3_server;
mod shards;
mod support;
mod turns;
