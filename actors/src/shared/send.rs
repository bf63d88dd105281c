//! Outbox for sending to bounded mailboxes from a handler: no message is lost, and order is kept.
//!
//! While a receiver has no room, its sender handles nothing else, so backpressure reaches the
//! network. Whatever the same handler sends later, to any receiver, and whatever it does with
//! [`Outbox::then`], waits behind: what follows a commit follows in its order.
//!
//! Actors must not wait for each other in a circle: the arrows in `messages` form none, except
//! that the store and the publisher report to the tracker, and the tracker to Batches; these
//! messages are bounded otherwise and never wait.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

use actix::dev::SendError;
use actix::{Actor, ActorFuture, AsyncContext, Context, Message, Recipient};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

/// An actor that sends through an [`Outbox`].
pub(crate) trait SendsThroughOutbox: Actor<Context = Context<Self>> {
    /// Its outbox.
    fn outbox(&mut self) -> &mut Outbox;
}

type Deed = Box<dyn FnOnce() -> Option<LocalBoxFuture<'static, ()>>>;

/// Messages of an actor that cannot be sent yet. Empty nearly always.
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<Deed>,
    is_flushing: bool,
}

impl Outbox {
    /// Sends `message`, now or as soon as there is room.
    pub(crate) fn push<A, M>(&mut self, context: &mut Context<A>, to: &Recipient<M>, message: M)
    where
        A: SendsThroughOutbox,
        M: Message<Result = ()> + Send + 'static,
    {
        let message = if self.is_flushing {
            message
        } else {
            match to.try_send(message) {
                Ok(()) => return,
                Err(SendError::Full(message)) => message,
                Err(SendError::Closed(_)) => return lost(),
            }
        };
        let to = to.clone();
        self.defer(
            context,
            Box::new(move || Some(deliver(to, message).boxed_local())),
        );
    }

    /// Runs `deed` when everything pushed before has been sent.
    pub(crate) fn then<A: SendsThroughOutbox>(
        &mut self,
        context: &mut Context<A>,
        deed: impl FnOnce() + 'static,
    ) {
        if self.is_flushing {
            self.defer(
                context,
                Box::new(move || {
                    deed();
                    None
                }),
            );
        } else {
            deed();
        }
    }

    fn defer<A: SendsThroughOutbox>(&mut self, context: &mut Context<A>, deed: Deed) {
        self.waiting.push_back(deed);
        if !std::mem::replace(&mut self.is_flushing, true) {
            context.wait(Flush { sending: None });
        }
    }
}

/// Resolves when the receiver has handled the message, and with it everything before: then there
/// is room again. Actix gives no earlier signal.
async fn deliver<M>(to: Recipient<M>, message: M)
where
    M: Message<Result = ()> + Send + 'static,
{
    if to.send(message).await.is_err() {
        lost();
    }
}

fn lost() {
    tracing::error!("a message between actors was lost: its receiver failed or has ended");
}

struct Flush {
    sending: Option<LocalBoxFuture<'static, ()>>,
}

impl<A: SendsThroughOutbox> ActorFuture<A> for Flush {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        actor: &mut A,
        _: &mut Context<A>,
        task: &mut Task<'_>,
    ) -> Poll<()> {
        loop {
            if let Some(sending) = &mut self.sending {
                ready!(sending.as_mut().poll(task));
                self.sending = None;
            }
            let Some(next) = actor.outbox().waiting.pop_front() else {
                actor.outbox().is_flushing = false;
                return Poll::Ready(());
            };
            self.sending = next();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use actix::Handler;
    use parking_lot::Mutex;
    use tokio::sync::oneshot;

    use super::*;

    type Log = Arc<Mutex<Vec<String>>>;

    /// Records its messages; takes its first message only when released.
    struct Receiver {
        name: &'static str,
        log: Log,
        gate: Option<oneshot::Receiver<()>>,
    }

    impl Actor for Receiver {
        type Context = Context<Self>;

        fn started(&mut self, context: &mut Context<Self>) {
            context.set_mailbox_capacity(1);
            if let Some(gate) = self.gate.take() {
                context.wait(actix::fut::wrap_future::<_, Self>(gate.map(drop)));
            }
        }
    }

    #[derive(Message)]
    #[rtype(result = "()")]
    struct Note(u32);

    impl Handler<Note> for Receiver {
        type Result = ();

        fn handle(&mut self, Note(number): Note, _: &mut Context<Self>) {
            self.log.lock().push(format!("{} {number}", self.name));
        }
    }

    struct Sender {
        outbox: Outbox,
        slow: Recipient<Note>,
        quick: Recipient<Note>,
        log: Log,
    }

    impl Actor for Sender {
        type Context = Context<Self>;
    }

    impl SendsThroughOutbox for Sender {
        fn outbox(&mut self) -> &mut Outbox {
            &mut self.outbox
        }
    }

    #[derive(Message)]
    #[rtype(result = "()")]
    struct Go(u32);

    impl Handler<Go> for Sender {
        type Result = ();

        fn handle(&mut self, Go(first): Go, context: &mut Context<Self>) {
            for number in first..first + 5 {
                self.outbox.push(context, &self.slow, Note(number));
            }
            self.outbox.push(context, &self.quick, Note(first));
            let log = self.log.clone();
            self.outbox
                .then(context, move || log.lock().push(format!("answer {first}")));
        }
    }

    #[test]
    fn blocked_message_is_overtaken_by_none() {
        actix::System::new().block_on(async {
            let log = Log::default();
            let (open, gate) = oneshot::channel();
            let receiver = |name, gate| {
                let log = log.clone();
                Receiver { name, log, gate }.start()
            };
            let slow = receiver("slow", Some(gate));
            let quick = receiver("quick", None);
            // Both have started, so both have their small mailboxes.
            tokio::task::yield_now().await;
            let sender = Sender {
                outbox: Outbox::default(),
                slow: slow.recipient(),
                quick: quick.recipient(),
                log: log.clone(),
            }
            .start();
            let (first, second) = (sender.send(Go(10)), sender.send(Go(20)));
            // The first handler leaves messages behind, so the second must not have run.
            tokio::task::yield_now().await;
            assert!(log.lock().is_empty());
            open.send(()).unwrap();
            let (first, second) = tokio::join!(first, second);
            assert!(first.is_ok() && second.is_ok());
            // Handling `Go` ends before what it left behind is sent.
            sender.send(Go(30)).await.unwrap();
            let log = log.lock();
            let of = |name: &str| -> Vec<String> {
                log.iter()
                    .filter(|line| line.starts_with(name))
                    .cloned()
                    .collect()
            };
            let expected: Vec<String> = [10_u32, 20]
                .iter()
                .flat_map(|first| (*first..first + 5).map(|number| format!("slow {number}")))
                .collect();
            assert_eq!(of("slow")[..10], expected[..]);
            let at = |line: &str| log.iter().position(|known| known == line);
            assert!(at("slow 14") < at("quick 10"), "{log:?}");
            assert!(at("quick 10") < at("answer 10"), "{log:?}");
            assert!(at("answer 10") < at("slow 20"), "{log:?}");
        });
    }
}
