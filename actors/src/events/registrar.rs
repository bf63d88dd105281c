//! Reports subscribers to [`Presence`], and decrypts the registrations of the TCP transport.
//!
//! Called on the connections' own tasks. Decrypting a registration costs as much as a request,
//! which the connection pays for: it may register a few times a second.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use saltern_requests::{Services, registered_minion};
use saltern_wire::port::{Close, SubscriberWatch};

use crate::events::presence::Presence;

/// Watch of the subscribers, on behalf of [`Presence`].
pub(crate) struct Registrar {
    pub(crate) presence: Arc<Presence>,
    pub(crate) services: Arc<Services>,
}

impl SubscriberWatch for Registrar {
    fn subscribed(&self, connection: u64, address: SocketAddr, topic: &[u8]) {
        self.presence.subscribed(connection, address, topic);
    }

    fn registers(&self, connection: u64, words: &Bytes) -> Option<Bytes> {
        let minion = registered_minion(words, &self.services)?;
        self.presence.registered(connection, &minion);
        tracing::debug!(%minion, connection, "a subscriber has answered the identity probe");
        Some(Bytes::copy_from_slice(minion.as_str().as_bytes()))
    }

    fn asked(&self, connection: u64) {
        self.presence.asked(connection);
    }

    fn answered(&self, connection: u64) {
        self.presence.answered(connection);
    }

    fn left(&self, connection: u64, reason: Close) {
        self.presence.left(connection, reason);
    }
}
