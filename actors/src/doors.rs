//! The ports and sockets of a master: bound, with their limits, before anything is started.

use std::net::{SocketAddr, TcpListener};

use saltern_base::metrics::Registry;
use saltern_config::MasterConfig;
use saltern_wire::zmtp::{
    Heartbeat, KeepAlive, ListenOptions, PeerLimits, PubLimits, PubListener, ReqLimits,
    ReqListener, SizeLimits, bind,
};
use tokio::net::UnixListener;

use crate::control;
use crate::event_sockets::{EventSockets, SocketOptions};
use crate::tree::StartError;

/// The ports and sockets of a master, bound before anything is started.
pub(crate) struct Doors {
    pub(crate) requests: ReqListener,
    pub(crate) publish: PubListener,
    pub(crate) events: EventSockets,
    pub(crate) control: UnixListener,
    /// Of the request port and of the publish port.
    pub(crate) addresses: (SocketAddr, SocketAddr),
}

/// Most connections to an event socket, whatever is configured: each holds a queue, and they come
/// from this machine only.
const MOST_LISTENERS: usize = 1024;

impl Doors {
    pub(crate) fn open(config: &MasterConfig, registry: &Registry) -> Result<Self, StartError> {
        let options = ListenOptions {
            backlog: config.zmq_backlog,
            keepalive: KeepAlive {
                enabled: config.tcp_keepalive,
                idle: config.tcp_keepalive_idle,
                interval: config.tcp_keepalive_intvl,
                count: config.tcp_keepalive_cnt,
            },
            user_timeout: config.saltern_tcp_user_timeout,
        };
        let port = |port| -> Result<(TcpListener, SocketAddr), StartError> {
            let address = SocketAddr::new(config.interface, port);
            let refused = |source| StartError::Port { address, source };
            let listener = bind(address, &options).map_err(refused)?;
            let address = listener.local_addr().map_err(refused)?;
            Ok((listener, address))
        };
        let (requests, request_address) = port(config.ret_port)?;
        let (publish, publish_address) = port(config.publish_port)?;
        // Fallible and without traces outside, so before the files.
        let requests = ReqListener::new(requests, request_limits(config), registry)?;
        let publish = PubListener::new(publish, publish_limits(config), registry)?;
        EventSockets::refuse_if_served(&config.sock_dir)?;
        let (events, control) = Self::open_sockets(config, registry)
            .inspect_err(|_| EventSockets::remove(&config.sock_dir))?;
        Ok(Self {
            requests,
            publish,
            events,
            control,
            addresses: (request_address, publish_address),
        })
    }

    fn open_sockets(
        config: &MasterConfig,
        registry: &Registry,
    ) -> Result<(EventSockets, UnixListener), StartError> {
        let options = SocketOptions {
            directory: config.sock_dir.clone(),
            compat: config.salt_compat,
            for_other_users: is_set(config, "publisher_acl") || is_set(config, "external_auth"),
            drain_timeout: config.publish_drain_timeout,
            max_event: config.saltern_max_message_size,
            connections: config.saltern_max_connections.min(MOST_LISTENERS),
        };
        let events = EventSockets::bind(options, registry)?;
        let control = control::bind(&config.sock_dir).map_err(StartError::Control)?;
        Ok((events, control))
    }
}

/// Whether an option of stock that has no type of its own here says anything.
pub(crate) fn is_set(config: &MasterConfig, option: &str) -> bool {
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
