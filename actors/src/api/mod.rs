//! The HTTP API inside the master: its way into the gate, the events of its calls, and the actor
//! that owns its listeners.
//!
//! A request of the API is delivered to the router of port 4506 with the address of its HTTP client.
//! So the same classes, bounds, checks and metrics hold for it, and no second set of rules exists. Until
//! its token was proved once, a request has the standing of an unknown peer.

pub(crate) mod job_events;
pub(crate) mod net_api;

use std::sync::Arc;

use actix::Recipient;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use saltern_client::EventSource;
use saltern_client::control::ControlError;
use saltern_model::control::Account;
use saltern_model::{Jid, Tag};
use saltern_netapi::{Master, Sender, TokenOwner, stream};
use saltern_requests::Services;
use saltern_store::StoreError;
use saltern_wire::msgpack::Value;
use saltern_wire::port::Standing;

use crate::api::job_events::JobEvents;
use crate::events::event_feed::EventFeed;
use crate::messages::{Accept, Explain, Fire};

/// The master, as the API sees it.
pub(crate) struct InsideMaster {
    pub(crate) router: Recipient<Accept>,
    pub(crate) tracker: Recipient<Explain>,
    pub(crate) bus: Recipient<Fire>,
    pub(crate) events: Arc<JobEvents>,
    pub(crate) feed: Option<Arc<EventFeed>>,
    pub(crate) services: Arc<Services>,
}

impl Master for InsideMaster {
    fn ask(&self, request: Bytes, sender: Sender) -> BoxFuture<'static, Option<Bytes>> {
        let standing = match sender.is_proved {
            true => Standing::Known,
            false => Standing::Unknown,
        };
        let client = (sender.listener, sender.from);
        Accept::deliver(&self.router, client, standing, request)
    }

    fn listen(&self) -> Box<dyn EventSource> {
        self.events.listen()
    }

    fn account(&self, jid: Jid) -> BoxFuture<'static, Result<Option<Account>, ControlError>> {
        let tracker = self.tracker.clone();
        Box::pin(async move {
            let account = tracker.send(Explain(jid)).await;
            account.map_err(|_| ControlError::Busy)
        })
    }

    fn fire(&self, tag: Tag, data: Value) -> BoxFuture<'static, bool> {
        let Value::Map(entries) = data else {
            return Box::pin(std::future::ready(false));
        };
        let event = saltern_requests::event(&self.services, tag, entries);
        let bus = self.bus.clone();
        Box::pin(async move { bus.send(Fire(vec![event])).await.is_ok() })
    }

    fn events(&self) -> Option<Arc<dyn stream::EventSource>> {
        let feed = self.feed.clone()?;
        Some(feed)
    }

    fn mint(&self) -> Jid {
        self.services.minter.mint()
    }

    fn revoke(&self, token: &str) -> Result<(), StoreError> {
        self.services.users.tokens.remove(token).map(drop)
    }

    fn owner_of(&self, token: &str) -> Result<Option<TokenOwner>, StoreError> {
        let token = self.services.users.tokens.find(token)?;
        Ok(token.map(|token| TokenOwner {
            user: token.name().to_owned(),
            ends: token.ends(),
        }))
    }
}
