//! Salt's own TCP transport (`transport: tcp`): on both ports a bare stream of packed maps
//! `{"head": …, "body": …}`, without any length in front (stock `salt/transport/tcp.py`,
//! `frame.py`).
//!
//! Any number of requests may be pending on one connection; the head of a request is returned with
//! its reply. A subscriber registers once, and gets what concerns it.
//!
//! Not here: the contents of a body, and TLS, which is a layer below ([`port`](crate::port)).

pub mod client;
pub mod codec;

pub(crate) mod framing;

pub(crate) use client::payload_of;
pub use client::{ReqClient, SubClient};
