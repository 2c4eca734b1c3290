//! The daemon: jobs over HTTP. A job is a run of the pipeline, asked for with the same keys as `haloflow run`.
//!
//! A request goes [`server`] → [`guard`](mod@guard) (host, origin, token, rate) → `api` → [`daemon`]; what is asked is kept in
//! [`store`] and chosen by [`queue`]; [`dispatch`] starts what was chosen with whatever implements [`runner::Runner`], and tells of
//! it over [`events`]. Nothing here knows libtorch, the command line or the environment.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod api;
pub mod daemon;
pub mod dispatch;
pub mod events;
mod guard;
pub mod history;
pub mod job;
pub mod limit;
mod lines;
mod metrics;
mod picture;
pub mod problem;
mod prune;
pub mod queue;
mod rate;
pub mod roots;
pub mod runner;
pub mod server;
pub mod settings;
pub mod store;

pub use api::openapi;
pub use daemon::Daemon;
pub use server::serve;
pub use settings::ServiceSettings;
