//! The supervised actors of the master, the messages between them, and the tree that holds them.
//!
//! One folder for each branch, one file for each actor. A folder uses only folders above it in the
//! list below; a test compares (`tests/arrows.rs`). `messages` lists all messages between actors;
//! `tree` defines the restart policies, and builds everything from the sink backwards. What an actor
//! needs to restart is its seed; everything else it owns dies with a panic.
//!
//! Read along with one return: `front/req_router.rs`, `front/mworker.rs`, `jobs/job_tracker.rs`,
//! `jobs/job_store.rs`, `events/event_publisher.rs`.

mod shared;

pub mod messages;

mod events;

mod upkeep;

mod jobs;

mod content;

mod functions;

mod automation;

mod front;

mod operator;

mod tree;

use automation::{engine, reactor, scheduler};
use content::{remotes, render_queue, renderer};
use events::{
    bus, event_publisher, event_return, event_sockets, presence, publisher, registrar, rotation,
};
use front::{auth_queue, carry_out, login_worker, logins, mworker, req_router};
use functions::{peer_calls, runner};
use jobs::{
    batches, job_cache, job_completions, job_import, job_mirror, job_store, job_tracker,
    wal_checkpointer,
};
pub use operator::control;
use operator::{health, key_metrics, metric_aliases, process_metrics, status_port, trace_exporter};
#[cfg(test)]
use shared::testing;
use shared::{answer, fair_queue, latency, priority, send, window};
use tree::listeners;
use upkeep::{maintenance, maintenance_tasks};

pub use job_tracker::{Account, Missing, given_up};
pub use listeners::{check_addresses, check_tls};
pub use tree::{FollowError, Master, MasterParts, StartError};
