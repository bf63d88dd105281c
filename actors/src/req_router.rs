//! Spreads requests over the workers; owns the only backlog in the process.
//!
//! Requests wait by class, each class in a bounded queue of its own, so that a storm of
//! authentications does not stand in the way of returns. The router does not read payloads beyond
//! the few bytes that tell the class, and it does not answer: a request carries its reply handle.
//! The sockets of the request port live in tasks on this actor's thread, not in its state.

use std::collections::VecDeque;
use std::sync::Arc;

use actix::{Actor, Addr, Context, Handler};
use parking_lot::Mutex;
use saltern_base::metrics::{IntCounterVec, IntGaugeVec, Registry, counter_vec, gauge_vec};
use saltern_requests::{Class, peek_class};
use saltern_supervise::Child;
use saltern_wire::zmtp::{Incoming, ReqListener, RequestSink};
use tokio_util::sync::CancellationToken;

use crate::messages::{Accept, PlaceFree, Work};
use crate::mworker::MWorker;
use crate::window::Windows;

/// What a router is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) workers: Arc<Vec<Addr<MWorker>>>,
    pub(crate) windows: Arc<Windows>,
    /// Requests of one class that may wait.
    pub(crate) backlog: usize,
    pub(crate) metrics: RouterMetrics,
    /// The request port, until the first router has taken it over.
    pub(crate) listener: Arc<Mutex<Option<ReqListener>>>,
    pub(crate) stop: CancellationToken,
}

/// What the router counts.
#[derive(Clone)]
pub(crate) struct RouterMetrics {
    requests: IntCounterVec,
    shed: IntCounterVec,
    waiting: IntGaugeVec,
}

impl RouterMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let class = ["class"];
        Self {
            requests: counter_vec(
                registry,
                "saltern_requests_total",
                "Requests that came in, by class.",
                &class,
            ),
            shed: counter_vec(
                registry,
                "saltern_requests_shed_total",
                "Requests turned away because the backlog of their class was full.",
                &class,
            ),
            waiting: gauge_vec(
                registry,
                "saltern_requests_waiting",
                "Requests that wait for a worker, by class.",
                &class,
            ),
        }
    }
}

/// See the module.
pub(crate) struct ReqRouter {
    seed: Seed,
    waiting: [(Class, VecDeque<Incoming>); Class::ALL.len()],
}

impl Child for ReqRouter {
    type Seed = Seed;

    const NAME: &'static str = "req_router";
    const MAILBOX: usize = 4096;

    fn build(seed: &Seed) -> Self {
        for class in Class::ALL {
            seed.metrics
                .waiting
                .with_label_values(&[class.label()])
                .set(0);
        }
        Self {
            seed: seed.clone(),
            waiting: Class::ALL.map(|class| (class, VecDeque::new())),
        }
    }
}

impl Actor for ReqRouter {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        use actix::AsyncContext;
        if let Some(listener) = self.seed.listener.lock().take() {
            self.seed.windows.set_router(context.address().recipient());
            let sink = Arc::new(Door(context.address()));
            actix_rt::spawn(listener.serve(sink, self.seed.stop.clone()));
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
        self.seed
            .metrics
            .requests
            .with_label_values(&[class.label()])
            .inc();
        if self.waiting.iter().all(|(_, queue)| queue.is_empty()) {
            match self.seed.windows.take() {
                Some(place) => self.hand_over(request, place),
                None => self.keep(class, request),
            }
        } else {
            self.keep(class, request);
        }
    }
}

impl Handler<PlaceFree> for ReqRouter {
    type Result = ();

    fn handle(&mut self, _: PlaceFree, _: &mut Self::Context) {
        self.serve_waiting();
    }
}

impl ReqRouter {
    fn keep(&mut self, class: Class, request: Incoming) {
        let limit = self.seed.backlog;
        let Some((_, queue)) = self.waiting.iter_mut().find(|(known, _)| *known == class) else {
            return;
        };
        if queue.len() >= limit {
            // Dropping the request answers it: its peer learns that it was not handled.
            self.seed
                .metrics
                .shed
                .with_label_values(&[class.label()])
                .inc();
            return;
        }
        queue.push_back(request);
        self.seed
            .metrics
            .waiting
            .with_label_values(&[class.label()])
            .inc();
        self.seed.windows.want();
        self.serve_waiting();
    }

    /// Hands over what waits, the classes in their order, until no worker has a place.
    fn serve_waiting(&mut self) {
        loop {
            let Some(index) = self.waiting.iter().position(|(_, queue)| !queue.is_empty()) else {
                return;
            };
            let Some(place) = self.seed.windows.take() else {
                self.seed.windows.want();
                // A place given back between the two lines above would not be told.
                match self.seed.windows.take() {
                    Some(place) => self.serve_one(index, place),
                    None => return,
                }
                continue;
            };
            self.serve_one(index, place);
        }
    }

    fn serve_one(&mut self, index: usize, place: crate::window::Ticket) {
        let Some((class, queue)) = self.waiting.get_mut(index) else {
            return;
        };
        let Some(request) = queue.pop_front() else {
            return;
        };
        self.seed
            .metrics
            .waiting
            .with_label_values(&[class.label()])
            .dec();
        self.hand_over(request, place);
    }

    fn hand_over(&self, request: Incoming, place: crate::window::Ticket) {
        let Some(worker) = self.seed.workers.get(place.worker()) else {
            return;
        };
        // The window is smaller than the worker's mailbox, so this fails only when the worker has
        // ended for good; the request is then answered by being dropped.
        if worker
            .try_send(Work {
                request,
                ticket: place,
            })
            .is_err()
        {
            tracing::error!("a worker does not take requests");
        }
    }
}
