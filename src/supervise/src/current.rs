//! The actor that this thread polls right now.
//!
//! The panic hook runs before the stack unwinds, so it can ask here which actor it was.
//! Detached tasks (an actor's `ResponseFuture`, anything given to `actix_rt::spawn`) belong to
//! no actor and are not named.

use std::{cell::Cell, fmt};

/// The name of one supervised actor: what it is, and which one of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorId {
    /// [`Child::NAME`](crate::Child::NAME); also the `actor` label of every metric.
    pub name: &'static str,
    /// 0 for an actor that exists once; the members of a pool count from 1.
    pub instance: u32,
}

impl fmt::Display for ActorId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.instance {
            0 => out.write_str(self.name),
            number => write!(out, "{}-{number}", self.name),
        }
    }
}

thread_local! {
    static CURRENT: Cell<Option<ActorId>> = const { Cell::new(None) };
}

/// The actor whose code runs on this thread, if it is one of ours.
///
/// Meant for the panic hook. Also answers after the thread's locals are gone (with `None`).
#[must_use]
pub fn current_actor() -> Option<ActorId> {
    CURRENT.try_with(Cell::get).ok().flatten()
}

/// Names the actor until dropped, also when it is dropped by unwinding.
pub(crate) struct Scope(Option<ActorId>);

impl Scope {
    pub(crate) fn enter(actor: ActorId) -> Self {
        Self(
            CURRENT
                .try_with(|cell| cell.replace(Some(actor)))
                .ok()
                .flatten(),
        )
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // The locals may be gone when a runtime is torn down; then nobody asks any more.
        let _ = CURRENT.try_with(|cell| cell.set(self.0));
    }
}
