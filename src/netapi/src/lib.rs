//! HTTP interfaces of the master.
#![warn(clippy::indexing_slicing)]

pub mod v1;
