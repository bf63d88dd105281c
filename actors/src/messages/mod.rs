//! Every message between actors: a file for each branch, and there by receiver, with sender and
//! reply. Timers and messages to oneself are private to the actor's file.
//!
//! No branch owns this folder, so that any may send to any other without knowing its actors.
//!
//! Beside the messages there is shared state under a lock, which is taken for a moment and never held
//! across a message:
//!
//! | state | owner | who else locks it |
//! |---|---|---|
//! | `front::logins::Logins` (`lines`, `saved`, `login_workers`) | LoginWorkers | MWorker adds |
//! | `content::render_queue::RenderQueue`, one for renderings, one for wheels | Renderers | MWorker adds |
//! | `functions::runner::RunQueue` | Runners | MWorker, PeerCalls add |
//! | `automation::reactor::ReactionQueue` (`event_queues`, `news`, `rules`) | Reactor | the bus adds, the control socket replays |
//! | `events::bus::Bus` (`taps`, `subscribers`, a `queue` for each) | EventPublisher | subscribers take |
//! | `events::presence::Presence` (`accepted`, `table`, `before`, `heard`, `probes`) | shared | PubListener, MWorker, Maintenance |
//! | `events::batch_feed::BatchFeed` (`followed`) | Batches | JobTracker, event sockets |
//! | `jobs::job_completions::JobCompletions` (`followed`) | PeerCalls | JobTracker |
//! | `jobs::job_store::Seed::database` | JobStore | the thread that writes a displaced database |
//! | `upkeep::maintenance_tasks::MaintenanceTasks` (`records`, `starter`) | Maintenance | control socket, status port |
//!
//! Where two are held, this is the order: `Logins::saved` before `lines`; `Presence::accepted` before
//! `table`; `Bus::subscribers` before a subscriber's `queue`.

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
