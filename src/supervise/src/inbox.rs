//! The mailbox of a supervised actor, which outlives the values that read from it.
//!
//! Actix owns the receiving end in the future of one value. Here the runner keeps it, and a
//! [`Pump`] (a future in the actor's context, thrown away with the context) handles what it
//! takes out. So the address stays good over restarts, messages can be counted, and one busy
//! mailbox cannot keep its thread for ever: actix itself polls a mailbox until it is empty.

use std::{
    cell::RefCell,
    collections::VecDeque,
    pin::Pin,
    rc::Rc,
    task::{Context as Task, Poll},
};

use actix::{
    ActorFuture, AsyncContext, Context,
    dev::{ContextParts, Envelope, EnvelopeProxy, channel::AddressReceiver},
};
use futures_util::Stream;

use crate::Child;

/// Messages handled before the thread's other work gets its turn.
const TURN: usize = 64;

pub(crate) struct Inbox<A: Child> {
    /// `None` once the actor has ended for good: the address is closed.
    channel: Option<AddressReceiver<A>>,
    taken: VecDeque<Envelope<A>>,
    /// Messages that may still be handled in this poll.
    turn: usize,
    /// The pump has looked and found nothing, and nothing was taken since.
    idle: bool,
    pub(crate) handled: u64,
}

enum Next<A: Child> {
    Message(Envelope<A>),
    Empty,
    TurnOver,
}

impl<A: Child> Inbox<A> {
    pub(crate) fn new(channel: AddressReceiver<A>) -> Self {
        Self {
            channel: Some(channel),
            taken: VecDeque::new(),
            turn: TURN,
            idle: false,
            handled: 0,
        }
    }

    /// Parts with which a context hands out the actor's address.
    pub(crate) fn context_parts(&self) -> Option<ContextParts<A>> {
        self.channel
            .as_ref()
            .map(|channel| ContextParts::new(channel.sender_producer()))
    }

    /// Messages taken out of the channel and not handled yet.
    pub(crate) fn len(&self) -> usize {
        self.taken.len()
    }

    /// Whether no message waits, and the last one was handled without a wait of the actor.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle
    }

    /// Called before each poll. Takes what has arrived even while the actor waits, so that it
    /// is counted.
    pub(crate) fn start_turn(&mut self, task: &mut Task<'_>) {
        self.turn = TURN;
        self.take(task);
    }

    /// Closes the address; callers that wait for an answer get an error. Runs the `Drop` of
    /// messages, which is foreign code.
    pub(crate) fn close(&mut self) {
        self.channel = None;
        self.taken.clear();
    }

    /// Takes what has arrived, as far as there is room. Unless the room is used up, the task is
    /// registered with the channel when this returns.
    fn take(&mut self, task: &mut Task<'_>) {
        let Some(channel) = &mut self.channel else {
            return;
        };
        while self.taken.len() < A::MAILBOX {
            match Pin::new(&mut *channel).poll_next(task) {
                Poll::Ready(Some(message)) => {
                    self.idle = false;
                    self.taken.push_back(message);
                }
                Poll::Ready(None) | Poll::Pending => return,
            }
        }
    }

    fn next(&mut self, task: &mut Task<'_>) -> Next<A> {
        if self.turn == 0 {
            return Next::TurnOver;
        }
        if self.taken.is_empty() {
            self.take(task);
        }
        match self.taken.pop_front() {
            Some(message) => {
                self.turn -= 1;
                self.handled += 1;
                Next::Message(message)
            }
            None => {
                self.idle = true;
                Next::Empty
            }
        }
    }
}

/// Feeds the mailbox to one value of the actor.
pub(crate) struct Pump<A: Child>(pub(crate) Rc<RefCell<Inbox<A>>>);

impl<A: Child> ActorFuture<A> for Pump<A> {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut A,
        context: &mut Context<A>,
        task: &mut Task<'_>,
    ) -> Poll<()> {
        // A handler may have begun to wait (`AtomicResponse`, `ctx.wait`) or to stop: then the
        // next message has to wait too. Actix polls this future again when the wait is over.
        while !context.waiting() {
            // Not in the `match`: the borrow must be over when the handler runs.
            let next = self.0.borrow_mut().next(task);
            match next {
                Next::Message(mut message) => message.handle(actor, context),
                Next::Empty => break,
                Next::TurnOver => {
                    task.waker().wake_by_ref();
                    break;
                }
            }
        }
        Poll::Pending
    }
}
