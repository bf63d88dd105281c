//! Tests of server and client over real sockets.
//! One binary a crate, so that it is linked once.

#![allow(
    clippy::unwrap_used,
    reason = "a failed unwrap is a failed test, in helpers too"
)]

mod bad_input;
mod client;
mod http2;
mod running;
mod server;
mod streams;
mod tls;
mod websocket;
