//! The writer against real PostgreSQL and MariaDB, read by stock's own returners.

mod common;
mod conformance;
mod faults;
mod reader;
