//! `config.values` (`salt/wheel/config.py`).
//!
//! `config.apply` and `config.update_config` are not here: who may write the configuration may run
//! anything as the user of the master, and nobody looks at it before it counts.

use saltern_content::pillar::master_options;

use crate::call::{Answer, Bound, Function, function};
use crate::notices::Notices;
use crate::registry::Knowledge;

/// The functions of the module.
pub(crate) const FUNCTIONS: &[Function] = &[function("values", &[], values)];

fn values(knowledge: &Knowledge, _: &Bound<'_>, _: &mut Notices<'_>) -> Answer {
    Ok(master_options(&knowledge.config))
}
