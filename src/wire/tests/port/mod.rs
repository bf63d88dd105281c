//! Tests of the two ports over real sockets, with each transport: guarantees to callers, hostile
//! peers, and other implementations.

mod common;

mod promises;

mod admission;
mod hostile;

mod chunks;

mod watched;
mod zeromq_crate;

mod libzmq;

mod relayed;
mod tcp;
mod tls;
mod ws;
