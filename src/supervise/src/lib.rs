//! Erlang-like supervision for actix actors.

#[cfg(not(panic = "unwind"))]
compile_error!("supervision catches panics: build with panic = \"unwind\"");

mod child;
mod current;
mod inbox;
mod line;
mod metrics;
mod policy;
mod runner;
mod stop;
mod tree;

pub use child::Child;
pub use current::{ActorId, current_actor};
pub use line::ChildState;
pub use policy::{Budget, ChildSpec, Placement, Restart, Strategy};
pub use stop::Stopped;
pub use tree::{ChildHealth, ExitReason, Failure, HEARTBEAT, Supervisor, Tree};
