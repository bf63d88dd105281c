//! Pillars of environments of their own (`pillarenv`): 3008 keeps them beside the minion's pillar,
//! under `<id>:<pillarenv>`, where no target finds them. The other versions make no difference.

use saltern_model::{MinionId, SaltEnv};
use saltern_wire::msgpack::{Dialect, Value, encode};

use super::{Bank, FILE_BYTES, KeptGrains, MinionDataStore, decoded};
use crate::error::Result;
use crate::files::{self, Create};

/// The most environments whose pillars are kept of a minion. It chooses their names, so they could
/// be any number; nothing but the minion's next request reads them.
pub(super) const ENVIRONMENTS: usize = 64;

impl MinionDataStore {
    /// Keeps grains, and the pillar of an environment of its own (`pillarenv`). 3008 keeps such a
    /// pillar under a name of its own, where no target finds it, for so many environments of a
    /// minion; the other versions make no difference.
    ///
    /// # Errors
    /// Also when the environment's name cannot be part of a file name.
    pub fn store_with_pillarenv(
        &self,
        id: &MinionId,
        grains: &Value,
        pillar: &Value,
        pillarenv: &str,
    ) -> Result<KeptGrains> {
        if !self.has_banks() || pillarenv.is_empty() {
            return self.store_grains_and_pillar(id, grains, pillar);
        }
        let dir = self.cachedir.join("pillar");
        // The branches of git have slashes; stock fails with them.
        let is_branch = pillarenv.contains('/') && SaltEnv::parse(pillarenv).is_ok();
        let name = match is_branch {
            true => None,
            false => Some(files::child(
                &dir,
                &format!("{}:{pillarenv}.p", id.as_str()),
            )?),
        };
        self.load_known()?;
        let _writing = self.writer(id).lock();
        let (grains, kept_grains) = KeptGrains::of(grains);
        self.write(id, Bank::Grains, &grains)?;
        let kept = self.known.read().environments(id);
        let is_one_too_many =
            kept.len() >= ENVIRONMENTS && !kept.iter().any(|known| known == pillarenv);
        let Some(path) = name.filter(|_| !is_one_too_many) else {
            return Ok(kept_grains);
        };
        files::ensure_dir(&dir, 0o755)?;
        let packed = encode(pillar, Dialect::Bin);
        files::write_atomic(&path, &packed, Create::PRIVATE.derived().above())?;
        self.known.write().add_environment(id, pillarenv);
        Ok(kept_grains)
    }

    /// The cached pillar of an environment of its own, which only 3008 keeps apart; without one, or
    /// before, the cached pillar.
    ///
    /// # Errors
    /// Also when the environment's name cannot be part of a file name.
    pub fn pillar_of(&self, id: &MinionId, pillarenv: Option<&str>) -> Result<Option<Value>> {
        let environment = pillarenv.filter(|name| self.has_banks() && !name.is_empty());
        let Some(environment) = environment else {
            let pillar = self.pillar(id)?;
            return Ok(pillar.map(|pillar| pillar.as_ref().clone()));
        };
        let name = format!("{}:{environment}.p", id.as_str());
        let path = files::child(&self.cachedir.join("pillar"), &name)?;
        let Some(packed) = files::read(&path, FILE_BYTES)? else {
            return Ok(None);
        };
        decoded(&packed, path).map(Some)
    }

    /// Removes the minion's pillars of environments of their own; whether there was one.
    pub(super) fn remove_environments(&self, id: &MinionId) -> Result<bool> {
        self.load_known()?;
        let environments = self.known.read().environments(id);
        let mut had_any = false;
        for environment in environments {
            let name = format!("{}:{environment}.p", id.as_str());
            let path = files::child(&self.cachedir.join("pillar"), &name)?;
            had_any |= files::remove(&path)?;
        }
        Ok(had_any)
    }

    /// The pillars of 3008 that lie under `<id>:<pillarenv>`.
    pub(super) fn list_environments(&self) -> Result<Vec<(MinionId, String)>> {
        let mut found = Vec::new();
        files::each_entry(&self.cachedir.join("pillar"), |name, _| {
            let parts = name
                .strip_suffix(".p")
                .and_then(|stem| stem.split_once(':'));
            if let Some((id, environment)) = parts
                && let Ok(id) = MinionId::parse(id)
            {
                found.push((id, environment.to_owned()));
            }
        })?;
        Ok(found)
    }
}
