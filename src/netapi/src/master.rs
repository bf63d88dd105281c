//! Interface of the API to the master it is part of, and the link by which the clients of
//! `saltern-client` use it.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use saltern_base::blocking::BlockingError;
use saltern_client::control::ControlError;
use saltern_client::{ClientError, EventListener, EventSource, MasterLink};
use saltern_model::control::Account;
use saltern_model::{Jid, Tag};
use saltern_store::StoreError;
use saltern_wire::msgpack::Value;
use saltern_wire::port::InsideListener;

use crate::stream;

/// The master. Implemented by its actors, and by tests.
pub trait Master: Send + Sync + 'static {
    /// Hands a packed request to the gate; gives the packed reply, or `None` when there is no room
    /// for it, or it was lost.
    ///
    /// What was handed over is carried out, even if the future is dropped then.
    fn ask(&self, request: Bytes, sender: Sender) -> BoxFuture<'static, Option<Bytes>>;

    /// Subscribes to the events of one jid, which is named later ([`EventSource::only`]); the
    /// latest events before that are kept for it.
    fn listen(&self) -> Box<dyn EventSource>;

    /// Account of an open job; `None` when it is not open.
    fn account(&self, jid: Jid) -> BoxFuture<'static, Result<Option<Account>, ControlError>>;

    /// Fires an event, with `_stamp` added to its data, which is a map; `false` when it was lost.
    fn fire(&self, tag: Tag, data: Value) -> BoxFuture<'static, bool>;

    /// All events, for streams; `None` when they are not kept.
    fn events(&self) -> Option<Arc<dyn stream::EventSource>>;

    /// A new jid.
    fn mint(&self) -> Jid;

    /// Revokes a token. Blocks: it removes a file.
    ///
    /// # Errors
    /// It may still be good, if only to another master ([`StoreError::is_done_here`]).
    fn revoke(&self, token: &str) -> Result<(), StoreError>;

    /// The owner of a token that is good at this moment. Blocks: it reads a file.
    ///
    /// # Errors
    /// Nobody knows whether it is good.
    fn owner_of(&self, token: &str) -> Result<Option<TokenOwner>, StoreError>;
}

/// Why nobody knows whether a token is good.
#[derive(Debug, thiserror::Error)]
pub enum UncheckedToken {
    /// The work was not done.
    #[error(transparent)]
    Blocking(#[from] BlockingError),
    /// Its file cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The address of the HTTP client.
    pub from: SocketAddr,
    /// The pages that it uses.
    pub listener: InsideListener,
    /// The token of the request was good when it was looked at last. For admission only: the gate
    /// proves each request.
    pub is_proved: bool,
}

/// The owner of a token, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenOwner {
    /// The user.
    pub user: String,
    /// When the token ends, in seconds since 1970.
    pub ends: f64,
}

/// The link of one client of the API to the master.
pub(crate) struct InsideLink {
    master: Arc<dyn Master>,
    sender: Sender,
}

impl InsideLink {
    pub(crate) fn new(master: Arc<dyn Master>, sender: Sender) -> Self {
        Self { master, sender }
    }
}

impl MasterLink for InsideLink {
    fn check(&self) -> Result<(), ClientError> {
        Ok(())
    }

    fn request(&self, payload: Bytes) -> BoxFuture<'_, Result<Bytes, ClientError>> {
        let reply = self.master.ask(payload, self.sender);
        Box::pin(async move { reply.await.ok_or(ClientError::Overloaded) })
    }

    fn listen(&self) -> BoxFuture<'_, Result<EventListener, ClientError>> {
        let listener = EventListener::inside(self.master.listen());
        Box::pin(std::future::ready(Ok(listener)))
    }

    fn has_tracker(&self) -> bool {
        true
    }

    fn account(&self, jid: Jid) -> BoxFuture<'_, Result<Option<Account>, ControlError>> {
        self.master.account(jid)
    }
}
