//! Client ends of Salt's websocket transport. See [`client`](crate::client).
//!
//! Stock's client makes a connection for each request; its listener takes any number on one.

use std::net::SocketAddr;

use bytes::{Buf, Bytes, BytesMut};
use tungstenite::handshake::client::{Response, generate_key};
use tungstenite::handshake::derive_accept_key;
use tungstenite::handshake::machine::TryParse;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::frames::{FrameReader, Mask, Received, put_frame};
use crate::client::connection::Connection;
use crate::client::{ClientError, Route};
use crate::msgpack::{Limits, RawValue};
use crate::port::SizeLimits;
use crate::tcp::payload_of;

/// The path that stock's clients ask for.
const PATH: &str = "/ws";

/// Longest head of the HTTP answer.
const MAX_HEAD: usize = 16 << 10;

/// One websocket, on the client side.
struct End {
    connection: Connection,
    frames: FrameReader,
    /// Pongs to be written; kept here so that a dropped future loses none of their bytes.
    pongs: BytesMut,
}

impl End {
    /// Connects and upgrades.
    async fn connect(route: &Route) -> Result<Self, ClientError> {
        let mut connection = Connection::connect(route).await?;
        let key = generate_key();
        let request = format!(
            "GET {PATH} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n",
            route.to
        );
        connection.write(request.as_bytes()).await?;
        upgraded(&mut connection, &key).await?;
        Ok(Self {
            connection,
            frames: FrameReader::new(false, SizeLimits::KNOWN_PEER),
            pongs: BytesMut::new(),
        })
    }

    fn address(&self) -> SocketAddr {
        self.connection.address()
    }

    /// The payload of the next binary message; answers pings. Cancel safe.
    async fn next(&mut self) -> Result<Bytes, ClientError> {
        let address = self.address();
        loop {
            self.connection.write_pending(&mut self.pongs).await?;
            let received = self.frames.next(&mut self.connection.buffer);
            match received.map_err(|reason| ClientError::WebSocket { address, reason })? {
                Some(Received::Message(Data::Binary, payload)) => return Ok(payload),
                Some(Received::Ping(payload)) => self.answer(&payload),
                Some(Received::Close(_)) => return Err(ClientError::Closed(address)),
                Some(Received::Message(..) | Received::Part | Received::Pong) => {}
                None => {
                    let missing = self.frames.missing(&self.connection.buffer);
                    self.connection.fill(missing).await?;
                }
            }
        }
    }
}

impl End {
    /// Whether a request may go out and the next message be taken for its reply. Nothing but pings and pongs
    /// may have come since the reply before: a message that nobody asked for would be taken for it.
    fn is_clear(&mut self) -> bool {
        if self.connection.closed_meanwhile() {
            return false;
        }
        loop {
            match self.frames.next(&mut self.connection.buffer) {
                Ok(Some(Received::Ping(payload))) => self.answer(&payload),
                Ok(Some(Received::Pong)) => {}
                Ok(None) => return self.connection.buffer.is_empty(),
                Ok(Some(_)) | Err(_) => return false,
            }
        }
    }

    /// Puts a pong among what is to be written.
    fn answer(&mut self, ping: &[u8]) {
        let pong = OpCode::Control(Control::Pong);
        put_frame(pong, ping, Some(mask()), &mut self.pongs);
    }
}

/// Waits for the answer to the upgrade, and verifies it.
async fn upgraded(connection: &mut Connection, key: &str) -> Result<(), ClientError> {
    let address = connection.address();
    let refused = |reason: String| ClientError::Refused { address, reason };
    loop {
        match Response::try_parse(&connection.buffer) {
            Ok(Some((size, response))) => {
                let accept = response.headers().get("Sec-WebSocket-Accept");
                let expected = derive_accept_key(key.as_bytes());
                return match (response.status().as_u16(), accept) {
                    (101, Some(accept)) if accept.as_bytes() == expected.as_bytes() => {
                        connection.buffer.advance(size);
                        Ok(())
                    }
                    (101, _) => Err(ClientError::SocketType(address)),
                    (status, _) => Err(refused(format!("HTTP status {status}"))),
                };
            }
            Ok(None) if connection.buffer.len() < MAX_HEAD => connection.fill(1).await?,
            Ok(None) => return Err(refused("an endless answer".to_owned())),
            Err(error) => return Err(refused(error.to_string())),
        }
    }
}

/// A key that nobody knows in advance (RFC 6455, 5.3).
fn mask() -> Mask {
    let mut mask = Mask::default();
    getrandom::fill(&mut mask).expect("invariant: the system has random bytes");
    mask
}

/// The client end of request and reply, one request at a time.
pub struct ReqClient {
    end: End,
    route: Route,
    /// A request is sent and its reply is pending.
    waiting: bool,
}

impl ReqClient {
    /// Connects.
    ///
    /// # Errors
    ///
    /// No connection, or the peer speaks no websockets.
    pub async fn connect(route: impl Into<Route>) -> Result<Self, ClientError> {
        let route = route.into();
        Ok(Self {
            end: End::connect(&route).await?,
            route,
            waiting: false,
        })
    }

    /// The address connected to.
    pub fn address(&self) -> SocketAddr {
        self.end.address()
    }

    /// Sends one packed request, and waits for the packed reply. If the listener closed the
    /// connection since the last one, or sent what nobody asked for, it reconnects.
    ///
    /// When the future is dropped before the reply, the client is unusable: its next request is
    /// refused.
    ///
    /// # Errors
    ///
    /// The connection broke, the peer is no request listener, or an earlier request was given up.
    pub async fn request(&mut self, payload: Bytes) -> Result<Bytes, ClientError> {
        if self.waiting {
            return Err(ClientError::Abandoned(self.address()));
        }
        if !self.end.is_clear() {
            self.end = End::connect(&self.route).await?;
        }
        self.waiting = true;
        let mut frame = BytesMut::with_capacity(16 + payload.len());
        let kind = OpCode::Data(Data::Binary);
        put_frame(kind, &payload, Some(mask()), &mut frame);
        drop(payload);
        self.end.connection.write(&frame).await?;
        let reply = self.end.next().await?;
        self.waiting = false;
        Ok(reply)
    }
}

/// The client end of publish.
pub struct SubClient {
    end: End,
}

impl SubClient {
    /// Connects. There is nothing to register: every subscriber gets all publications.
    ///
    /// # Errors
    ///
    /// No connection, or the peer speaks no websockets.
    pub async fn connect(route: impl Into<Route>) -> Result<Self, ClientError> {
        Ok(Self {
            end: End::connect(&route.into()).await?,
        })
    }

    /// The payload of the next publication. Cancel safe.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub async fn next(&mut self) -> Result<Bytes, ClientError> {
        let message = self.end.next().await?;
        let address = self.end.address();
        let body = RawValue::parse(message, &Limits::WIRE);
        body.map(payload_of)
            .map_err(|_| ClientError::SocketType(address))
    }
}
