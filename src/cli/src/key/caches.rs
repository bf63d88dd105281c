//! Data that are removed or replaced with a key: the cached data of its minion, and the shared key
//! of all minions.

use std::collections::HashSet;

use saltern_config::MasterConfig;
use saltern_model::MinionId;
use saltern_store::{MinionDataStore, dropfile};

use super::error::KeyError;
use super::files::KeyFiles;

/// Removes the cached data of minions without a key (`Key.check_minion_cache`); `kept` keep theirs.
pub(super) fn purge(
    config: &MasterConfig,
    files: &KeyFiles,
    kept: &[String],
) -> Result<(), KeyError> {
    if config.preserve_minion_cache() {
        return Ok(());
    }
    let lists = files.managed()?;
    let keys = lists.iter().flat_map(|(_, keys)| keys).chain(kept);
    let keys: HashSet<&str> = keys.map(String::as_str).collect();
    let has_key = |minion: &MinionId| keys.contains(minion.as_str());
    MinionDataStore::open(config).purge_all_but(has_key)?;
    Ok(())
}

/// Asks the master for a new shared key, which minions without a key do not get.
pub(super) fn rotate(config: &MasterConfig, is_wanted: bool) -> Result<(), KeyError> {
    if is_wanted {
        dropfile::request(config)?;
    }
    Ok(())
}
