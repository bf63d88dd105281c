//! Requests that wait for a renderer: in turns, so that no minion can keep the others waiting.
//!
//! Each minion has one request under way at a time and a few waiting; whose turn it is goes round.
//! What a minion has beyond that, and what comes while the queue is full, is told that it was not
//! handled, and asked again. A request whose peer has left meanwhile is dropped: after a restart
//! thousands ask at once, and answers to those who gave up would only delay the rest.
//!
//! The loads that wait are charged to the request port's budget of bytes until they are answered.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use parking_lot::Mutex;
use saltern_base::metrics::{
    HistogramVec, IntCounter, IntGauge, Registry, SECONDS, counter, gauge, histogram_vec,
};
use saltern_model::MinionId;
use saltern_requests::Later;

use crate::answer::Answer;
use crate::renderer::Look;

/// Requests of one minion that may wait. Real ones have one, or a few when states run in parallel.
const MOST_WAITING: usize = 16;

/// A request whose answer has to be found.
pub(crate) struct Rendering {
    /// Who asks, if it is a minion.
    pub(crate) minion: Option<MinionId>,
    /// The command, for metrics.
    pub(crate) command: &'static str,
    pub(crate) work: Later,
    pub(crate) answer: Answer,
}

/// See the module.
pub(crate) struct RenderQueue {
    lines: Mutex<Lines>,
    most: usize,
    renderers: Mutex<Vec<Recipient<Look>>>,
    metrics: QueueMetrics,
}

struct QueueMetrics {
    depth: IntGauge,
    shed: IntCounter,
    abandoned: IntCounter,
    taking: HistogramVec,
}

/// One line of requests for each minion, and the order in which they have their turns.
#[derive(Default)]
struct Lines {
    by_minion: HashMap<Option<MinionId>, Line>,
    /// Everybody in whose line somebody stands, once.
    turns: VecDeque<Option<MinionId>>,
    total: usize,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Rendering>,
    is_served: bool,
}

impl Lines {
    /// Gives the request back if its minion has too many.
    fn push(&mut self, rendering: Rendering) -> Option<Rendering> {
        let line = self.by_minion.entry(rendering.minion.clone()).or_default();
        if line.waiting.len() >= MOST_WAITING && rendering.minion.is_some() {
            return Some(rendering);
        }
        if line.waiting.is_empty() {
            self.turns.push_back(rendering.minion.clone());
        }
        line.waiting.push_back(rendering);
        self.total += 1;
        None
    }

    /// The next one whose minion is not being served. Passes over as many minions as there are
    /// renderers at work, at most.
    fn pop(&mut self) -> Option<Rendering> {
        for _ in 0..self.turns.len() {
            let minion = self.turns.pop_front()?;
            let Some(line) = self.by_minion.get_mut(&minion) else {
                continue;
            };
            // Requests that are nobody's know nothing of each other.
            if line.is_served && minion.is_some() {
                self.turns.push_back(minion);
                continue;
            }
            let Some(rendering) = line.waiting.pop_front() else {
                continue;
            };
            line.is_served = true;
            self.total -= 1;
            if !line.waiting.is_empty() {
                self.turns.push_back(minion);
            }
            return Some(rendering);
        }
        None
    }

    fn served(&mut self, minion: &Option<MinionId>) {
        if let Some(line) = self.by_minion.get_mut(minion) {
            line.is_served = false;
            if line.waiting.is_empty() {
                self.by_minion.remove(minion);
            }
        }
    }
}

/// A minion is being served for as long as this lives, also if its renderer panics.
pub(crate) struct Turn {
    queue: Arc<RenderQueue>,
    minion: Option<MinionId>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.queue.lines.lock().served(&self.minion);
    }
}

impl RenderQueue {
    /// A queue for at most so many requests.
    pub(crate) fn new(most: usize, registry: &Registry) -> Arc<Self> {
        Arc::new(Self {
            lines: Mutex::default(),
            most,
            renderers: Mutex::default(),
            metrics: QueueMetrics {
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
        })
    }

    /// Who is told of new requests.
    pub(crate) fn set_renderers(&self, renderers: Vec<Recipient<Look>>) {
        *self.renderers.lock() = renderers;
    }

    /// Takes a request, or answers it at once if there is no room.
    pub(crate) fn push(&self, rendering: Rendering) {
        let refused = {
            let mut lines = self.lines.lock();
            let refused = if lines.total >= self.most {
                Some(rendering)
            } else {
                lines.push(rendering)
            };
            self.metrics.depth.set(count(lines.total));
            refused
        };
        if let Some(rendering) = refused {
            self.metrics.shed.inc();
            rendering.answer.failed();
            return;
        }
        for renderer in self.renderers.lock().iter() {
            // A full mailbox holds a look that is still to come, which sees this request too.
            let _ = renderer.try_send(Look);
        }
    }

    /// The next request that somebody waits for; its minion has no other one under way until the
    /// turn is dropped.
    pub(crate) fn pop(self: &Arc<Self>) -> Option<(Rendering, Turn)> {
        loop {
            let rendering = {
                let mut lines = self.lines.lock();
                let rendering = lines.pop();
                self.metrics.depth.set(count(lines.total));
                rendering?
            };
            let turn = Turn {
                queue: Arc::clone(self),
                minion: rendering.minion.clone(),
            };
            if !rendering.answer.is_unwanted() {
                return Some((rendering, turn));
            }
            self.metrics.abandoned.inc();
        }
    }

    /// Answers everything that waits as not handled: nothing of it lasts, and its peers ask again.
    pub(crate) fn give_up(&self) {
        let lines = std::mem::take(&mut *self.lines.lock());
        self.metrics.depth.set(0);
        let waiting = lines.by_minion.into_values().flat_map(|line| line.waiting);
        waiting.for_each(|rendering| rendering.answer.failed());
    }

    /// Notes how long a request took.
    pub(crate) fn took(&self, command: &'static str, time: Duration) {
        let taking = self.metrics.taking.with_label_values(&[command]);
        taking.observe(time.as_secs_f64());
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What tests of the queue and of the renderers share.
#[cfg(test)]
pub(crate) mod testing {
    use bytes::Bytes;
    use saltern_requests::{Finished, Outcome};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::testing::{NOT_HANDLED, Port};

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
        let answer = Answer::without_place(request.reply, failed);
        let rendering = Rendering {
            minion: Some(MinionId::parse(minion).expect("a valid id")),
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
    use crate::testing::{NOT_HANDLED, Port, in_system};

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

    fn whose(popped: Option<&(Rendering, Turn)>) -> Option<&str> {
        popped.and_then(|(rendering, _)| rendering.minion.as_ref().map(MinionId::as_str))
    }

    #[test]
    fn minions_take_turns_and_each_is_served_once_at_a_time() {
        in_system(async {
            let queue = RenderQueue::new(100, &Registry::new());
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
            assert!(
                queue.lines.lock().by_minion.len() <= 1,
                "only \"b\" is left"
            );
        });
    }

    #[test]
    fn nobody_fills_the_queue_for_the_others() {
        in_system(async {
            let queue = RenderQueue::new(MOST_WAITING + 1, &Registry::new());
            let mut port = Port::open();
            let mut waiting = Vec::new();
            for _ in 0..MOST_WAITING {
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
    fn a_request_whose_peer_has_left_is_dropped() {
        in_system(async {
            let queue = RenderQueue::new(10, &Registry::new());
            let mut port = Port::open();
            let (left, reply) = rendering(&mut port, "a", nothing()).await;
            reply.abort();
            // The listener notices the end of the connection; nothing else tells us of it.
            while !left.answer.is_unwanted() {
                tokio::task::yield_now().await;
            }
            queue.push(left);
            let _stays = put(&queue, &mut port, "b").await;
            assert_eq!(whose(queue.pop().as_ref()), Some("b"));
            assert_eq!(queue.metrics.abandoned.get(), 1);
        });
    }
}
