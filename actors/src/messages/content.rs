//! Messages to the actors of what minions fetch.

use actix::Message;

// ---- to Remotes --------------------------------------------------------------------------------

/// Fetch the git remotes that are due. From Maintenance.
#[derive(Message)]
#[rtype(result = "()")]
pub struct FetchRemotes;
