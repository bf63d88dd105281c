//! The supervised actors of the master, the messages between them, and the tree that holds them.
//!
//! One folder for each branch, one file for each actor. A folder uses only folders above it in this
//! list; `tests/arrows.rs` keeps it.
//!
//! | folder | what it is for |
//! |---|---|
//! | `shared` | replies, sending, fair queues: what every branch uses |
//! | `messages` | all messages between actors |
//! | `events` | the bus, its sockets and returners; the publish port and who is connected |
//! | `upkeep` | periodic maintenance |
//! | `jobs` | store, tracker, batches, and those who follow the store |
//! | `content` | rendering, git remotes |
//! | `functions` | functions of the master, for users and minions |
//! | `automation` | reactor, schedule, engines |
//! | `front` | the request path: router, workers, authentications, log-ins |
//! | `syndic` | uplinks to masters above, and the outboxes of what goes up |
//! | `api` | the HTTP API's way into the request path, its events and its listeners |
//! | `operator` | control socket, health, status port, metrics, traces |
//! | `tree` | listeners, and the start of all of it, from the sink backwards |
//!
//! An actor restarts from its seed; everything else it owns dies with a panic.
//!
//! Read along with one return: `front/req_router.rs`, `front/mworker.rs`, `jobs/job_tracker.rs`,
//! `jobs/job_store.rs`, `events/event_publisher.rs`.

mod api;
mod automation;
mod content;
mod events;
mod front;
mod functions;
mod jobs;
pub mod messages;
mod operator;
mod shared;
mod syndic;
mod tree;
mod upkeep;

pub use operator::control;
pub use operator::live_master::Diagnose;
pub use tree::listeners::{check_addresses, check_tls, open_relay, remove_sockets};
pub use tree::standby_port::{StandbyPort, StandbyState};
pub use tree::{FollowError, Master, MasterParts, StartError};
