//! The runner functions' view of the minions: keys, targets, cached grains and presence, each from
//! the same source as for requests.

mod inventory;
mod last_jobs;

use std::net::IpAddr;
use std::sync::Arc;

use saltern_model::{MinionId, Standing, Target};
use saltern_policy::matching::MatchOptions;
use saltern_policy::target::Targeting;
use saltern_runners::Fleet;
use saltern_store::{MinionDataStore, PkiTree, StoreError};
use saltern_wire::msgpack::Value;

use crate::job::below;
use crate::syndic_inventories::SyndicInventories;
use crate::syndics::standing_of;
use crate::targets::Accepted;
use crate::{PresenceView, Services, Stores};

pub use inventory::{InventoryError, as_json};

/// The minions of a master.
pub struct MasterFleet {
    pki: Arc<PkiTree>,
    targeting: Arc<Targeting>,
    data: Arc<MinionDataStore>,
    presence: Arc<dyn PresenceView>,
    inventories: Arc<SyndicInventories>,
}

impl MasterFleet {
    /// The minions that these stores and this presence view know.
    pub fn new(stores: &Stores, presence: Arc<dyn PresenceView>) -> Self {
        Self {
            pki: stores.pki.clone(),
            targeting: stores.targeting.clone(),
            data: stores.minion_data.clone(),
            inventories: stores.inventories.clone(),
            presence,
        }
    }

    /// The minions of running services.
    pub(crate) fn of_services(services: &Services) -> Self {
        Self {
            pki: services.keys.pki.clone(),
            targeting: services.targeting.clone(),
            data: services.minions.data.clone(),
            inventories: services.minions.inventories.clone(),
            presence: services.minions.presence.clone(),
        }
    }
}

impl Fleet for MasterFleet {
    fn matching(&self, target: &Target) -> Result<Vec<MinionId>, StoreError> {
        let accepted = self.pki.accepted()?;
        let resolved =
            self.targeting
                .resolve_with(target, &Accepted(&accepted), &MatchOptions::default());
        let mut minions = match resolved {
            Ok(resolved) => resolved.minions,
            Err(error) => {
                tracing::info!(%error, "a target of a runner function matches no minion");
                Vec::new()
            }
        };
        minions.sort_unstable();
        Ok(minions)
    }

    fn matching_below(&self, target: &Target) -> Result<Vec<MinionId>, StoreError> {
        let accepted = self.pki.accepted()?;
        let options = MatchOptions::default();
        let found = below::among(&self.inventories, &accepted, target, &options);
        Ok(found.map(|found| found.minions).unwrap_or_default())
    }

    fn standing(&self, minion: &MinionId) -> Standing {
        standing_of(minion, &*self.presence, &self.inventories)
    }

    fn last_heard(&self, minion: &MinionId) -> Option<i64> {
        self.presence.last_heard(minion)
    }

    fn address(&self, minion: &MinionId) -> Option<IpAddr> {
        self.presence.address(minion)
    }

    fn version(&self, minion: &MinionId) -> Option<String> {
        let grains = self
            .inventories
            .grains_beside(minion, &self.data, &*self.presence);
        let version = grains?
            .get("saltversion")
            .and_then(Value::as_str)?
            .to_owned();
        Some(version)
    }
}
