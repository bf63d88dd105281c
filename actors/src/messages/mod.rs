//! Every message between actors: a file for each branch, and there by receiver, with sender and
//! reply. Timers and messages to oneself are private to the actor's file.
//!
//! No branch owns this folder, so that any may send to any other without knowing its actors.

mod content;
mod events;
mod front;
mod functions;
mod jobs;
mod maintenance_task;
mod upkeep;

pub use self::content::*;
pub use self::events::*;
pub use self::front::*;
pub use self::functions::*;
pub use self::jobs::*;
pub use self::maintenance_task::MaintenanceTask;
pub use self::upkeep::*;
