//! Messages to the bus and the publish port.

use actix::Message;
use saltern_model::{Event, Jid, MinionId};
use saltern_requests::Publication;

// ---- to Publisher ------------------------------------------------------------------------------

/// Number, encrypt, sign and send a load. From JobStore and JobTracker.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Publish {
    /// The job, or the jid of a load that is no job.
    pub jid: Jid,
    /// It is a job: its departure is reported to the tracker.
    pub is_job: bool,
    /// Of a job, those to whom this load is to go: of a batch, the minions of this part.
    pub minions: Vec<MinionId>,
    /// The load.
    pub publication: Publication,
}

/// Send a load to one connection of the publish port. From Maintenance.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Ask {
    /// The connection.
    pub connection: u64,
    /// The jid of the load.
    pub jid: Jid,
    /// The load.
    pub publication: Publication,
}

// ---- to EventPublisher -------------------------------------------------------------------------

/// Put events on the bus, in this order. From many actors.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Fire(pub Vec<Event>);

/// The same with events that were committed with the changes that caused them, so the event table
/// does not keep them once more. From JobStore.
#[derive(Message)]
#[rtype(result = "()")]
pub struct FireKept(pub Vec<Event>);
