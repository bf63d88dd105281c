//! The supervision tree of the master: who is restarted when, on which thread, and the order in
//! which everything starts and stops.
//!
//! | child | thread | policy | what its death means |
//! |---|---|---|---|
//! | EventPublisher | bus | permanent | events in its mailbox wait; subscribers notice nothing |
//! | EventReturn × n | events-n | permanent | events wait in the queue of its returner |
//! | Publisher | publish | permanent | loads wait; minions stay connected |
//! | JobMirror | mirror | permanent | job-cache files lag |
//! | JobCache × n | jobs-n | permanent | its returner lags |
//! | LogFolder | log | permanent | the next commit asks for it again |
//! | JobStore | jobs | permanent | the batch at hand is refused; its peers send again |
//! | JobTracker | jobs | permanent | open jobs are read from the store again |
//! | Batches | batches | permanent | batches are read from the store again and go on |
//! | Renderer × n | render-n, wheel-n | permanent | the request at hand is answered as not handled |
//! | Doorkeeper × n | door-n | permanent | the log-in at hand is answered as not handled |
//! | Runner × n | run-n | permanent | the call at hand is told to be lost |
//! | Reactor | reactor | permanent | what of the event at hand has not begun is told to be lost |
//! | PeerDesk | peers | permanent | minions that wait are answered as not handled |
//! | MWorker × n | worker-n | permanent | the request at hand is answered as not handled |
//! | ReqRouter | requests | permanent | its backlog is answered as not handled |
//! | Upkeep | upkeep | permanent | it looks over the disk once more |
//! | Remotes | remotes | permanent | a fetch is tried again |
//! | Scheduler | main | permanent | it looks at the clock again; no job starts anew |
//! | Maintenance | main | permanent | its timers start anew |
//! | Engine × n | engines | permanent | the engine is started again |
//!
//! All are restarted one for one. More restarts than the budget allows end the process with exit
//! code 70, and systemd starts it anew. The workers, who meet everything that comes from outside,
//! have a supervisor and a larger budget of their own.
//!
//! Started from the sink backwards, stopped in reverse. First no new requests and no new events of
//! local programs; then the router hands over what waits, the workers empty their mailboxes, the
//! tracker its own, the store commits, the mirror notes its place, the publish port writes out
//! what is queued, and last the bus does so and waits until the last answer has left. What users
//! run in Python is ended first of all; the other helpers of the bridge, when nobody asks any more.

mod reactor;

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Recipient};
use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_base::metrics::Registry;
use saltern_bridge::Bridge;
use saltern_config::{LocalCacheMirror, MasterConfig, OWN_EVENTS, PythonBridge};
use saltern_requests::reactor::LimitError;
use saltern_requests::{MasterFleet, Schedule, Services, Stores};
use saltern_runners::{Knowledge, Runners};
use saltern_store::jobs::{JobDatabase, JobReader};
use saltern_store::{BatchFiles, Checkpointer, JobFiles, JobFollower, Mirror, StoreError};
use saltern_supervise::{Budget, ChildSpec, Failure, Placement, Strategy, Supervisor, Tree};
use saltern_wire::http::HttpMetrics;
use saltern_wire::port::{
    Inherited, ListenError, PubListener, ReqListener, SubscriberWatch, TlsError,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::batches::{self, BatchFeed, BatchMetrics, Batches};
use crate::bus::{Bus, QueueLimits};
use crate::carry_out::Sinks;
use crate::control::{self, Accounts, Control};
use crate::doorkeeper::{self, Doorkeeper};
use crate::doors::{Doors, is_set};
use crate::duties::Duties;
use crate::engine::{self, Engine, EngineMetrics};
use crate::event_publisher::{self, EventPublisher};
use crate::event_return::{self, EventReturn, EventReturnMetrics, EventTable, PythonReturner};
use crate::event_sockets::{EventSockets, Greeter, SocketError};
use crate::health::{self, Health};
use crate::job_cache::{self, JobCache, JobCacheMetrics, Purpose};
use crate::job_ends::JobEnds;
use crate::job_mirror::{self, JobMirror};
use crate::job_store::{self, JobStore};
use crate::job_tracker::{self, JobTracker};
use crate::key_metrics;
use crate::log_folder::{self, LogFolder};
use crate::logins::Logins;
use crate::maintenance::{self, Maintenance};
use crate::messages::Departed;
use crate::mworker::{self, MWorker};
use crate::other_names::OtherNames;
use crate::peer_desk::{self, DeskMetrics, PeerDesk};
use crate::presence::Presence;
use crate::process_metrics;
use crate::publisher::{self, Publisher};
use crate::reactor::Desk;
use crate::registrar::Registrar;
use crate::remotes::{self, Remotes, RemotesMetrics};
use crate::render_queue::RenderQueue;
use crate::renderer::{self, Renderer};
use crate::req_router::{self, ReqRouter};
use crate::rotation::Rotation;
use crate::runner::{self, RunMetrics, RunQueue, Runner};
use crate::scheduler::{self, ScheduleMetrics, Scheduler};
use crate::upkeep::{self, Upkeep, UpkeepMetrics};
use crate::window::Windows;

/// What a master is made of, opened and checked by the binary.
pub struct MasterParts {
    /// The configuration.
    pub config: Arc<MasterConfig>,
    /// Wall-clock time.
    pub clock: Clock,
    /// Keys and sessions.
    pub stores: Stores,
    /// The job database.
    pub database: JobDatabase,
    /// Where metrics are registered.
    pub registry: Registry,
    /// Listening sockets that a service manager holds for the ports of the configuration.
    pub inherited: Inherited,
}

/// Why a master does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port cannot be bound.
    #[error("cannot listen on {address}")]
    Port {
        /// Which one.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// TLS cannot be spoken as `ssl` or `saltern_metrics_ssl` asks for it.
    #[error("cannot speak TLS (ssl, saltern_metrics_ssl)")]
    Tls(#[from] TlsError),
    /// A listener refuses its options.
    #[error(transparent)]
    Listener(#[from] ListenError),
    /// An event socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Something that lasts cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The reactor's limits cannot be used.
    #[error(transparent)]
    Reactor(#[from] LimitError),
    /// The control socket cannot be made.
    #[error("cannot make the control socket")]
    Control(#[source] std::io::Error),
}

/// Why a running master does not follow another reading of the configuration.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// A key of a user that it names cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A mistake of this program; the log says where.
    #[error("taking it over failed")]
    Panicked,
}

/// A running master.
pub struct Master {
    tree: Tree,
    config: Arc<MasterConfig>,
    stop: CancellationToken,
    bridge: Arc<Bridge>,
    services: Arc<Services>,
    schedule: Arc<Mutex<Schedule>>,
    reactor: Option<Arc<Desk>>,
    requests: SocketAddr,
    publish: SocketAddr,
    status: Option<SocketAddr>,
    /// Cancelled when there is nothing left to be told of.
    unwatched: CancellationToken,
    /// For whoever gathers the metrics, which do not hold it.
    _health: Arc<Health>,
}

impl Master {
    /// Binds both ports and the event sockets and starts the actors.
    ///
    /// # Errors
    /// Whatever keeps it from starting; then nothing has been started.
    pub fn start(mut parts: MasterParts) -> Result<Self, StartError> {
        let config = parts.config.clone();
        // The ports first: who holds them is the master, and may replace the sockets.
        let inherited = std::mem::take(&mut parts.inherited);
        let doors = Doors::open(&config, &parts.registry, inherited)?;
        Self::start_behind(doors, parts).inspect_err(|_| EventSockets::remove(&config.sock_dir))
    }

    fn start_behind(doors: Doors, parts: MasterParts) -> Result<Self, StartError> {
        let config = parts.config.clone();
        let stop = CancellationToken::new();
        let (requests, publish) = doors.addresses;
        // Everything that can fail comes before the first actor.
        let stored = Stored::open(&parts)?;
        let reactor = Desk::open(&parts.config, &parts.clock, &parts.registry)?;
        let known = Knowledge::new(parts.config.clone(), parts.database.reader()?);
        let known = match &reactor {
            Some(reactor) => known.with_reactor(reactor.clone()),
            None => known,
        };
        let batches = Arc::<BatchFeed>::default();
        let feed = batches.clone();
        let known = known.with_batches(saltern_runners::Batches::new(
            stored.batches.1.clone(),
            move |jid, kill| feed.stop(jid, kill),
        ));
        let budget = Budget::new(20, Duration::from_secs(60));
        let tree = Tree::new("master", Strategy::OneForOne, budget, &parts.registry);
        let duties = Duties::new(parts.clock.clone(), &parts.registry);
        let accounts = Accounts::default();
        let control = Control {
            reactor: reactor.clone(),
            tree: tree.clone(),
            registry: parts.registry.clone(),
            accounts: accounts.clone(),
            duties: duties.clone(),
        };
        control::serve(doors.control, control, stop.clone());
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
        // What is wrong with it was told with the rest of the configuration.
        let (schedule, _) = Schedule::of_site(&parts.config);
        let schedule = Arc::new(Mutex::new(schedule));
        let plan = Plan {
            root: tree.root(),
            config: parts.config.clone(),
            clock: parts.clock.clone(),
            registry: parts.registry.clone(),
            duties,
            schedule: schedule.clone(),
            batches,
            reactor: reactor.clone(),
            ends: Arc::default(),
            accounts,
            stop: stop.clone(),
            requests_closed,
            store_metrics,
            http: doors.http,
        };
        let services = plan.start(
            parts,
            known,
            stored,
            (doors.requests, doors.publish, doors.events),
        );
        let unwatched = CancellationToken::new();
        let status = doors.status.map(|port| {
            let address = port.address();
            port.serve(health.clone(), unwatched.clone());
            address
        });
        Ok(Self {
            tree,
            config,
            stop,
            bridge,
            services,
            schedule,
            reactor,
            requests,
            publish,
            status,
            unwatched,
            _health: health,
        })
    }

    /// Where the request port listens.
    pub fn request_address(&self) -> SocketAddr {
        self.requests
    }

    /// Where the publish port listens.
    pub fn publish_address(&self) -> SocketAddr {
        self.publish
    }

    /// Where metrics and health are served, if they are.
    pub fn status_address(&self) -> Option<SocketAddr> {
        self.status
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

    /// Resolves at the next heartbeat while all actors answer that must never be silent; feed a
    /// watchdog by it.
    pub async fn heartbeat(&self) {
        self.tree.heartbeat().await;
    }

    /// Resolves when the master has given up.
    pub async fn failed(&self) -> Failure {
        let failure = self.tree.failed().await;
        EventSockets::remove(&self.config.sock_dir);
        failure
    }

    /// Stops the master: no new requests, then everybody finishes what was begun, each within its
    /// budget. A second call, while the first is under way, stops everybody at once.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        // A run in Python may take hours more; a pillar in Python has its time, as any other.
        self.with_bridge(Bridge::stop_runs).await;
        let stopped = self.tree.shutdown().await;
        self.with_bridge(Bridge::stop).await;
        if !stopped.is_clean() {
            tracing::warn!(
                "the master did not stop in time; what was not stored was not acknowledged"
            );
        }
        EventSockets::remove(&self.config.sock_dir);
        self.unwatched.cancel();
    }
}

impl Master {
    /// Takes the rules and the schedule of another reading of the configuration, all or none; the
    /// options that are followed are those of [`saltern_config::reload_of`].
    ///
    /// # Errors
    /// When they cannot be taken; then the old ones stay.
    pub async fn follow(&self, config: Arc<MasterConfig>) -> Result<(), FollowError> {
        let services = self.services.clone();
        let read = move || {
            services.follow(&config)?;
            Ok::<_, StoreError>(Schedule::of_site(&config).0)
        };
        let followed = tokio::task::spawn_blocking(read).await;
        let schedule = followed.map_err(|_| FollowError::Panicked)??;
        self.schedule.lock().become_like(schedule);
        Ok(())
    }

    /// Takes the rules of the reactor of another reading of the configuration; `false` for a master
    /// that was started without a reactor.
    pub fn follow_reactor(&self, config: &MasterConfig) -> bool {
        if let Some(reactor) = &self.reactor {
            reactor.follow(config);
        }
        self.reactor.is_some()
    }

    /// Does something to the bridge that waits for processes, on a thread that may wait.
    async fn with_bridge(&self, work: fn(&Bridge)) {
        let bridge = self.bridge.clone();
        // Only a panic in it fails it, which is in the log.
        let _ = tokio::task::spawn_blocking(move || work(&bridge)).await;
    }
}

/// The ends of the stores that the actors hold.
struct Stored {
    jobs: StoredJobs,
    requests: JobReader,
    upkeep: JobReader,
    batches: (JobReader, BatchFiles),
}

struct StoredJobs {
    reader: JobReader,
    checkpointer: Checkpointer,
    job_files: Option<Arc<JobFiles>>,
    mirror: Option<Mirror>,
    followers: Vec<(Purpose, String, JobFollower)>,
}

impl Stored {
    fn open(parts: &MasterParts) -> Result<Self, StoreError> {
        let config = &parts.config;
        let (job_files, mirror) = match config.local_cache_mirror {
            LocalCacheMirror::Off => (None, None),
            LocalCacheMirror::Full | LocalCacheMirror::Loads => (
                Some(Arc::new(JobFiles::open(config)?)),
                Some(Mirror::open(config, parts.database.reader()?)?),
            ),
        };
        Ok(Self {
            jobs: StoredJobs {
                reader: parts.database.reader()?,
                checkpointer: parts.database.checkpointer()?,
                job_files,
                mirror,
                followers: followers(parts)?,
            },
            requests: parts.database.reader()?,
            upkeep: parts.database.reader()?,
            batches: (parts.database.reader()?, BatchFiles::open(config)?),
        })
    }
}

/// What follows the database for returners, by their options and names.
fn followers(parts: &MasterParts) -> Result<Vec<(Purpose, String, JobFollower)>, StoreError> {
    let options = &parts.config.returners;
    let wanted = [
        (Purpose::Master, &options.job_cache),
        (Purpose::External, &options.ext_job_cache),
    ];
    let wanted = wanted
        .into_iter()
        .filter_map(|(purpose, name)| Some((purpose, name.as_ref()?)));
    let followers = wanted.map(|(purpose, name)| {
        let owner = (purpose.option(), name.as_str());
        let follower = JobFollower::open(&parts.config, owner, parts.database.reader()?)?;
        Ok((purpose, name.clone(), follower))
    });
    followers.collect()
}

/// Where the publisher finds the tracker, which is built after it.
type Departures = Arc<Mutex<Option<Recipient<Departed>>>>;

/// What starting each of the children needs.
struct Plan {
    root: Supervisor,
    config: Arc<MasterConfig>,
    clock: Clock,
    registry: Registry,
    duties: Arc<Duties>,
    schedule: Arc<Mutex<Schedule>>,
    /// What Batches hears of those who are started before it.
    batches: Arc<BatchFeed>,
    /// What the reactor is asked, if there is one.
    reactor: Option<Arc<Desk>>,
    /// What the desk of the minions hears of the tracker, who is started before it.
    ends: Arc<JobEnds>,
    /// Whom the control socket asks of jobs.
    accounts: Accounts,
    /// Cancelled when nothing new is to be taken.
    stop: CancellationToken,
    /// Cancelled when the last connection of the request port is gone.
    requests_closed: CancellationToken,
    store_metrics: job_store::StoreMetrics,
    http: HttpMetrics,
}

/// Everything behind the workers.
struct Back {
    services: Arc<Services>,
    bus: Addr<EventPublisher>,
    publisher: Addr<Publisher>,
    mirror: Option<Addr<JobMirror>>,
    store: Addr<JobStore>,
    tracker: Addr<JobTracker>,
    batches: Addr<Batches>,
}

impl Plan {
    /// A permanent child on a thread of this name, which must never be stuck: the watchdog would
    /// end the process.
    fn on_thread(&self, name: &str) -> ChildSpec {
        ChildSpec::permanent()
            .on(Placement::thread(name))
            .with_shutdown(self.config.saltern_stop_timeout)
    }

    /// A permanent child on a thread of this name, which it may block for as long as it must.
    fn on_patient_thread(&self, name: &str) -> ChildSpec {
        self.on_thread(name).may_block()
    }

    /// Starts the children, sink first.
    fn start(
        &self,
        parts: MasterParts,
        known: Knowledge,
        stored: Stored,
        (requests, publish, events): (ReqListener, PubListener, EventSockets),
    ) -> Arc<Services> {
        let subscribers = publish.handle();
        let presence = Presence::new(&parts.config, parts.clock.clone(), &parts.registry);
        let fleet = MasterFleet::new(&parts.stores, presence.clone());
        let known = known.with_fleet(Arc::new(fleet));
        let known = known
            .with_master(parts.stores.for_functions())
            .with_bridge(parts.stores.bridge.clone());
        let runners = Runners::new(known);
        let services = Arc::new(Services::new(
            parts.config,
            parts.clock,
            parts.stores,
            (runners, stored.requests),
            presence.clone(),
            &parts.registry,
        ));
        let watch: Arc<dyn SubscriberWatch> = Arc::new(Registrar {
            presence: presence.clone(),
            services: services.clone(),
        });
        subscribers.set_watch(Arc::downgrade(&watch));
        match services.pki.accepted() {
            Ok(accepted) => presence.begin(&accepted),
            Err(error) => tracing::error!(%error, "the accepted minions cannot be listed"),
        }
        let rotation = Rotation::default();
        // The shared key survived the last stop; one that was revoked meanwhile must not be used.
        // Nobody is there yet to be told of it.
        rotation.look(&services);
        rotation.take_news();
        let greeter = Greeter::default();
        let departures = Departures::default();
        let (bus, heard) = self.start_bus(&services, events, &greeter);
        let event_returns = EventReturnMetrics::new(&self.registry);
        self.start_event_returns(&services, (&bus, &heard), &event_returns);
        let publisher = self.start_publisher(
            &services,
            (&rotation, &presence, watch),
            publish,
            &departures,
        );
        let (batch_reader, batch_files) = stored.batches;
        let ends = (&bus, &publisher);
        let (mirror, store, tracker) =
            self.start_store(parts.database, stored.jobs, &services, ends);
        self.start_event_table((&bus, &heard), &store, event_returns);
        // Nobody else sets it.
        let _ = greeter.set(tracker.clone().recipient());
        let _ = self.accounts.set(tracker.clone().recipient());
        *departures.lock() = Some(tracker.clone().recipient());
        let batches = self.start_batches(batches::Seed {
            services: services.clone(),
            begin_job: tracker.clone().recipient(),
            tracker: tracker.clone().recipient(),
            store: store.clone().recipient(),
            bus: bus.clone().recipient(),
            reader: Arc::new(batch_reader),
            files: batch_files,
            gathered: Instant::now() + self.config.saltern_batch_resume_delay,
            shows_states: self.config.local_cache_mirror != LocalCacheMirror::Off,
            feed: self.batches.clone(),
            metrics: BatchMetrics::new(&self.registry),
        });
        let back = Back {
            services,
            bus,
            publisher,
            mirror,
            store,
            tracker,
            batches,
        };
        let upkeep: Addr<Upkeep> = self.root.start_child(
            self.on_patient_thread("upkeep"),
            upkeep::Seed {
                services: back.services.clone(),
                duties: self.duties.clone(),
                bus: back.bus.clone().recipient(),
                jobs: Arc::new(stored.upkeep),
                metrics: UpkeepMetrics::new(&self.registry),
            },
            0,
        );
        let remotes: Addr<Remotes> = self.root.start_child(
            self.on_patient_thread("remotes"),
            remotes::Seed {
                services: back.services.clone(),
                duties: self.duties.clone(),
                bus: back.bus.clone().recipient(),
                metrics: RemotesMetrics::new(&self.registry),
            },
            0,
        );
        let runs = self.start_front(requests, &back);
        self.start_scheduler(&back, runs);
        let (engine_bus, engine_services) = (back.bus.clone(), back.services.clone());
        let _: Addr<Maintenance> = self.root.start_child(
            ChildSpec::permanent(),
            maintenance::Seed {
                duties: self.duties.clone(),
                services: back.services.clone(),
                bus: back.bus.recipient(),
                begin_job: back.tracker.clone().recipient(),
                questions: back.publisher.recipient(),
                subscribers,
                feeds_syndics: is_set(&self.config, "order_masters"),
                tracker: back.tracker.recipient(),
                store: back.store.recipient(),
                mirror: back.mirror.map(Addr::recipient),
                upkeep: upkeep.recipient(),
                remotes: remotes.recipient(),
                presence,
                rotation,
            },
            0,
        );
        self.start_engines(engine_services, &engine_bus, &heard);
        back.services
    }

    /// The engines of the site, last of all: they are clients of everything else.
    fn start_engines(&self, services: Arc<Services>, bus: &Addr<EventPublisher>, heard: &Arc<Bus>) {
        if self.config.engines.is_empty() {
            return;
        }
        let budget = Budget::new(100, Duration::from_secs(60));
        let pool = self.root.supervisor("engines", Strategy::OneForOne, budget);
        let metrics = EngineMetrics::new(&self.registry);
        let http = self.http.of("webhook");
        for (instance, engine) in (1_u32..).zip(&self.config.engines) {
            let seed = engine::Seed {
                engine: Arc::new(engine.clone()),
                services: services.clone(),
                bus: bus.clone().recipient(),
                heard: heard.clone(),
                metrics: metrics.clone(),
                http: http.clone(),
                stop: self.stop.child_token(),
            };
            // It starts programs, and waits for those that it ends.
            let spec = self.on_patient_thread(&format!("engine-{instance}"));
            let spec = spec.with_budget(budget);
            let _: Addr<Engine> = pool.start_child(spec, seed, instance);
        }
    }

    fn start_bus(
        &self,
        services: &Services,
        events: EventSockets,
        greeter: &Greeter,
    ) -> (Addr<EventPublisher>, Arc<Bus>) {
        let config = &self.config;
        let queue = QueueLimits {
            frames: config.saltern_event_queue_length,
            bytes: config.saltern_subscriber_queue_size,
        };
        let clock = services.clock.clone();
        let bus = Bus::new(config.salt_compat, queue, clock, &self.registry);
        if let Some(reactor) = &self.reactor {
            bus.tap(reactor.clone());
        }
        if let Some(names) = OtherNames::new(config.metrics_compat, &self.registry) {
            bus.tap(Arc::new(names));
        }
        let seed = event_publisher::Seed {
            bus: bus.clone(),
            sockets: Arc::new(Mutex::new(Some(events))),
            greeter: greeter.clone(),
            door: Arc::default(),
            batches: self.batches.clone(),
            stop_taking: self.stop.clone(),
            stop: CancellationToken::new(),
            requests_closed: self.requests_closed.clone(),
        };
        let publisher = self.root.start_child(self.on_thread("bus"), seed, 0);
        (publisher, bus)
    }

    /// Those who hand events to returners in Python. They hear what everybody else has to tell, to
    /// the end.
    fn start_event_returns(
        &self,
        services: &Services,
        (publisher, bus): (&Addr<EventPublisher>, &Arc<Bus>),
        metrics: &EventReturnMetrics,
    ) {
        let (config, bridge) = (&self.config, &services.bridge);
        for (instance, name) in (1..).zip(config.returners.events_in_python()) {
            let returner = PythonReturner::new(name, bridge);
            if let Some(error) = returner.refusal() {
                tracing::error!(%error, "event_return: events cannot be returned");
                if config.python_bridge.python == PythonBridge::Off {
                    continue;
                }
            }
            let bus = (bus, publisher.clone().recipient());
            let (sink, metrics) = (Box::new(returner), metrics.clone());
            let seed = event_return::Seed::new(name, sink, config, bus, metrics);
            let spec = self.on_thread(&format!("events-{instance}"));
            let _: Addr<EventReturn> = self.root.start_child(spec, seed, instance);
        }
    }

    /// Who keeps events in the job database. Ends before the database does.
    fn start_event_table(
        &self,
        (publisher, bus): (&Addr<EventPublisher>, &Arc<Bus>),
        store: &Addr<JobStore>,
        metrics: EventReturnMetrics,
    ) {
        let config = &self.config;
        if config
            .returners
            .events
            .iter()
            .any(|name| name == OWN_EVENTS)
        {
            let table = EventTable::new(store.clone().recipient(), self.clock.clone());
            let bus = (bus, publisher.clone().recipient());
            let seed = event_return::Seed::new(OWN_EVENTS, Box::new(table), config, bus, metrics);
            let _: Addr<EventReturn> = self.root.start_child(self.on_thread("events-0"), seed, 0);
        }
    }

    fn start_publisher(
        &self,
        services: &Arc<Services>,
        (rotation, presence, watch): (&Rotation, &Arc<Presence>, Arc<dyn SubscriberWatch>),
        publish: PubListener,
        departures: &Departures,
    ) -> Addr<Publisher> {
        let seed = publisher::Seed {
            services: services.clone(),
            rotation: rotation.clone(),
            presence: presence.clone(),
            subscribers: publish.handle(),
            _watch: watch,
            metrics: publisher::PublisherMetrics::new(&self.registry),
            listener: Arc::new(Mutex::new(Some(publish))),
            stop: CancellationToken::new(),
            closed: CancellationToken::new(),
            feeds_syndics: is_set(&self.config, "order_masters"),
            tracker: departures.clone(),
        };
        self.root.start_child(self.on_thread("publish"), seed, 0)
    }

    fn start_store(
        &self,
        database: JobDatabase,
        stored: StoredJobs,
        services: &Arc<Services>,
        (bus, publisher): (&Addr<EventPublisher>, &Addr<Publisher>),
    ) -> (Option<Addr<JobMirror>>, Addr<JobStore>, Addr<JobTracker>) {
        let mirror = stored.mirror.map(|mirror| {
            let seed = job_mirror::Seed {
                mirror: Arc::new(Mutex::new(mirror)),
                keep: self.config.keep_jobs,
                clock: self.clock.clone(),
                duties: self.duties.clone(),
                store_writes: self.store_metrics.writes.clone(),
                metrics: job_mirror::MirrorMetrics::new(&self.registry),
            };
            self.root
                .start_child(self.on_patient_thread("mirror"), seed, 0)
        });
        let caches = self.start_job_caches(stored.followers, services);
        let mut followers: Vec<_> = mirror.iter().cloned().map(Addr::recipient).collect();
        followers.extend(caches.iter().map(|(_, cache)| cache.clone().recipient()));
        let asked = caches
            .into_iter()
            .find(|(purpose, _)| *purpose == Purpose::Master);
        let store_slot = Arc::new(Mutex::new(None));
        let seed = log_folder::Seed {
            checkpointer: Arc::new(stored.checkpointer),
            store: store_slot.clone(),
            metrics: log_folder::FolderMetrics::new(&self.registry),
        };
        let folder: Addr<LogFolder> = self
            .root
            .start_child(self.on_patient_thread("log"), seed, 0);
        let tracker_slot = Arc::new(Mutex::new(None));
        let seed = job_store::Seed {
            database: Arc::new(Mutex::new(database)),
            job_files: stored.job_files,
            bus: bus.clone().recipient(),
            publisher: publisher.clone().recipient(),
            followers,
            job_cache: asked.map(|(_, cache)| cache.recipient()),
            cleaner: mirror.clone().map(Addr::recipient),
            folder: folder.recipient(),
            tracker: tracker_slot.clone(),
            room_of: JobDatabase::room,
            disk_low: self.config.saltern_disk_low as u64,
            compat: self.config.salt_compat,
            clock: self.clock.clone(),
            duties: self.duties.clone(),
            metrics: self.store_metrics.clone(),
        };
        let store: Addr<JobStore> = self.root.start_child(self.on_thread("jobs"), seed, 0);
        *store_slot.lock() = Some(store.clone().recipient());
        let seed = job_tracker::Seed {
            store: store.clone().recipient(),
            bus: bus.clone().recipient(),
            publisher: publisher.clone().recipient(),
            reader: Arc::new(stored.reader),
            batches: self.batches.clone(),
            ends: self.ends.clone(),
            outside: services.clone(),
            metrics: job_tracker::TrackerMetrics::new(&self.registry),
        };
        let tracker: Addr<JobTracker> = self.root.start_child(self.on_thread("jobs"), seed, 0);
        *tracker_slot.lock() = Some(tracker.clone().recipient());
        (mirror, store, tracker)
    }

    /// Those who give jobs to returners, as far as there is a Python for them.
    fn start_job_caches(
        &self,
        followers: Vec<(Purpose, String, JobFollower)>,
        services: &Services,
    ) -> Vec<(Purpose, Addr<JobCache>)> {
        let metrics = JobCacheMetrics::new(&self.registry);
        let caches = (1..).zip(followers).filter_map(|(instance, follower)| {
            let (purpose, name, follower) = follower;
            let seed = job_cache::Seed {
                purpose,
                name,
                bridge: services.bridge.clone(),
                follower: Arc::new(Mutex::new(follower)),
                stores_endtime: self.config.job_cache_store_endtime,
                state: Arc::default(),
                metrics: metrics.clone(),
            };
            if let Some(error) = seed.refusal() {
                let option = purpose.option();
                tracing::error!(option, %error, "the returner gets no jobs");
                if self.config.python_bridge.python == PythonBridge::Off {
                    return None;
                }
            }
            // It reads the database, and waits for who reads there for it.
            let spec = self.on_patient_thread(&format!("jobs-{instance}"));
            Some((purpose, self.root.start_child(spec, seed, instance)))
        });
        caches.collect()
    }

    fn start_batches(&self, seed: batches::Seed) -> Addr<Batches> {
        let batches: Addr<Batches> = self.root.start_child(self.on_thread("batches"), seed, 0);
        let (returns, calls) = (batches.clone().recipient(), batches.clone().recipient());
        self.batches.listen(returns, calls);
        batches
    }

    /// The workers and, last of all, the router, which opens the request port. Gives the queue of
    /// those who run functions.
    fn start_front(&self, requests: ReqListener, back: &Back) -> Arc<RunQueue> {
        let count = self.config.worker_threads;
        let budget = Budget::new(100, Duration::from_secs(60));
        let (renderings, wheels) = self.start_renderers(back, budget);
        let (runs, peer_runs) = self.start_runners(back, budget);
        let peer_desk = self.start_peer_desk(back, peer_runs, renderings.clone());
        let sinks = Sinks {
            begin_job: back.tracker.clone().recipient(),
            begin_batch: back.batches.clone().recipient(),
            take_return: back.tracker.clone().recipient(),
            take_leaves: back.tracker.clone().recipient(),
            take_answer: back.tracker.clone().recipient(),
            bus: back.bus.clone().recipient(),
            peer_desk: peer_desk.recipient(),
            renderings,
            wheels,
            runs,
            logins: Logins::new(&self.registry),
        };
        self.start_doorkeepers(&sinks, budget);
        let runs = sinks.runs.clone();
        let pool = self.root.supervisor("workers", Strategy::OneForOne, budget);
        let seed = mworker::Seed {
            services: back.services.clone(),
            sinks,
            metrics: mworker::WorkerMetrics::new(&self.registry),
        };
        let workers = (0..count)
            .map(|number| {
                let instance = u32::try_from(number + 1).unwrap_or(u32::MAX);
                let spec = self.on_thread(&format!("worker-{instance}"));
                let spec = spec.with_budget(budget);
                let worker: Addr<MWorker> = pool.start_child(spec, seed.clone(), instance);
                worker.recipient()
            })
            .collect();
        let seed = req_router::Seed {
            workers: Arc::new(workers),
            windows: Windows::new(count, MWorker::WINDOW),
            backlog: self.config.saltern_request_backlog,
            auth_backlog: self.config.saltern_auth_backlog,
            metrics: req_router::RouterMetrics::new(&self.registry),
            listener: Arc::new(Mutex::new(Some((
                requests,
                self.requests_closed.clone().drop_guard(),
            )))),
            stop: self.stop.clone(),
        };
        let _: Addr<ReqRouter> = self.root.start_child(self.on_thread("requests"), seed, 0);
        runs
    }

    fn start_scheduler(&self, back: &Back, runs: Arc<RunQueue>) {
        let seed = scheduler::Seed {
            services: back.services.clone(),
            schedule: self.schedule.clone(),
            runs,
            metrics: ScheduleMetrics::new(&self.registry),
        };
        let _: Addr<Scheduler> = self.root.start_child(ChildSpec::permanent(), seed, 0);
    }

    /// Those who find answers that take long, with a budget like the workers': they too meet what
    /// comes from outside.
    fn start_renderers(&self, back: &Back, budget: Budget) -> (Arc<RenderQueue>, Arc<RenderQueue>) {
        let pool = self
            .root
            .supervisor("renderers", Strategy::OneForOne, budget);
        let start = |queue: &Arc<RenderQueue>, name: &str, numbers: Range<usize>| {
            let seed = renderer::Seed {
                queue: queue.clone(),
                bus: back.bus.clone().recipient(),
            };
            let first = numbers.start;
            let renderers = numbers
                .map(|number| {
                    let instance = u32::try_from(number).unwrap_or(u32::MAX);
                    let spec = self.on_patient_thread(&format!("{name}-{}", number - first + 1));
                    let spec = spec.with_budget(budget);
                    let renderer: Addr<Renderer> = pool.start_child(spec, seed.clone(), instance);
                    renderer.recipient()
                })
                .collect();
            queue.set_renderers(renderers);
        };
        let renderings = RenderQueue::new(self.config.saltern_render_backlog, &self.registry);
        let wheels = RenderQueue::of_wheels(&self.registry);
        let first = 1 + self.config.saltern_render_threads;
        start(&renderings, "render", 1..first);
        start(&wheels, "wheel", first..first + renderer::WHEEL_THREADS);
        (renderings, wheels)
    }

    /// Those who run functions of the master, for users and for minions. They meet what those ask
    /// for, and have a budget like the workers.
    fn start_runners(&self, back: &Back, budget: Budget) -> (Arc<RunQueue>, Arc<RunQueue>) {
        let pool = self.supervisor_of_runners("runners", budget);
        let metrics = RunMetrics::new(&self.registry);
        let count = u32::try_from(self.config.python_bridge.runners).unwrap_or(u32::MAX);
        let mut first = 1_u32;
        let mut start = |queue: &Arc<RunQueue>, count: u32| {
            let numbers = first..first.saturating_add(count);
            first = numbers.end;
            self.start_runners_of(queue, numbers, &pool, (back, budget));
        };
        let mut of = |asker, in_python, count| {
            let most = runner::MOST_WAITING;
            let python = RunQueue::new(in_python, most, &metrics);
            let queue = RunQueue::before(&python, asker, most, &metrics);
            start(&queue, runner::THREADS);
            start(&python, count);
            queue
        };
        // However many minions ask, some of the processes stay with users.
        let of_minions = (count / 2).max(1);
        let queues = (
            of("users", "python", count),
            of("minions", "python_minions", of_minions),
        );
        if let Some(desk) = &self.reactor {
            self.start_reactor(desk, &metrics, first, (back, budget));
        }
        queues
    }

    fn supervisor_of_runners(&self, name: &'static str, budget: Budget) -> Supervisor {
        self.root.supervisor(name, Strategy::OneForOne, budget)
    }

    /// The threads of one queue by their numbers.
    fn start_runners_of(
        &self,
        queue: &Arc<RunQueue>,
        numbers: Range<u32>,
        pool: &Supervisor,
        (back, budget): (&Back, Budget),
    ) {
        let seed = runner::Seed {
            queue: queue.clone(),
            bus: back.bus.clone().recipient(),
            take_return: back.tracker.clone().recipient(),
        };
        for instance in numbers {
            let spec = self.on_patient_thread(&format!("run-{instance}"));
            let _: Addr<Runner> =
                pool.start_child(spec.with_budget(budget), seed.clone(), instance);
        }
    }

    fn start_peer_desk(
        &self,
        back: &Back,
        runs: Arc<RunQueue>,
        renderings: Arc<RenderQueue>,
    ) -> Addr<PeerDesk> {
        let seed = peer_desk::Seed {
            begin_job: back.tracker.clone().recipient(),
            ends: self.ends.clone(),
            runs,
            renderings,
            numbers: Arc::default(),
            metrics: DeskMetrics::new(&self.registry),
        };
        let desk: Addr<PeerDesk> = self.root.start_child(self.on_thread("peers"), seed, 0);
        self.ends.listen(desk.clone().recipient());
        desk
    }

    /// Those who ask backends who somebody is, with a budget like the workers': they meet what
    /// strangers send.
    fn start_doorkeepers(&self, sinks: &Sinks, budget: Budget) {
        let pool = self
            .root
            .supervisor("doorkeepers", Strategy::OneForOne, budget);
        let seed = doorkeeper::Seed {
            logins: sinks.logins.clone(),
            sinks: sinks.clone(),
        };
        let doorkeepers = (1..=doorkeeper::THREADS)
            .map(|instance| {
                let spec = self.on_patient_thread(&format!("door-{instance}"));
                let spec = spec.with_budget(budget);
                let doorkeeper: Addr<Doorkeeper> = pool.start_child(spec, seed.clone(), instance);
                doorkeeper.recipient()
            })
            .collect();
        sinks.logins.set_doorkeepers(doorkeepers);
    }
}
