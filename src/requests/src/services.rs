//! Services of a request handler: configuration, keys, sessions, rules and stores.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::RwLock;
use saltern_base::clock::Clock;
use saltern_base::metrics::{IntCounter, IntCounterVec, Registry, counter, counter_vec};
use saltern_base::trace::Tracer;
use saltern_bridge::Bridge;
use saltern_config::MasterConfig;
use saltern_content::files::FileServer;
use saltern_content::pillar::Pillars;
use saltern_content::tops::MasterTops;
use saltern_model::{JidMinter, MinionId, Standing};
use saltern_policy::acl::Acl;
use saltern_policy::target::Targeting;
use saltern_runners::Runners;
use saltern_store::jobs::LastReturns;
use saltern_store::{
    BothKeys, JobQueries, MasterKeys, PkiTree, SharedKeys, SharedState, StoreError, StoreOptions,
    Tokens, UserKeys,
};

use crate::audit::RefusalBudget;
use crate::audit_check::AuditChecks;
use crate::highstates::Highstates;
use crate::job::jid_owner::ChosenJids;
use crate::key_admission::KeyAdmission;
use crate::minions::Minions;
use crate::refusal_log::RefusalLog;
use crate::rules::SiteRules;
use crate::site_options::SiteOptions;
use crate::stores::Stores;
use crate::syndic_path::SyndicPaths;
use crate::traces;

/// Interface of a request handler to presence, which the actors implement.
pub trait PresenceView: Send + Sync {
    /// The minions that hold, or may hold, a connection to the publish port at this moment, sorted.
    fn connected(&self) -> Vec<MinionId>;
    /// Whether [`Self::connected`] would give more than `limit` minions.
    fn are_more_connected_than(&self, limit: usize) -> bool;
    /// Records that an authenticated minion was heard from this address.
    fn heard(&self, minion: &MinionId, from: IpAddr);
    /// Whether the minion would get a publication sent now, and if not, why.
    fn state(&self, minion: &MinionId) -> Standing;
    /// When the minion's last authenticated request came, in microseconds since 1970; `None` if
    /// none came for as long as the master remembers.
    fn last_heard(&self, minion: &MinionId) -> Option<i64>;
    /// The address that its connection to the publish port comes from, else its last request.
    fn address(&self, minion: &MinionId) -> Option<IpAddr>;
    /// Whether this return answers a probe of the master's own, which is no job and goes no
    /// further.
    fn is_answer(&self, minion: &MinionId, jid: &str) -> bool;
}

/// Presence while nobody watches the publish port: in tools beside the master, and in tests.
pub struct Unwatched;

impl PresenceView for Unwatched {
    fn connected(&self) -> Vec<MinionId> {
        Vec::new()
    }

    fn are_more_connected_than(&self, _: usize) -> bool {
        false
    }

    fn heard(&self, _: &MinionId, _: IpAddr) {}

    fn state(&self, _: &MinionId) -> Standing {
        Standing::Known
    }

    fn last_heard(&self, _: &MinionId) -> Option<i64> {
        None
    }

    fn address(&self, _: &MinionId) -> Option<IpAddr> {
        None
    }

    fn is_answer(&self, _: &MinionId, _: &str) -> bool {
        false
    }
}

/// The services of one master, in groups by what they are about; shared by all workers. A handler
/// that needs one group takes that group, so that its signature says what it touches.
pub struct Services {
    context: Context,
    /// Keys of the minions and of the master.
    pub keys: Keys,
    /// Users and what they may do.
    pub users: Users,
    /// State of each minion.
    pub minions: Minions,
    /// Content that minions fetch.
    pub content: Content,
    /// Jobs.
    pub jobs: Jobs,
    /// Targets of every kind, their compiled patterns and the index of cached data.
    pub targeting: Arc<Targeting>,
    /// The masters above this one.
    pub paths: SyndicPaths,
    /// The functions that run on the master.
    pub runners: Runners,
    /// Runs functions and modules that only Python can run.
    pub bridge: Arc<Bridge>,
}

/// Dependencies of every request: options, time, metrics, logs and traces. It changes
/// nothing that lasts.
pub struct Context {
    /// The configuration.
    pub config: Arc<MasterConfig>,
    /// Options that only requests use.
    pub site: SiteOptions,
    /// Wall-clock time.
    pub clock: Clock,
    /// Makes jids.
    pub minter: JidMinter,
    /// Metrics of requests.
    pub metrics: RequestMetrics,
    /// Budget of log lines about unauthenticated peers.
    pub refusal_log: RefusalLog,
    /// Budget of rows in the audit trail about unauthenticated peers.
    pub(crate) refusals: RefusalBudget,
    /// Collects spans, where the configuration asks for it.
    pub tracer: Option<Arc<Tracer>>,
}

/// Keys of the minions and of the master.
pub struct Keys {
    /// The minions' keys.
    pub pki: Arc<PkiTree>,
    /// The AES key that all minions share.
    pub shared: Arc<SharedKeys>,
    /// The master's own keys.
    pub master: Arc<MasterKeys>,
    /// Admission control for keys that are not accepted.
    pub(crate) admission: KeyAdmission,
}

/// Users and what they may do.
pub struct Users {
    /// The tokens of users who logged in.
    pub tokens: Arc<Tokens>,
    /// State that is shared with the other masters of a cluster.
    pub state: SharedState,
    /// Applies the rules of users.
    pub acl: Acl,
    rules: RwLock<Arc<SiteRules>>,
}

impl Users {
    /// The present rules. A caller that uses several of them takes them once.
    pub fn rules(&self) -> Arc<SiteRules> {
        self.rules.read().clone()
    }
}

/// Content that minions fetch.
pub struct Content {
    /// The file server.
    pub files: Arc<FileServer>,
    /// Makes pillars.
    pub pillars: Arc<Pillars>,
    /// States that the master adds to minions' top files.
    pub tops: MasterTops,
}

/// Jobs.
pub struct Jobs {
    /// The job database.
    pub reader: Arc<dyn JobQueries>,
    /// The jids that clients chose last.
    pub(crate) chosen: ChosenJids,
    /// The last return of each minion, for lists of minions.
    pub(crate) last_returns: LastReturns,
    /// The last highstate of each minion.
    pub highstates: Highstates,
    /// The last check of the audit trail.
    pub(crate) audit_check: AuditChecks,
}

/// Every group comes with the context of the request.
impl Deref for Services {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl Services {
    /// The master's keys, while a rotation has two of them accepted.
    pub fn both_master_keys(&self) -> Option<BothKeys<'_>> {
        self.keys.master.both(self.clock.unix())
    }

    /// Whether the directory of the minions' keys is there, so that a minion without one in it has none.
    ///
    /// # Errors
    /// It is lost, or not mounted.
    pub fn require_pki(&self) -> Result<(), StoreError> {
        let Keys { pki, master, .. } = &self.keys;
        master.require_directory(pki, &self.config)
    }

    /// Puts the services together.
    pub fn new(
        config: Arc<MasterConfig>,
        clock: Clock,
        stores: Stores,
        (runners, jobs): (Runners, Arc<dyn JobQueries>),
        presence: Arc<dyn PresenceView>,
        registry: &Registry,
    ) -> Self {
        let rules = Arc::new(SiteRules::read(
            &config,
            stores.users.clone(),
            &stores.bridge,
        ));
        stores.bridge.register(registry);
        stores.inventories.register(registry);
        let context = Context::new(config, clock, registry);
        let minions = Minions::new(&stores, presence, &context.site);
        Self {
            keys: Keys {
                pki: stores.pki,
                shared: stores.shared,
                master: stores.master,
                admission: KeyAdmission::new(context.config.saltern_max_pending),
            },
            users: Users {
                tokens: stores.tokens,
                state: stores.state,
                acl: Acl::default(),
                rules: RwLock::new(rules),
            },
            minions,
            content: Content {
                files: stores.files,
                pillars: stores.pillars,
                tops: tops_of(&context.config, &stores.bridge),
            },
            jobs: Jobs {
                reader: jobs,
                chosen: ChosenJids::default(),
                last_returns: LastReturns::default(),
                highstates: Highstates::open(&StoreOptions::from(&*context.config)),
                audit_check: AuditChecks::of_site(&context.config),
            },
            targeting: stores.targeting,
            paths: SyndicPaths::new(&context.config),
            runners,
            bridge: stores.bridge,
            context,
        }
    }

    /// Takes over the options of a reloaded configuration that SIGHUP takes over, and the rules made of
    /// them, from the next request on; makes keys for users that have none yet.
    ///
    /// # Errors
    /// When a user's key cannot be kept; then the old rules stay.
    pub fn follow(&self, config: &MasterConfig) -> Result<(), StoreError> {
        let users = Arc::new(UserKeys::extend(config)?);
        let rules = Arc::new(SiteRules::read(config, users, &self.bridge));
        // Before the new rules: a request under these must not get rights from the old ones.
        self.bridge.retire_log_ins();
        *self.users.rules.write() = rules;
        self.config.follow(config);
        Ok(())
    }
}

impl Context {
    fn new(config: Arc<MasterConfig>, clock: Clock, registry: &Registry) -> Self {
        let unique_suffix = config.unique_jid.then(std::process::id);
        Self {
            site: SiteOptions::read(&config),
            minter: JidMinter::new(clock.clone(), unique_suffix),
            metrics: RequestMetrics::new(registry),
            refusal_log: RefusalLog::new(clock.clone(), registry),
            refusals: RefusalBudget::new(clock.clone(), registry),
            tracer: traces::tracer(&config, &clock, registry),
            config,
            clock,
        }
    }
}

/// The states that the master adds. Modules that cannot run are logged once, here: every minion
/// asks, and often.
fn tops_of(config: &MasterConfig, bridge: &Bridge) -> MasterTops {
    let tops = MasterTops::new(config);
    if let Some((modules, error)) = tops.not_served(bridge) {
        let modules = modules.join(", ");
        tracing::error!(modules, %error, "no minion gets states by master_tops");
    }
    tops
}

/// Counters of requests; labels are closed sets.
pub struct RequestMetrics {
    /// Requests refused, by reason.
    pub refused: IntCounterVec,
    /// Authentications, by result.
    pub authentications: IntCounterVec,
    /// Returns through syndics for minions that their inventories do not have.
    pub unannounced: IntCounter,
    /// Inventories of syndics that announce none any more.
    pub inventories_forgotten: IntCounter,
    /// Grains that were too large to be stored whole.
    pub grains_cut: IntCounter,
}

impl RequestMetrics {
    /// Counts a request, or a part of one, that was refused; `reason` is from a closed set.
    pub(crate) fn refuse(&self, reason: &str) {
        self.refused.with_label_values(&[reason]).inc();
    }

    pub(crate) fn refuse_many(&self, reason: &str, count: u64) {
        if count > 0 {
            self.refused.with_label_values(&[reason]).inc_by(count);
        }
    }

    fn new(registry: &Registry) -> Self {
        Self {
            refused: counter_vec(
                registry,
                "saltern_requests_refused_total",
                "Requests that failed a check, by reason.",
                &["reason"],
            ),
            authentications: counter_vec(
                registry,
                "saltern_authentications_total",
                "Authentication requests, by result.",
                &["result"],
            ),
            unannounced: counter(
                registry,
                "saltern_syndic_unannounced_returns_total",
                "Returns through a syndic for minions that its full inventory does not have; they \
                 are taken.",
            ),
            inventories_forgotten: counter(
                registry,
                "saltern_syndic_inventories_forgotten_total",
                "Inventories that were forgotten because their syndic announces its minions no more.",
            ),
            grains_cut: counter(
                registry,
                "saltern_grains_cut_total",
                "Grains of minions that were too large to be kept whole.",
            ),
        }
    }
}
