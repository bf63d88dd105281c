//! ZMTP 3.0 and 3.1, ZeroMQ's wire protocol, with the NULL mechanism over TCP.
//!
//! Not here: CURVE and PLAIN, the other socket types, reconnecting in the middle of an exchange,
//! and the meaning of a payload.
//!
//! Reading order: [`greeting`], [`command`], [`codec`], then `framing`, which the listeners of
//! [`port`](crate::port) use, and the clients.

pub mod greeting;

pub mod command;

pub mod codec;

pub(crate) mod framing;

pub mod client;

pub use client::{ReqClient, SubClient};
