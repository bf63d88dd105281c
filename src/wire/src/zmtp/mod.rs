//! ZMTP 3.0 and 3.1, ZeroMQ's wire protocol, with the NULL mechanism over TCP.
//!
//! The two exposed ports of a Salt master talk to everybody, so everything here is built limits
//! first: nothing is reserved because a peer announced it, every wait has a deadline, every queue
//! a bound, and every connection that is closed is counted by its reason. The ends for peers that
//! we trust ([`ReqClient`], [`SubClient`]) are plain and light.
//!
//! Not here: CURVE and PLAIN, the other socket types, reconnecting on behalf of a caller in the
//! middle of an exchange, and any idea of what a payload means.
//!
//! Reading order: [`limits`], [`greeting`], [`command`], [`codec`], [`listen`], then the
//! listeners ([`req`], [`publish`]) and the clients.

pub mod limits;

pub mod greeting;

pub mod command;

pub mod codec;

pub mod listen;

pub mod metrics;

mod accept;
mod bell;
mod link;
mod quota;

pub mod req;

pub mod publish;

pub mod client;

pub use client::{ClientError, ReqClient, Route, SubClient};
pub use limits::{Heartbeat, PeerLimits, Progress, PubLimits, Rate, ReqLimits, SizeLimits};
pub use listen::{KeepAlive, ListenError, ListenOptions, bind};
pub use metrics::{Close, Refusal};
pub use publish::{
    PubHandle, PubListener, PubMessage, PublishCount, SubscriberInfo, SubscriberWatch,
};
pub use req::{Incoming, Peer, ReplyHandle, ReqListener, RequestSink};
