//! Connections between the members of a cluster: a member that stands by relays those of its minions
//! and commands to the active one, which serves them as its own.
//!
//! A relayed connection is one TLS connection (`tls`), a `header`, then bytes both ways (`relay`).

mod connection;
mod half_close;
mod header;
mod relay;
mod tls;

pub(crate) use connection::{CONFIRMED, RelayedSender};
pub use connection::{LocalPeer, RelayedConnection, RelayedConnections};
pub(crate) use half_close::HalfClosing;
pub use header::{Door, Header, HeaderError, RelayedPeer};
pub use relay::BeforeAnswers;
pub(crate) use relay::{RelayEnd, relay};
pub use tls::{MemberTls, MemberTlsError};
