//! The two exposed ports of a Salt master, over all transports.
//!
//! They accept any peer, so everything here is built limits first: nothing is reserved because a
//! peer announced it, every wait has a deadline, every queue a bound, and every connection that is
//! closed is counted by its reason. One listener serves several transports at once: they share its
//! limits and its table of connections.
//!
//! Not here: the framing of each transport ([`zmtp`](crate::zmtp), [`tcp`](crate::tcp),
//! [`ws`](crate::ws)), and the meaning of a payload.
//!
//! Reading order: [`limits`], [`listen`], `inherited`, `framing`, `stream`, `tls`, `network`, `accept`, `link`, then the
//! listeners ([`req`], [`publish`]), then those of a cluster's members: `relay` (`relay_target`, `relay_local`, `dials`) where one stands by, `member_port`
//! and `relayed` where one is active.

pub mod limits;

pub mod listen;

mod inherited;

pub mod metrics;

pub(crate) mod framing;

mod stream;
pub(crate) mod tls;

mod accept;
mod relayed;

mod dials;
mod member_port;
mod relay;
mod relay_local;
mod relay_target;

mod link;
mod network;
mod quota;
mod wake_list;

pub mod req;

pub mod publish;

pub use accept::Socket;
pub use framing::Transport;
pub use inherited::Inherited;
pub use limits::{Heartbeat, PeerLimits, Progress, PubLimits, Rate, ReqLimits, SizeLimits};
pub use listen::{KeepAlive, ListenError, ListenOptions, bind};
pub use member_port::MemberPort;
pub use metrics::{Close, Refusal};
pub use network::{KnownNetworks, network};
pub use publish::{
    PubHandle, PubListener, PubMessage, PublishCount, SubscriberInfo, SubscriberWatch,
};
pub use relay::{Relay, RelayAsker, RelaySockets};
pub use relay_local::LocalSocket;
pub use relay_target::RelayTarget;
pub use req::{Incoming, InsideListener, Peer, ReplyHandle, ReqListener, RequestSink, Standing};
pub(crate) use stream::RelayedStream;
pub use tls::{PeerCertificate, Tls, TlsError, TlsOptions};
