//! Finds answers that take long, above all pillars, so that no worker has to.
//!
//! The requests wait in a [`RenderQueue`] that outlives the actors: whoever has time takes the
//! first one. When it is full the peer is told that its request was not handled, and asks again.
//! A renderer that panics loses only the request that it was working on.

use std::collections::VecDeque;
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Message, Recipient};
use parking_lot::Mutex;
use saltern_base::metrics::{
    HistogramVec, IntCounter, IntGauge, Registry, SECONDS, counter, gauge, histogram_vec,
};
use saltern_requests::Later;
use saltern_supervise::Child;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::messages::Fire;
use crate::send::{Outbox, Sends};

/// Behind the workers: a storm of pillars must not slow the answers to everything else.
const NICENESS: i32 = 5;

/// A request whose answer has to be found.
pub(crate) struct Rendering {
    /// The command, for metrics.
    pub(crate) command: &'static str,
    pub(crate) work: Later,
    pub(crate) answer: Answer,
}

/// Requests that wait for a renderer.
pub(crate) struct RenderQueue {
    waiting: Mutex<VecDeque<Rendering>>,
    most: usize,
    renderers: Mutex<Vec<Recipient<Look>>>,
    depth: IntGauge,
    shed: IntCounter,
    taking: HistogramVec,
}

impl RenderQueue {
    /// A queue for at most so many requests.
    pub(crate) fn new(most: usize, registry: &Registry) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
            most,
            renderers: Mutex::default(),
            depth: gauge(
                registry,
                "saltern_renderings_waiting",
                "Requests that wait for a renderer.",
            ),
            shed: counter(
                registry,
                "saltern_renderings_shed_total",
                "Requests turned away because the queue of the renderers was full.",
            ),
            taking: histogram_vec(
                registry,
                "saltern_rendering_seconds",
                "Time that a renderer spends on a request, by command; waiting is not in it.",
                &["cmd"],
                SECONDS,
            ),
        })
    }

    /// Who is told of new requests.
    pub(crate) fn set_renderers(&self, renderers: Vec<Recipient<Look>>) {
        *self.renderers.lock() = renderers;
    }

    /// Takes a request, or answers it at once if there is no room.
    pub(crate) fn push(&self, rendering: Rendering) {
        {
            let mut waiting = self.waiting.lock();
            if waiting.len() >= self.most {
                drop(waiting);
                self.shed.inc();
                rendering.answer.failed();
                return;
            }
            waiting.push_back(rendering);
            self.depth.inc();
        }
        for renderer in self.renderers.lock().iter() {
            // A full mailbox holds a look that is still to come, which sees this request too.
            let _ = renderer.try_send(Look);
        }
    }

    fn pop(&self) -> Option<Rendering> {
        let rendering = self.waiting.lock().pop_front()?;
        self.depth.dec();
        Some(rendering)
    }
}

/// There may be something to do. From whoever puts a request into the queue, and from the
/// renderer itself while there is more.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Look;

/// What a renderer is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) queue: Arc<RenderQueue>,
    pub(crate) bus: Recipient<Fire>,
}

/// See the module.
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

    /// What waits is given up: nothing of it lasts, and its peers ask again.
    fn drain(&mut self, _: &mut Context<Self>) -> Option<actix::ResponseActFuture<Self, ()>> {
        while let Some(rendering) = self.seed.queue.pop() {
            rendering.answer.failed();
        }
        None
    }
}

impl Actor for Renderer {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let thread = Some(rustix::thread::gettid());
        if let Err(error) = rustix::process::setpriority_process(thread, NICENESS) {
            tracing::debug!(%error, "the renderer keeps its priority");
        }
        context.notify(Look);
    }
}

impl Sends for Renderer {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

impl Handler<Look> for Renderer {
    type Result = ();

    fn handle(&mut self, _: Look, context: &mut Self::Context) {
        let Some(rendering) = self.seed.queue.pop() else {
            return;
        };
        // Before the work: whatever becomes of it, the next one is looked for.
        context.notify(Look);
        let Rendering {
            command,
            work,
            answer,
        } = rendering;
        let began = Instant::now();
        let finished = work.run();
        self.seed
            .queue
            .taking
            .with_label_values(&[command])
            .observe(began.elapsed().as_secs_f64());
        if !finished.events.is_empty() {
            self.outbox
                .push(context, &self.seed.bus, Fire(finished.events));
        }
        let answer = answer.saying(finished.reply);
        self.outbox.then(context, move || answer.done());
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use saltern_requests::{Finished, Outcome};
    use saltern_supervise::{ChildSpec, Placement};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::testing::{NOT_HANDLED, Port, event, in_system, recorder, tree};

    fn later(work: impl FnOnce() -> Finished + Send + 'static) -> Later {
        let later = Outcome::later(work).later;
        later.expect("work that is done later")
    }

    async fn rendering(
        port: &mut Port,
        work: Later,
    ) -> (Rendering, tokio::task::JoinHandle<Bytes>) {
        let (request, reply) = port.ask(b"pillar").await;
        let failed = Bytes::from_static(NOT_HANDLED);
        let answer = Answer::without_place(request.reply, failed);
        let rendering = Rendering {
            command: "_pillar",
            work,
            answer,
        };
        (rendering, reply)
    }

    fn says(reply: &'static [u8]) -> Finished {
        Finished {
            reply: Bytes::from_static(reply),
            events: vec![event("rendered")],
        }
    }

    #[test]
    fn what_waits_is_answered_in_order_and_its_events_are_fired() {
        in_system(async {
            let registry = Registry::new();
            let queue = RenderQueue::new(10, &registry);
            let (bus, mut fired) = recorder();
            let tree = tree(&registry);
            let seed = Seed {
                queue: queue.clone(),
                bus,
            };
            let mut port = Port::open();
            // Put in before there is a renderer: one that starts looks.
            let (first, first_reply) = rendering(&mut port, later(|| says(b"one"))).await;
            queue.push(first);
            let spec = ChildSpec::permanent().on(Placement::thread("render"));
            let renderer = tree.root().start_child::<Renderer>(spec, seed, 0);
            queue.set_renderers(vec![renderer.recipient()]);
            assert_eq!(first_reply.await.unwrap(), "one");
            let (second, second_reply) = rendering(&mut port, later(|| says(b"two"))).await;
            queue.push(second);
            assert_eq!(second_reply.await.unwrap(), "two");
            for _ in 0..2 {
                assert_eq!(fired.recv().await.unwrap().0.len(), 1);
            }
            assert_eq!(queue.depth.get(), 0);
            assert!(tree.shutdown().await.is_clean());
        });
    }

    #[test]
    fn a_full_queue_turns_requests_away() {
        in_system(async {
            let queue = RenderQueue::new(1, &Registry::new());
            let mut port = Port::open();
            let (first, _first_reply) = rendering(&mut port, later(|| says(b"one"))).await;
            queue.push(first);
            let (second, second_reply) = rendering(&mut port, later(|| says(b"two"))).await;
            queue.push(second);
            assert_eq!(second_reply.await.unwrap(), NOT_HANDLED);
            assert_eq!((queue.shed.get(), queue.depth.get()), (1, 1));
        });
    }

    #[test]
    fn work_that_panics_is_answered_and_the_next_is_done() {
        in_system(async {
            let registry = Registry::new();
            let queue = RenderQueue::new(10, &registry);
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
            let (first, first_reply) = rendering(&mut port, bad).await;
            let (second, second_reply) = rendering(&mut port, later(|| says(b"two"))).await;
            queue.push(first);
            queue.push(second);
            let spec = ChildSpec::permanent().on(Placement::thread("render"));
            let renderer = tree.root().start_child::<Renderer>(spec, seed, 0);
            queue.set_renderers(vec![renderer.recipient()]);
            began.recv().await.unwrap();
            assert_eq!(first_reply.await.unwrap(), NOT_HANDLED);
            assert_eq!(second_reply.await.unwrap(), "two");
            assert!(tree.shutdown().await.is_clean());
        });
    }
}
