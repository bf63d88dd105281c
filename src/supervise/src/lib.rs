//! Erlang-like supervision for actix actors. Knows nothing of Salt.
//!
//! Actix restarts nothing that panics: the task dies, the address closes and the mailbox is
//! lost. Here every actor is run by a future that outlives its values (`runner.rs`). When an
//! actor panics (in a handler, a timer, a stream, a future of its context, `started`, or while it
//! is built) or stops unasked:
//!
//! - its value is dropped at once, with its timers, its futures and the answers they owe:
//!   a caller that waits for one gets `MailboxError::Closed` now, not after the back-off;
//! - the message being handled is lost and not tried again, so there is no poison loop;
//! - the address stays good, and the messages behind the fatal one are handled by a fresh value,
//!   built from the same [`Seed`](Child::Seed);
//! - other actors on the same thread are not affected.
//!
//! # Policies
//!
//! A [`ChildSpec`] says whether a child is restarted ([`Restart`]), how often ([`Budget`]), how
//! long it may drain, and on which thread it lives ([`Placement`]). The delay before a restart
//! is 0, then 100 ms, doubling up to 5 s, and 0 again after a quiet window.
//!
//! A child that fails is restarted alone. A restart must be allowed by the child's budget and by its supervisor's. If it is not, the
//! supervisor itself has failed, and the one above restarts it: all its children, in the order
//! of their start, with full budgets again. When the root has nothing left, the tree stops
//! itself, [`Tree::failed`] resolves, and the process should end with exit code 70 and let the
//! service manager start it anew.
//!
//! Supervision cannot cure a thread stuck in synchronous code. Every actor answers a heartbeat
//! outside its mailbox, [`Tree::liveness`] shows the age of the last answer, and
//! [`Tree::heartbeat`] resolves while all answer: a watchdog fed by it ends a stuck process.
//!
//! # Things to know about actix under supervision
//!
//! Each has a test in `tests/`.
//!
//! - An `AtomicResponse` (or `ctx.wait`) holds back the messages *and* the timers; a panic in it
//!   loses only its own answer.
//! - A `ResponseActFuture` belongs to the value: if the value dies, its sender gets an error.
//! - A `ResponseFuture` is a task of its own: it outlives the value, and its panic fails its
//!   sender but restarts nobody.
//! - A stream is gone with the value that added it, so add it in `started`, from the seed. When
//!   a stream ends, actix stops the actor, unless `StreamHandler::finished` is overridden.
//! - A child does not end because nobody holds its address any more.
//! - A fresh clone of an `Addr` may send once into a full mailbox; see [`Child::MAILBOX`].
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use actix::{Actor, Context, Handler, MailboxError, Message};
//! use saltern_base::metrics::Registry;
//! use saltern_supervise::{Budget, Child, ChildSpec, Placement, Tree};
//!
//! struct Divider {
//!     dividend: u32,
//! }
//!
//! impl Actor for Divider {
//!     type Context = Context<Self>;
//! }
//!
//! impl Child for Divider {
//!     type Seed = u32;
//!     const NAME: &'static str = "divider";
//!     const MAILBOX: usize = 128;
//!
//!     fn build(seed: &u32) -> Self {
//!         Self { dividend: *seed }
//!     }
//! }
//!
//! struct By(u32);
//!
//! impl Message for By {
//!     type Result = u32;
//! }
//!
//! impl Handler<By> for Divider {
//!     type Result = u32;
//!
//!     fn handle(&mut self, By(divisor): By, _: &mut Context<Self>) -> u32 {
//!         self.dividend / divisor
//!     }
//! }
//!
//! actix::System::new().block_on(async {
//!     let budget = Budget::new(3, Duration::from_secs(60));
//!     let tree = Tree::new("root", budget, &Registry::new());
//!     let spec = ChildSpec::permanent().on(Placement::thread("divider"));
//!     let divider = tree.root().start_child::<Divider>(spec, 84, 0);
//!
//!     assert_eq!(divider.send(By(2)).await, Ok(42));
//!     assert_eq!(divider.send(By(0)).await, Err(MailboxError::Closed));
//!     assert_eq!(divider.send(By(4)).await, Ok(21));
//!     assert_eq!(tree.liveness()[0].restarts, 1);
//!
//!     tree.shutdown().await;
//!     assert!(!divider.connected());
//! });
//! ```
//!
//! # What this is not
//!
//! No message is sent to a child behind its back, no actor is ever found by name, and nothing is
//! retried. Members of a pool are children of one name with different instance numbers; work is
//! distributed among them elsewhere.

#[cfg(not(panic = "unwind"))]
compile_error!("supervision catches panics: build with panic = \"unwind\"");

mod child;
mod current;
mod family;
mod inbox;
mod line;
mod metrics;
mod policy;
mod reserved;
mod runner;
mod stop;
mod thread;
mod tree;
mod work;

pub use child::Child;
pub use current::{ActorId, current_actor};
pub use line::ChildState;
pub use policy::{Budget, ChildSpec, Placement, Record, Restart};
pub use reserved::Reserved;
pub use stop::Stopped;
pub use thread::runtime;
pub use tree::{ChildHealth, ExitReason, Failure, HEARTBEAT, Supervisor, Tree};
pub use work::Work;
