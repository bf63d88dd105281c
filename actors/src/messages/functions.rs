//! Messages to the actors that run functions of the master.

use actix::Message;
use saltern_model::Jid;
use saltern_requests::PeerCall;

use crate::shared::answer::PendingReply;

// ---- to PeerCalls ------------------------------------------------------------------------------

/// A minion calls the master and waits. From MWorker; the reply goes to the minion.
#[derive(Message)]
#[rtype(result = "()")]
pub struct TakePeerCall {
    /// The call.
    pub call: Box<PeerCall>,
    /// The reply if the call fails.
    pub answer: PendingReply,
}

/// A job has ended that a minion waits for. From JobTracker; sent without regard to the mailbox's
/// bound, once for each such job, whose beginning was a bounded message before.
#[derive(Message)]
#[rtype(result = "()")]
pub struct JobOver(pub Jid);
