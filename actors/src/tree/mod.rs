//! Supervision tree of the master: restart policies, threads, and the order in which all actors
//! start and stop.
//!
//! | child | thread | policy | what its death means |
//! |---|---|---|---|
//! | TraceExporter | traces | permanent | spans wait; the batch at hand is lost |
//! | EventPublisher | bus | permanent | events in its mailbox wait; subscribers stay connected |
//! | EventReturn × n | events-n | permanent | events wait in the queue of its returner |
//! | Publisher | publish | permanent | loads wait; minions stay connected |
//! | JobMirror | mirror | permanent | job-cache files lag behind |
//! | JobCache × n | jobs-n | permanent | its returner lags |
//! | JobImport | mirror | transient | the slice at hand is read in once more |
//! | JobCheckpointer | log | permanent | the next commit asks for it again |
//! | JobStore | jobs | permanent | the batch at hand is refused; its peers send again |
//! | JobTracker | jobs | permanent | open jobs are read from the store again |
//! | Batches | batches | permanent | batches are read from the store again and go on |
//! | Renderer × n | render-n, wheel-n | permanent | the request at hand is answered as not handled |
//! | LoginWorker × n | door-n | permanent | the log-in at hand is answered as not handled |
//! | Runner × n | run-n | permanent | the call at hand is announced as lost |
//! | Reactor | reactor | permanent | unbegun reactions of the event at hand are announced as lost |
//! | PeerCalls | peers | permanent | minions that wait are answered as not handled |
//! | MWorker × n | worker-n | permanent | the request at hand is answered as not handled |
//! | ReqRouter | requests | permanent | its backlog is answered as not handled |
//! | NetApi | api | permanent | its connections stay, and requests at hand go on |
//! | Upkeep | upkeep | permanent | it checks the disk once more |
//! | Remotes | remotes | permanent | a fetch is tried again |
//! | Scheduler | main | permanent | it reads the clock again; no job starts anew |
//! | Maintenance | main | permanent | its timers start anew |
//! | Engine × n | engines | permanent | the engine is started again |
//! | SyndicOutbox × n | outbox-n | permanent | returns wait; those under way are sent again |
//! | SyndicUplink × n | syndic-n | permanent | it signs in again to the master above |
//!
//! All are restarted one for one. More restarts than the budget allows end the process with exit
//! code 70, and systemd starts it anew. The workers, which handle all input from outside, have a
//! supervisor and a larger restart budget of their own.
//!
//! Started from the sink backwards, stopped in reverse. First no new requests and no new events of
//! local programs; then the router hands over its backlog, the workers empty their mailboxes, the
//! tracker its own, the store commits, the mirror saves its cursor, the publish port sends what is
//! queued, and last the bus does so and waits until the last answer has left. Users' functions in
//! Python are ended first of all; the other helpers of the bridge, when no actor needs them any
//! more.
//!
//! `Plan::start` is the order; how each child is made stands in the file of its branch.

mod api;
mod events;
mod front;
mod jobs;
pub(crate) mod listeners;
mod reactor;
pub(crate) mod standby_port;
mod syndic;
mod upkeep;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Recipient};
use parking_lot::Mutex;
use saltern_automation::reactor::{LimitError, Reactions};
use saltern_automation::schedule::{History, Schedule};
use saltern_base::blocking::{self, BlockingError};
use saltern_base::clock::Clock;
use saltern_base::log_throttle::LogThrottle;
use saltern_base::metrics::Registry;
use saltern_bridge::Bridge;
use saltern_config::MasterConfig;
use saltern_http::HttpMetrics;
use saltern_requests::{MasterFleet, Services, Stores};
use saltern_runners::{OldJobs, RunnerContext, Runners};
use saltern_store::jobs::{Engine, JobQueries, wait};
use saltern_store::{StoreError, dropfile};
use saltern_supervise::{Budget, ChildSpec, Failure, Placement, Reserved, Supervisor, Tree};
use saltern_wire::member::{LocalPeer, MemberTls, RelayedConnections};
use saltern_wire::port::{
    Inherited, KnownNetworks, ListenError, PubHandle, PubListener, ReqListener, SubscriberWatch,
    TlsError,
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::jobs::Stored;
use crate::api::net_api::RelayedCalls;
use crate::automation::reactor::{OpenError, ReactionQueue, Reactor};
use crate::events::batch_feed::BatchFeed;
use crate::events::bus::QueueLimits;
use crate::events::event_feed::EventFeed;
use crate::events::event_publisher::EventPublisher;
use crate::events::event_return::EventReturnMetrics;
use crate::events::event_sockets::{EventSockets, SocketError};
use crate::events::presence::Presence;
use crate::events::publisher::{self, Publisher};
use crate::events::registrar::Registrar;
use crate::events::rotation::Rotation;
use crate::front::req_router::ReqRouter;
use crate::functions::peer_calls::PeerCalls;
use crate::jobs::batches::Batches;
use crate::jobs::job_completions::JobCompletions;
use crate::jobs::job_mirror::JobMirror;
use crate::jobs::job_store::{self, JobStore};
use crate::jobs::job_tracker::JobTracker;
use crate::messages::Departed;
use crate::operator::control::{self, Control, LogLevels};
use crate::operator::health::{self, Health};
use crate::operator::key_metrics;
use crate::operator::live_master::{Diagnose, LatestDiagnosis, ReaderLags, RunningMaster};
use crate::operator::process_metrics;
use crate::syndic::view::SyndicView;
use crate::tree::listeners::{Listeners, remove_sockets};
use crate::upkeep::maintenance::Maintenance;
use crate::upkeep::maintenance_tasks::MaintenanceTasks;

/// How long the stop of a master waits for a disk to take what reactor and schedule did.
const HISTORIES_TIME: Duration = Duration::from_secs(5);

/// Minimum time between two log lines about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Parts of a master, opened and checked by the binary.
pub struct MasterParts {
    /// The configuration.
    pub config: Arc<MasterConfig>,
    /// Wall-clock time.
    pub clock: Clock,
    /// Keys and sessions.
    pub stores: Stores,
    /// Renders reactions.
    pub reactions: Arc<Reactions>,
    /// The job database.
    pub database: Engine,
    /// Registry of the metrics.
    pub registry: Registry,
    /// Listening sockets that a service manager holds for the ports of the configuration.
    pub inherited: Inherited,
    /// TLS of the members of a cluster, for its member port.
    pub member_tls: Option<MemberTls>,
    /// The levels of the log, where they can be changed.
    pub log_levels: Option<Arc<dyn LogLevels>>,
    /// Diagnoses the running master.
    pub diagnose: Option<Diagnose>,
}

/// Why a master cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port cannot be bound.
    #[error("cannot listen on {address}")]
    Port {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// TLS cannot be set up as `ssl` or `saltern_metrics_ssl` says.
    #[error("cannot speak TLS (ssl, saltern_metrics_ssl)")]
    Tls(#[from] TlsError),
    /// A listener refuses its options.
    #[error(transparent)]
    Listener(#[from] ListenError),
    /// An event socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A database or a file cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The reactor's limits cannot be used.
    #[error(transparent)]
    Reactor(#[from] LimitError),
    /// The control socket cannot be made.
    #[error("cannot make the control socket")]
    Control(#[source] std::io::Error),
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Limits(error) => Self::Reactor(error),
            OpenError::DeadLetters(error) => Self::Store(error),
        }
    }
}

/// Why a running master does not take a reloaded configuration.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// A key of a user that it names cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No thread took it over, or that is a bug; the log says where.
    #[error("taking it over failed")]
    Blocking(#[from] BlockingError),
}

/// A running master.
pub struct Master {
    tree: Tree,
    config: Arc<MasterConfig>,
    stop: CancellationToken,
    bridge: Arc<Bridge>,
    services: Arc<Services>,
    schedule: Arc<Mutex<Schedule>>,
    scheduled: Arc<History>,
    reactor: Option<Arc<ReactionQueue>>,
    requests: SocketAddr,
    publish: SocketAddr,
    status: Option<SocketAddr>,
    api: Vec<SocketAddr>,
    /// Cancelled when there is nothing left to report.
    unwatched: CancellationToken,
    /// Held for the gatherers of metrics, which do not.
    _health: Arc<Health>,
}

impl Master {
    /// Binds both ports and the event sockets and starts the actors.
    ///
    /// # Errors
    /// Whatever keeps it from starting; then nothing has been started.
    pub fn start(mut parts: MasterParts) -> Result<Self, StartError> {
        let config = parts.config.clone();
        // The ports first: the process that holds them is the master, and may replace the sockets.
        let inherited = std::mem::take(&mut parts.inherited);
        let member_tls = parts.member_tls.take();
        let listeners = Listeners::open(&config, &parts.registry, inherited, member_tls.as_ref())?;
        Self::start_behind(listeners, parts).inspect_err(|_| remove_sockets(&config.sock_dir))
    }

    fn start_behind(listeners: Listeners, mut parts: MasterParts) -> Result<Self, StartError> {
        let config = parts.config.clone();
        let stop = CancellationToken::new();
        let (requests, publish) = listeners.addresses;
        // Everything that can fail comes before the first actor.
        let stored = Stored::open(&mut parts)?;
        let reserved = ReservedAddresses::default();
        let reactions = reserved.reactor.recipient();
        let reactor = ReactionQueue::open(&parts.config, &parts.clock, reactions, &parts.registry)?;
        let known = RunnerContext::new(parts.config.clone(), parts.database.queries.another()?);
        let old_jobs = OldJobs::open(&parts.config, &parts.registry);
        let known = known.with_old_jobs(old_jobs.unwrap_or_else(|error| {
            tracing::error!(%error, "no thread for reading old jobs");
            None
        }));
        let known = match &reactor {
            Some(reactor) => known.with_reactor(reactor.clone()),
            None => known,
        };
        let batches = &reserved.batches;
        let batches = Arc::new(BatchFeed::new(batches.recipient(), batches.recipient()));
        let feed = batches.clone();
        let known = known.with_batches(saltern_runners::Batches::new(
            stored.batches.1.clone(),
            move |jid, command| feed.drive(jid, command),
        ));
        let budget = Budget::new(20, Duration::from_secs(60));
        let tree = Tree::new("master", budget, &parts.registry);
        let maintenance_tasks = MaintenanceTasks::new(
            parts.clock.clone(),
            reserved.maintenance.recipient(),
            &parts.registry,
        );
        let bridge = parts.stores.bridge.clone();
        process_metrics::register(&parts.registry, &parts.clock, config.salt_compat);
        key_metrics::register(&parts.registry, parts.stores.pki.clone());
        let store_metrics = job_store::StoreMetrics::new(&parts.registry);
        let requests_closed = CancellationToken::new();
        let health = Arc::new(Health {
            tree: tree.clone(),
            pki: parts.stores.pki.clone(),
            stop: stop.clone(),
            requests_closed: requests_closed.clone(),
            workers: config.worker_threads,
            store: store_metrics.health(),
        });
        health::register(&parts.registry, &health);
        // Problems in it were reported with the rest of the configuration.
        let (schedule, _) = Schedule::of_site(&parts.config);
        let schedule = Arc::new(Mutex::new(schedule));
        let scheduled = Arc::new(History::open(&parts.config));
        let readers = Arc::<ReaderLags>::default();
        let syndic_view = Arc::<SyndicView>::default();
        let known = known.with_live(Arc::new(RunningMaster {
            tracker: reserved.tracker.recipient(),
            health: Arc::downgrade(&health),
            diagnosis: (parts.diagnose.clone())
                .map(|diagnose| LatestDiagnosis::new(diagnose, parts.clock.clone())),
            schedule: schedule.clone(),
            scheduled: scheduled.clone(),
            readers: readers.clone(),
            syndics: syndic_view.clone(),
            clock: parts.clock.clone(),
        }));
        let event_feed = match config.net_api.servers.is_empty() {
            false => Some(EventFeed::new(
                parts.database.queries.another()?,
                wait(parts.database.log.next_event_position())?,
                bus_limits(&config),
                &parts.registry,
            )?),
            true => None,
        };
        let plan = Plan {
            root: tree.root(),
            config: parts.config.clone(),
            reactions: parts.reactions.clone(),
            clock: parts.clock.clone(),
            registry: parts.registry.clone(),
            maintenance_tasks: maintenance_tasks.clone(),
            schedule: schedule.clone(),
            scheduled: scheduled.clone(),
            readers,
            batches,
            reactor: reactor.clone(),
            ends: Arc::new(JobCompletions::new(reserved.peer_calls.recipient())),
            stop: stop.clone(),
            requests_closed,
            store_metrics,
            http: listeners.http,
            syndic_view: syndic_view.clone(),
            event_feed,
        };
        let registry = parts.registry.clone();
        let log_levels = parts.log_levels.clone();
        let tracker = reserved.tracker.recipient();
        let (services, minions, api) = plan.start(
            reserved,
            (parts, known, stored),
            (listeners.requests, listeners.publish, listeners.events),
            listeners.relayed_calls,
        );
        let control = Control {
            reactor: reactor.clone(),
            tree: tree.clone(),
            registry,
            tracker,
            minions,
            maintenance_tasks,
            syndics: (syndic_view, services.clone()),
            log_levels,
        };
        control::serve(listeners.control, control, stop.clone());
        actix_rt::spawn(request_rotations(
            listeners.rotations,
            config.clone(),
            stop.clone(),
        ));
        let unwatched = CancellationToken::new();
        let status = listeners.status.map(|port| {
            let address = port.address();
            actix_rt::spawn(port.serve(health.clone(), unwatched.clone()));
            address
        });
        Ok(Self {
            tree,
            config,
            stop,
            bridge,
            services,
            schedule,
            scheduled,
            reactor,
            requests,
            publish,
            status,
            api,
            unwatched,
            _health: health,
        })
    }

    /// Address of the request port.
    pub fn request_address(&self) -> SocketAddr {
        self.requests
    }

    /// Address of the publish port.
    pub fn publish_address(&self) -> SocketAddr {
        self.publish
    }

    /// Address of the status port, if there is one.
    pub fn status_address(&self) -> Option<SocketAddr> {
        self.status
    }

    /// Addresses of the HTTP API, a server each.
    pub fn api_addresses(&self) -> &[SocketAddr] {
        &self.api
    }

    /// Makes an actor panic at its next poll, for tests of what happens then; for an actor that
    /// exists once, `instance` is 0. `false`: there is no such actor.
    pub fn inject_panic(&self, name: &str, instance: u32) -> bool {
        self.tree.inject_panic(name, instance)
    }

    /// How often an actor was restarted; `None` if there is no such actor.
    pub fn restarts(&self, name: &str, instance: u32) -> Option<u64> {
        let children = self.tree.liveness();
        let child = children
            .iter()
            .find(|child| child.name == name && child.instance == instance)?;
        Some(child.restarts)
    }

    /// Resolves at the next heartbeat while all actors answer that must never be silent; for a
    /// watchdog.
    pub async fn heartbeat(&self) {
        self.tree.heartbeat().await;
    }

    /// Resolves when a restart budget is exhausted and the master ends.
    pub async fn failed(&self) -> Failure {
        let failure = self.tree.failed().await;
        remove_sockets(&self.config.sock_dir);
        failure
    }

    /// Stops the master: no new requests, then every actor finishes what was begun, each within
    /// its budget. A second call, while the first is in progress, stops all at once.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        // A function in Python may take hours more; a pillar in Python has its time, as any other.
        self.with_bridge(Bridge::stop_runs).await;
        let stopped = self.tree.shutdown().await;
        self.with_bridge(Bridge::stop).await;
        if !stopped.is_clean() {
            let late = stopped.overran.iter().chain(&stopped.stuck);
            let late: BTreeSet<String> = late.map(ToString::to_string).collect();
            let late = late.into_iter().collect::<Vec<_>>().join(", ");
            tracing::warn!(
                actors = late,
                "the master did not stop in time; what was not stored was not acknowledged, but if \
                 job_store is among these actors and its database had been removed or replaced, \
                 what that held may be lost"
            );
        }
        remove_sockets(&self.config.sock_dir);
        // Nothing is decided by them: a disk that hangs does not hold up the stop for long.
        if timeout(HISTORIES_TIME, self.save_histories())
            .await
            .is_err()
        {
            tracing::warn!("the histories of reactor and schedule could not be saved in time");
        }
        self.unwatched.cancel();
    }
}

impl Master {
    /// Takes the rules and the schedule of a reloaded configuration, all or none; the options that
    /// are followed are those of [`saltern_config::Followed`].
    ///
    /// # Errors
    /// When they cannot be taken; then the old ones stay.
    pub async fn follow(&self, config: Arc<MasterConfig>) -> Result<(), FollowError> {
        let services = self.services.clone();
        let read = move || {
            services.follow(&config)?;
            Ok::<_, StoreError>(Schedule::of_site(&config).0)
        };
        let followed = blocking::run(read).await;
        let schedule = followed??;
        self.schedule.lock().become_like(schedule);
        Ok(())
    }

    /// Takes the reactor rules of a reloaded configuration; `false` for a master that was started
    /// without a reactor.
    pub fn follow_reactor(&self, config: &MasterConfig) -> bool {
        if let Some(reactor) = &self.reactor {
            reactor.follow(config);
        }
        self.reactor.is_some()
    }

    /// Writes what the schedule and the reactor did up to the end.
    async fn save_histories(&self) {
        let (scheduled, reactor) = (self.scheduled.clone(), self.reactor.clone());
        let save = move || {
            scheduled.save();
            if let Some(reactor) = &reactor {
                reactor.save_log();
            }
        };
        if let Err(error) = blocking::run_anyway(save).await {
            let error = saltern_base::chain(&error);
            tracing::warn!(error, "the histories of reactor and schedule are not saved");
        }
    }

    /// Calls the bridge on a blocking thread, as it waits for processes; on this one where the system starts none.
    async fn with_bridge(&self, work: fn(&Bridge)) {
        let bridge = self.bridge.clone();
        // Its panic is in the log.
        let _ = blocking::run_anyway(move || work(&bridge)).await;
    }
}

/// Bounds of one subscriber of events.
fn bus_limits(config: &MasterConfig) -> QueueLimits {
    QueueLimits {
        frames: config.saltern_event_queue_length,
        bytes: config.saltern_subscriber_queue_size,
    }
}

/// Addresses of actors that others send to which are started before them.
#[derive(Default)]
struct ReservedAddresses {
    store: Reserved<JobStore>,
    tracker: Reserved<JobTracker>,
    batches: Reserved<Batches>,
    reactor: Reserved<Reactor>,
    peer_calls: Reserved<PeerCalls>,
    router: Reserved<ReqRouter>,
    maintenance: Reserved<Maintenance>,
}

/// Plan of the tree: parts and settings for the start of the children.
struct Plan {
    root: Supervisor,
    config: Arc<MasterConfig>,
    clock: Clock,
    registry: Registry,
    maintenance_tasks: Arc<MaintenanceTasks>,
    schedule: Arc<Mutex<Schedule>>,
    scheduled: Arc<History>,
    readers: Arc<ReaderLags>,
    /// Feed of Batches, for the actors that are started before it.
    batches: Arc<BatchFeed>,
    /// The reactor's queue, if there is one.
    reactor: Option<Arc<ReactionQueue>>,
    reactions: Arc<Reactions>,
    /// Ends of jobs, from the tracker, which is started first, to the calls of minions.
    ends: Arc<JobCompletions>,
    /// Cancelled when nothing new is to be accepted.
    stop: CancellationToken,
    /// Cancelled when the last connection of the request port is gone.
    requests_closed: CancellationToken,
    store_metrics: job_store::StoreMetrics,
    http: HttpMetrics,
    /// Standing of the syndic, for the control socket.
    syndic_view: Arc<SyndicView>,
    /// Events for the streams of the API, if it is on.
    event_feed: Option<Arc<EventFeed>>,
}

/// All actors behind the workers.
struct CoreActors {
    services: Arc<Services>,
    bus: Addr<EventPublisher>,
    publisher: Addr<Publisher>,
    mirror: Option<Addr<JobMirror>>,
    store: Addr<JobStore>,
    tracker: Addr<JobTracker>,
    batches: Addr<Batches>,
}

/// Shared state about connected minions: presence, subscribers, networks, rotation.
struct Connections {
    presence: Arc<Presence>,
    subscribers: PubHandle,
    known_networks: KnownNetworks,
    rotation: Rotation,
}

/// Joins presence with both ports; the watch of the subscribers lasts as long as the Publisher.
fn connections(
    services: &Arc<Services>,
    presence: Arc<Presence>,
    publish: &PubListener,
    requests: &ReqListener,
) -> (Connections, Arc<dyn SubscriberWatch>) {
    let subscribers = publish.handle();
    let known_networks = requests.known_networks();
    let watch: Arc<dyn SubscriberWatch> = Arc::new(Registrar {
        presence: presence.clone(),
        services: services.clone(),
    });
    subscribers.set_watch(Arc::downgrade(&watch));
    match services.keys.pki.accepted() {
        Ok(accepted) => known_networks.restore(presence.begin(&accepted)),
        Err(error) => tracing::error!(%error, "the accepted minions cannot be listed"),
    }
    let rotation = Rotation::default();
    // The shared key survived the last stop; one that was revoked meanwhile must not be used.
    // There is no subscriber yet to notify.
    rotation.look(services);
    rotation.take_news();
    let connections = Connections {
        presence,
        subscribers,
        known_networks,
        rotation,
    };
    (connections, watch)
}

/// Asks for a new shared key as often as other members of a cluster do: a dropfile is there for stock's
/// `salt-key` on those machines, too.
async fn request_rotations(
    asking: RelayedConnections,
    config: Arc<MasterConfig>,
    stop: CancellationToken,
) {
    let failures = LogThrottle::new(LOG_INTERVAL);
    let taking = asking.each(|mut member| match dropfile::request(&config) {
        Ok(()) => {
            actix_rt::spawn(async move {
                // A member that is not reached asks again, and there is one key more.
                let _ = member.confirm().await;
            });
        }
        Err(error) => {
            // The member asks again and again.
            if let Some(times) = failures.record() {
                let error = saltern_base::chain(&error);
                tracing::error!(
                    error,
                    times,
                    "a new shared key, for which a member asks, cannot be asked for"
                );
            }
        }
    });
    stop.run_until_cancelled(taking).await;
}

impl Plan {
    /// A permanent child on a thread of this name, which must never block: the watchdog would end
    /// the process.
    fn on_thread(&self, name: &str) -> ChildSpec {
        ChildSpec::permanent()
            .on(Placement::thread(name))
            .with_shutdown(self.config.saltern_stop_timeout)
    }

    /// A permanent child on a thread of this name, which it may block as long as it must.
    fn on_patient_thread(&self, name: &str) -> ChildSpec {
        self.on_thread(name).may_block()
    }

    /// Starts the children, sink first: a row for each of the table above.
    fn start(
        &self,
        reserved: ReservedAddresses,
        (parts, known, stored): (MasterParts, RunnerContext, Stored),
        (requests, publish, events): (ReqListener, PubListener, EventSockets),
        relayed_calls: RelayedCalls,
    ) -> (Arc<Services>, Arc<MasterFleet>, Vec<SocketAddr>) {
        let presence = Presence::new(&self.config, self.clock.clone(), &self.registry);
        let (services, fleet) = self.services(parts.stores, known, stored.requests, &presence);
        let (connections, watch) = connections(&services, presence, &publish, &requests);
        let tracker = &reserved.tracker;

        self.start_trace_exporter(&services);
        let (bus, heard) = self.start_bus(&services, events, tracker.recipient());
        let event_returns = EventReturnMetrics::new(&self.registry);
        self.start_event_returns(&services, (&bus, &heard), &event_returns);
        let publisher = self.start_publisher(
            &services,
            (&connections, watch),
            publish,
            tracker.recipient(),
        );
        let mut jobs = stored.jobs;
        let uplinks = stored.syndic.map(|syndic| {
            let (uplinks, outboxes) = self.start_outboxes(syndic, &services, &bus);
            jobs.outboxes = outboxes;
            uplinks
        });
        let (mirror, store, tracker) = self.start_store(
            (reserved.store, reserved.tracker),
            (parts.database, jobs),
            &services,
            (&bus, &publisher),
        );
        self.start_event_table((&bus, &heard), &store, event_returns);
        let ends = (&bus, &store, &tracker);
        let batches = self.start_batches(reserved.batches, stored.batches, &services, ends);
        let core = CoreActors {
            services: services.clone(),
            bus: bus.clone(),
            publisher,
            mirror,
            store,
            tracker,
            batches,
        };
        let upkeep = self.start_upkeep(&core, stored.upkeep);
        let remotes = self.start_remotes(&core);
        let asked = (
            reserved.router.recipient(),
            core.tracker.clone().recipient(),
            bus.clone().recipient(),
        );
        let front = (reserved.router, reserved.peer_calls, reserved.reactor);
        let router = asked.0.clone();
        let runs = self.start_front(front, requests, &core);
        if let Some(uplinks) = uplinks {
            self.start_uplinks(uplinks, &services, &heard, &router);
        }
        let api = self.start_net_api(&services, &heard, asked, relayed_calls);
        self.start_scheduler(&core, runs);
        self.start_maintenance(reserved.maintenance, core, (upkeep, remotes), connections);
        self.start_engines(services.clone(), &bus, &heard);
        (services, fleet, api)
    }

    /// Makes the services of the workers, and the fleet.
    fn services(
        &self,
        stores: Stores,
        known: RunnerContext,
        reader: Arc<dyn JobQueries>,
        presence: &Arc<Presence>,
    ) -> (Arc<Services>, Arc<MasterFleet>) {
        let fleet = Arc::new(MasterFleet::new(&stores, presence.clone()));
        let known = known
            .with_fleet(fleet.clone())
            .with_master(stores.for_functions())
            .with_bridge(stores.bridge.clone());
        let services = Services::new(
            self.config.clone(),
            self.clock.clone(),
            stores,
            (Runners::new(known), reader),
            presence.clone(),
            &self.registry,
        );
        (Arc::new(services), fleet)
    }

    fn start_publisher(
        &self,
        services: &Arc<Services>,
        (connections, watch): (&Connections, Arc<dyn SubscriberWatch>),
        publish: PubListener,
        tracker: Recipient<Departed>,
    ) -> Addr<Publisher> {
        let seed = publisher::Seed {
            services: services.clone(),
            rotation: connections.rotation.clone(),
            presence: connections.presence.clone(),
            subscribers: connections.subscribers.clone(),
            _watch: watch,
            metrics: publisher::PublisherMetrics::new(&self.registry),
            listener: Arc::new(Mutex::new(Some(publish))),
            stop: CancellationToken::new(),
            closed: CancellationToken::new(),
            feeds_syndics: self.config.order_masters(),
            tracker,
        };
        self.root.start_child(self.on_thread("publish"), seed, 0)
    }
}
