//! Tests of the scheduler beside stock's. One binary a crate, so that it is linked once.

#![allow(
    clippy::unwrap_used,
    reason = "a failed unwrap is a failed test, in helpers too"
)]

mod schedule_stock;
