//! Who may do what to whom: whether a minion's key is good enough, who may publish, and which
//! minions a target means.
//!
//! Decisions only. What has been decided is carried out by `requests`; what the master keeps on disk
//! is read and written by `store`. The one thing that is asked of others is who a user is ([`eauth`]).

pub mod acl;
pub mod autosign;
pub mod blacklist;
pub mod eauth;
pub mod expression;
pub mod key_gate;
pub mod matching;
pub mod peers;
pub mod target;
