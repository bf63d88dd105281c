//! Listening sockets with the options that Salt names.
//!
//! Options that accepted sockets inherit on Linux (keepalive, no delay) are set once on the
//! listening socket: a fresh connection for every request must not cost five more system calls.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// TCP keepalive: `tcp_keepalive`, `tcp_keepalive_idle`, `_intvl`, `_cnt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Whether the kernel probes silent peers.
    pub enabled: bool,
    /// Silence before the first probe; `None` keeps the kernel's.
    pub idle: Option<Duration>,
    /// Time between probes; `None` keeps the kernel's.
    pub interval: Option<Duration>,
    /// Probes without an answer that end a connection; `None` keeps the kernel's.
    pub count: Option<u32>,
}

impl Default for KeepAlive {
    /// Keepalive of stock's ports: 60 s, 15 s, 3 probes.
    fn default() -> Self {
        Self {
            enabled: true,
            idle: Some(Duration::from_secs(60)),
            interval: Some(Duration::from_secs(15)),
            count: Some(3),
        }
    }
}

impl KeepAlive {
    /// The same for a connection of ours. Data that is not acknowledged may take as long as a silent peer, and
    /// keepalive is not cut short by less.
    pub(crate) fn options(self) -> ListenOptions {
        /// Defaults of the kernel.
        const SYSTEM: (Duration, Duration, u32) =
            (Duration::from_secs(7200), Duration::from_secs(75), 9);
        let least = ListenOptions::default();
        let probes = self.interval.unwrap_or(SYSTEM.1) * self.count.unwrap_or(SYSTEM.2);
        let silence = self.idle.unwrap_or(SYSTEM.0) + probes;
        let silence = Some(silence).filter(|_| self.enabled);
        ListenOptions {
            keepalive: self,
            user_timeout: least.user_timeout.max(silence),
            ..least
        }
    }
}

/// Options of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Accept backlog of the kernel (`zmq_backlog`), which caps the number at
    /// `net.core.somaxconn`.
    pub backlog: u32,
    /// Keepalive of accepted connections.
    pub keepalive: KeepAlive,
    /// Time after which the kernel closes an accepted connection with unacknowledged data
    /// (`TCP_USER_TIMEOUT`), also the probes of keepalive; `None` leaves it to the kernel, which
    /// tries for a quarter of an hour.
    pub user_timeout: Option<Duration>,
}

impl Default for ListenOptions {
    /// A backlog of 4096: with 128 a burst of fresh connections stalls for seconds. The user
    /// timeout is the time that keepalive gives a silent peer.
    fn default() -> Self {
        Self {
            backlog: 4096,
            keepalive: KeepAlive::default(),
            user_timeout: Some(Duration::from_secs(105)),
        }
    }
}

/// Why a listener could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The socket cannot be made non-blocking.
    #[error("cannot use the listening socket")]
    Socket(#[source] io::Error),
    /// The registry refused the metrics: one registry holds one listener of each kind.
    #[error("cannot register the metrics of the \"{listener}\" listener")]
    Metrics {
        /// The listener.
        listener: &'static str,
        /// The registry's error.
        #[source]
        source: prometheus::Error,
    },
}

/// Binds `addr` and listens, non-blocking. Nothing is accepted before a listener serves it.
///
/// # Errors
///
/// The kernel's error: the port is taken, or needs a privilege, or the address is not local.
pub fn bind(addr: SocketAddr, options: &ListenOptions) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    // Without it a restarted master waits for the TIME_WAIT of its old connections.
    socket.set_reuse_address(true)?;
    set_options(&socket, options)?;
    socket.bind(&addr.into())?;
    socket.listen(backlog(options))?;
    Ok(socket.into())
}

/// Has the kernel end a connection of ours to a host that is gone, as it does with those of peers.
pub(crate) fn watch(stream: &tokio::net::TcpStream, options: &ListenOptions) -> io::Result<()> {
    set_options(&SockRef::from(stream), options)
}

/// Sets our options on an inherited socket, which may have been listening for long.
pub(super) fn adopt(listener: &TcpListener, options: &ListenOptions) -> io::Result<()> {
    let socket = SockRef::from(listener);
    set_options(&socket, options)?;
    socket.listen(backlog(options))
}

fn backlog(options: &ListenOptions) -> i32 {
    i32::try_from(options.backlog).unwrap_or(i32::MAX)
}

fn set_options(socket: &Socket, options: &ListenOptions) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    let keepalive = options.keepalive;
    socket.set_keepalive(keepalive.enabled)?;
    if keepalive.enabled {
        let mut probes = TcpKeepalive::new();
        if let Some(idle) = keepalive.idle {
            probes = probes.with_time(idle);
        }
        if let Some(interval) = keepalive.interval {
            probes = probes.with_interval(interval);
        }
        if let Some(count) = keepalive.count {
            probes = probes.with_retries(count);
        }
        socket.set_tcp_keepalive(&probes)?;
    }
    if options.user_timeout.is_some() {
        socket.set_tcp_user_timeout(options.user_timeout)?;
    }
    socket.set_nonblocking(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_connection_inherits_the_options() {
        let options = ListenOptions::default();
        let listener = bind(([127, 0, 0, 1], 0).into(), &options).expect("bind");
        let addr = listener.local_addr().expect("address");
        let _client = std::net::TcpStream::connect(addr).expect("connect");
        listener.set_nonblocking(false).expect("blocking");
        let (accepted, _) = listener.accept().expect("accept");
        let accepted = Socket::from(accepted);
        assert!(accepted.tcp_nodelay().expect("nodelay"));
        assert!(accepted.keepalive().expect("keepalive"));
        assert_eq!(
            accepted.tcp_keepalive_time().expect("idle"),
            Duration::from_secs(60)
        );
        assert_eq!(
            accepted.tcp_keepalive_interval().expect("interval"),
            Duration::from_secs(15)
        );
        assert_eq!(accepted.tcp_keepalive_retries().expect("count"), 3);
        assert_eq!(
            accepted.tcp_user_timeout().expect("user timeout"),
            Some(Duration::from_secs(105))
        );
    }
}
