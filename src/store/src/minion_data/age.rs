//! Whether the cached data of a minion is older than its key, and so of a previous owner of its id.

use saltern_model::MinionId;

use super::MinionDataStore;
use crate::error::Result;
use crate::files::{Stat, Version};

impl MinionDataStore {
    /// Whether any of the minion's files was written before this version of its key file came to
    /// be. Costs a `stat` for each file.
    pub fn is_older_than(&self, id: &MinionId, key: &Version) -> Result<bool> {
        for bank in self.banks() {
            let stat = Version::of(&self.path(id, *bank)?, true)?.filter(Stat::is_file);
            if stat.is_some_and(|stat| stat.version.is_from_before(key)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
