//! PostgreSQL as an engine of the job database, on real servers.

#[path = "../../../store/tests/store/common.rs"]
#[allow(
    dead_code,
    reason = "most of the store's fixtures are for its own tests"
)]
mod common;
#[path = "../../../store/tests/conformance/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "an engine uses its own part"
)]
mod conformance;
mod data;
mod differences;
mod faults;
mod fleet;
mod guarantees;
mod keys;
mod leases;
mod members;
mod moves;
#[path = "../proxy.rs"]
mod proxy;
mod site;
mod state;
