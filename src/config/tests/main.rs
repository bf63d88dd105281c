//! Master configurations as files: what is read, what is refused, and what stock makes of the same.
//! One binary a crate, so that it is linked once.

#![allow(
    clippy::unwrap_used,
    reason = "a failed unwrap is a failed test, in helpers too"
)]

mod common;
mod listeners;
mod load;
mod master_stock;
mod options_table;
mod watching;
mod yaml_limits;
mod yaml_stock;
