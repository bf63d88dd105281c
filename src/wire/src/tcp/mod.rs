//! Salt's own TCP transport (`transport: tcp`): on both ports a bare stream of packed maps
//! `{"head": …, "body": …}`, without any length in front (stock `salt/transport/tcp.py`,
//! `frame.py`).
//!
//! Any number of requests may be under way on one connection; the head of a request comes back
//! with its reply. A subscriber says who it is once, and gets what concerns it.
//!
//! Not here: what is in a body, and TLS, which goes below ([`port`](crate::port)).

pub mod client;
pub mod codec;

pub(crate) mod framing;

pub use client::{ReqClient, SubClient};
