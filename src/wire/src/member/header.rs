//! Header of a relayed connection: the door that its peer came to, and who the peer is.
//!
//! `length (1 byte) | version | door | peer`, where `length` counts what follows it. A peer is
//! `4 | address | port`, `6 | address | port`, or `1 | uid`, all numbers big-endian.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::port::Transport;
use crate::port::framing::Side;

/// The version of this release.
const VERSION: u8 = 1;

/// Bytes of the longest header, after its length.
const MAX_LEN: usize = 21;

/// A listener of a master, as its own peers find it, or something that members ask of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Door {
    /// Publications over ZeroMQ (`publish_port`).
    PublishZeroMq,
    /// Publications over TCP.
    PublishTcp,
    /// Publications over WebSockets.
    PublishWebSocket,
    /// Requests over ZeroMQ (`ret_port`).
    RequestZeroMq,
    /// Requests over TCP.
    RequestTcp,
    /// Requests over WebSockets.
    RequestWebSocket,
    /// Events for local programs (`master_event_pub.ipc`).
    Events,
    /// Events of local programs (`master_event_pull.ipc`).
    FiredEvents,
    /// The control socket.
    Control,
    /// The API of a section (`rest_cherrypy`).
    CherryPy,
    /// The same (`rest_tornado`).
    Tornado,
    /// The same (`rest_wsgi`).
    Wsgi,
    /// Our own API (`saltern_api`).
    Api,
    /// No listener: a member asks for a new shared key, because a minion's key was deleted there.
    KeyRotation,
    /// No listener: a member asks for the networks of minions.
    KnownNetworks,
}

impl Door {
    /// Every door, in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::PublishZeroMq,
        Self::PublishTcp,
        Self::PublishWebSocket,
        Self::RequestZeroMq,
        Self::RequestTcp,
        Self::RequestWebSocket,
        Self::Events,
        Self::FiredEvents,
        Self::Control,
        Self::CherryPy,
        Self::Tornado,
        Self::Wsgi,
        Self::Api,
        Self::KeyRotation,
        Self::KnownNetworks,
    ];

    /// The door of the API that an option asks for.
    pub fn of_api(option: &str) -> Option<Self> {
        let mut apis = [Self::CherryPy, Self::Tornado, Self::Wsgi, Self::Api].into_iter();
        apis.find(|door| door.label() == option)
    }

    /// The door of a listener.
    pub(crate) fn new(side: Side, transport: Transport) -> Self {
        match (side, transport) {
            (Side::Publish, Transport::ZeroMq) => Self::PublishZeroMq,
            (Side::Publish, Transport::Tcp) => Self::PublishTcp,
            (Side::Publish, Transport::WebSocket) => Self::PublishWebSocket,
            (Side::Request, Transport::ZeroMq) => Self::RequestZeroMq,
            (Side::Request, Transport::Tcp) => Self::RequestTcp,
            (Side::Request, Transport::WebSocket) => Self::RequestWebSocket,
        }
    }

    /// Its label in metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::PublishZeroMq => "publish",
            Self::PublishTcp => "publish_tcp",
            Self::PublishWebSocket => "publish_ws",
            Self::RequestZeroMq => "request",
            Self::RequestTcp => "request_tcp",
            Self::RequestWebSocket => "request_ws",
            Self::Events => "events",
            Self::FiredEvents => "fired_events",
            Self::Control => "control",
            Self::CherryPy => "rest_cherrypy",
            Self::Tornado => "rest_tornado",
            Self::Wsgi => "rest_wsgi",
            Self::Api => "saltern_api",
            Self::KeyRotation => "key_rotation",
            Self::KnownNetworks => "known_networks",
        }
    }

    /// Whether its peers are users of the machine, and are passed on when the active member has confirmed
    /// that it serves them.
    pub(crate) fn is_local(self) -> bool {
        use Door::{Control, Events, FiredEvents, KeyRotation, KnownNetworks};
        matches!(
            self,
            Events | FiredEvents | Control | KeyRotation | KnownNetworks
        )
    }

    /// Whether it is the request port, over any transport.
    pub(crate) fn is_of_requests(self) -> bool {
        use Door::{RequestTcp, RequestWebSocket, RequestZeroMq};
        matches!(self, RequestZeroMq | RequestTcp | RequestWebSocket)
    }

    /// Whether a peer of this kind may come to it.
    pub(crate) fn takes(self, peer: RelayedPeer) -> bool {
        self.is_local() == matches!(peer, RelayedPeer::User(_))
    }

    /// Whether its peers send something before they are sent anything, at once.
    pub(crate) fn has_eager_peers(self) -> bool {
        // A peer of the transport TCP may connect long before it has something to say.
        !self.is_local() && !matches!(self, Self::PublishTcp | Self::RequestTcp)
    }

    fn number(self) -> u8 {
        match self {
            Self::PublishZeroMq => 1,
            Self::PublishTcp => 2,
            Self::PublishWebSocket => 3,
            Self::RequestZeroMq => 4,
            Self::RequestTcp => 5,
            Self::RequestWebSocket => 6,
            Self::Events => 7,
            Self::FiredEvents => 8,
            Self::Control => 9,
            Self::CherryPy => 10,
            Self::Tornado => 11,
            Self::Wsgi => 12,
            Self::Api => 13,
            Self::KeyRotation => 14,
            Self::KnownNetworks => 15,
        }
    }

    fn of(number: u8) -> Result<Self, HeaderError> {
        let mut all = Self::ALL.into_iter();
        all.find(|door| door.number() == number)
            .ok_or(HeaderError::Door(number))
    }
}

/// The peer of a relayed connection, as the relay sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayedPeer {
    /// The other end of a TCP connection.
    Address(SocketAddr),
    /// The user at the other end of a unix socket.
    User(u32),
}

/// Header of a relayed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Where the peer has connected to.
    pub door: Door,
    /// Its peer.
    pub peer: RelayedPeer,
}

/// Why a header is refused.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The connection ended in it.
    #[error("the header of a relayed connection is cut off")]
    Io(#[source] std::io::Error),
    /// Longer or shorter than any header.
    #[error("the header of a relayed connection has a wrong length")]
    Length,
    /// Of another release.
    #[error("a member relays by version {0} of the protocol, which this release does not know")]
    Version(u8),
    /// A door that this release does not have.
    #[error("a member relays to door {0}, which this release does not know")]
    Door(u8),
    /// A peer of an unknown kind.
    #[error("a member relays for a peer of an unknown kind")]
    Peer,
}

impl Header {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = vec![VERSION, self.door.number()];
        match self.peer {
            RelayedPeer::Address(address) => {
                match address.ip().to_canonical() {
                    IpAddr::V4(ip) => {
                        body.push(4);
                        body.extend(ip.octets());
                    }
                    IpAddr::V6(ip) => {
                        body.push(6);
                        body.extend(ip.octets());
                    }
                }
                body.extend(address.port().to_be_bytes());
            }
            RelayedPeer::User(uid) => {
                body.push(1);
                body.extend(uid.to_be_bytes());
            }
        }
        // At most `MAX_LEN`.
        let mut bytes = vec![u8::try_from(body.len()).unwrap_or(u8::MAX)];
        bytes.append(&mut body);
        bytes
    }

    /// Reads it, and nothing beyond it.
    ///
    /// # Errors
    /// The connection ended, or it is not a header of this release.
    pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Self, HeaderError> {
        let length = usize::from(stream.read_u8().await.map_err(HeaderError::Io)?);
        let mut buffer = [0; MAX_LEN];
        let body = buffer.get_mut(..length).ok_or(HeaderError::Length)?;
        stream.read_exact(body).await.map_err(HeaderError::Io)?;
        Self::decode(body)
    }

    fn decode(body: &[u8]) -> Result<Self, HeaderError> {
        match *body {
            [version, ..] if version != VERSION => Err(HeaderError::Version(version)),
            [_, door, kind, ref peer @ ..] => Ok(Self {
                door: Door::of(door)?,
                peer: decode_peer(kind, peer)?,
            }),
            _ => Err(HeaderError::Length),
        }
    }
}

fn decode_peer(kind: u8, peer: &[u8]) -> Result<RelayedPeer, HeaderError> {
    match kind {
        4 => {
            let (ip, port) = address_of::<4>(peer)?;
            let ip = IpAddr::V4(Ipv4Addr::from(ip));
            Ok(RelayedPeer::Address(SocketAddr::new(ip, port)))
        }
        6 => {
            let (ip, port) = address_of::<16>(peer)?;
            let ip = IpAddr::V6(Ipv6Addr::from(ip));
            Ok(RelayedPeer::Address(SocketAddr::new(ip, port)))
        }
        1 => {
            let uid = peer.try_into().map_err(|_| HeaderError::Length)?;
            Ok(RelayedPeer::User(u32::from_be_bytes(uid)))
        }
        _ => Err(HeaderError::Peer),
    }
}

fn address_of<const N: usize>(peer: &[u8]) -> Result<([u8; N], u16), HeaderError> {
    let (ip, port) = peer.split_first_chunk::<N>().ok_or(HeaderError::Length)?;
    let port = port.try_into().map_err(|_| HeaderError::Length)?;
    Ok((*ip, u16::from_be_bytes(port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers() -> [RelayedPeer; 3] {
        [
            RelayedPeer::Address(([192, 0, 2, 7], 40_001).into()),
            RelayedPeer::Address("[2001:db8::7]:40001".parse().expect("an address")),
            RelayedPeer::User(1000),
        ]
    }

    #[tokio::test]
    async fn header_is_read_back_and_leaves_what_follows() {
        for door in Door::ALL {
            for peer in peers() {
                let header = Header { door, peer };
                let mut bytes = header.encode();
                assert!(bytes.len() <= MAX_LEN + 1);
                bytes.extend(b"rest");
                let mut stream = bytes.as_slice();
                assert_eq!(Header::read(&mut stream).await.expect("a header"), header);
                assert_eq!(stream, b"rest");
            }
        }
    }

    #[tokio::test]
    async fn header_cut_anywhere_is_refused() {
        for peer in peers() {
            let bytes = Header {
                door: Door::RequestTcp,
                peer,
            }
            .encode();
            for length in 0..bytes.len() {
                let mut stream = &bytes[..length];
                let refused = Header::read(&mut stream).await;
                assert!(matches!(refused, Err(HeaderError::Io(_))), "{length}");
                let mut shorter = bytes[..length].to_vec();
                if let Some(first) = shorter.first_mut() {
                    *first = u8::try_from(length - 1).expect("short");
                    assert!(Header::read(&mut shorter.as_slice()).await.is_err());
                }
            }
        }
    }

    #[tokio::test]
    async fn header_of_an_unknown_version_door_or_length_is_refused() {
        let read = async |bytes: &[u8]| Header::read(&mut &bytes[..]).await;
        let version = read(&[7, 2, 1, 1, 0, 0, 0, 0]).await;
        assert!(matches!(version, Err(HeaderError::Version(2))));
        let door = read(&[7, 1, 99, 1, 0, 0, 0, 0]).await;
        assert!(matches!(door, Err(HeaderError::Door(99))));
        let kind = read(&[7, 1, 1, 9, 0, 0, 0, 0]).await;
        assert!(matches!(kind, Err(HeaderError::Peer)));
        let long = read(&[255; 256]).await;
        assert!(matches!(long, Err(HeaderError::Length)));
    }
}
