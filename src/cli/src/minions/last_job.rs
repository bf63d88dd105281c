//! The last job that each minion returned, from the newest returns of the job database.

use std::collections::HashMap;

use saltern_config::MasterConfig;
use saltern_model::MinionId;
use saltern_model::control::InventoryRow;
use saltern_python::fnmatch::Glob;
use saltern_store::jobs::last_returns;
use saltern_store::{StoreError, open_reader};
use serde_json::Value as Json;

pub(super) use saltern_store::jobs::LastReturn as LastJob;

/// Returns that are looked at: a minion that is not among these has no last job here.
const MAX_RETURNS: usize = 200_000;

/// The last jobs of some minions.
#[derive(Default)]
pub(super) struct LastJobs(HashMap<MinionId, LastJob>);

impl LastJobs {
    /// Reads those of the minions in these rows; with `function` only jobs of such functions count.
    pub(super) fn read(
        config: &MasterConfig,
        rows: &[InventoryRow<Json>],
        function: Option<&str>,
    ) -> Result<Self, StoreError> {
        let function = function.map(Glob::new);
        let is_wanted = |fun: &str| function.as_ref().is_none_or(|glob| glob.matches(fun));
        let reader = open_reader(config)?;
        let ids = rows.iter().map(|row| &row.minion.id);
        Ok(Self(last_returns(&*reader, ids, MAX_RETURNS, is_wanted)?))
    }

    pub(super) fn of(&self, minion: &MinionId) -> Option<&LastJob> {
        self.0.get(minion)
    }
}
