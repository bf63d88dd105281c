//! Client ends of Salt's TCP transport.

use std::io;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::codec::Decoder;

use super::codec::Codec;
use super::framing::{parts, put_head};
use crate::client::{ClientError, Route};
use crate::msgpack::{Dialect, Encoder, RawValue};
use crate::net::{TcpStream, connect};
use crate::port::SizeLimits;

/// Bytes reserved ahead of those that arrive.
const READ_AHEAD: usize = 256 << 10;

/// One connection to a listener, on the client side.
struct End {
    stream: TcpStream,
    address: SocketAddr,
    codec: Codec,
    buffer: BytesMut,
}

impl End {
    async fn connect(route: Route) -> Result<Self, ClientError> {
        let address = route.to;
        let stream = connect(route.to, route.from)
            .await
            .map_err(|source| ClientError::Io { address, source })?;
        Ok(Self {
            stream,
            address,
            codec: Codec::new(SizeLimits::KNOWN_PEER.message),
            buffer: BytesMut::new(),
        })
    }

    fn broken(&self, source: io::Error) -> ClientError {
        match source.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                ClientError::Closed(self.address)
            }
            _ => ClientError::Io {
                address: self.address,
                source,
            },
        }
    }

    async fn write(&mut self, head: &[u8], body: &[u8]) -> Result<(), ClientError> {
        let mut frame = BytesMut::with_capacity(16 + head.len() + body.len());
        put_head(head, &mut frame);
        frame.extend_from_slice(body);
        let written = self.stream.write_all(&frame).await;
        written.map_err(|source| self.broken(source))
    }

    /// Head and body of the next frame; cancel safe.
    async fn next(&mut self) -> Result<(RawValue, RawValue), ClientError> {
        let address = self.address;
        loop {
            let frame = self.codec.decode(&mut self.buffer);
            if let Some(frame) = frame.map_err(|source| ClientError::Tcp { address, source })? {
                return parts(frame).ok_or(ClientError::SocketType(address));
            }
            if self.buffer.is_empty() {
                self.buffer = BytesMut::new();
                let readable = self.stream.readable().await;
                readable.map_err(|source| self.broken(source))?;
            }
            let missing = self.codec.missing();
            self.buffer.reserve(missing.clamp(4096, READ_AHEAD));
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => return Err(ClientError::Closed(address)),
                Ok(_) => {}
                Err(source) => return Err(self.broken(source)),
            }
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
            end: End::connect(route).await?,
            route,
            requests: 0,
            waiting: false,
        })
    }

    /// The address connected to.
    pub fn address(&self) -> SocketAddr {
        self.end.address
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
            return Err(ClientError::Abandoned(self.end.address));
        }
        if self.closed_meanwhile() {
            self.end = End::connect(self.route).await?;
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

    /// Whether the peer closed the connection between two requests.
    fn closed_meanwhile(&mut self) -> bool {
        match self.end.stream.try_read_buf(&mut self.end.buffer) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
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
        let mut end = End::connect(route.into()).await?;
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
        // Stock 3006 sends the payload itself, all others its bytes.
        Ok(match body.as_shared_bytes() {
            Some(payload) => payload,
            None => body.into_bytes(),
        })
    }
}
