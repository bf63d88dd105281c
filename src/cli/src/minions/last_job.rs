//! The last job that each minion returned, from the newest returns of the job database.

use std::collections::HashMap;

use saltern_config::MasterConfig;
use saltern_model::MinionId;
use saltern_model::control::InventoryRow;
use saltern_python::fnmatch::Glob;
use saltern_store::StoreError;
use saltern_store::open_reader;
use serde_json::Value as Json;

/// Returns that are looked at: a minion that is not among these has no last job here.
const MAX_RETURNS: usize = 200_000;

/// A minion's last return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LastJob {
    /// The job.
    pub(super) jid: String,
    /// Its function.
    pub(super) fun: String,
    /// When the return came, in microseconds since 1970.
    pub(super) received: i64,
    /// Its return code.
    pub(super) retcode: i64,
}

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
        let ids = rows.iter().map(|row| &row.minion.id);
        let mut wanted: HashMap<&str, (&MinionId, Option<LastJob>)> =
            ids.map(|id| (id.as_str(), (id, None))).collect();
        let mut left = wanted.len();
        let function = function.map(Glob::new);
        let reader = open_reader(&config)?;
        reader.newest_returns(MAX_RETURNS, &mut |one| {
            if let Some((_, place)) = wanted.get_mut(one.minion)
                && place.is_none()
                && function.as_ref().is_none_or(|glob| glob.matches(one.fun))
            {
                left -= 1;
                *place = Some(LastJob {
                    jid: one.jid.to_owned(),
                    fun: one.fun.to_owned(),
                    received: one.received,
                    retcode: one.retcode,
                });
            }
            left > 0
        })?;
        let found = wanted.into_values();
        let found = found.filter_map(|(minion, job)| Some((minion.clone(), job?)));
        Ok(Self(found.collect()))
    }

    pub(super) fn of(&self, minion: &MinionId) -> Option<&LastJob> {
        self.0.get(minion)
    }
}
