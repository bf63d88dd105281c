//! Wire protocols and packing. Knows no load: the meaning of a message is decided above this
//! crate.
//!
//! Suggested reading order: [`msgpack`] (both dialects), [`json`], [`ipc`] (event-socket frames), [`port`]
//! (the two hardened listeners), then their transports: [`zmtp`] (ZeroMQ's wire protocol), [`tcp`]
//! and [`ws`]; then [`client`], light ends for our own command line and minion, and
//! [`server_certificate`], how our TLS clients verify a server.

pub mod client;
pub mod ipc;
pub mod json;
pub mod member;
pub mod msgpack;
pub mod net;
pub mod port;
pub mod server_certificate;
pub mod tcp;
pub mod ws;
pub mod zmtp;
