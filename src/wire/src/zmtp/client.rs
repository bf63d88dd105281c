//! Client ends of ZeroMQ: a [`ReqClient`] is one socket and no task; a [`SubClient`] is read by
//! its owner. See [`client`](crate::client).

use std::net::SocketAddr;

use bytes::{BufMut, Bytes, BytesMut};
use tokio_util::codec::Decoder;

use super::codec::{Codec, HEADER_MAX, Item, put_command, put_frame_header};
use super::command::{Command, Ready, SocketType};
use super::greeting::Greeting;
use crate::client::connection::{Connection, READ_AHEAD};
use crate::client::{ClientError, Route};
use crate::port::SizeLimits;

/// One connection to a listener, on the client side.
struct End {
    connection: Connection,
    codec: Codec,
    /// PONGs to be written; kept here so that a dropped future loses none of their bytes.
    pongs: BytesMut,
    /// The peer's greeting, once received.
    greeting: Option<Greeting>,
    ready: bool,
}

impl End {
    /// Connects, sends our greeting and READY in one piece and waits for the peer's: libzmq takes
    /// no message before it has sent its own READY.
    async fn connect(
        route: &Route,
        greeting: Greeting,
        ready: Ready,
        peers: &[SocketType],
    ) -> Result<Self, ClientError> {
        let mut end = Self {
            connection: Connection::connect(route).await?,
            codec: Codec::new(SizeLimits::KNOWN_PEER),
            pongs: BytesMut::new(),
            greeting: None,
            ready: false,
        };
        let mut hello = BytesMut::with_capacity(384);
        greeting.encode(&mut hello);
        put_command(&Command::Ready(ready), &mut hello);
        end.connection.write(&hello).await?;
        while !end.ready {
            let item = end.next().await?;
            end.advance(item, peers)?;
        }
        Ok(end)
    }

    /// The next item; cancel safe.
    async fn next(&mut self) -> Result<Item, ClientError> {
        let address = self.connection.address();
        loop {
            self.connection.write_pending(&mut self.pongs).await?;
            let item = self.codec.decode(&mut self.connection.buffer);
            if let Some(item) = item.map_err(|source| ClientError::Codec { address, source })? {
                return Ok(item);
            }
            let missing = self.codec.missing(&self.connection.buffer);
            self.connection.fill(missing).await?;
        }
    }

    /// The next frame; answers PINGs on the way. Cancel safe.
    async fn next_frame(&mut self, peers: &[SocketType]) -> Result<(bool, Bytes), ClientError> {
        loop {
            match self.next().await? {
                Item::Frame { more, payload } => return Ok((more, payload)),
                item => self.advance(item, peers)?,
            }
        }
    }

    fn advance(&mut self, item: Item, peers: &[SocketType]) -> Result<(), ClientError> {
        let address = self.connection.address();
        match item {
            Item::Greeting(greeting) => self.greeting = Some(greeting),
            Item::Command(Command::Ready(ready)) => {
                if !ready.socket_type.is_some_and(|kind| peers.contains(&kind)) {
                    return Err(ClientError::SocketType(address));
                }
                self.ready = true;
            }
            Item::Command(Command::Error(reason)) => {
                let reason = String::from_utf8_lossy(&reason).into_owned();
                return Err(ClientError::Refused { address, reason });
            }
            Item::Command(Command::Ping { context, .. }) => {
                put_command(&Command::Pong(context), &mut self.pongs);
            }
            Item::Command(_) => {}
            Item::Frame { .. } => return Err(ClientError::SocketType(address)),
        }
        Ok(())
    }
}

/// The client end of request and reply: a REQ socket.
///
/// Announces ZMTP 3.0, because no PING would be answered between two requests. If the listener
/// closes it meanwhile (libzmq with heartbeats does), the next request reconnects.
pub struct ReqClient {
    end: End,
    route: Route,
    identity: Bytes,
    /// A request is sent and its reply is pending.
    waiting: bool,
}

impl ReqClient {
    const PEERS: [SocketType; 2] = [SocketType::Router, SocketType::Rep];

    /// Connects and completes the handshake.
    ///
    /// # Errors
    ///
    /// No connection, or the peer does not answer requests.
    pub async fn connect(
        route: impl Into<Route>,
        identity: Option<&[u8]>,
    ) -> Result<Self, ClientError> {
        let route = route.into();
        let identity = Bytes::copy_from_slice(identity.unwrap_or_default());
        let end = Self::open(&route, &identity).await?;
        Ok(Self {
            end,
            route,
            identity,
            waiting: false,
        })
    }

    async fn open(route: &Route, identity: &Bytes) -> Result<End, ClientError> {
        let ready = Ready {
            socket_type: Some(SocketType::Req),
            identity: identity.clone(),
        };
        End::connect(route, Greeting::V30, ready, &Self::PEERS).await
    }

    /// The address connected to.
    pub fn address(&self) -> SocketAddr {
        self.end.connection.address()
    }

    /// Sends a request, and waits for the reply.
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
        // Also reads the PINGs that libzmq sends to 3.0 peers too.
        if self.end.connection.closed_meanwhile() {
            self.end = Self::open(&self.route, &self.identity).await?;
        }
        self.waiting = true;
        let mut head = BytesMut::with_capacity(2 + HEADER_MAX);
        put_frame_header(0, true, &mut head);
        put_frame_header(payload.len(), false, &mut head);
        if payload.len() <= READ_AHEAD {
            head.reserve(payload.len());
            head.put_slice(&payload);
            self.end.connection.write(&head).await?;
        } else {
            self.end.connection.write(&head).await?;
            self.end.connection.write(&payload).await?;
        }
        let reply = self.reply().await?;
        self.waiting = false;
        Ok(reply)
    }

    async fn reply(&mut self) -> Result<Bytes, ClientError> {
        let mut reply = None;
        let mut delimited = false;
        loop {
            let (more, frame) = self.end.next_frame(&Self::PEERS).await?;
            if delimited {
                reply.get_or_insert(frame);
            } else {
                delimited = frame.is_empty();
            }
            if !more {
                return reply.ok_or(ClientError::SocketType(self.end.connection.address()));
            }
        }
    }
}

/// The client end of publish: a SUB socket with fixed subscriptions.
pub struct SubClient {
    end: End,
    frames: Vec<Bytes>,
}

impl SubClient {
    const PEERS: [SocketType; 2] = [SocketType::Pub, SocketType::Xpub];

    /// Connects, completes the handshake and subscribes to each of `topics`.
    ///
    /// # Errors
    ///
    /// No connection, or the peer does not publish.
    pub async fn connect(route: impl Into<Route>, topics: &[&[u8]]) -> Result<Self, ClientError> {
        let ready = Ready {
            socket_type: Some(SocketType::Sub),
            identity: Bytes::new(),
        };
        let mut end = End::connect(&route.into(), Greeting::V31, ready, &Self::PEERS).await?;
        let commands = end.greeting.is_some_and(|greeting| greeting.minor >= 1);
        let mut bytes = BytesMut::with_capacity(128);
        for topic in topics {
            if commands {
                put_command(
                    &Command::Subscribe(Bytes::copy_from_slice(topic)),
                    &mut bytes,
                );
            } else {
                put_frame_header(1 + topic.len(), false, &mut bytes);
                bytes.put_u8(1);
                bytes.put_slice(topic);
            }
        }
        end.connection.write(&bytes).await?;
        Ok(Self {
            end,
            frames: Vec::new(),
        })
    }

    /// The frames of the next message. Cancel safe, and answers PINGs; so keep calling it.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub async fn next(&mut self) -> Result<Vec<Bytes>, ClientError> {
        loop {
            let (more, frame) = self.end.next_frame(&Self::PEERS).await?;
            self.frames.push(frame);
            if !more {
                return Ok(std::mem::take(&mut self.frames));
            }
        }
    }
}
