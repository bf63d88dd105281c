//! Functions of `salt` that need nothing but what a template has: its grains, pillar and options.
//!
//! One file a module of stock. Functions that need another subsystem (the mine, the file server,
//! matching) are added to the same [`Registry`] by whoever owns it.

mod commands;
mod cp;
pub mod site;
mod small;
mod values;

use super::functions::Registry;

pub use commands::{Commands, commands};
pub use small::small;
pub use values::{Facts, grains_and_pillar};
pub(crate) use values::{merge, traverse};

/// Adds everything that is here. `facts` is what the functions look into; programs are started
/// only if `programs` says how.
pub fn add_all(registry: &mut Registry, facts: &Facts, programs: Option<Commands>) {
    grains_and_pillar(registry, facts);
    small(registry);
    if let Some(programs) = programs {
        commands(registry, programs);
    }
}
