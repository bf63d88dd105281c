//! Messages to the request path.

use std::net::SocketAddr;

use actix::dev::SendError;
use actix::{Message, Recipient};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use saltern_wire::port::{Incoming, InsideListener, Standing};

use crate::shared::latency::Latency;
use crate::shared::window::Ticket;

// ---- to ReqRouter ------------------------------------------------------------------------------

/// A request came in. From the connections of the request port; no reply, the request carries it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Accept(pub Incoming);

impl Accept {
    /// Hands over a request that a task of this process makes for a client of another listener;
    /// gives the reply, or `None` when there is no room for it, or it was lost.
    ///
    /// What was handed over is carried out, even if the future is dropped then.
    pub(crate) fn deliver(
        router: &Recipient<Self>,
        client: (InsideListener, SocketAddr),
        standing: Standing,
        request: Bytes,
    ) -> BoxFuture<'static, Option<Bytes>> {
        let (incoming, reply) = Incoming::inside(client, standing, request);
        match router.try_send(Self(incoming)) {
            Ok(()) => Box::pin(reply),
            Err(SendError::Full(accept)) => {
                let router = router.clone();
                Box::pin(async move {
                    router.send(accept).await.ok()?;
                    reply.await
                })
            }
            Err(SendError::Closed(_)) => Box::pin(std::future::ready(None)),
        }
    }
}

pub use crate::shared::window::PlaceFree;

// ---- to MWorker --------------------------------------------------------------------------------

/// Handle one request. From ReqRouter.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Work {
    /// The request.
    pub request: Incoming,
    /// The action.
    pub treatment: Treatment,
    /// Its place in the worker's window.
    pub ticket: Ticket,
    /// Measures how long its sender waits, unless that one is turned away.
    pub latency: Option<Latency>,
}

/// See [`Work`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Handle the request.
    Handle,
    /// Send its sender, an authenticating minion, the "retry later" answer.
    RetryLater,
}
