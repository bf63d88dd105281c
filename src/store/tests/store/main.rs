//! The tests of this crate in one binary, which links once.

mod audit;
mod batches;
mod common;
mod displaced;
mod events;
mod files;
mod follower;
mod import;
mod jobs;
mod keys;
mod mirror;
mod pki;
mod recover;
mod stock;
mod tokens;
