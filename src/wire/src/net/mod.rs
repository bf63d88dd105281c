//! TCP as this crate uses it: that of the system.
//!
//! With the feature `fault-injection`, a thread may have a simulated network instead ([`simulated`]),
//! on which a whole master is tested. Without it, the types here are those of tokio.

#[cfg(feature = "fault-injection")]
mod either;
#[cfg(feature = "fault-injection")]
pub mod simulated;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags};
use saltern_base::log_throttle::LogThrottle;
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use crate::port::KeepAlive;
use crate::port::listen::watch;

#[cfg(feature = "fault-injection")]
pub(crate) use either::TcpStream;
#[cfg(not(feature = "fault-injection"))]
pub(crate) use tokio::net::TcpStream;

/// Persistent problems of a unix socket are logged at most once per `LOG_INTERVAL`.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Pause after an accept at a unix socket that failed.
const STARVED_PAUSE: Duration = Duration::from_millis(100);

/// A bound port, which belongs to no runtime yet.
pub struct BoundPort(Bound);

enum Bound {
    Tcp(std::net::TcpListener),
    #[cfg(feature = "fault-injection")]
    Simulated(std::sync::Arc<simulated::Listener>),
}

/// A port that is served by a runtime.
pub(crate) enum ServedPort {
    Tcp(TcpListener),
    #[cfg(feature = "fault-injection")]
    Simulated(std::sync::Arc<simulated::Listener>),
}

impl From<std::net::TcpListener> for BoundPort {
    fn from(listener: std::net::TcpListener) -> Self {
        Self(Bound::Tcp(listener))
    }
}

impl BoundPort {
    /// The port of this address, which `bind` binds.
    ///
    /// # Errors
    /// Those of `bind`.
    pub fn open(
        address: SocketAddr,
        bind: impl FnOnce(SocketAddr) -> io::Result<std::net::TcpListener>,
    ) -> io::Result<Self> {
        #[cfg(feature = "fault-injection")]
        if let Some(network) = simulated::Network::current() {
            return Ok(Self(Bound::Simulated(network.listen(address))));
        }
        bind(address).map(Self::from)
    }

    /// Its address.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            Bound::Tcp(listener) => listener.local_addr(),
            #[cfg(feature = "fault-injection")]
            Bound::Simulated(listener) => Ok(listener.address()),
        }
    }

    /// Has reads of it never wait.
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match &self.0 {
            Bound::Tcp(listener) => listener.set_nonblocking(true),
            #[cfg(feature = "fault-injection")]
            Bound::Simulated(_) => Ok(()),
        }
    }

    /// Registers it with the runtime that polls this.
    pub(crate) fn register(&self) -> io::Result<ServedPort> {
        match &self.0 {
            Bound::Tcp(listener) => {
                let registered = listener.try_clone().and_then(TcpListener::from_std);
                registered.map(ServedPort::Tcp)
            }
            #[cfg(feature = "fault-injection")]
            Bound::Simulated(listener) => Ok(ServedPort::Simulated(listener.clone())),
        }
    }
}

impl ServedPort {
    /// The next connection, with the address of its other end.
    pub(crate) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((of_system(stream), peer))
            }
            #[cfg(feature = "fault-injection")]
            Self::Simulated(listener) => {
                let (stream, peer) = listener.accept().await;
                Ok((TcpStream::Simulated(stream), peer))
            }
        }
    }
}

/// Connects to `to`, from an address of ours where one is given. The kernel ends the connection when the
/// other host is gone without a word, as it does on our ports.
pub(crate) async fn connect(
    to: SocketAddr,
    from: Option<IpAddr>,
    keepalive: KeepAlive,
) -> io::Result<TcpStream> {
    #[cfg(feature = "fault-injection")]
    if let Some(network) = simulated::Network::current() {
        let stream = network.connect(from.unwrap_or(to.ip()), to).await;
        return stream.map(TcpStream::Simulated);
    }
    let stream = match from {
        None => tokio::net::TcpStream::connect(to).await?,
        Some(from) => {
            let socket = match from {
                IpAddr::V4(_) => TcpSocket::new_v4()?,
                IpAddr::V6(_) => TcpSocket::new_v6()?,
            };
            socket.bind(SocketAddr::new(from, 0))?;
            socket.connect(to).await?
        }
    };
    watch(&stream, &keepalive.options())?;
    Ok(of_system(stream))
}

/// Sends what goes out at once, straight to the kernel: tokio would first wait for its poll to report a
/// new socket.
pub(crate) fn send_at_once(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    #[cfg(feature = "fault-injection")]
    let stream = match stream {
        TcpStream::System(stream) => stream,
        TcpStream::Simulated(stream) => return stream.try_write(bytes),
    };
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::send(stream, bytes, flags).map_err(io::Error::from)
}

/// Whether the peer has sent its end of stream and nothing else.
pub(crate) fn is_ended(stream: &TcpStream) -> bool {
    #[cfg(feature = "fault-injection")]
    let stream = match stream {
        TcpStream::System(stream) => stream,
        TcpStream::Simulated(_) => return false,
    };
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(rustix::net::recv(stream, &mut [0; 1], flags), Ok((_, 0)))
}

/// Accepts connections of a unix socket until `stop`. Out of descriptors, it waits a moment instead of
/// spinning.
pub async fn accept_all(
    listener: &UnixListener,
    stop: &CancellationToken,
    mut serve: impl FnMut(UnixStream),
) {
    let failures = LogThrottle::new(LOG_INTERVAL);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => serve(stream),
            Err(error) => {
                if let Some(times) = failures.record() {
                    tracing::warn!(%error, times, "a connection to a local socket was not accepted");
                }
                tokio::time::sleep(STARVED_PAUSE).await;
            }
        }
    }
}

/// Accepts the connections of a unix socket that wait now, without waiting for others. Any error, "would
/// block" above all, is the business of the task that accepts.
pub fn accept_waiting(listener: &StdUnixListener, mut serve: impl FnMut(UnixStream)) {
    while let Ok((stream, _)) = listener.accept() {
        let stream = stream
            .set_nonblocking(true)
            .and_then(|()| UnixStream::from_std(stream));
        match stream {
            Ok(stream) => serve(stream),
            Err(error) => tracing::warn!(%error, "a connection to a local socket cannot be served"),
        }
    }
}

#[cfg(feature = "fault-injection")]
fn of_system(stream: tokio::net::TcpStream) -> TcpStream {
    TcpStream::System(stream)
}

#[cfg(not(feature = "fault-injection"))]
fn of_system(stream: tokio::net::TcpStream) -> TcpStream {
    stream
}

#[cfg(all(test, feature = "fault-injection"))]
mod tests {
    use socket2::SockRef;

    use super::*;

    #[tokio::test]
    async fn kernel_probes_the_other_end_of_a_connection_of_ours() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let to = listener.local_addr().expect("address");
        let seconds = Duration::from_secs;
        let written = KeepAlive {
            enabled: true,
            idle: Some(seconds(300)),
            interval: Some(seconds(20)),
            count: None,
        };
        let off = KeepAlive {
            enabled: false,
            ..written
        };
        for (from, keepalive, idle, user_timeout) in [
            (None, KeepAlive::default(), Some(60), 105),
            (Some(to.ip()), KeepAlive::default(), Some(60), 105),
            (None, written, Some(300), 300 + 9 * 20),
            (None, off, None, 105),
        ] {
            let stream = connect(to, from, keepalive).await.expect("connect");
            let TcpStream::System(stream) = stream else {
                panic!("a simulated network");
            };
            let socket = SockRef::from(&stream);
            assert_eq!(socket.keepalive().expect("keepalive"), idle.is_some());
            if let Some(idle) = idle {
                assert_eq!(socket.tcp_keepalive_time().expect("idle"), seconds(idle));
            }
            let given = socket.tcp_user_timeout().expect("user timeout");
            assert_eq!(given, Some(seconds(user_timeout)));
            assert!(socket.tcp_nodelay().expect("nodelay"));
        }
    }
}
