//! Client ends for trusted peers: our own minion, command line and swarm, over ZeroMQ or Salt's
//! TCP transport.
//!
//! Timeouts belong to the caller: drop the future. The ends do not reconnect in the middle of an
//! exchange, because only the caller knows whether the request is idempotent.

use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use crate::port::Transport;
use crate::{tcp, zmtp};

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
    /// There is no client for the transport.
    #[error("there is no client for the transport \"{0}\", only for \"zeromq\" and \"tcp\"")]
    Transport(&'static str),
}

/// Addresses and transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The listener.
    pub to: SocketAddr,
    /// Our own address (a minion's `source_address`); chosen by the kernel when absent.
    pub from: Option<IpAddr>,
    /// The transport of the listener.
    pub transport: Transport,
}

impl From<SocketAddr> for Route {
    fn from(to: SocketAddr) -> Self {
        Self {
            to,
            from: None,
            transport: Transport::ZeroMq,
        }
    }
}

/// The client end of request and reply.
pub enum ReqClient {
    /// Over ZeroMQ.
    ZeroMq(zmtp::ReqClient),
    /// Over TCP.
    Tcp(tcp::ReqClient),
}

impl ReqClient {
    /// Connects and completes the handshake.
    ///
    /// # Errors
    ///
    /// No connection, the peer does not answer requests, or the transport has no client here.
    pub async fn connect(route: impl Into<Route>) -> Result<Self, ClientError> {
        let route = route.into();
        match route.transport {
            Transport::ZeroMq => Ok(Self::ZeroMq(zmtp::ReqClient::connect(route, None).await?)),
            Transport::Tcp => Ok(Self::Tcp(tcp::ReqClient::connect(route).await?)),
            other @ Transport::WebSocket => Err(ClientError::Transport(other.name())),
        }
    }

    /// The address connected to.
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::ZeroMq(client) => client.address(),
            Self::Tcp(client) => client.address(),
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
        }
    }
}

/// The client end of publish.
pub enum SubClient {
    /// Over ZeroMQ.
    ZeroMq(zmtp::SubClient),
    /// Over TCP.
    Tcp(tcp::SubClient),
}

impl SubClient {
    /// Connects; over ZeroMQ it subscribes to each of `topics`, over TCP it sends the packed
    /// `registration`.
    ///
    /// # Errors
    ///
    /// No connection, the peer does not publish, or the transport has no client here.
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
            other @ Transport::WebSocket => Err(ClientError::Transport(other.name())),
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
        }
    }
}
