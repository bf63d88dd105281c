//! The part of the master's configuration that a client on the same machine needs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use saltern_config::{MasterConfig, OptionValue, TransportName};
use saltern_wire::client::Route;
use saltern_wire::port::Transport;

/// Address of the master for a local client, and its timeouts.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The directory of the event sockets (`sock_dir`).
    pub sock_dir: PathBuf,
    /// The directory of the user keys (`cachedir`).
    pub cachedir: PathBuf,
    /// The address the master listens on (`interface`); an unspecified one means this machine.
    pub interface: IpAddr,
    /// A request port of the master, and its transport: the first of `ret_port` and
    /// `saltern_also_listen` with ZeroMQ, or another one without TLS.
    pub request_port: Option<(Transport, u16)>,
    /// The user the master runs as (`user`); names the key that root uses.
    pub user: String,
    /// How long to wait before asking which minions still run the job (`timeout`, `-t`).
    pub timeout: Duration,
    /// How long to wait for those answers (`gather_job_timeout`).
    pub gather_job_timeout: Duration,
    /// How long the master may take to accept a job (`publish_timeout`).
    pub publish_timeout: Duration,
    /// Whether masters below this one bring minions of their own (`order_masters`).
    pub order_masters: bool,
    /// How long those masters are waited for (`syndic_wait`).
    pub syndic_wait: Duration,
}

impl ClientConfig {
    /// The way to the request port, if there is one with a transport of this client.
    #[must_use]
    pub fn master(&self) -> Option<Route> {
        let (transport, port) = self.request_port?;
        let address = match self.interface {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        Some(Route {
            transport,
            ..Route::from(SocketAddr::new(address, port))
        })
    }
}

impl From<&MasterConfig> for ClientConfig {
    /// Takes what is configured. `publish_timeout` and `syndic_wait` are read as written, or are stock's
    /// defaults.
    fn from(config: &MasterConfig) -> Self {
        let seconds = |option: OptionValue<'_>, default: u64| {
            let number = option.as_f64().filter(|number| (0.0..1e9).contains(number));
            number.map_or(Duration::from_secs(default), Duration::from_secs_f64)
        };
        Self {
            sock_dir: config.sock_dir.clone(),
            cachedir: config.cachedir.clone(),
            interface: config.interface,
            request_port: request_port(config),
            user: config.user.clone(),
            timeout: config.timeout,
            gather_job_timeout: config.gather_job_timeout,
            publish_timeout: seconds(config.publish_timeout(), 30),
            order_masters: config.order_masters(),
            syndic_wait: seconds(config.syndic_wait(), 5),
        }
    }
}

fn request_port(config: &MasterConfig) -> Option<(Transport, u16)> {
    let others = config.saltern_also_listen.iter();
    let others = others.map(|also| (also.transport, also.ret_port));
    let mut pairs = std::iter::once((config.transport, config.ret_port)).chain(others);
    pairs.find_map(|(name, port)| match name {
        TransportName::ZeroMq => Some((Transport::ZeroMq, port)),
        TransportName::Tcp if config.ssl.is_none() => Some((Transport::Tcp, port)),
        TransportName::Ws if config.ssl.is_none() => Some((Transport::WebSocket, port)),
        TransportName::Tcp | TransportName::Ws => None,
    })
}
