//! What a transport is to the two listeners: how the bytes of a connection become what a peer
//! says, and how what it is told becomes bytes.
//!
//! A [`Framing`] never reads, writes or waits, and never reserves memory for what a peer
//! announces. Who may say what when, what it costs and what follows is up to the listeners.

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

    /// Says what is said first on a fresh connection, before its peer has said anything.
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

    /// What stands in front of a publication's payload. `topic` is known to ZeroMQ alone.
    pub(super) fn publication_head(self, topic: Option<&[u8]>, payload: usize) -> Bytes {
        match self {
            Self::ZeroMq => crate::zmtp::framing::publication_head(topic, payload),
            Self::Tcp => crate::tcp::framing::publication_head(payload),
            Self::WebSocket => crate::ws::framing::publication_head(payload),
        }
    }
}

/// Which of the two ports a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Request,
    Publish,
}

/// How far a handshake has come.
pub(crate) enum Greeted {
    /// More bytes are needed.
    Incomplete,
    /// The peer is refused, and told so with these bytes.
    Refused(Bytes, Close),
    /// It is complete; the peer waits for these bytes, if there are any.
    Done(Introduction, Bytes),
}

/// What a peer says of itself in the handshake.
pub(crate) struct Introduction {
    /// The identity it gave, empty if none.
    pub(crate) identity: Bytes,
    /// It waits for the reply to each request before the next one.
    pub(crate) one_at_a_time: bool,
    /// Its subscriber gets what concerns it without saying which topics it wants.
    pub(crate) hears_everything: bool,
}

/// One thing that a peer said.
pub(crate) enum Said {
    /// The beginning of something.
    Part,
    /// A request: what its reply has to carry back, and the payload.
    Request(Vec<Bytes>, Bytes),
    /// Wants publications that begin so.
    Subscribe(Bytes),
    /// Wants them no longer.
    Cancel(Bytes),
    /// Who the subscriber is, in words that the wire does not understand.
    Registration(Bytes),
    /// Is to be answered with these bytes, and asks for nothing else.
    Ping(Bytes),
    /// Asks for nothing.
    Chatter,
    /// Takes its leave, and is told these bytes.
    Farewell(Bytes),
}

/// See the module.
pub(crate) trait Framing: Send {
    /// The next step of the handshake.
    fn greet(&mut self, buffer: &mut BytesMut) -> Result<Greeted, Close>;

    /// The next thing that is whole in `buffer`.
    fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Said>, Close>;

    /// How many bytes `buffer` lacks before [`Self::next`] can say more, as far as can be told;
    /// at least 1.
    fn missing(&self, buffer: &[u8]) -> usize;

    /// Whether what `buffer` begins with may be (a part of) a message rather than a command.
    fn at_message(&self, buffer: &[u8]) -> bool;

    /// Whether a message has begun that is no longer in the buffer.
    fn in_message(&self) -> bool;

    /// Other sizes from the next message on.
    fn set_sizes(&mut self, sizes: SizeLimits);

    /// What asks the peer for a sign of life, if it would answer.
    fn ping(&self) -> Option<Bytes>;

    /// Appends what stands in front of the payload of a reply.
    fn put_reply_head(&self, envelope: &[Bytes], payload: usize, out: &mut BytesMut);
}
