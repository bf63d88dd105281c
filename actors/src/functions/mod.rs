//! Functions of the master (runners), called by users, minions, the schedule and the reactor.

pub(crate) mod peer_calls;
pub(crate) mod runner;
