//! How bytes travel and how they are packed. Knows no load: what a message means is decided
//! above this crate.
//!
//! Suggested reading order: [`msgpack`] (both dialects), [`ipc`] (event-socket frames),
//! [`zmtp`] (ZeroMQ's wire protocol, the two hardened listeners and light client ends).

pub mod ipc;
pub mod msgpack;
pub mod zmtp;
