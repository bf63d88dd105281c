//! Targets on the side of the client: nodegroups are written out before a job is published, and the
//! minions of a target are found in the files of a master that need not run.

use std::sync::Arc;

use saltern_config::MasterConfig;
use saltern_model::MinionId;
use saltern_policy::matching::MatchOptions;
use saltern_policy::target::TargetError;
use saltern_store::{AcceptedIds, MinionDataStore};
use saltern_wire::msgpack::Value;

use crate::targets::{self, Accepted};

/// The words of a compound target with the nodegroups of the configuration written out.
///
/// # Errors
/// A group that is neither a text nor a list, or is too large.
pub fn without_nodegroups(
    config: &MasterConfig,
    words: &[String],
) -> Result<Vec<String>, TargetError> {
    let data = Arc::new(MinionDataStore::open(config));
    targets::of_site(config, false, &data).without_nodegroups(words)
}

/// The minions among those with an accepted key that a target means (`CkMinions.check_minions` of
/// stock), by what is cached of them. `accepted` need not be sorted.
///
/// # Errors
/// A target that cannot be used.
pub fn matching_minions(
    config: &MasterConfig,
    mut accepted: Vec<MinionId>,
    tgt: &Value,
    tgt_type: &str,
    delimiter: &str,
) -> Result<Vec<MinionId>, TargetError> {
    let Some(target) = targets::of_load(tgt, Some(&tgt_type.into()), config.salt_compat) else {
        return Ok(Vec::new());
    };
    accepted.sort_unstable();
    let accepted = AcceptedIds::new(accepted);
    let data = Arc::new(MinionDataStore::open(config));
    let options = MatchOptions {
        delimiter,
        ..MatchOptions::default()
    };
    let targeting = targets::of_site(config, true, &data);
    let resolved = targeting.resolve_with(&target, &Accepted(&accepted), &options)?;
    Ok(resolved.minions)
}
