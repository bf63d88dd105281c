//! Request worker: decrypts requests, checks them, and turns them into messages.
//!
//! Owns nothing that lasts. A request that must be stored leaves the worker together with its
//! answer, so a worker that panics loses only the request that it was handling.

use std::sync::Arc;

use actix::{Actor, Context, Handler};
use saltern_base::metrics::{HistogramVec, Registry, SECONDS, histogram_vec};
use saltern_model::AuditDoor;
use saltern_requests::{Origin, Services};
use saltern_supervise::Child;
use saltern_wire::port::InsideListener;
use tokio::time::Instant;

use crate::front::carry_out::Sinks;
use crate::front::transports;
use crate::messages::{Treatment, Work};
use crate::shared::answer::PendingReply;
use crate::shared::send::{Outbox, SendsThroughOutbox};

/// Seed of a worker.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) services: Arc<Services>,
    pub(crate) sinks: Sinks,
    pub(crate) metrics: WorkerMetrics,
}

/// Metrics of the workers.
#[derive(Clone)]
pub(crate) struct WorkerMetrics {
    handling: HistogramVec,
}

impl WorkerMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            handling: histogram_vec(
                registry,
                "saltern_request_handling_seconds",
                "Time that a worker spends on a request, by command; waiting for a commit is \
                 not in it.",
                &["cmd"],
                SECONDS,
            ),
        }
    }
}

/// Actor that handles requests.
pub(crate) struct MWorker {
    seed: Seed,
    outbox: Outbox,
}

impl MWorker {
    /// Requests in progress at one worker: enough for those that wait for a commit.
    pub(crate) const WINDOW: usize = 256;
}

impl Child for MWorker {
    type Seed = Seed;

    const NAME: &'static str = "mworker";
    const MAILBOX: usize = 2 * Self::WINDOW;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            outbox: Outbox::default(),
        }
    }
}

impl Actor for MWorker {
    type Context = Context<Self>;
}

impl SendsThroughOutbox for MWorker {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

impl Handler<Work> for MWorker {
    type Result = ();

    fn handle(&mut self, work: Work, context: &mut Self::Context) {
        let Work {
            request,
            treatment,
            ticket,
            latency,
        } = work;
        let began = Instant::now();
        let services = &self.seed.services;
        let origin = Origin {
            address: request.peer.address.ip(),
            publish_port: transports::publish_port(&services.config, request.reply.transport()),
            door: match request.reply.inside() {
                Some(InsideListener::Api) => AuditDoor::Api,
                Some(InsideListener::Console) => AuditDoor::Console,
                Some(InsideListener::Syndic) => AuditDoor::Syndic,
                None => AuditDoor::Port,
            },
        };
        let mut handled = match treatment {
            Treatment::Handle => saltern_requests::handle(request.payload, origin, services),
            Treatment::RetryLater => saltern_requests::retry_later(request.payload, services),
        };
        tracing::debug!(
            cmd = handled.command,
            minion = handled.minion.as_ref().map(tracing::field::display),
            from = %origin.address,
            "request handled"
        );
        if handled.minion.is_some() {
            request.reply.authenticated();
        } else if handled.is_refused() {
            request.reply.refused();
        }
        let command = handled.command;
        let answer = PendingReply::new(request.reply, ticket)
            .timed(latency)
            .traced(handled.span.take());
        self.seed
            .sinks
            .carry_out(handled, answer, &mut self.outbox, context);
        let took = began.elapsed().as_secs_f64();
        self.seed
            .metrics
            .handling
            .with_label_values(&[command])
            .observe(took);
    }
}
