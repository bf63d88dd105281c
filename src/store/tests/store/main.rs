//! The tests of this crate in one binary, which links once.

mod audit;
mod batches;
mod common;
#[path = "../conformance/mod.rs"]
mod conformance;
mod displaced;
mod early_jobs;
mod engines;
mod events;
mod files;
mod follower;
mod import;
mod jobs;
mod keys;
mod mirror;
mod pki;
mod recover;
mod rotation;
mod stock;
mod tokens;
