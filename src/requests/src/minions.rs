//! State of each minion, and the one way to forget it.
//!
//! Every field of [`Minions`] that is memory for each minion has its row in [`Minions::memories`],
//! which takes the struct apart field by field: a new one does not compile without a decision. So
//! nothing of a minion whose key was deleted or replaced is left to the next owner of its name.

use std::sync::Arc;

use saltern_content::pillar::Pillars;
use saltern_model::MinionId;
use saltern_policy::target::Targeting;
use saltern_store::files::Version;
use saltern_store::{MinionDataStore, ResourceStore, Sessions, StoreError, SyndicStore};

use crate::register_resources::inventory;
use crate::services::PresenceView;
use crate::site_options::SiteOptions;
use crate::stores::Stores;
use crate::syndic_frames::SyndicFrames;
use crate::syndic_inventories::SyndicInventories;

/// State of each minion.
pub struct Minions {
    /// Grains, pillars and mines.
    pub data: Arc<MinionDataStore>,
    /// Their resources.
    pub resources: Arc<ResourceStore>,
    /// Their session keys.
    pub sessions: Arc<Sessions>,
    /// The syndics among them.
    pub syndics: Arc<SyndicStore>,
    /// The minions below syndics, as these announce them.
    pub inventories: Arc<SyndicInventories>,
    /// The numbers of the frames in which these bring returns.
    pub frames: Arc<SyndicFrames>,
    /// Their presence, which follows connections and not keys.
    pub presence: Arc<dyn PresenceView>,
    /// The last pillar of each (`pillar_cache`).
    pub(crate) pillars: Arc<Pillars>,
    /// Index in which targets look up resources.
    pub(crate) targeting: Arc<Targeting>,
    /// `preserve_minion_cache`: grains, pillar and mine outlast the key.
    pub(crate) preserves_data: bool,
}

/// Memory of one kind for each minion. Forgetting gives whether there was something that operators
/// know as the minion's cached data.
trait Memory {
    /// Its content, for the log.
    fn name(&self) -> &'static str;

    /// Whether it has something of a minion.
    fn has(&self, minion: &MinionId) -> Result<bool, StoreError>;

    /// Forgets a minion.
    fn forget(&self, minion: &MinionId) -> Result<bool, StoreError>;

    /// Forgets all minions but those to keep; gives how many of them had cached data.
    fn forget_all_but(&self, keep: &dyn Fn(&MinionId) -> bool) -> Result<usize, StoreError>;

    /// Whether something of the minion was stored before its key; `None` for memory that does not
    /// know its age, which goes with any replaced key, what the new owner has stored included.
    fn is_older_than(&self, minion: &MinionId, key: &Version) -> Result<Option<bool>, StoreError>;
}

struct Data<'a>(&'a MinionDataStore, bool);

impl Memory for Data<'_> {
    fn name(&self) -> &'static str {
        "grains, pillar and mine"
    }

    fn has(&self, minion: &MinionId) -> Result<bool, StoreError> {
        let Self(data, _) = self;
        let is_cached = data.grains(minion)?.is_some() || data.pillar(minion)?.is_some();
        Ok(is_cached || data.mine(minion)?.is_some())
    }

    fn forget(&self, minion: &MinionId) -> Result<bool, StoreError> {
        match self.1 {
            true => Ok(false),
            false => self.0.purge(minion),
        }
    }

    fn forget_all_but(&self, keep: &dyn Fn(&MinionId) -> bool) -> Result<usize, StoreError> {
        match self.1 {
            true => Ok(0),
            false => self.0.purge_all_but(keep),
        }
    }

    fn is_older_than(&self, minion: &MinionId, key: &Version) -> Result<Option<bool>, StoreError> {
        self.0.is_older_than(minion, key).map(Some)
    }
}

/// Resources are always removed: their names become free for the next owner to register.
struct Resources<'a>(&'a ResourceStore, &'a Targeting);

impl Memory for Resources<'_> {
    fn name(&self) -> &'static str {
        "resources"
    }

    fn has(&self, minion: &MinionId) -> Result<bool, StoreError> {
        Ok(!self.0.of(minion)?.is_empty())
    }

    fn forget(&self, minion: &MinionId) -> Result<bool, StoreError> {
        if self.0.register(minion, Vec::new(), false)? {
            self.1.set_resources(|| inventory(self.0))?;
        }
        Ok(false)
    }

    fn forget_all_but(&self, keep: &dyn Fn(&MinionId) -> bool) -> Result<usize, StoreError> {
        let owners = self.0.owners()?;
        let gone = owners.iter().filter(|owner| !keep(owner));
        gone.map(|owner| self.forget(owner).map(usize::from)).sum()
    }

    fn is_older_than(&self, minion: &MinionId, key: &Version) -> Result<Option<bool>, StoreError> {
        self.0.is_older_than(minion, key).map(Some)
    }
}

/// A session must not be the next owner's.
impl Memory for &Sessions {
    fn name(&self) -> &'static str {
        "session"
    }

    fn has(&self, minion: &MinionId) -> Result<bool, StoreError> {
        Ok(self.get(minion)?.is_some())
    }

    fn forget(&self, minion: &MinionId) -> Result<bool, StoreError> {
        self.remove(minion).map(|_| false)
    }

    fn forget_all_but(&self, keep: &dyn Fn(&MinionId) -> bool) -> Result<usize, StoreError> {
        self.remove_all_but(keep).map(|_| 0)
    }

    fn is_older_than(&self, _: &MinionId, _: &Version) -> Result<Option<bool>, StoreError> {
        // A session of another key is replaced when its owner next authenticates.
        Ok(Some(false))
    }
}

/// The next owner may be a minion, of whom returns are expected.
impl Memory for &SyndicStore {
    fn name(&self) -> &'static str {
        "registration as a syndic"
    }

    fn has(&self, minion: &MinionId) -> Result<bool, StoreError> {
        Ok(SyndicStore::has(self, minion))
    }

    fn forget(&self, minion: &MinionId) -> Result<bool, StoreError> {
        SyndicStore::forget(self, minion).map(|_| false)
    }

    fn forget_all_but(&self, keep: &dyn Fn(&MinionId) -> bool) -> Result<usize, StoreError> {
        let known = self.ids();
        let gone = known.iter().filter(|id| !keep(id));
        gone.map(|id| Memory::forget(self, id).map(usize::from))
            .sum()
    }

    fn is_older_than(&self, _: &MinionId, _: &Version) -> Result<Option<bool>, StoreError> {
        Ok(Some(false))
    }
}

/// The next owner of a syndic's name announces its minions anew.
impl Memory for &SyndicInventories {
    fn name(&self) -> &'static str {
        "inventory of the minions below"
    }

    fn has(&self, minion: &MinionId) -> Result<bool, StoreError> {
        Ok(SyndicInventories::has(self, minion))
    }

    fn forget(&self, minion: &MinionId) -> Result<bool, StoreError> {
        SyndicInventories::forget(self, minion);
        Ok(false)
    }

    fn forget_all_but(&self, keep: &dyn Fn(&MinionId) -> bool) -> Result<usize, StoreError> {
        for syndic in self.syndics().iter().filter(|syndic| !keep(syndic)) {
            SyndicInventories::forget(self, syndic);
        }
        Ok(0)
    }

    fn is_older_than(&self, _: &MinionId, _: &Version) -> Result<Option<bool>, StoreError> {
        Ok(None)
    }
}

/// The next owner of a syndic's name begins to count anew.
impl Memory for &SyndicFrames {
    fn name(&self) -> &'static str {
        "numbers of frames"
    }

    fn has(&self, minion: &MinionId) -> Result<bool, StoreError> {
        Ok(SyndicFrames::has(self, minion))
    }

    fn forget(&self, minion: &MinionId) -> Result<bool, StoreError> {
        SyndicFrames::forget(self, minion);
        Ok(false)
    }

    fn forget_all_but(&self, keep: &dyn Fn(&MinionId) -> bool) -> Result<usize, StoreError> {
        for syndic in self.syndics().iter().filter(|syndic| !keep(syndic)) {
            SyndicFrames::forget(self, syndic);
        }
        Ok(0)
    }

    fn is_older_than(&self, _: &MinionId, _: &Version) -> Result<Option<bool>, StoreError> {
        Ok(None)
    }
}

/// Pillars of `pillar_cache` are made anew at the next request.
impl Memory for &Pillars {
    fn name(&self) -> &'static str {
        "pillar of pillar_cache"
    }

    fn has(&self, minion: &MinionId) -> Result<bool, StoreError> {
        Ok(self.kept(minion, None).is_some())
    }

    fn forget(&self, minion: &MinionId) -> Result<bool, StoreError> {
        Pillars::forget(self, minion);
        Ok(false)
    }

    fn forget_all_but(&self, keep: &dyn Fn(&MinionId) -> bool) -> Result<usize, StoreError> {
        Pillars::forget_all_but(self, keep).map(|()| 0)
    }

    fn is_older_than(&self, _: &MinionId, _: &Version) -> Result<Option<bool>, StoreError> {
        Ok(None)
    }
}

impl Minions {
    /// Takes the stores that are kept on disk, and makes what is memory alone.
    pub(crate) fn new(
        stores: &Stores,
        presence: Arc<dyn PresenceView>,
        site: &SiteOptions,
    ) -> Self {
        Self {
            data: stores.minion_data.clone(),
            resources: stores.resources.clone(),
            sessions: stores.sessions.clone(),
            syndics: stores.syndics.clone(),
            inventories: stores.inventories.clone(),
            frames: stores.frames.clone(),
            presence,
            pillars: stores.pillars.clone(),
            targeting: stores.targeting.clone(),
            preserves_data: site.preserve_minion_cache,
        }
    }

    /// Every memory. What is no memory for each minion is named, too.
    fn memories(&self) -> [Box<dyn Memory + '_>; 7] {
        let Self {
            data,
            resources,
            sessions,
            syndics,
            inventories,
            frames,
            pillars,
            presence: _,
            targeting,
            preserves_data,
        } = self;
        [
            Box::new(&**pillars),
            Box::new(&**sessions),
            Box::new(Resources(resources, targeting)),
            Box::new(&**syndics),
            Box::new(&**inventories),
            Box::new(&**frames),
            Box::new(Data(data, *preserves_data)),
        ]
    }

    /// The names of all memories, for tables that have to be complete.
    pub fn memory_names(&self) -> Vec<&'static str> {
        let memories = self.memories();
        memories.iter().map(|memory| memory.name()).collect()
    }

    /// The names of the memories that have something of a minion.
    ///
    /// # Errors
    /// When a store cannot be read.
    pub fn memories_with(&self, minion: &MinionId) -> Result<Vec<&'static str>, StoreError> {
        let mut names = Vec::new();
        for memory in self.memories() {
            if memory.has(minion)? {
                names.push(memory.name());
            }
        }
        Ok(names)
    }

    /// Forgets a minion whose key was deleted; with `preserve_minion_cache`, grains, pillar and mine
    /// stay. `true` when there was cached data.
    pub fn forget(&self, minion: &MinionId) -> bool {
        let forget = |memory: Box<dyn Memory + '_>| {
            memory.forget(minion).unwrap_or_else(|error| {
                let what = memory.name();
                tracing::error!(%minion, %error, what, "the kept data of a former minion cannot be removed");
                false
            })
        };
        self.memories()
            .into_iter()
            .map(forget)
            .fold(false, |a, b| a | b)
    }

    /// Forgets a minion whose key was replaced: everything where some of it is older than the key,
    /// else what does not know its age. Data that is younger was stored for the new owner. `true`
    /// when there was cached data.
    ///
    /// # Errors
    /// When a store cannot be read.
    pub fn forget_replaced(&self, minion: &MinionId, key: &Version) -> Result<bool, StoreError> {
        let mut ageless = Vec::new();
        for memory in self.memories() {
            match memory.is_older_than(minion, key)? {
                Some(true) => return Ok(self.forget(minion)),
                Some(false) => {}
                None => ageless.push(memory),
            }
        }
        for memory in ageless {
            memory.forget(minion)?;
        }
        if !self.preserves_data {
            // Files that were removed with the old key are still rows of a cluster.
            self.data.note_owner(minion);
        }
        Ok(false)
    }

    /// Forgets all minions but those to keep; gives how many of them had cached data.
    ///
    /// # Errors
    /// When a store cannot be listed or changed.
    pub fn forget_all_but(&self, keep: impl Fn(&MinionId) -> bool) -> Result<usize, StoreError> {
        let memories = self.memories().into_iter();
        memories.map(|memory| memory.forget_all_but(&keep)).sum()
    }
}
