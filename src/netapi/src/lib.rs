//! The HTTP interface of the master: streams of events and hooks.
//!
//! Knows neither actors nor sockets: events, sessions and the bus are traits that the master
//! implements. Decides nothing about who may run what; that is the gate of `requests`.
#![warn(clippy::indexing_slicing)]

pub mod hook;
pub mod stream;
