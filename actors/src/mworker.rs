//! Handles requests: opens them, checks them, and turns what they ask for into messages.
//!
//! Owns nothing that lasts. A request that must be stored leaves the worker together with its
//! answer, so a worker that panics loses only the request that it was handling.

use std::sync::Arc;

use actix::{Actor, Context, Handler, Recipient};
use saltern_base::metrics::{HistogramVec, Registry, SECONDS, histogram_vec};
use saltern_requests::{Effect, Outcome, Services};
use saltern_supervise::Child;
use saltern_wire::zmtp::ReplyHandle;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::messages::{BeginBatch, BeginJob, Duty, Fire, TakeAnswer, TakeReturn, Work};
use crate::render_queue::{RenderQueue, Rendering};
use crate::runner::RunQueue;
use crate::send::{Outbox, Sends};
use crate::window::Ticket;

/// What a worker is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) services: Arc<Services>,
    pub(crate) begin_job: Recipient<BeginJob>,
    pub(crate) begin_batch: Recipient<BeginBatch>,
    pub(crate) take_return: Recipient<TakeReturn>,
    pub(crate) take_answer: Recipient<TakeAnswer>,
    pub(crate) bus: Recipient<Fire>,
    pub(crate) renderings: Arc<RenderQueue>,
    pub(crate) runs: Arc<RunQueue>,
    pub(crate) metrics: WorkerMetrics,
}

/// What the workers measure.
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

/// See the module.
pub(crate) struct MWorker {
    seed: Seed,
    outbox: Outbox,
}

impl MWorker {
    /// Requests that one worker may have in hand: enough for those that wait for a commit.
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

impl Sends for MWorker {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

impl Handler<Work> for MWorker {
    type Result = ();

    fn handle(&mut self, work: Work, context: &mut Self::Context) {
        let Work {
            request,
            duty,
            ticket,
        } = work;
        let began = Instant::now();
        let from = request.peer.address.ip();
        let services = &self.seed.services;
        let handled = match duty {
            Duty::Handle => saltern_requests::handle(request.payload, from, services),
            Duty::TellToComeAgain => saltern_requests::come_again(request.payload, services),
        };
        if handled.minion.is_some() {
            request.reply.authenticated();
        }
        let mut outcome = handled.outcome;
        match outcome.later.take() {
            Some(work) => self.seed.renderings.push(Rendering {
                minion: handled.minion,
                command: handled.command,
                work,
                answer: Answer::without_place(request.reply, outcome.reply),
            }),
            None => self.carry_out(outcome, request.reply, ticket, context),
        }
        let took = began.elapsed().as_secs_f64();
        self.seed
            .metrics
            .handling
            .with_label_values(&[handled.command])
            .observe(took);
    }
}

impl MWorker {
    /// Sends the effects on their way. The answer goes with the one that is durable, if there is
    /// one, else to the peer at once.
    fn carry_out(
        &mut self,
        outcome: Outcome,
        reply: ReplyHandle,
        ticket: Ticket,
        context: &mut Context<Self>,
    ) {
        let mut answer = Some(Answer::new(
            reply,
            outcome.reply,
            outcome.reply_if_not_stored,
            ticket,
        ));
        let mut events = Vec::new();
        for effect in outcome.effects {
            match effect {
                Effect::Fire(event) => events.push(event),
                Effect::StartJob(start) => {
                    if let Some(answer) = answer.take() {
                        let begin = BeginJob { start, answer };
                        self.outbox.push(context, &self.seed.begin_job, begin);
                    }
                }
                Effect::Run(run) => {
                    if let Some(answer) = answer.take() {
                        match self.seed.runs.push(*run) {
                            Ok(()) => self.outbox.then(context, move || answer.done()),
                            Err(_) => answer.failed(),
                        }
                    }
                }
                Effect::StartBatch(plan) => {
                    if let Some(answer) = answer.take() {
                        let begin = BeginBatch { plan, answer };
                        self.outbox.push(context, &self.seed.begin_batch, begin);
                    }
                }
                Effect::StoreReturn(returned) => {
                    if let Some(answer) = answer.take() {
                        let take = TakeReturn { returned, answer };
                        self.outbox.push(context, &self.seed.take_return, take);
                    }
                }
                Effect::TakeAnswer(answer) => {
                    let take = TakeAnswer(answer);
                    self.outbox.push(context, &self.seed.take_answer, take);
                }
            }
        }
        if !events.is_empty() {
            self.outbox.push(context, &self.seed.bus, Fire(events));
        }
        if let Some(answer) = answer {
            self.outbox.then(context, move || answer.done());
        }
    }
}
