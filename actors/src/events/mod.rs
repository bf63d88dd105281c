//! Output of the master: events on the bus for local programs and returners, loads on the publish
//! port for minions. Keeps track of who is connected there.
//!
//! Knows no job. What local programs say about batches is parsed here and passed on.

pub(crate) mod batch_feed;
pub(crate) mod bus;
pub(crate) mod call_steps;
pub(crate) mod event_feed;
pub(crate) mod event_publisher;
pub(crate) mod event_return;
pub(crate) mod event_sockets;
pub(crate) mod presence;
pub(crate) mod publisher;
pub(crate) mod registrar;
pub(crate) mod rotation;
