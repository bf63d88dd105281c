//! The supervised actors of the master, the messages between them, and the tree that holds them.
//!
//! One file for each actor; `messages` lists all messages between actors; `tree` defines the
//! restart policies, and builds everything from the sink backwards. What an actor needs to restart
//! is its seed; everything else it owns dies with a panic.
//!
//! Read along with one return: `req_router`, `mworker`, `job_tracker`, `job_store`,
//! `event_publisher`.

mod answer;
mod auth_queue;
mod batches;
mod bus;
mod carry_out;
pub mod control;
mod engine;
mod event_publisher;
mod event_return;
mod event_sockets;
mod fair_queue;
mod health;
mod job_cache;
mod job_completions;
mod job_import;
mod job_mirror;
mod job_store;
mod job_tracker;
mod key_metrics;
mod latency;
mod listeners;
mod login_worker;
mod logins;
mod maintenance;
mod maintenance_tasks;
pub mod messages;
mod metric_aliases;
mod mworker;
mod peer_calls;
mod presence;
mod priority;
mod process_metrics;
mod publisher;
mod reactor;
mod registrar;
mod remotes;
mod render_queue;
mod renderer;
mod req_router;
mod rotation;
mod runner;
mod scheduler;
mod send;
mod status_port;
#[cfg(test)]
mod testing;
mod trace_exporter;
mod tree;
mod upkeep;
mod wal_checkpointer;
mod window;

pub use job_tracker::{Account, Missing, given_up};
pub use listeners::{check_addresses, check_tls};
pub use tree::{FollowError, Master, MasterParts, StartError};
