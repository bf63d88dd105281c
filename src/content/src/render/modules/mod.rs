//! Functions of `salt`, as a pillar on the master sees them.
//!
//! One file a module of stock, or a few for a large one. Those that need nothing but what a
//! template has, or the machine, come by [`add_all`]; those that ask the master by
//! [`site::add_site`]. Functions that change something are not here.

mod addresses;
mod commands;
mod config;
mod cp;
pub(crate) mod file;
mod grains;
mod hashutil;
mod lookup;
mod matching;
mod network;
mod pillar;
mod random;
mod sdb;
pub mod site;
mod slsutil;
mod small;
pub(crate) mod users;

use super::functions::Registry;

pub use commands::Commands;
pub(crate) use commands::which;
pub(crate) use lookup::merge;
pub use lookup::{Facts, traverse};

/// Adds what needs no other subsystem. `facts` is what the functions look into; programs are
/// started by `cmd.*` only if `programs` says how.
pub fn add_all(registry: &mut Registry, facts: &Facts, programs: Option<Commands>) {
    grains::grains(registry, facts);
    pillar::pillar(registry, facts);
    matching::matching(registry, facts);
    config::config(registry, facts);
    sdb::sdb(registry, facts);
    slsutil::slsutil(registry);
    random::random(registry, facts);
    hashutil::hashutil(registry);
    small::small(registry);
    file::file(registry);
    network::network(registry);
    addresses::addresses(registry);
    if let Some(programs) = programs {
        commands::commands(registry, programs);
    }
}
