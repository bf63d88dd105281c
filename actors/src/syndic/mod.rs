//! The native syndic: this master as a minion of the masters above it (`syndic_master`).
//!
//! One [`uplink`] for each master above has the session, receives its publications, has
//! them published here and sends events up. One [`outbox`] for each of them, and one for
//! returns that none of them asked for, reads the committed job database by a durable cursor of
//! its own: what was acknowledged to a minion goes up, whatever dies in between, and a master above
//! that is away holds up nobody else. docs/syndic.md describes it for operators.
//!
//! | file | what it decides |
//! |---|---|
//! | `upper` | what is known of a master above; shared by all others |
//! | `uplink` | sessions, subscription, start events; stands by while salt-syndic runs |
//! | `publication` | how a publication from above goes through the gate: one of a jid at a time, again after a moment |
//! | `downward` | a publication from above as a job for the gate of this master |
//! | `outbox` | when and to whom returns go, in frames or one request after the other, and what is dropped by policy |
//! | `routes` | which master above a job came from |
//! | `inventory` | the list of minions below for a master above, in parts, then its changes |
//! | `minions_below` | what that list is made of |
//! | `view` | standing of connections and outboxes, for `saltern syndics` |
//! | `upward` | rows of the database as the load of `_syndic_return` |
//! | `upward_events` | which events go up, and their bounded queue |
//! | `upward_verdicts` | why minions are silent, for the master whose job it is |
//!
//! Not here: what a syndic below this master may say (`saltern_requests::syndics`).

pub(crate) mod downward;
pub(crate) mod inventory;
pub(crate) mod metrics;
pub(crate) mod minions_below;
pub(crate) mod outbox;
pub(crate) mod publication;
pub(crate) mod routes;
pub(crate) mod uplink;
pub(crate) mod upper;
pub(crate) mod upward;
pub(crate) mod upward_events;
pub(crate) mod upward_verdicts;
pub(crate) mod view;
