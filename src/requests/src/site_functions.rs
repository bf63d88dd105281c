//! Functions that pillar templates may call on the master: mines and caches of other minions.
//!
//! A pillar is trusted, so it may ask for everything, but a mine is opened as for the minion that
//! bears the master's id: an entry with `allow_tgt` stays closed, as in stock, where the runner
//! `mine.get` asks in that name (`salt/runners/mine.py`).

use std::sync::Arc;

use saltern_content::render::functions::{CallArgs, CallError};
use saltern_content::render::modules::site::{SiteFunctions, no_such_runner};
use saltern_model::{MinionId, Target, TargetType};
use saltern_policy::matching::MatchOptions;
use saltern_policy::matching::mine::{MineAccess, MineRequest};
use saltern_policy::target::Targeting;
use saltern_store::{MinionDataStore, PkiTree, StoreError};
use saltern_wire::msgpack::Value;

use crate::targets::Accepted;

/// View of the master for templates.
pub(crate) struct MasterSite {
    pki: Arc<PkiTree>,
    data: Arc<MinionDataStore>,
    targeting: Arc<Targeting>,
    access: MineAccess,
}

impl MasterSite {
    pub(crate) fn new(
        pki: Arc<PkiTree>,
        data: Arc<MinionDataStore>,
        targeting: Arc<Targeting>,
        access: MineAccess,
    ) -> Self {
        Self {
            pki,
            data,
            targeting,
            access,
        }
    }

    /// The minions of a target; none for one in error, and while keys cannot be listed.
    fn resolve(&self, target: &Target, options: &MatchOptions<'_>) -> Vec<MinionId> {
        let accepted = match self.pki.accepted() {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::error!(%error, "a template matches no minion: keys cannot be listed");
                return Vec::new();
            }
        };
        let found = self
            .targeting
            .resolve_with(target, &Accepted(&accepted), options);
        // Minions choose the targets of their mines, as many as they like: no lines in the log.
        let is_logged = !options.is_brief;
        match found {
            Ok(resolved) => {
                let problems = &resolved.problems;
                if is_logged && !problems.is_empty() {
                    tracing::warn!(%problems, "parts of a target in a template match no minion");
                }
                resolved.minions
            }
            Err(error) => {
                if is_logged {
                    tracing::warn!(%error, "a target in a template matches no minion");
                }
                Vec::new()
            }
        }
    }

    /// Maps the minions of a target to their cached data.
    fn of_each(
        &self,
        target: &Target,
        read: impl Fn(&MinionId) -> Result<Option<Arc<Value>>, StoreError>,
    ) -> Value {
        let minions = self.resolve(target, &MatchOptions::default());
        let kept = minions.iter().filter_map(|id| {
            let value = read(id).unwrap_or_else(|error| {
                tracing::warn!(minion = %id, %error, "cached data cannot be read");
                None
            })?;
            Some((Value::from(id.as_str()), value.as_ref().clone()))
        });
        Value::Map(kept.collect())
    }
}

impl SiteFunctions for MasterSite {
    fn mine_get(&self, asking: &MinionId, target: &Target, functions: &[String]) -> Value {
        let request = MineRequest {
            id: asking.clone(),
            target: exactly(target),
            exact_pillar: true,
            functions: functions.to_vec(),
            by_function: true,
        };
        let resolve = |target: &Target, options: &MatchOptions<'_>| self.resolve(target, options);
        let mine = |id: &MinionId| {
            self.data.mine(id).unwrap_or_else(|error| {
                tracing::warn!(minion = %id, %error, "a mine cannot be read");
                None
            })
        };
        let answer = request.answer(&self.access, resolve, mine);
        answer.unwrap_or_else(|error| {
            tracing::warn!(minion = %asking, %error, "a template gets no mines");
            Value::Map(Vec::new())
        })
    }

    fn cached_grains(&self, target: &Target) -> Value {
        self.of_each(target, |id| self.data.grains(id))
    }

    fn cached_pillar(&self, target: &Target) -> Value {
        self.of_each(target, |id| self.data.pillar(id))
    }

    fn runner(&self, name: &str, _args: &CallArgs) -> Result<Value, CallError> {
        Err(no_such_runner(name))
    }
}

/// Pillar targets of mines are compared exactly.
fn exactly(target: &Target) -> Target {
    match target {
        Target::Expression(TargetType::Pillar | TargetType::PillarPcre, text) => {
            Target::Expression(TargetType::PillarExact, text.clone())
        }
        other => other.clone(),
    }
}
