//! Client ends of Salt's TCP transport.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use tokio_util::codec::Decoder;

use super::codec::Codec;
use super::framing::{parts, put_head};
use crate::client::connection::Connection;
use crate::client::{ClientError, Route};
use crate::msgpack::{Dialect, Encoder, RawValue};
use crate::port::SizeLimits;

/// One connection to a listener, on the client side.
struct End {
    connection: Connection,
    codec: Codec,
}

impl End {
    async fn connect(route: &Route) -> Result<Self, ClientError> {
        Ok(Self {
            connection: Connection::connect(route).await?,
            codec: Codec::new(SizeLimits::KNOWN_PEER.message),
        })
    }

    async fn write(&mut self, head: &[u8], body: &[u8]) -> Result<(), ClientError> {
        let mut frame = BytesMut::with_capacity(16 + head.len() + body.len());
        put_head(head, &mut frame);
        frame.extend_from_slice(body);
        self.connection.write(&frame).await
    }

    /// Head and body of the next frame; cancel safe.
    async fn next(&mut self) -> Result<(RawValue, RawValue), ClientError> {
        let address = self.connection.address();
        loop {
            let frame = self.codec.decode(&mut self.connection.buffer);
            if let Some(frame) = frame.map_err(|source| ClientError::Tcp { address, source })? {
                return parts(frame).ok_or(ClientError::SocketType(address));
            }
            self.connection.fill(self.codec.missing()).await?;
        }
    }
}

/// The client end of request and reply, one request at a time.
pub struct ReqClient {
    end: End,
    route: Route,
    requests: u64,
    /// A request is sent and its reply is pending.
    waiting: bool,
}

impl ReqClient {
    /// Connects.
    ///
    /// # Errors
    ///
    /// No connection.
    pub async fn connect(route: impl Into<Route>) -> Result<Self, ClientError> {
        let route = route.into();
        Ok(Self {
            end: End::connect(&route).await?,
            route,
            requests: 0,
            waiting: false,
        })
    }

    /// The address connected to.
    pub fn address(&self) -> SocketAddr {
        self.end.connection.address()
    }

    /// Sends one packed request, and waits for the packed reply. If the listener closed the
    /// connection since the last one, it reconnects.
    ///
    /// When the future is dropped before the reply, the client is unusable: its next request is
    /// refused.
    ///
    /// # Errors
    ///
    /// The connection broke, the peer is no request listener, or an earlier request was given up.
    pub async fn request(&mut self, payload: Bytes) -> Result<Bytes, ClientError> {
        if self.waiting {
            return Err(ClientError::Abandoned(self.end.connection.address()));
        }
        if self.end.connection.closed_meanwhile() {
            self.end = End::connect(&self.route).await?;
        }
        self.waiting = true;
        self.requests += 1;
        let mut head = Vec::with_capacity(32);
        Encoder::new(&mut head, Dialect::Bin)
            .map(1)
            .str("mid")
            .str(&self.requests.to_string());
        self.end.write(&head, &payload).await?;
        loop {
            let (answered, body) = self.end.next().await?;
            if answered.bytes().as_ref() == head {
                self.waiting = false;
                return Ok(body.into_bytes());
            }
        }
    }
}

/// The client end of publish.
pub struct SubClient {
    end: End,
}

impl SubClient {
    /// Connects and registers: one packed value, or nothing.
    ///
    /// # Errors
    ///
    /// No connection.
    pub async fn connect(
        route: impl Into<Route>,
        registration: &[u8],
    ) -> Result<Self, ClientError> {
        let mut end = End::connect(&route.into()).await?;
        if !registration.is_empty() {
            end.write(b"\x80", registration).await?;
        }
        Ok(Self { end })
    }

    /// The payload of the next publication. Cancel safe.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub async fn next(&mut self) -> Result<Bytes, ClientError> {
        let (_, body) = self.end.next().await?;
        Ok(payload_of(body))
    }
}

/// The payload of a publication: stock 3006 sends it as it is, all others its bytes.
pub(crate) fn payload_of(body: RawValue) -> Bytes {
    match body.as_shared_bytes() {
        Some(payload) => payload,
        None => body.into_bytes(),
    }
}
