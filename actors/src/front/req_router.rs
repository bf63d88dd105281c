//! Load balancer of requests over the workers; owns the only backlog in the process.
//!
//! Requests are queued by class, each class in a bounded queue of its own, and the queues take
//! turns, so that overload of one class does not delay another. Within a class they are ordered by
//! peer standing and address (`lanes`, and `auth_queue` for authentications), so that junk delays
//! junk. The router reads only the few payload bytes that give the class, and it does not answer:
//! a request carries its reply handle. The sockets of the request port live in tasks on this
//! actor's thread, not in its state.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};

use actix::{
    Actor, ActorFuture, Addr, AsyncContext, Context, Handler, Recipient, ResponseActFuture,
};
use parking_lot::Mutex;
use saltern_base::metrics::{
    Histogram, IntCounter, IntGauge, Registry, SECONDS, counter_vec, gauge_vec, histogram_vec,
};
use saltern_requests::{Class, peek_class};
use saltern_supervise::Child;
use saltern_wire::port::{Incoming, ReqListener, RequestSink, Standing};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::front::auth_queue::{AuthMetrics, AuthQueue};
use crate::messages::{Accept, PlaceFree, Treatment, Work};
use crate::shared::latency::Latency;
use crate::shared::window::{Ticket, Windows};

use self::lanes::Lanes;

mod lanes;

/// Seed of a router.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) workers: Arc<Vec<Recipient<Work>>>,
    pub(crate) windows: Arc<Windows>,
    /// Bound of the backlog of one class, but for authentications.
    pub(crate) backlog: usize,
    /// Bound of the backlog of authentications.
    pub(crate) auth_backlog: usize,
    pub(crate) metrics: RouterMetrics,
    /// The request port, until the first router has taken it. With it, a guard that is dropped
    /// when the last connection is gone, or when no router took it.
    pub(crate) listener: Arc<Mutex<Option<(ReqListener, DropGuard)>>>,
    pub(crate) stop: CancellationToken,
}

/// Metrics of the router, for each class in the order of [`Class::ALL`].
#[derive(Clone)]
pub(crate) struct RouterMetrics {
    classes: [ClassMetrics; Class::ALL.len()],
    auth: AuthMetrics,
}

#[derive(Clone)]
struct ClassMetrics {
    requests: IntCounter,
    shed: IntCounter,
    waiting: IntGauge,
    taking: Histogram,
}

impl RouterMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let class = ["class"];
        let requests = counter_vec(
            registry,
            "saltern_requests_total",
            "Requests that came in, by class.",
            &class,
        );
        let shed = counter_vec(
            registry,
            "saltern_requests_shed_total",
            "Requests turned away because the backlog of their class was full; for authentications \
             see saltern_authentications_turned_away_total.",
            &class,
        );
        let waiting = gauge_vec(
            registry,
            "saltern_requests_waiting",
            "Requests that wait for a worker, by class.",
            &class,
        );
        let taking = histogram_vec(
            registry,
            "saltern_request_seconds",
            "Time from the arrival of a request to its answer, by class; those turned away are not \
             in it.",
            &class,
            SECONDS,
        );
        let classes = Class::ALL.map(|class| {
            let label = [class.label()];
            ClassMetrics {
                requests: requests.with_label_values(&label),
                shed: shed.with_label_values(&label),
                waiting: waiting.with_label_values(&label),
                taking: taking.with_label_values(&label),
            }
        });
        let auth = AuthMetrics::new(registry);
        Self { classes, auth }
    }
}

/// Requests of a class per turn. An authentication costs about as much as all the others of a
/// round.
fn turn_of(class: Class) -> usize {
    match class {
        Class::Clear => 4,
        Class::Minion => 16,
        Class::Auth => 1,
    }
}

/// Actor that distributes requests.
pub(crate) struct ReqRouter {
    seed: Seed,
    queues: [Queue; Class::ALL.len()],
    /// The queue whose turn it is, and the rest of its turn.
    turn: (usize, usize),
}

struct Queue {
    class: Class,
    waiting: Waiting,
    metrics: ClassMetrics,
}

enum Waiting {
    Requests(Box<Lanes>),
    Authentications(Box<AuthQueue>),
}

impl Queue {
    fn len(&self) -> usize {
        match &self.waiting {
            Waiting::Requests(waiting) => waiting.len(),
            Waiting::Authentications(waiting) => waiting.len(),
        }
    }

    fn push(&mut self, request: Incoming) {
        match &mut self.waiting {
            // Dropping a request answers it as not handled.
            Waiting::Requests(waiting) => {
                if let Some(_given_up) = waiting.push(request) {
                    self.metrics.shed.inc();
                }
            }
            Waiting::Authentications(waiting) => waiting.push(request),
        }
        self.update_length();
    }

    fn pop(&mut self, windows: &Arc<Windows>) -> Option<(Incoming, Treatment, Ticket)> {
        let next = match &mut self.waiting {
            Waiting::Requests(waiting) => {
                let next = waiting.pop(windows);
                next.map(|(request, place)| (request, Treatment::Handle, place))
            }
            Waiting::Authentications(waiting) if waiting.len() > 0 => {
                let place = windows.take(self.class, Standing::Unknown);
                place.and_then(|place| {
                    let (request, treatment) = waiting.pop()?;
                    Some((request, treatment, place))
                })
            }
            Waiting::Authentications(_) => None,
        };
        self.update_length();
        next
    }

    fn update_length(&self) {
        let length = i64::try_from(self.len()).unwrap_or(i64::MAX);
        self.metrics.waiting.set(length);
    }
}

impl Child for ReqRouter {
    type Seed = Seed;

    const NAME: &'static str = "req_router";
    const MAILBOX: usize = 4096;

    fn build(seed: &Seed) -> Self {
        let mut metrics = seed.metrics.classes.clone().into_iter();
        let queues = Class::ALL.map(|class| {
            let metrics = metrics
                .next()
                .expect("invariant: there are metrics for each class");
            metrics.waiting.set(0);
            let waiting = match class {
                Class::Auth => Waiting::Authentications(Box::new(AuthQueue::new(
                    seed.auth_backlog,
                    seed.metrics.auth.clone(),
                ))),
                Class::Clear | Class::Minion => {
                    Waiting::Requests(Box::new(Lanes::new(class, seed.backlog)))
                }
            };
            Queue {
                class,
                waiting,
                metrics,
            }
        });
        Self {
            seed: seed.clone(),
            queues,
            turn: (0, 0),
        }
    }

    /// Nothing new is accepted; the backlog is still handed over.
    fn drain(&mut self, _: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        Some(Box::pin(HandedOver))
    }
}

/// Resolves when the backlog is empty. Polled again with every message of the router, and only
/// messages shorten the queues.
struct HandedOver;

impl ActorFuture<ReqRouter> for HandedOver {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        router: &mut ReqRouter,
        _: &mut Context<ReqRouter>,
        _: &mut Task<'_>,
    ) -> Poll<()> {
        if router.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Actor for ReqRouter {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let address = context.address();
        // The address outlives this value, so both are dropped once.
        if let Some((listener, closed)) = self.seed.listener.lock().take() {
            let serving = listener.serve(Arc::new(RouterSink(address)), self.seed.stop.clone());
            actix_rt::spawn(async move {
                serving.await;
                drop(closed);
            });
        }
    }
}

/// Sink of the connections' requests.
struct RouterSink(Addr<ReqRouter>);

impl RequestSink for RouterSink {
    fn try_deliver(&self, request: Incoming) -> Result<(), Incoming> {
        use actix::dev::SendError;
        self.0
            .try_send(Accept(request))
            .map_err(|refused| match refused {
                SendError::Full(Accept(request)) | SendError::Closed(Accept(request)) => request,
            })
    }

    fn deliver(&self, request: Incoming) -> futures_util::future::BoxFuture<'_, ()> {
        Box::pin(async move {
            if self.0.send(Accept(request)).await.is_err() {
                tracing::debug!("a request was not taken: the router has ended or failed");
            }
        })
    }
}

impl Handler<Accept> for ReqRouter {
    type Result = ();

    fn handle(&mut self, Accept(request): Accept, _: &mut Self::Context) {
        let class = peek_class(&request.payload);
        let nobody_waits = self.is_empty();
        let Some(queue) = self.queues.iter_mut().find(|queue| queue.class == class) else {
            return;
        };
        queue.metrics.requests.inc();
        if nobody_waits
            && let Some(place) = self.seed.windows.take(class, lanes::standing_of(&request))
        {
            let latency = Latency::since(request.received, &queue.metrics.taking);
            self.hand_over((request, Treatment::Handle), place, Some(latency));
            return;
        }
        queue.push(request);
        self.serve_waiting();
    }
}

impl Handler<PlaceFree> for ReqRouter {
    type Result = ();

    fn handle(&mut self, _: PlaceFree, _: &mut Self::Context) {
        self.serve_waiting();
    }
}

impl ReqRouter {
    fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.len() == 0)
    }

    /// Hands over the backlog, the classes by turns, until no worker has a free slot for any of
    /// it.
    fn serve_waiting(&mut self) {
        while self.serve_one() {}
        if !self.is_empty() {
            self.seed.windows.want();
            // A slot freed between the two lines above would not be announced.
            while self.serve_one() {}
        }
    }

    fn serve_one(&mut self) -> bool {
        if !self.seed.windows.has_place() {
            // The turn stays as it is: that queue gets the next slot.
            return false;
        }
        for _ in 0..=self.queues.len() {
            let (index, left) = self.turn;
            let queue = &mut self.queues[index];
            if left > 0
                && queue.len() > 0
                && let Some((request, treatment, place)) = queue.pop(&self.seed.windows)
            {
                self.turn.1 -= 1;
                // A "retry later" answer is quick and would distort the latency of the others.
                let latency = matches!(treatment, Treatment::Handle)
                    .then(|| Latency::since(request.received, &queue.metrics.taking));
                self.hand_over((request, treatment), place, latency);
                return true;
            }
            let next = (index + 1) % self.queues.len();
            self.turn = (next, turn_of(self.queues[next].class));
        }
        false
    }

    fn hand_over(
        &self,
        (request, treatment): (Incoming, Treatment),
        ticket: Ticket,
        latency: Option<Latency>,
    ) {
        let Some(worker) = self.seed.workers.get(ticket.worker()) else {
            return;
        };
        // The window is smaller than the worker's mailbox, so this fails only when the worker has
        // ended for good; the request is then answered by being dropped.
        let work = Work {
            request,
            treatment,
            ticket,
            latency,
        };
        if worker.try_send(work).is_err() {
            tracing::error!("a worker does not take requests");
        }
    }
}

#[cfg(test)]
mod tests;
