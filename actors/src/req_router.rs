//! Spreads requests over the workers; owns the only backlog in the process.
//!
//! Requests wait by class, each class in a bounded queue of its own, and the queues take turns, so
//! that a storm of one class does not stand in the way of another. In each class they wait by what
//! is known of their peers and by address (`lanes`, and `auth_queue` for authentications), so that
//! nobody's junk stands in the way of others. The router does not read payloads beyond the few bytes that tell the class, and it does not answer: a request
//! carries its reply handle.
//! The sockets of the request port live in tasks on this actor's thread, not in its state.

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

use crate::auth_queue::{AuthMetrics, AuthQueue};
use crate::latency::Latency;
use crate::messages::{Accept, PlaceFree, Treatment, Work};
use crate::window::{Ticket, Windows};

use self::lanes::Lanes;

mod lanes;

/// What a router is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) workers: Arc<Vec<Recipient<Work>>>,
    pub(crate) windows: Arc<Windows>,
    /// Requests of one class that may wait, but for authentications.
    pub(crate) backlog: usize,
    /// Authentications that may wait.
    pub(crate) auth_backlog: usize,
    pub(crate) metrics: RouterMetrics,
    /// The request port, until the first router has taken it over.
    /// With it, what is dropped when the last connection is gone, or when nobody took it over.
    pub(crate) listener: Arc<Mutex<Option<(ReqListener, DropGuard)>>>,
    pub(crate) stop: CancellationToken,
}

/// What the router counts, for each class in the order of [`Class::ALL`].
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

/// How many requests of a class are handed over before the next class has its turn. An
/// authentication costs about as much as all the others of a round.
fn turn_of(class: Class) -> usize {
    match class {
        Class::Clear => 4,
        Class::Minion => 16,
        Class::Auth => 1,
    }
}

/// See the module.
pub(crate) struct ReqRouter {
    seed: Seed,
    queues: [Queue; Class::ALL.len()],
    /// The queue whose turn it is, and how many more it may hand over.
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
            // Dropping the request answers it: its peer learns that it was not handled.
            Waiting::Requests(waiting) => {
                if let Some(_given_up) = waiting.push(request) {
                    self.metrics.shed.inc();
                }
            }
            Waiting::Authentications(waiting) => waiting.push(request),
        }
        self.tell_length();
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
        self.tell_length();
        next
    }

    fn tell_length(&self) {
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

    /// Nothing new comes in; what came in is still handed over.
    fn drain(&mut self, _: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        Some(Box::pin(HandedOver))
    }
}

/// Resolves when nothing waits. Polled again with every message of the router, and only messages
/// make the queues shorter.
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
        // The address outlives this value, so both are told once.
        if let Some((listener, closed)) = self.seed.listener.lock().take() {
            self.seed.windows.set_router(address.clone().recipient());
            let serving = listener.serve(Arc::new(Door(address)), self.seed.stop.clone());
            actix_rt::spawn(async move {
                serving.await;
                drop(closed);
            });
        }
    }
}

/// Where the connections leave their requests.
struct Door(Addr<ReqRouter>);

impl RequestSink for Door {
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

    /// Hands over what waits, the classes by turns, until no worker has a place for any of it.
    fn serve_waiting(&mut self) {
        while self.serve_one() {}
        if !self.is_empty() {
            self.seed.windows.want();
            // A place given back between the two lines above would not be told.
            while self.serve_one() {}
        }
    }

    fn serve_one(&mut self) -> bool {
        if !self.seed.windows.has_place() {
            // The turn stays where it is: whoever has it gets the next place.
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
                // Who is told to come again is turned away: quickly, whatever the others' time.
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
