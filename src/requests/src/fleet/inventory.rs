//! The inventory of minions: whom a target means, with presence and some cached grains. Read from what
//! the master knows; no job is published.

use std::sync::Arc;
use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_config::MasterConfig;
use saltern_model::control::{Inventory, InventoryRequest, InventoryRow, SeenMinion};
use saltern_model::{MinionId, Target, TargetType};
use saltern_policy::matching::{BeingIndexed, MatchOptions};
use saltern_policy::target::TargetError;
use saltern_runners::Fleet;
use saltern_store::{MinionDataStore, PkiTree, StoreError};
use saltern_wire::msgpack::Value;
use serde_json::Value as Json;

use crate::syndic_inventories::SyndicInventories;
use crate::targets::{self, Accepted};
use crate::{MasterFleet, SiteOptions, Unwatched};

/// The most paths of grains in one request.
const MAX_PATHS: usize = 64;

/// Why there is no inventory.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// The keys cannot be listed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The target cannot be used.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Parts of the target cannot be used.
    #[error("the target cannot be used: {0}")]
    Problems(String),
    /// More columns than anybody reads.
    #[error("an inventory has at most {MAX_PATHS} grains")]
    TooMany,
}

impl MasterFleet {
    /// The fleet of a configuration while no master runs: nobody is known to be connected.
    ///
    /// # Errors
    /// The keys cannot be listed.
    pub fn without_master(config: &MasterConfig) -> Result<Self, StoreError> {
        let data = Arc::new(MinionDataStore::open(config));
        let is_cached = SiteOptions::read(config).minion_data_cache;
        Ok(Self {
            pki: Arc::new(PkiTree::open(config, Clock::system())?),
            targeting: Arc::new(targets::of_site(config, is_cached, &data)),
            data,
            inventories: Arc::new(SyndicInventories::new(config, Clock::system())),
            presence: Arc::new(Unwatched),
        })
    }

    /// The accepted minions that a compound target means, with some of their grains; without their
    /// last jobs, which the job database has.
    ///
    /// # Errors
    /// [`InventoryError`].
    pub fn inventory(&self, request: &InventoryRequest) -> Result<Inventory<Json>, InventoryError> {
        Ok(Inventory {
            minions: self.rows(self.resolve(&request.target)?, &request.grains)?,
            last_jobs: None,
        })
    }

    /// The accepted minions that a compound target means, sorted.
    ///
    /// # Errors
    /// [`InventoryError`].
    pub(crate) fn resolve(&self, target: &str) -> Result<Vec<MinionId>, InventoryError> {
        let accepted = self.pki.accepted()?;
        let target = Target::Expression(TargetType::Compound, target.to_owned());
        let options = MatchOptions {
            greedy: false,
            ..MatchOptions::default()
        };
        let resolved = self
            .targeting
            .resolve_with(&target, &Accepted(&accepted), &options)?;
        if !resolved.problems.is_empty() {
            return Err(InventoryError::Problems(resolved.problems.to_string()));
        }
        let mut minions = resolved.minions;
        minions.sort_unstable();
        Ok(minions)
    }

    /// The minion, if it is accepted.
    ///
    /// # Errors
    /// The keys cannot be listed.
    pub(crate) fn accepted_one(&self, minion: &MinionId) -> Result<Vec<MinionId>, StoreError> {
        let accepted = self.pki.accepted()?;
        let is_accepted = accepted.sorted().binary_search(minion).is_ok();
        Ok(is_accepted.then(|| minion.clone()).into_iter().collect())
    }

    /// Inventory rows of these minions, with the grains at some paths.
    ///
    /// # Errors
    /// There are too many paths.
    pub(crate) fn rows(
        &self,
        minions: Vec<MinionId>,
        grains: &[String],
    ) -> Result<Vec<InventoryRow<Json>>, InventoryError> {
        if grains.len() > MAX_PATHS {
            return Err(InventoryError::TooMany);
        }
        let paths: Vec<&str> = grains.iter().map(String::as_str).collect();
        let grains = self.targeting.grains_at(&minions, &paths);
        let rows = minions.into_iter().zip(grains).map(|(id, grains)| {
            let grains = grains.iter().map(|grain| grain.as_ref().map(as_json));
            InventoryRow {
                grains: grains.collect(),
                minion: self.seen(id),
            }
        });
        Ok(rows.collect())
    }

    /// Whether a minion is, or may be, connected.
    pub(crate) fn is_present(&self, minion: &MinionId) -> bool {
        self.standing(minion).is_present()
    }

    /// Waits until nobody else is reading the cached data of all minions.
    ///
    /// # Errors
    /// Somebody still is after `limit`.
    pub fn wait_for_index(&self, limit: Duration) -> Result<(), BeingIndexed> {
        self.targeting.wait_for_index(limit)
    }

    /// How far that reading is.
    pub fn being_indexed(&self) -> BeingIndexed {
        self.targeting.being_indexed()
    }

    /// The first accepted ids that begin with a text, sorted.
    ///
    /// # Errors
    /// The keys cannot be listed.
    pub fn ids(&self, prefix: &str, limit: usize) -> Result<Vec<MinionId>, StoreError> {
        let accepted = self.pki.accepted()?;
        let ids = accepted.sorted();
        let start = ids.partition_point(|id| id.as_str() < prefix);
        let alike = ids.iter().skip(start);
        let alike = alike.take_while(|id| id.as_str().starts_with(prefix));
        Ok(alike.take(limit).cloned().collect())
    }

    /// Presence of a minion, and when it was last heard.
    pub fn seen(&self, id: MinionId) -> SeenMinion {
        let standing = self.standing(&id);
        SeenMinion {
            is_present: standing.is_present(),
            last_heard: self.last_heard(&id),
            address: self.address(&id),
            standing: standing.to_string(),
            id,
        }
    }
}

/// A value as JSON. What JSON does not know is a text.
pub fn as_json(value: &Value) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Bool(flag) => Json::from(*flag),
        Value::Int(number) => Json::from(*number),
        Value::Uint(number) => Json::from(*number),
        Value::Float(number) => Json::from(*number),
        Value::Str(text) => Json::from(text.as_str()),
        Value::Array(items) => Json::Array(items.iter().map(as_json).collect()),
        Value::Map(entries) => {
            let entries = entries.iter();
            let entries =
                entries.map(|(key, value)| (saltern_python::str(key).into_owned(), as_json(value)));
            Json::Object(entries.collect())
        }
        other => Json::from(saltern_python::str(other).into_owned()),
    }
}
