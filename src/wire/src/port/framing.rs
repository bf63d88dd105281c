//! Transport interface of the two listeners: decodes a connection's bytes into messages of the
//! peer, and encodes what is sent.
//!
//! A [`Framing`] never reads, writes or waits, and never reserves memory for what a peer
//! announces. Protocol order, costs and reactions are up to the listeners.

use bytes::{Bytes, BytesMut};

use super::limits::SizeLimits;
use super::metrics::Close;

/// The transports that a listener can speak, by their names in stock's option `transport`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// ZMTP, ZeroMQ's protocol.
    ZeroMq,
    /// A bare stream of packed maps.
    Tcp,
    /// RFC 6455.
    WebSocket,
}

impl Transport {
    /// Every transport.
    pub const ALL: [Self; 3] = [Self::ZeroMq, Self::Tcp, Self::WebSocket];

    /// The name in stock's option, also the value of the label `transport`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ZeroMq => "zeromq",
            Self::Tcp => "tcp",
            Self::WebSocket => "ws",
        }
    }

    /// The first bytes of a fresh connection, before the peer has sent anything.
    pub(super) fn hello(self, side: Side) -> Bytes {
        match self {
            Self::ZeroMq => crate::zmtp::framing::hello(side),
            Self::Tcp | Self::WebSocket => Bytes::new(),
        }
    }

    pub(super) fn framing(self, side: Side, sizes: SizeLimits) -> Box<dyn Framing> {
        match self {
            Self::ZeroMq => Box::new(crate::zmtp::framing::Zmtp::new(side, sizes)),
            Self::Tcp => Box::new(crate::tcp::framing::SaltTcp::new(side, sizes)),
            Self::WebSocket => Box::new(crate::ws::framing::WebSocket::new(side, sizes)),
        }
    }

    /// The messages of a peer whose bytes arrive in these pieces, each as a text, and last why the
    /// connection ends, if it does. Reads as the listeners do, for comparisons of one stream that is
    /// cut in several ways.
    pub fn messages_of<'a>(
        self,
        is_publish: bool,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Vec<String> {
        let side = match is_publish {
            true => Side::Publish,
            false => Side::Request,
        };
        let mut framing = self.framing(side, SizeLimits::UNKNOWN_PEER);
        let (mut buffer, mut messages, mut is_greeted) = (BytesMut::new(), Vec::new(), false);
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                match step(&mut *framing, &mut is_greeted, &mut buffer) {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break,
                    Err(close) => {
                        messages.push(format!("closed: {close:?}"));
                        return messages;
                    }
                }
            }
        }
        messages
    }

    /// The bytes in front of a publication's payload. Only ZeroMQ uses `topic`.
    pub(super) fn publication_head(self, topic: Option<&[u8]>, payload: usize) -> Bytes {
        match self {
            Self::ZeroMq => crate::zmtp::framing::publication_head(topic, payload),
            Self::Tcp => crate::tcp::framing::publication_head(payload),
            Self::WebSocket => crate::ws::framing::publication_head(payload),
        }
    }
}

/// The next message as a text, or the handshake; `None` when bytes are missing.
fn step(
    framing: &mut dyn Framing,
    is_greeted: &mut bool,
    buffer: &mut BytesMut,
) -> Result<Option<String>, Close> {
    if *is_greeted {
        let message = framing.next(buffer)?;
        return Ok(message.map(|message| format!("{message:?}")));
    }
    match framing.greet(buffer)? {
        Greeted::Incomplete => Ok(None),
        Greeted::Refused(_, close) => Err(close),
        Greeted::Done(introduction, answer) => {
            *is_greeted = true;
            Ok(Some(format!("{introduction:?}, {answer:?}")))
        }
    }
}

/// Port of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Request,
    Publish,
}

/// Progress of a handshake.
pub(crate) enum Greeted {
    /// More bytes are needed.
    Incomplete,
    /// The peer is refused, and gets these bytes.
    Refused(Bytes, Close),
    /// It is complete; the peer waits for these bytes, if there are any.
    Done(Introduction, Bytes),
}

/// The peer's statement in the handshake.
#[derive(Debug)]
pub(crate) struct Introduction {
    /// The identity it gave, empty if none.
    pub(crate) identity: Bytes,
    /// It is in lockstep: it waits for each reply before the next request.
    pub(crate) lockstep: bool,
    /// As a subscriber it receives all publications that concern it, without subscriptions.
    pub(crate) receives_all: bool,
}

/// One message of a peer.
#[derive(Debug)]
pub(crate) enum PeerMessage {
    /// A part of a message.
    Part,
    /// A request: the envelope to return with its reply, and the payload.
    Request(Vec<Bytes>, Bytes),
    /// Subscribes to publications with this prefix.
    Subscribe(Bytes),
    /// Cancels such a subscription.
    Cancel(Bytes),
    /// The subscriber's identity, opaque to this crate.
    Registration(Bytes),
    /// Is answered with these bytes, and asks for nothing else.
    Ping(Bytes),
    /// Needs no answer.
    Ignored,
    /// Closes the connection, and gets these bytes.
    Close(Bytes),
}

/// Codec of one transport, on one connection.
pub(crate) trait Framing: Send {
    /// The next step of the handshake.
    fn greet(&mut self, buffer: &mut BytesMut) -> Result<Greeted, Close>;

    /// The next complete message in `buffer`.
    fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<PeerMessage>, Close>;

    /// Bytes that `buffer` lacks before [`Self::next`] can make progress, as far as known; at
    /// least 1.
    fn missing(&self, buffer: &[u8]) -> usize;

    /// Whether `buffer` may begin with (a part of) a message rather than a command.
    fn at_message(&self, buffer: &[u8]) -> bool;

    /// Whether a message has begun that is no longer in the buffer.
    fn in_message(&self) -> bool;

    /// Sets the size limits from the next message on.
    fn set_sizes(&mut self, sizes: SizeLimits);

    /// A PING for the peer, if it would answer.
    fn ping(&self) -> Option<Bytes>;

    /// Appends the bytes in front of the payload of a reply.
    fn put_reply_head(&self, envelope: &[Bytes], payload: usize, out: &mut BytesMut);
}
