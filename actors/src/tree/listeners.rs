//! Listeners of a master: its ports and sockets, bound with their limits and TLS before anything
//! is started.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use saltern_base::metrics::Registry;
use saltern_config::{ApiServer, MasterConfig, PeerCertificates, TlsConfig};
use saltern_http::HttpMetrics;
use saltern_wire::member::{BeforeAnswers, Door, MemberTls, RelayedConnections};
use saltern_wire::net::BoundPort;
use saltern_wire::port::{
    Heartbeat, Inherited, KeepAlive, ListenOptions, LocalSocket, MemberPort, PeerCertificate,
    PeerLimits, PubLimits, PubListener, Relay, RelaySockets, RelayTarget, ReqLimits, ReqListener,
    SizeLimits, Socket, Tls, TlsError, TlsOptions, bind,
};
use tokio::net::UnixListener;

use crate::api::net_api::{self, RelayedCalls};
use crate::events::event_sockets::{BoundSockets, EventSockets, SocketOptions, remove_socket};
use crate::front::transports::transport_of;
use crate::operator::control::{self, ControlSocket};
use crate::operator::status_port::StatusPort;
use crate::tree::StartError;

/// The bound listeners.
pub(crate) struct Listeners {
    pub(crate) requests: ReqListener,
    pub(crate) publish: PubListener,
    pub(crate) events: EventSockets,
    pub(crate) control: ControlSocket,
    /// Connections to the API that other members of a cluster relay.
    pub(crate) relayed_calls: RelayedCalls,
    /// Members that ask for a new shared key.
    pub(crate) rotations: RelayedConnections,
    /// The status port, where one is configured.
    pub(crate) status: Option<StatusPort>,
    /// HTTP metrics.
    pub(crate) http: HttpMetrics,
    /// Of `ret_port` and of `publish_port`.
    pub(crate) addresses: (SocketAddr, SocketAddr),
}

/// Most connections to an event socket, whatever is configured: each holds a queue, and they come
/// from this machine only.
const MAX_LISTENERS: usize = 1024;

/// The bound sockets of both ports, over each transport.
struct Ports {
    requests: Vec<Socket>,
    publish: Vec<Socket>,
    /// Of `ret_port` and of `publish_port`.
    addresses: (SocketAddr, SocketAddr),
}

impl Ports {
    fn open(
        config: &MasterConfig,
        tls: Option<Tls>,
        inherited: &mut Inherited,
    ) -> Result<Self, StartError> {
        let mut port = |port| open_port(config, port, inherited);
        let socket = |listener, transport| Socket {
            listener,
            transport: transport_of(transport),
            tls: tls.clone(),
        };
        let (request, request_address) = port(config.ret_port)?;
        let (publication, publish_address) = port(config.publish_port)?;
        let mut requests = vec![socket(request, config.transport)];
        let mut publish = vec![socket(publication, config.transport)];
        for also in &config.saltern_also_listen {
            requests.push(socket(port(also.ret_port)?.0, also.transport));
            publish.push(socket(port(also.publish_port)?.0, also.transport));
        }
        Ok(Self {
            requests,
            publish,
            addresses: (request_address, publish_address),
        })
    }
}

/// Binds a port of the master's address, with the address that it has then.
fn open_port(
    config: &MasterConfig,
    port: u16,
    inherited: &mut Inherited,
) -> Result<(BoundPort, SocketAddr), StartError> {
    let options = listen_options(config);
    let address = SocketAddr::new(config.interface, port);
    let refused = |source| StartError::Port { address, source };
    let listener = BoundPort::open(address, |address| inherited.open(address, &options));
    let listener = listener.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    Ok((listener, address))
}

/// Binds the ports of a master that stands by, for a relay of their connections. `before_answers` is done
/// before the answers to requests of this machine.
///
/// # Errors
/// A port is taken, or a listener refuses its options.
pub fn open_relay(
    config: &MasterConfig,
    registry: &Registry,
    member: (&MemberTls, RelayTarget),
    before_answers: Option<Arc<dyn BeforeAnswers>>,
) -> Result<Relay, StartError> {
    let ports = Ports::open(config, None, &mut Inherited::default())?;
    // Closed again at once: a port that is taken would stop the takeover.
    if let Some(port) = config.member_port() {
        open_port(config, port, &mut Inherited::default())?;
    }
    let of_apis = PeerLimits {
        connections: net_api::CONNECTIONS,
        per_address: net_api::CONNECTIONS_PER_ADDRESS,
        ..peer_limits(config)
    };
    EventSockets::refuse_if_served(&config.sock_dir)?;
    let local = local_sockets(config).inspect_err(|_| remove_sockets(&config.sock_dir))?;
    let sockets = RelaySockets {
        requests: (ports.requests, request_limits(config).peers),
        publish: (ports.publish, publish_limits(config).peers),
        apis: (net_api::bind_ports(&config.net_api.servers), of_apis),
        local,
        before_answers,
    };
    let relay = Relay::new(sockets, member, listen_options(config), registry);
    Ok(relay.inspect_err(|_| remove_sockets(&config.sock_dir))?)
}

/// Binds the sockets for local programs of a master that stands by, where and with the modes that they
/// have when it is active.
fn local_sockets(config: &MasterConfig) -> Result<Vec<LocalSocket>, StartError> {
    let options = socket_options(config);
    let BoundSockets { publish, pull } = BoundSockets::bind(&options)?;
    let control = control::bind(&config.sock_dir).map_err(StartError::Control)?;
    let of_events = |listener, door| LocalSocket {
        listener,
        door,
        connections: options.connections,
        patience: options.drain_timeout,
    };
    Ok(vec![
        of_events(publish, Door::Events),
        of_events(pull, Door::FiredEvents),
        LocalSocket {
            listener: control,
            door: Door::Control,
            connections: control::MAX_ASKING,
            patience: control::REQUEST_TIMEOUT,
        },
    ])
}

/// Connections that other members relay, of the listeners that are not ports of a master.
#[derive(Default)]
struct RelayedToOthers {
    events: (RelayedConnections, RelayedConnections),
    control: RelayedConnections,
    calls: RelayedCalls,
    rotations: RelayedConnections,
}

impl RelayedToOthers {
    fn open(port: &mut MemberPort, servers: &[ApiServer]) -> Self {
        let servers = servers.iter();
        let doors = servers.filter_map(|it| Some((it.option, Door::of_api(it.option)?)));
        Self {
            events: (
                port.open_door(Door::Events),
                port.open_door(Door::FiredEvents),
            ),
            control: port.open_door(Door::Control),
            calls: doors
                .map(|(option, door)| (option, port.open_door(door)))
                .collect(),
            rotations: port.open_door(Door::KeyRotation),
        }
    }
}

impl Listeners {
    pub(crate) fn open(
        config: &MasterConfig,
        registry: &Registry,
        mut inherited: Inherited,
        member_tls: Option<&MemberTls>,
    ) -> Result<Self, StartError> {
        let tls = config.ssl.as_ref().map(tls).transpose()?;
        let ports = Ports::open(config, tls, &mut inherited)?;
        let member_port = match config.member_port().zip(member_tls) {
            Some((port, tls)) => Some((open_port(config, port, &mut inherited)?.0, tls)),
            None => None,
        };
        for address in inherited.unclaimed() {
            tracing::warn!(
                %address,
                "a socket of the service manager is not served: no option names its address"
            );
        }
        // Fallible and without traces outside, so before the files.
        let mut requests = ReqListener::new(ports.requests, request_limits(config), registry)?;
        let known = requests.known_networks();
        let publish = PubListener::new(ports.publish, publish_limits(config), known, registry)?;
        let mut relayed = RelayedToOthers::default();
        if let Some((port, tls)) = member_port {
            let doors = (&requests, &publish);
            let handshake = config.saltern_handshake_timeout;
            let mut port = MemberPort::new(port, tls, doors, handshake, registry);
            relayed = RelayedToOthers::open(&mut port, &config.net_api.servers);
            requests.serve_members(port);
        }
        let http = HttpMetrics::new(registry);
        let status = Self::open_status(config, (registry, &http))?;
        EventSockets::refuse_if_served(&config.sock_dir)?;
        let RelayedToOthers {
            events,
            control,
            calls,
            rotations,
        } = relayed;
        let (events, control) = Self::open_sockets(config, (events, control), registry)
            .inspect_err(|_| remove_sockets(&config.sock_dir))?;
        Ok(Self {
            requests,
            publish,
            events,
            control,
            relayed_calls: calls,
            rotations,
            status,
            http,
            addresses: ports.addresses,
        })
    }

    pub(crate) fn open_status(
        config: &MasterConfig,
        metrics: (&Registry, &HttpMetrics),
    ) -> Result<Option<StatusPort>, StartError> {
        let Some(address) = config.saltern_metrics_address else {
            return Ok(None);
        };
        let certificates = config.saltern_metrics_ssl.as_ref();
        let certificates = certificates.map(tls).transpose()?;
        StatusPort::open(config, certificates, metrics)
            .map_err(|source| StartError::Port { address, source })
    }

    fn open_sockets(
        config: &MasterConfig,
        (events, control): ((RelayedConnections, RelayedConnections), RelayedConnections),
        registry: &Registry,
    ) -> Result<(EventSockets, ControlSocket), StartError> {
        let events = EventSockets::bind(socket_options(config), events, registry)?;
        let bound = control::bind(&config.sock_dir).and_then(UnixListener::from_std);
        let control = ControlSocket {
            listener: bound.map_err(StartError::Control)?,
            relayed: control,
        };
        Ok((events, control))
    }
}

fn socket_options(config: &MasterConfig) -> SocketOptions {
    let followed = config.followed();
    SocketOptions {
        directory: config.sock_dir.clone(),
        compat: config.salt_compat,
        for_other_users: followed.publisher_acl().is_set() || followed.external_auth().is_set(),
        drain_timeout: config.publish_drain_timeout,
        max_event: config.saltern_max_message_size,
        connections: config.saltern_max_connections.min(MAX_LISTENERS),
    }
}

/// Removes the files by which local programs see that a master is running.
pub fn remove_sockets(sock_dir: &Path) {
    EventSockets::remove(sock_dir);
    remove_socket(&sock_dir.join(saltern_model::control::SOCKET));
}

fn listen_options(config: &MasterConfig) -> ListenOptions {
    ListenOptions {
        backlog: config.zmq_backlog,
        keepalive: KeepAlive {
            enabled: config.tcp_keepalive,
            idle: config.tcp_keepalive_idle,
            interval: config.tcp_keepalive_intvl,
            count: config.tcp_keepalive_cnt,
        },
        user_timeout: config.saltern_tcp_user_timeout,
    }
}

/// Checks that this machine has the addresses that the master listens on, and takes the options of
/// its sockets, by binding free ports. A port below 1024 is bound itself, since it takes a
/// privilege; that another process has it is no problem here.
///
/// Gives each option that keeps the master from starting, with its problem.
pub fn check_addresses(config: &MasterConfig) -> Vec<(&'static str, io::Error)> {
    let options = listen_options(config);
    let open = |address: IpAddr, port: u16, options: &ListenOptions| {
        let port = if (1..PRIVILEGED).contains(&port) {
            port
        } else {
            0
        };
        match bind(SocketAddr::new(address, port), options) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(()),
            result => result.map(|_| ()),
        }
    };
    let mut problems = Vec::new();
    let plain = ListenOptions::default();
    let mut ports = vec![
        ("ret_port", config.ret_port),
        ("publish_port", config.publish_port),
    ];
    ports.extend(config.member_port().map(|port| ("saltern_cluster", port)));
    if let Err(error) = open(config.interface, PRIVILEGED, &plain) {
        problems.push(("interface", error));
    } else {
        for (option, port) in ports {
            if let Err(error) = open(config.interface, port, &plain) {
                problems.push((option, error));
            }
        }
        if let Err(error) = open(config.interface, PRIVILEGED, &options) {
            problems.push(("tcp_keepalive", error));
        }
    }
    let status = config.saltern_metrics_address;
    let status = status.filter(|_| config.is_written("saltern_metrics_address"));
    if let Some(address) = status
        && let Err(error) = open(address.ip(), address.port(), &plain)
    {
        problems.push(("saltern_metrics_address", error));
    }
    problems
}

/// The first unprivileged port.
const PRIVILEGED: u16 = 1024;

/// Loads the files that `ssl` and `saltern_metrics_ssl` name, as the start of the master does.
///
/// Gives each option that keeps the master from speaking TLS, with the reason.
pub fn check_tls(config: &MasterConfig) -> Vec<(&'static str, TlsError)> {
    let status = config.saltern_metrics_ssl.as_ref();
    let options = [
        ("ssl", config.ssl.as_ref()),
        // Unused where the status port is off.
        (
            "saltern_metrics_ssl",
            config.saltern_metrics_address.and(status),
        ),
    ];
    let asked = options.into_iter();
    let asked = asked.filter_map(|(name, option)| Some((name, option?)));
    asked
        .filter_map(|(name, option)| tls(option).err().map(|error| (name, error)))
        .collect()
}

pub(crate) fn tls(config: &TlsConfig) -> Result<Tls, TlsError> {
    Tls::new(&TlsOptions {
        certificate: config.certificate.clone(),
        key: config.key.clone(),
        authorities: config.authorities.clone(),
        peers: match config.peers {
            PeerCertificates::NotAsked => PeerCertificate::NotAsked,
            PeerCertificates::Optional => PeerCertificate::Optional,
            PeerCertificates::Required => PeerCertificate::Required,
        },
        only_tls12: config.only_tls12,
        ciphers: config.ciphers.clone(),
    })
}

fn peer_limits(config: &MasterConfig) -> PeerLimits {
    let defaults = PeerLimits::default();
    PeerLimits {
        connections: config.saltern_max_connections,
        per_address: config
            .saltern_max_connections_per_address
            .unwrap_or(usize::MAX),
        handshake: config.saltern_handshake_timeout,
        drain: config.saltern_stop_timeout,
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
        answers: config.saltern_reply_budget,
        ..ReqLimits::default()
    }
}

fn publish_limits(config: &MasterConfig) -> PubLimits {
    PubLimits {
        peers: PeerLimits {
            idle: None,
            heartbeat: Heartbeat {
                interval: config.saltern_heartbeat_interval,
                timeout: config.saltern_heartbeat_interval,
            },
            ..peer_limits(config)
        },
        queue: config.pub_hwm,
        queue_bytes: config.saltern_subscriber_queue_size,
        drain_timeout: config.publish_drain_timeout,
        subscriptions: config.saltern_max_subscriptions,
        ..PubLimits::default()
    }
}
