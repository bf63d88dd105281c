//! The trait of a supervised actor.

use actix::{Actor, Context, ResponseActFuture};

/// An actor that can be built again from nothing but its seed.
///
/// The value is thrown away whenever it panics or stops; what must outlive it (addresses of
/// other actors, shared indexes, handles of listeners) belongs in the [`Seed`](Self::Seed).
/// `stopping` and `stopped` of [`Actor`] should hold no logic: after a panic they do not run.
pub trait Child: Actor<Context = Context<Self>> {
    /// Data to start the actor, and to start it again, on any thread.
    type Seed: Clone + Send + 'static;

    /// The name in logs and the `actor` label of the metrics: lower case, no spaces.
    const NAME: &'static str;

    /// How many messages may wait before `try_send` says "full". Must not be 0.
    ///
    /// The runner takes up to the same number out of the channel to be able to count them, so up
    /// to twice as many messages are held, plus the one slot that actix grants each `Addr`.
    /// Mind that slot: a *fresh clone* of an `Addr` may always send once, so a producer keeps
    /// one `Addr` and sends through it, instead of cloning for every message.
    const MAILBOX: usize;

    /// Makes the value. Runs on the actor's own thread; a panic in here is a failed start.
    fn build(seed: &Self::Seed) -> Self;

    /// The tree is being stopped: take nothing new and finish what was begun.
    ///
    /// Messages are still delivered while the returned future runs. When it is done and the
    /// mailbox is empty, or when the child's shutdown budget is used up, the actor is stopped.
    /// `None` means that there is nothing to finish beyond the messages already waiting.
    fn drain(&mut self, ctx: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        let _ = ctx;
        None
    }
}
