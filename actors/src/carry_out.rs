//! Turns what is to be done because of a request into messages: for the workers, and for the
//! doorkeepers, who finish log-ins beside them.

use std::sync::Arc;

use actix::{Context, Recipient};
use saltern_requests::{Effect, Handled};

use crate::answer::Answer;
use crate::logins::{Login, Logins};
use crate::messages::{BeginBatch, BeginJob, Fire, TakeAnswer, TakeErrand, TakeReturn};
use crate::render_queue::{RenderQueue, Rendering};
use crate::runner::RunQueue;
use crate::send::{Outbox, Sends};

/// Where effects go.
#[derive(Clone)]
pub(crate) struct Sinks {
    pub(crate) begin_job: Recipient<BeginJob>,
    pub(crate) begin_batch: Recipient<BeginBatch>,
    pub(crate) take_return: Recipient<TakeReturn>,
    pub(crate) take_answer: Recipient<TakeAnswer>,
    pub(crate) peer_desk: Recipient<TakeErrand>,
    pub(crate) bus: Recipient<Fire>,
    pub(crate) renderings: Arc<RenderQueue>,
    pub(crate) runs: Arc<RunQueue>,
    pub(crate) logins: Arc<Logins>,
}

impl Sinks {
    /// Sends the effects on their way. The answer gets the words of the outcome and goes with the
    /// effect that is durable, if there is one, else to the peer at once. What is done by others
    /// and may take long keeps no worker's place.
    pub(crate) fn carry_out<A: Sends>(
        &self,
        handled: Handled,
        answer: Answer,
        outbox: &mut Outbox,
        context: &mut Context<A>,
    ) {
        let outcome = handled.outcome;
        if let Some(work) = outcome.later {
            self.renderings.push(Rendering {
                minion: handled.minion,
                command: handled.command,
                work,
                answer: answer.with(outcome.reply.clone(), outcome.reply).leaving(),
            });
            return;
        }
        let mut answer = Some(answer.with(outcome.reply, outcome.reply_if_not_stored));
        let mut events = Vec::new();
        for effect in outcome.effects {
            match effect {
                Effect::Fire(event) => events.push(event),
                Effect::LogIn(log_in) => {
                    if let Some(answer) = answer.take() {
                        let answer = answer.leaving();
                        self.logins.push(Login { log_in, answer });
                    }
                }
                Effect::StartJob(start) => {
                    if let Some(answer) = answer.take() {
                        let begin = BeginJob { start, answer };
                        outbox.push(context, &self.begin_job, begin);
                    }
                }
                Effect::Run(run) => {
                    if let Some(answer) = answer.take() {
                        match self.runs.push(*run) {
                            Ok(()) => outbox.then(context, move || answer.done()),
                            Err(_) => answer.failed(),
                        }
                    }
                }
                Effect::RunErrand(errand) => {
                    if let Some(answer) = answer.take() {
                        let answer = answer.leaving();
                        outbox.push(context, &self.peer_desk, TakeErrand { errand, answer });
                    }
                }
                Effect::StartBatch(plan) => {
                    if let Some(answer) = answer.take() {
                        let begin = BeginBatch { plan, answer };
                        outbox.push(context, &self.begin_batch, begin);
                    }
                }
                Effect::StoreReturn(returned) => {
                    if let Some(answer) = answer.take() {
                        let take = TakeReturn { returned, answer };
                        outbox.push(context, &self.take_return, take);
                    }
                }
                Effect::TakeAnswer(answer) => {
                    outbox.push(context, &self.take_answer, TakeAnswer(answer));
                }
            }
        }
        if !events.is_empty() {
            outbox.push(context, &self.bus, Fire(events));
        }
        if let Some(answer) = answer {
            outbox.then(context, move || answer.done());
        }
    }
}
