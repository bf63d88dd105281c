//! How bytes travel and how they are packed. Knows no load: what a message means is decided
//! above this crate.
//!
//! Suggested reading order: [`msgpack`] (both dialects), [`ipc`] (event-socket frames), [`port`]
//! (the two hardened listeners), then what they speak: [`zmtp`] (ZeroMQ's wire protocol), [`tcp`]
//! and [`ws`]; at last [`client`], light ends for our own command line and minion. [`http`] stands
//! apart: a small server for those who watch the master, and for webhooks.

pub mod client;
pub mod http;
pub mod ipc;
pub mod msgpack;
pub mod port;
pub mod tcp;
pub mod ws;
pub mod zmtp;
