//! Messages to the request path.

use actix::Message;
use saltern_wire::port::Incoming;

use crate::shared::latency::Latency;
use crate::shared::window::Ticket;

// ---- to ReqRouter ------------------------------------------------------------------------------

/// A request came in. From the connections of the request port; no reply, the request carries it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Accept(pub Incoming);

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
