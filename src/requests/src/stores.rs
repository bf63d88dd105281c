//! Stores behind [`Services`](crate::Services): everything durable or shared, opened once and in
//! order, so that every fault is reported before the first port is bound.

use std::sync::Arc;

use saltern_base::clock::Clock;
use saltern_bridge::Bridge;
use saltern_config::MasterConfig;
use saltern_content::ext_pillar::{ExtPillarError, ExtPillars};
use saltern_content::files::{FileServer, FilesError};
use saltern_content::pillar::{Parts, PillarError, Pillars};
use saltern_content::reactions::ReactionParts;
use saltern_content::render::modules::site::SiteFunctions;
use saltern_policy::target::Targeting;
use saltern_runners::Master;
use saltern_store::{
    MasterKeys, MinionDataStore, PkiTree, ResourceStore, Sessions, SharedKeys, SharedState,
    StoreError, SyndicStore, Tokens, UserKeys,
};

use crate::site_functions::MasterSite;
use crate::syndic_frames::SyndicFrames;
use crate::syndic_inventories::SyndicInventories;
use crate::{SiteOptions, register_resources, targets};

/// The parts of [`Services`](crate::Services) that can fail to open.
pub struct Stores {
    /// The minions' keys.
    pub pki: Arc<PkiTree>,
    /// The minions' session keys.
    pub sessions: Arc<Sessions>,
    /// The AES key that all minions share.
    pub shared: Arc<SharedKeys>,
    /// The master's own keys.
    pub master: Arc<MasterKeys>,
    /// The keys of local users.
    pub users: Arc<UserKeys>,
    /// The tokens of users who logged in.
    pub tokens: Arc<Tokens>,
    /// State that is shared with the other masters of a cluster.
    pub state: SharedState,
    /// The file server.
    pub files: Arc<FileServer>,
    /// Grains, pillars and mines of the minions.
    pub minion_data: Arc<MinionDataStore>,
    /// Resources of the minions.
    pub resources: Arc<ResourceStore>,
    /// The syndics below this master.
    pub syndics: Arc<SyndicStore>,
    /// The minions below these syndics.
    pub inventories: Arc<SyndicInventories>,
    /// The numbers of the frames of these syndics.
    pub frames: Arc<SyndicFrames>,
    /// Targets, with an index of the minions' data.
    pub targeting: Arc<Targeting>,
    /// Makes pillars.
    pub pillars: Arc<Pillars>,
    /// Runs functions and modules that only Python can run.
    pub bridge: Arc<Bridge>,
    /// Functions that templates may call on the master.
    site: Arc<dyn SiteFunctions>,
}

/// Error of opening a part of the master.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file server refuses its configuration.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The pillars refuse theirs.
    #[error(transparent)]
    Pillar(#[from] PillarError),
    /// The external pillar sources refuse theirs.
    #[error(transparent)]
    ExtPillar(#[from] ExtPillarError),
}

impl Stores {
    /// Opens all stores; creates files of a first start, such as the master's keys.
    ///
    /// # Errors
    /// The first part that cannot be opened.
    pub fn open(config: &MasterConfig, clock: &Clock) -> Result<Self, OpenError> {
        let data = Arc::new(MinionDataStore::open(config));
        Self::open_shared(config, clock, (&SharedState::default(), data))
    }

    /// The same for a master of a cluster, which shares its state, grains and mines.
    ///
    /// # Errors
    /// The first part that cannot be opened.
    pub fn open_shared(
        config: &MasterConfig,
        clock: &Clock,
        (state, minion_data): (&SharedState, Arc<MinionDataStore>),
    ) -> Result<Self, OpenError> {
        let pki = Arc::new(PkiTree::open(config, clock.clone())?);
        let files = Arc::new(FileServer::new(config, clock.clone())?);
        let site = SiteOptions::read(config);
        let targeting = targets::of_site(config, site.minion_data_cache, &minion_data);
        let resources = Arc::new(ResourceStore::open(config));
        targeting.set_resources(|| register_resources::inventory(&resources))?;
        let targeting = Arc::new(targeting);
        let bridge = Arc::new(Bridge::new(config));
        let site: Arc<dyn SiteFunctions> = Arc::new(MasterSite::new(
            pki.clone(),
            minion_data.clone(),
            targeting.clone(),
            site.mine_access,
        ));
        let pillars = Pillars::new(
            config,
            Parts {
                clock: clock.clone(),
                files: files.clone(),
                ext: ExtPillars::new(config)?,
                site: site.clone(),
                bridge: Some(bridge.clone()),
            },
        )?;
        Ok(Self {
            pki,
            sessions: Arc::new(Sessions::open(config, clock.clone())?.shared_by(state)),
            shared: Arc::new(SharedKeys::open(config, clock.clone())?.shared_by(state)),
            master: Arc::new(MasterKeys::load_or_create(config)?),
            users: Arc::new(UserKeys::prepare(config)?),
            tokens: Arc::new(Tokens::open(config, clock.clone())?.shared_by(state)),
            state: state.clone(),
            files,
            minion_data,
            resources,
            syndics: Arc::new(SyndicStore::open(config)?),
            inventories: Arc::new(SyndicInventories::new(config, clock.clone())),
            frames: Arc::new(SyndicFrames::new(config)),
            targeting,
            pillars: Arc::new(pillars),
            bridge,
            site,
        })
    }

    /// The parts that templates of reactions see.
    pub fn for_reactions(&self, clock: &Clock) -> ReactionParts {
        ReactionParts {
            clock: clock.clone(),
            files: self.files.clone(),
            site: self.site.clone(),
            bridge: Some(self.bridge.clone()),
        }
    }

    /// The parts that functions of the master read and change.
    pub fn for_functions(&self) -> Master {
        Master {
            pki: self.pki.clone(),
            sessions: self.sessions.clone(),
            keys: self.master.clone(),
            tokens: self.tokens.clone(),
            minion_data: self.minion_data.clone(),
            files: self.files.clone(),
            pillars: self.pillars.clone(),
            site: self.site.clone(),
        }
    }
}
