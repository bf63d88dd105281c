//! Client ends for trusted peers: our own minion, syndic, command line and swarm, over ZeroMQ, and over
//! Salt's TCP and websocket transports, plain or in TLS.
//!
//! Timeouts belong to the caller: drop the future. The ends do not reconnect in the middle of an
//! exchange, because only the caller knows whether the request is idempotent.

use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use crate::port::{Close, KeepAlive, Transport};
use crate::{tcp, ws, zmtp};

pub(crate) mod connection;
mod tls;

pub use tls::{ClientTls, ClientTlsOptions};

/// Why an exchange failed. The client is unusable afterwards.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection could not be made, or broke.
    #[error("connection to {address} failed")]
    Io {
        /// The other end.
        address: SocketAddr,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The peer closed the connection.
    #[error("{0} closed the connection")]
    Closed(SocketAddr),
    /// The peer's bytes are malformed.
    #[error("cannot read what {address} sends")]
    Codec {
        /// The other end.
        address: SocketAddr,
        /// The reason.
        #[source]
        source: zmtp::codec::CodecError,
    },
    /// The same, over TCP.
    #[error("cannot read what {address} sends")]
    Tcp {
        /// The other end.
        address: SocketAddr,
        /// The reason.
        #[source]
        source: tcp::codec::CodecError,
    },
    /// The peer refused us.
    #[error("{address} refused the connection: \"{reason}\"")]
    Refused {
        /// The other end.
        address: SocketAddr,
        /// Its reason.
        reason: String,
    },
    /// The peer is another kind of socket.
    #[error("{0} is not the kind of socket that this client talks to")]
    SocketType(SocketAddr),
    /// An earlier request was abandoned, so its late reply could be taken for that of this one.
    #[error("an earlier request to {0} was given up; connect anew")]
    Abandoned(SocketAddr),
    /// The same, over websockets.
    #[error("cannot read what {address} sends: {}", reason.label())]
    WebSocket {
        /// The other end.
        address: SocketAddr,
        /// The reason.
        reason: Close,
    },
    /// The peers do not agree on TLS, or one does not take the certificate of the other.
    #[error("no TLS with {address}")]
    Tls {
        /// The other end.
        address: SocketAddr,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

/// Addresses and transport of a connection.
#[derive(Clone)]
pub struct Route {
    /// The listener.
    pub to: SocketAddr,
    /// Our own address (a minion's `source_address`); chosen by the kernel when absent.
    pub from: Option<IpAddr>,
    /// The transport of the listener.
    pub transport: Transport,
    /// TLS of the listener. There is none over ZeroMQ.
    pub tls: Option<ClientTls>,
    /// How the kernel finds out that the other host is gone without a word.
    pub keepalive: KeepAlive,
}

impl From<SocketAddr> for Route {
    fn from(to: SocketAddr) -> Self {
        Self {
            to,
            from: None,
            transport: Transport::ZeroMq,
            tls: None,
            keepalive: KeepAlive::default(),
        }
    }
}

/// The client end of request and reply.
pub enum ReqClient {
    /// Over ZeroMQ.
    ZeroMq(zmtp::ReqClient),
    /// Over TCP.
    Tcp(tcp::ReqClient),
    /// Over websockets.
    WebSocket(ws::ReqClient),
}

impl ReqClient {
    /// Connects and completes the handshake.
    ///
    /// # Errors
    ///
    /// No connection, or the peer does not answer requests.
    pub async fn connect(route: impl Into<Route>) -> Result<Self, ClientError> {
        let route = route.into();
        match route.transport {
            Transport::ZeroMq => Ok(Self::ZeroMq(zmtp::ReqClient::connect(route, None).await?)),
            Transport::Tcp => Ok(Self::Tcp(tcp::ReqClient::connect(route).await?)),
            Transport::WebSocket => Ok(Self::WebSocket(ws::ReqClient::connect(route).await?)),
        }
    }

    /// The address connected to.
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::ZeroMq(client) => client.address(),
            Self::Tcp(client) => client.address(),
            Self::WebSocket(client) => client.address(),
        }
    }

    /// Sends one packed request, and waits for the packed reply.
    ///
    /// When the future is dropped before the reply, the client is unusable: its next request is
    /// refused.
    ///
    /// # Errors
    ///
    /// The connection broke, the peer is no request listener, or an earlier request was given up.
    pub async fn request(&mut self, payload: Bytes) -> Result<Bytes, ClientError> {
        match self {
            Self::ZeroMq(client) => client.request(payload).await,
            Self::Tcp(client) => client.request(payload).await,
            Self::WebSocket(client) => client.request(payload).await,
        }
    }
}

/// The client end of publish.
pub enum SubClient {
    /// Over ZeroMQ.
    ZeroMq(zmtp::SubClient),
    /// Over TCP.
    Tcp(tcp::SubClient),
    /// Over websockets.
    WebSocket(ws::SubClient),
}

impl SubClient {
    /// Connects; over ZeroMQ it subscribes to each of `topics`, over TCP it sends the packed
    /// `registration`. Over websockets there is neither.
    ///
    /// # Errors
    ///
    /// No connection, or the peer does not publish.
    pub async fn connect(
        route: impl Into<Route>,
        topics: &[&[u8]],
        registration: &[u8],
    ) -> Result<Self, ClientError> {
        let route = route.into();
        match route.transport {
            Transport::ZeroMq => Ok(Self::ZeroMq(zmtp::SubClient::connect(route, topics).await?)),
            Transport::Tcp => Ok(Self::Tcp(
                tcp::SubClient::connect(route, registration).await?,
            )),
            Transport::WebSocket => Ok(Self::WebSocket(ws::SubClient::connect(route).await?)),
        }
    }

    /// The frames of the next message. Cancel safe, and answers PINGs; so keep calling it.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub async fn next(&mut self) -> Result<Vec<Bytes>, ClientError> {
        match self {
            Self::ZeroMq(client) => client.next().await,
            Self::Tcp(client) => Ok(vec![client.next().await?]),
            Self::WebSocket(client) => Ok(vec![client.next().await?]),
        }
    }
}
