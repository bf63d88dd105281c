//! Fair queue of requests that wait for a renderer.
//!
//! Requests of minions and users' calls of wheel functions have queues of their own, with
//! renderers of their own. Each minion or user has one request in progress at a time and a few
//! waiting, and is served round robin. A request over that bound, or to a full queue, is answered
//! as not handled; the client retries. A request whose peer has left is dropped: after a restart
//! thousands ask at once, and answers to those that gave up would only delay the rest.
//!
//! Waiting loads are charged to the request port's byte budget until they are answered.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use parking_lot::Mutex;
use saltern_base::metrics::{
    HistogramVec, IntCounter, IntGauge, Registry, SECONDS, counter, gauge, histogram_vec,
};
use saltern_model::MinionId;
use saltern_requests::Later;

use crate::content::renderer::Look;
use crate::shared::answer::PendingReply;
use crate::shared::fair_queue::FairQueue;

/// Waiting requests of one client. Real minions have one, or a few when states run in parallel.
const MAX_WAITING: usize = 16;

/// Waiting calls of wheel functions.
const MAX_WHEELS: usize = 128;

/// The client of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Asker {
    Minion(MinionId),
    User(String),
}

/// A request whose answer has to be computed.
pub(crate) struct Rendering {
    pub(crate) asker: Asker,
    /// The command, for metrics.
    pub(crate) command: &'static str,
    pub(crate) work: Later,
    pub(crate) answer: PendingReply,
}

/// Fair queue of renderings, one client's in progress at a time.
pub(crate) struct RenderQueue {
    renderings: Mutex<Renderings>,
    most: usize,
    /// Notified of new requests.
    renderers: Vec<Recipient<Look>>,
    metrics: QueueMetrics,
}

struct QueueMetrics {
    depth: IntGauge,
    shed: IntCounter,
    abandoned: IntCounter,
    taking: HistogramVec,
}

/// The requests that wait, and the clients with one in progress.
#[derive(Default)]
struct Renderings {
    waiting: FairQueue<Asker, Rendering>,
    served: HashSet<Asker>,
}

impl Renderings {
    /// Adds a request; gives it back if its client has too many.
    fn push(&mut self, rendering: Rendering) -> Option<Rendering> {
        if self.waiting.len_of(&rendering.asker) >= MAX_WAITING {
            return Some(rendering);
        }
        self.waiting.push(rendering.asker.clone(), rendering);
        None
    }

    /// The next request whose client is not being served. Skips at most as many clients as there
    /// are renderers at work.
    fn pop(&mut self) -> Option<Rendering> {
        let served = &self.served;
        let rendering = self.waiting.pop_if(|asker| !served.contains(asker))?;
        self.served.insert(rendering.asker.clone());
        Some(rendering)
    }
}

/// Marks a client as served for as long as it lives, also if the renderer panics.
pub(crate) struct ActiveRendering {
    queue: Arc<RenderQueue>,
    asker: Asker,
}

impl Drop for ActiveRendering {
    fn drop(&mut self) {
        self.queue.renderings.lock().served.remove(&self.asker);
    }
}

impl RenderQueue {
    /// Queue of at most `most` requests of minions, for these renderers.
    pub(crate) fn new(
        most: usize,
        renderers: Vec<Recipient<Look>>,
        registry: &Registry,
    ) -> Arc<Self> {
        Self::of(
            (most, renderers),
            QueueMetrics {
                depth: gauge(
                    registry,
                    "saltern_renderings_waiting",
                    "Requests that wait for a renderer.",
                ),
                shed: counter(
                    registry,
                    "saltern_renderings_shed_total",
                    "Requests turned away because the queue of the renderers, or the asking \
                     minion's part of it, was full.",
                ),
                abandoned: counter(
                    registry,
                    "saltern_renderings_abandoned_total",
                    "Requests whose peer left before a renderer had time for them.",
                ),
                taking: histogram_vec(
                    registry,
                    "saltern_rendering_seconds",
                    "Time that a renderer spends on a request, by command; waiting is not in it.",
                    &["cmd"],
                    SECONDS,
                ),
            },
        )
    }

    /// The queue of the wheel functions that users call.
    pub(crate) fn of_wheels(renderers: Vec<Recipient<Look>>, registry: &Registry) -> Arc<Self> {
        Self::of(
            (MAX_WHEELS, renderers),
            QueueMetrics {
                depth: gauge(
                    registry,
                    "saltern_wheels_waiting",
                    "Calls of wheel functions that wait.",
                ),
                shed: counter(
                    registry,
                    "saltern_wheels_shed_total",
                    "Calls of wheel functions turned away because too many waited, in all or of \
                     one user.",
                ),
                abandoned: counter(
                    registry,
                    "saltern_wheels_abandoned_total",
                    "Calls of wheel functions whose peer left before they were begun.",
                ),
                taking: histogram_vec(
                    registry,
                    "saltern_wheel_seconds",
                    "Time that a wheel function takes; waiting is not in it.",
                    &["cmd"],
                    SECONDS,
                ),
            },
        )
    }

    fn of((most, renderers): (usize, Vec<Recipient<Look>>), metrics: QueueMetrics) -> Arc<Self> {
        Arc::new(Self {
            renderings: Mutex::default(),
            most,
            renderers,
            metrics,
        })
    }

    /// Adds a request, or answers it at once if there is no room.
    pub(crate) fn push(&self, rendering: Rendering) {
        let refused = {
            let mut renderings = self.renderings.lock();
            let refused = if renderings.waiting.len() >= self.most {
                Some(rendering)
            } else {
                renderings.push(rendering)
            };
            self.metrics.depth.set(count(renderings.waiting.len()));
            refused
        };
        if let Some(rendering) = refused {
            self.metrics.shed.inc();
            rendering.answer.failed();
            return;
        }
        for renderer in &self.renderers {
            // A full mailbox holds a later look, which sees this request too.
            let _ = renderer.try_send(Look);
        }
    }

    /// The next request whose peer still waits; its client has no other one in progress until the
    /// turn is dropped.
    pub(crate) fn pop(self: &Arc<Self>) -> Option<(Rendering, ActiveRendering)> {
        loop {
            let rendering = {
                let mut renderings = self.renderings.lock();
                let rendering = renderings.pop();
                self.metrics.depth.set(count(renderings.waiting.len()));
                rendering?
            };
            let turn = ActiveRendering {
                queue: Arc::clone(self),
                asker: rendering.asker.clone(),
            };
            if !rendering.answer.is_unwanted() {
                return Some((rendering, turn));
            }
            self.metrics.abandoned.inc();
        }
    }

    /// Answers all waiting requests as not handled: none is stored, and their peers retry.
    pub(crate) fn give_up(&self) {
        let mut waiting = std::mem::take(&mut self.renderings.lock().waiting);
        self.metrics.depth.set(0);
        while let Some(rendering) = waiting.pop() {
            rendering.answer.failed();
        }
    }

    /// Records how long a request took.
    pub(crate) fn took(&self, command: &'static str, time: Duration) {
        let taking = self.metrics.taking.with_label_values(&[command]);
        taking.observe(time.as_secs_f64());
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Fixtures for the tests of the queue and of the renderers.
#[cfg(test)]
pub(crate) mod testing {
    use bytes::Bytes;
    use saltern_requests::{Finished, Outcome};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::shared::testing::{NOT_HANDLED, Port};

    /// Work as a request leaves it.
    pub(crate) fn later(work: impl FnOnce() -> Finished + Send + 'static) -> Later {
        let later = Outcome::later(work).later;
        later.expect("work that is done later")
    }

    /// A request of a minion for this work, and its reply to come.
    pub(crate) async fn rendering(
        port: &mut Port,
        minion: &str,
        work: Later,
    ) -> (Rendering, JoinHandle<Bytes>) {
        let (request, reply) = port.ask(b"pillar").await;
        let failed = Bytes::from_static(NOT_HANDLED);
        let answer = PendingReply::without_place(request.reply, failed);
        let rendering = Rendering {
            asker: Asker::Minion(MinionId::parse(minion).expect("a valid id")),
            command: "_pillar",
            work,
            answer,
        };
        (rendering, reply)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use saltern_requests::Finished;

    use super::testing::{later, rendering};
    use super::*;
    use crate::shared::testing::{NOT_HANDLED, Port, in_system};

    fn nothing() -> Later {
        later(|| Finished {
            reply: Bytes::new(),
            events: Vec::new(),
        })
    }

    async fn put(
        queue: &RenderQueue,
        port: &mut Port,
        minion: &str,
    ) -> tokio::task::JoinHandle<Bytes> {
        let (request, reply) = rendering(port, minion, nothing()).await;
        queue.push(request);
        reply
    }

    fn whose(popped: Option<&(Rendering, ActiveRendering)>) -> Option<&str> {
        popped.map(|(rendering, _)| match &rendering.asker {
            Asker::Minion(minion) => minion.as_str(),
            Asker::User(user) => user,
        })
    }

    #[test]
    fn minions_take_turns_with_one_request_in_progress_each() {
        in_system(async {
            let queue = RenderQueue::new(100, Vec::new(), &Registry::new());
            let mut port = Port::open();
            let mut replies = Vec::new();
            for minion in ["a", "a", "a", "b", "c", "b"] {
                replies.push(put(&queue, &mut port, minion).await);
            }
            let mut order = Vec::new();
            while let Some(popped) = queue.pop() {
                order.push(whose(Some(&popped)).unwrap_or_default().to_owned());
            }
            assert_eq!(order, ["a", "b", "c", "a", "b", "a"]);
            for minion in ["a", "a", "b"] {
                replies.push(put(&queue, &mut port, minion).await);
            }
            let first = queue.pop();
            let second = queue.pop();
            assert_eq!(
                (whose(first.as_ref()), whose(second.as_ref())),
                (Some("a"), Some("b"))
            );
            // The other request of "a" waits until its first one is done.
            assert!(queue.pop().is_none());
            assert_eq!(queue.metrics.depth.get(), 1);
            drop(first);
            assert_eq!(whose(queue.pop().as_ref()), Some("a"));
            assert_eq!(queue.metrics.depth.get(), 0);
            assert_eq!(
                queue.renderings.lock().served.len(),
                1,
                "only \"b\" is left"
            );
        });
    }

    #[test]
    fn one_minion_cannot_fill_the_queue() {
        in_system(async {
            let queue = RenderQueue::new(MAX_WAITING + 1, Vec::new(), &Registry::new());
            let mut port = Port::open();
            let mut waiting = Vec::new();
            for _ in 0..MAX_WAITING {
                waiting.push(put(&queue, &mut port, "greedy").await);
            }
            let refused = put(&queue, &mut port, "greedy").await;
            assert_eq!(refused.await.unwrap(), NOT_HANDLED);
            waiting.push(put(&queue, &mut port, "modest").await);
            assert_eq!(queue.metrics.shed.get(), 1);
            let refused = put(&queue, &mut port, "late").await;
            assert_eq!(refused.await.unwrap(), NOT_HANDLED);
            assert_eq!(queue.metrics.shed.get(), 2);
            queue.give_up();
            for reply in waiting {
                assert_eq!(reply.await.unwrap(), NOT_HANDLED);
            }
            assert!(queue.pop().is_none());
        });
    }

    #[test]
    fn request_of_a_disconnected_peer_is_dropped() {
        in_system(async {
            let queue = RenderQueue::new(10, Vec::new(), &Registry::new());
            let mut port = Port::open();
            let (left, reply) = rendering(&mut port, "a", nothing()).await;
            reply.abort();
            // The listener detects the end of the connection; there is no other signal.
            while !left.answer.is_unwanted() {
                tokio::task::yield_now().await;
            }
            queue.push(left);
            let _stays = put(&queue, &mut port, "b").await;
            assert_eq!(whose(queue.pop().as_ref()), Some("b"));
            assert_eq!(queue.metrics.abandoned.get(), 1);
        });
    }

    #[test]
    fn user_has_one_wheel_function_in_progress_and_a_few_waiting() {
        in_system(async {
            let queue = RenderQueue::of_wheels(Vec::new(), &Registry::new());
            let mut port = Port::open();
            let mut waiting = Vec::new();
            for user in ["ana"; MAX_WAITING].into_iter().chain(["bob", "ana"]) {
                let (mut call, reply) = rendering(&mut port, "a", nothing()).await;
                call.asker = Asker::User(user.to_owned());
                queue.push(call);
                waiting.push(reply);
            }
            assert_eq!(waiting.pop().unwrap().await.unwrap(), NOT_HANDLED);
            assert_eq!(queue.metrics.shed.get(), 1);
            let (first, second) = (queue.pop(), queue.pop());
            assert_eq!(whose(first.as_ref()), Some("ana"));
            assert_eq!(whose(second.as_ref()), Some("bob"));
            assert!(queue.pop().is_none());
        });
    }
}
