//! Computes slow answers, above all pillars, so that no worker has to. Users' wheel functions too,
//! on renderers of their own: no pillar waits for those.
//!
//! The requests wait in a [`RenderQueue`] (`render_queue.rs`) that outlives the actors; an idle
//! renderer takes the next one. A renderer that panics loses only its current request.

use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Message, Recipient};
use saltern_supervise::Child;
use tokio::time::Instant;

use crate::content::render_queue::RenderQueue;
use crate::messages::Fire;
use crate::shared::priority::give_way;
use crate::shared::send::{Outbox, SendsThroughOutbox};

/// Concurrent wheel functions of users.
pub(crate) const WHEEL_THREADS: usize = 2;

/// Below the workers: many pillars at once must not slow all other answers.
const NICENESS: i32 = 5;

/// There may be work. From the sender that queues a request, and from the renderer itself while
/// there is more.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Look;

/// Seed of a renderer.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) queue: Arc<RenderQueue>,
    pub(crate) bus: Recipient<Fire>,
}

/// Actor that computes slow answers.
pub(crate) struct Renderer {
    seed: Seed,
    outbox: Outbox,
}

impl Child for Renderer {
    type Seed = Seed;

    const NAME: &'static str = "renderer";
    const MAILBOX: usize = 4;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            outbox: Outbox::default(),
        }
    }

    /// Waiting requests are given up: none is stored, and their peers retry.
    fn drain(&mut self, _: &mut Context<Self>) -> Option<actix::ResponseActFuture<Self, ()>> {
        self.seed.queue.give_up();
        None
    }
}

impl Actor for Renderer {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        give_way(NICENESS);
        context.notify(Look);
    }
}

impl SendsThroughOutbox for Renderer {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

impl Handler<Look> for Renderer {
    type Result = ();

    fn handle(&mut self, _: Look, context: &mut Self::Context) {
        let Some((rendering, turn)) = self.seed.queue.pop() else {
            return;
        };
        // Before the work: whatever becomes of it, the next one is taken.
        context.notify(Look);
        let began = Instant::now();
        let finished = rendering.work.run();
        drop(turn);
        self.seed.queue.took(rendering.command, began.elapsed());
        if !finished.events.is_empty() {
            self.outbox
                .push(context, &self.seed.bus, Fire(finished.events));
        }
        let answer = rendering.answer.saying(finished.reply);
        self.outbox.then(context, move || answer.done());
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use saltern_base::metrics::Registry;
    use saltern_requests::Finished;
    use saltern_supervise::{ChildSpec, Placement, Reserved};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::content::render_queue::testing::{later, rendering};
    use crate::shared::testing::{NOT_HANDLED, Port, event, in_system, recorder, tree};

    fn says(reply: &'static [u8]) -> Finished {
        Finished {
            reply: Bytes::from_static(reply),
            events: vec![event("rendered")],
        }
    }

    #[test]
    fn waiting_requests_are_answered_in_order_and_their_events_fired() {
        in_system(async {
            let registry = Registry::new();
            let reserved = Reserved::<Renderer>::new();
            let queue = RenderQueue::new(10, vec![reserved.recipient()], &registry);
            let (bus, mut fired) = recorder();
            let tree = tree(&registry);
            let seed = Seed {
                queue: queue.clone(),
                bus,
            };
            let mut port = Port::open();
            // Queued before there is a renderer: a starting one looks.
            let (first, first_reply) = rendering(&mut port, "m1", later(|| says(b"one"))).await;
            queue.push(first);
            let spec = ChildSpec::permanent().on(Placement::thread("render"));
            tree.root().start_reserved(reserved, spec, seed, 0);
            assert_eq!(first_reply.await.unwrap(), "one");
            let (second, second_reply) = rendering(&mut port, "m1", later(|| says(b"two"))).await;
            queue.push(second);
            assert_eq!(second_reply.await.unwrap(), "two");
            for _ in 0..2 {
                assert_eq!(fired.recv().await.unwrap().0.len(), 1);
            }
            assert!(tree.shutdown().await.is_clean());
        });
    }

    #[test]
    fn panicking_work_is_answered_and_the_next_is_done() {
        in_system(async {
            let registry = Registry::new();
            let reserved = Reserved::<Renderer>::new();
            let queue = RenderQueue::new(10, vec![reserved.recipient()], &registry);
            let (bus, _fired) = recorder();
            let tree = tree(&registry);
            let seed = Seed {
                queue: queue.clone(),
                bus,
            };
            let (begun, mut began) = unbounded_channel();
            let mut port = Port::open();
            let bad = later(move || {
                begun.send(()).expect("the test listens");
                panic!("a template that breaks the renderer")
            });
            let (first, first_reply) = rendering(&mut port, "m1", bad).await;
            let (second, second_reply) = rendering(&mut port, "m1", later(|| says(b"two"))).await;
            queue.push(first);
            queue.push(second);
            let spec = ChildSpec::permanent().on(Placement::thread("render"));
            tree.root().start_reserved(reserved, spec, seed, 0);
            began.recv().await.unwrap();
            assert_eq!(first_reply.await.unwrap(), NOT_HANDLED);
            assert_eq!(second_reply.await.unwrap(), "two");
            assert!(tree.shutdown().await.is_clean());
        });
    }
}
