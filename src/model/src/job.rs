//! A job and a return, as they are stored.

use crate::{Jid, MinionId, Packed};

/// A published job, before its first return.
#[derive(Clone, Debug)]
pub struct JobRecord {
    /// Its id.
    pub jid: Jid,
    /// When it was made, in microseconds since 1970-01-01 UTC.
    pub created: i64,
    /// The user that published it.
    pub user: String,
    /// The function, or the functions of a compound command joined by commas.
    pub fun: String,
    /// The target as text, for people.
    pub tgt: String,
    /// The name of the target's type on the wire.
    pub tgt_type: String,
    /// The whole publish load as stock keeps it in `.load.p`, bin dialect.
    pub load: Packed,
    /// The minions that are expected to return.
    pub minions: Vec<MinionId>,
    /// Its returns are not to be stored (`nocache`).
    pub nocache: bool,
}

/// One minion's return of one job.
#[derive(Clone, Debug)]
pub struct ReturnRecord {
    /// Of which job.
    pub jid: Jid,
    /// Of which minion.
    pub minion: MinionId,
    /// When it reached the master, in microseconds since 1970-01-01 UTC.
    pub received: i64,
    /// The function.
    pub fun: String,
    /// The return code, the highest one of several functions; 0 when the minion sent none.
    pub retcode: i64,
    /// `success` of the minion's return.
    pub success: bool,
    /// The whole return load as it is fired on the bus, bin dialect.
    pub load: Packed,
}
