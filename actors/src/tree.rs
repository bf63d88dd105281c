//! The supervision tree of the master: who is restarted when, on which thread, and the order in
//! which everything starts and stops.
//!
//! | child | thread | policy | what its death means |
//! |---|---|---|---|
//! | EventPublisher | bus | permanent | events in its mailbox wait; subscribers notice nothing |
//! | Publisher | publish | permanent | loads wait; minions stay connected |
//! | JobMirror | mirror | permanent | job-cache files lag |
//! | JobStore | jobs | permanent | the batch at hand is refused; its peers send again |
//! | JobTracker | jobs | permanent | open jobs are read from the store again |
//! | MWorker × n | worker-n | permanent | the request at hand is answered as not handled |
//! | ReqRouter | requests | permanent | its backlog is answered as not handled |
//! | Maintenance | main | permanent | its timers start anew |
//!
//! All are restarted one for one. More restarts than the budget allows end the process with exit
//! code 70, and systemd starts it anew. Started from the sink backwards, stopped in reverse: first
//! no new requests, then the workers empty their mailboxes, then the store, then the bus.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_base::metrics::Registry;
use saltern_config::{LocalCacheMirror, MasterConfig};
use saltern_requests::{Services, Stores};
use saltern_store::jobs::JobDatabase;
use saltern_store::{JobFiles, Mirror, StoreError};
use saltern_supervise::{Budget, ChildSpec, Failure, Placement, Strategy, Supervisor, Tree};
use saltern_wire::zmtp::{
    Heartbeat, KeepAlive, ListenError, ListenOptions, PeerLimits, PubLimits, PubListener,
    ReqLimits, ReqListener, SizeLimits, bind,
};
use tokio_util::sync::CancellationToken;

use crate::bus::{Bus, QueueLimits};
use crate::control::{self, Control};
use crate::event_publisher::{self, EventPublisher};
use crate::event_sockets::{EventSockets, SocketError, SocketOptions};
use crate::job_mirror::{self, JobMirror};
use crate::job_store::{self, JobStore};
use crate::job_tracker::{self, JobTracker};
use crate::maintenance::{self, Maintenance};
use crate::mworker::{self, MWorker};
use crate::presence::Presence;
use crate::publisher::{self, Publisher};
use crate::req_router::{self, ReqRouter};
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
}

/// The ports and sockets of a master, bound before anything is started.
struct Doors {
    requests: ReqListener,
    publish: PubListener,
    events: EventSockets,
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
    /// A listener refuses its options.
    #[error(transparent)]
    Listener(#[from] ListenError),
    /// An event socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Something that lasts cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The control socket cannot be made.
    #[error("cannot make the control socket")]
    Control(#[source] std::io::Error),
}

/// A running master.
pub struct Master {
    tree: Tree,
    config: Arc<MasterConfig>,
    stop: CancellationToken,
}

impl Master {
    /// Binds both ports and the event sockets and starts the actors.
    ///
    /// # Errors
    /// Whatever keeps it from starting; then nothing has been started.
    pub fn start(parts: MasterParts) -> Result<Self, StartError> {
        let config = parts.config.clone();
        let stop = CancellationToken::new();
        let doors = Doors::open(&config, &parts.registry)?;
        let budget = Budget::new(20, Duration::from_secs(60));
        let tree = Tree::new("master", Strategy::OneForOne, budget, &parts.registry);
        let control = Control {
            tree: tree.clone(),
            registry: parts.registry.clone(),
        };
        start_children(&tree.root(), parts, doors, &stop)?;
        control::serve(&config.sock_dir, control, stop.clone()).map_err(StartError::Control)?;
        Ok(Self { tree, config, stop })
    }

    /// Resolves when the master has given up.
    pub async fn failed(&self) -> Failure {
        self.tree.failed().await
    }

    /// Stops the master: no new requests, then everybody finishes what was begun, each within its
    /// budget. A second call, while the first is under way, stops everybody at once.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        let stopped = self.tree.shutdown().await;
        if !stopped.is_clean() {
            tracing::warn!(
                "the master did not stop in time; what was not stored was not acknowledged"
            );
        }
        EventSockets::remove(&self.config.sock_dir);
    }
}

impl Doors {
    fn open(config: &MasterConfig, registry: &Registry) -> Result<Self, StartError> {
        let options = ListenOptions {
            backlog: config.zmq_backlog,
            keepalive: KeepAlive {
                enabled: config.tcp_keepalive,
                idle: config.tcp_keepalive_idle,
                interval: config.tcp_keepalive_intvl,
                count: config.tcp_keepalive_cnt,
            },
        };
        let port = |port| -> Result<TcpListener, StartError> {
            let address = SocketAddr::new(config.interface, port);
            bind(address, &options).map_err(|source| StartError::Port { address, source })
        };
        let (requests, publish) = (port(config.ret_port)?, port(config.publish_port)?);
        let events = EventSockets::bind(SocketOptions {
            directory: config.sock_dir.clone(),
            compat: config.salt_compat,
            for_other_users: is_set(config, "publisher_acl") || is_set(config, "external_auth"),
            drain_timeout: config.publish_drain_timeout,
            max_event: config.saltern_max_message_size,
        })?;
        Ok(Self {
            requests: ReqListener::new(requests, request_limits(config), registry)?,
            publish: PubListener::new(publish, publish_limits(config), registry)?,
            events,
        })
    }
}

fn is_set(config: &MasterConfig, option: &str) -> bool {
    config
        .raw(option)
        .is_some_and(saltern_config::yaml::Node::is_truthy)
}

fn peer_limits(config: &MasterConfig) -> PeerLimits {
    let defaults = PeerLimits::default();
    PeerLimits {
        connections: config.saltern_max_connections,
        per_address: config
            .saltern_max_connections_per_address
            .unwrap_or(usize::MAX),
        handshake: config.saltern_handshake_timeout,
        heartbeat: Heartbeat {
            interval: config.saltern_idle_timeout,
            ..defaults.heartbeat
        },
        ..defaults
    }
}

fn request_limits(config: &MasterConfig) -> ReqLimits {
    let sizes = |bytes| SizeLimits {
        frame: bytes,
        message: bytes,
        ..SizeLimits::UNKNOWN_PEER
    };
    ReqLimits {
        peers: peer_limits(config),
        before_auth: sizes(config.saltern_max_unauthenticated_size),
        after_auth: sizes(config.saltern_max_message_size),
        ..ReqLimits::default()
    }
}

fn publish_limits(config: &MasterConfig) -> PubLimits {
    PubLimits {
        peers: PeerLimits {
            idle: None,
            ..peer_limits(config)
        },
        queue: config.pub_hwm,
        queue_bytes: config.saltern_subscriber_queue_size,
        drain_timeout: config.publish_drain_timeout,
        subscriptions: config.saltern_max_subscriptions,
        ..PubLimits::default()
    }
}

/// A permanent child on a thread of its own name.
fn on_thread(name: &str) -> ChildSpec {
    ChildSpec::permanent().on(Placement::thread(name))
}

/// Starts the children, sink first.
fn start_children(
    root: &Supervisor,
    parts: MasterParts,
    doors: Doors,
    stop: &CancellationToken,
) -> Result<(), StartError> {
    let MasterParts {
        config,
        clock,
        stores,
        database,
        registry,
    } = parts;
    let subscribers = doors.publish.handle();
    let presence = Arc::new(Presence::new(subscribers.clone()));
    let services = Arc::new(Services::new(
        config.clone(),
        clock.clone(),
        stores,
        presence,
        &registry,
    ));

    let queue = QueueLimits {
        frames: config.saltern_event_queue_length,
        bytes: config.saltern_subscriber_queue_size,
    };
    let bus: Addr<EventPublisher> = root.start_child(
        on_thread("bus"),
        event_publisher::Seed {
            bus: Bus::new(config.salt_compat, queue, clock.clone(), &registry),
            sockets: Arc::new(Mutex::new(Some(doors.events))),
            stop: stop.clone(),
        },
        0,
    );
    let publisher: Addr<Publisher> = root.start_child(
        on_thread("publish"),
        publisher::Seed {
            services: services.clone(),
            subscribers,
            metrics: publisher::PublisherMetrics::new(&registry),
            listener: Arc::new(Mutex::new(Some(doors.publish))),
            stop: stop.clone(),
        },
        0,
    );
    let mirror = start_mirror(root, &config, &clock, &database, &registry)?;
    let reader = Arc::new(database.reader()?);
    let tracker_slot = Arc::new(Mutex::new(None));
    let store: Addr<JobStore> = root.start_child(
        on_thread("jobs"),
        job_store::Seed {
            database: Arc::new(Mutex::new(database)),
            job_files: job_files(&config)?,
            bus: bus.clone(),
            publisher: publisher.clone(),
            mirror: mirror.clone(),
            tracker: tracker_slot.clone(),
            metrics: job_store::StoreMetrics::new(&registry),
        },
        0,
    );
    let tracker: Addr<JobTracker> = root.start_child(
        on_thread("jobs"),
        job_tracker::Seed {
            store: store.clone(),
            bus: bus.clone(),
            reader,
            metrics: job_tracker::TrackerMetrics::new(&registry),
        },
        0,
    );
    *tracker_slot.lock() = Some(tracker.clone());
    start_front(
        root,
        &config,
        &registry,
        doors.requests,
        stop,
        mworker::Seed {
            services: services.clone(),
            tracker: tracker.clone(),
            bus: bus.clone(),
            metrics: mworker::WorkerMetrics::new(&registry),
        },
    );
    let _: Addr<Maintenance> = root.start_child(
        ChildSpec::permanent(),
        maintenance::Seed {
            services,
            bus,
            publisher,
            tracker,
            store,
            mirror,
        },
        0,
    );
    Ok(())
}

fn job_files(config: &MasterConfig) -> Result<Option<Arc<JobFiles>>, StartError> {
    match config.local_cache_mirror {
        LocalCacheMirror::Off => Ok(None),
        LocalCacheMirror::Full | LocalCacheMirror::Loads => {
            Ok(Some(Arc::new(JobFiles::open(config)?)))
        }
    }
}

fn start_mirror(
    root: &Supervisor,
    config: &MasterConfig,
    clock: &Clock,
    database: &JobDatabase,
    registry: &Registry,
) -> Result<Option<Addr<JobMirror>>, StartError> {
    if config.local_cache_mirror == LocalCacheMirror::Off {
        return Ok(None);
    }
    let mirror = Mirror::open(config, database.reader()?)?;
    let seed = job_mirror::Seed {
        mirror: Arc::new(Mutex::new(mirror)),
        keep: config.keep_jobs,
        clock: clock.clone(),
        metrics: job_mirror::MirrorMetrics::new(registry),
    };
    Ok(Some(root.start_child(on_thread("mirror"), seed, 0)))
}

/// The workers and, last of all, the router, which opens the request port.
fn start_front(
    root: &Supervisor,
    config: &MasterConfig,
    registry: &Registry,
    requests: ReqListener,
    stop: &CancellationToken,
    seed: mworker::Seed,
) {
    let count = config.worker_threads;
    let workers: Vec<Addr<MWorker>> = (0..count)
        .map(|number| {
            let instance = u32::try_from(number + 1).unwrap_or(u32::MAX);
            root.start_child(
                on_thread(&format!("worker-{instance}")),
                seed.clone(),
                instance,
            )
        })
        .collect();
    let _: Addr<ReqRouter> = root.start_child(
        on_thread("requests"),
        req_router::Seed {
            workers: Arc::new(workers),
            windows: Windows::new(count, MWorker::WINDOW),
            backlog: config.saltern_request_backlog,
            metrics: req_router::RouterMetrics::new(registry),
            listener: Arc::new(Mutex::new(Some(requests))),
            stop: stop.clone(),
        },
        0,
    );
}
