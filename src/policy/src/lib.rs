//! Authorization and targeting: whether a minion's key is accepted, which users may publish, and
//! which minions a target means.
//!
//! Decisions only. What has been decided is carried out by `requests`; what the master keeps on disk
//! is read and written by `store`. Only [`eauth`] asks other systems: who a user is.

pub mod acl;
pub mod autosign;
pub mod blacklist;
pub mod eauth;
pub mod expression;
pub mod key_gate;
pub mod matching;
pub mod peers;
pub mod target;
