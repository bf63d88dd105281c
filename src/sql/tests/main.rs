//! The writer against real PostgreSQL and MariaDB, read by stock's own returners.

mod alcali;
mod common;
mod conformance;
mod connections;
mod faults;
mod plans;
mod proxy;
mod purge;
mod reader;
