//! Turns the effects of a request into messages, for the workers and for the login workers, which
//! finish log-ins beside them.

use std::sync::Arc;

use actix::{Context, Recipient};
use saltern_model::AuditRecord;
use saltern_requests::{Effect, Handled};

use crate::content::render_queue::{Asker, RenderQueue, Rendering};
use crate::front::logins::{Login, Logins};
use crate::functions::runner::RunQueue;
use crate::messages::{
    BeginBatch, BeginJob, Fire, Persist, TakeAnswer, TakePeerCall, TakeReturn, TakeSyndicMinions,
    TakeVerdicts,
};
use crate::shared::answer::PendingReply;
use crate::shared::send::{Outbox, SendsThroughOutbox};

/// Receivers of effects.
#[derive(Clone)]
pub(crate) struct Sinks {
    pub(crate) begin_job: Recipient<BeginJob>,
    pub(crate) begin_batch: Recipient<BeginBatch>,
    pub(crate) take_return: Recipient<TakeReturn>,
    pub(crate) take_leaves: Recipient<TakeSyndicMinions>,
    pub(crate) take_answer: Recipient<TakeAnswer>,
    pub(crate) take_verdicts: Recipient<TakeVerdicts>,
    /// Rows of the audit trail that have no job.
    pub(crate) audit: Recipient<Persist>,
    pub(crate) peer_calls: Recipient<TakePeerCall>,
    pub(crate) bus: Recipient<Fire>,
    pub(crate) renderings: Arc<RenderQueue>,
    pub(crate) wheels: Arc<RenderQueue>,
    pub(crate) runs: Arc<RunQueue>,
    pub(crate) logins: Arc<Logins>,
}

impl Sinks {
    /// Sends the effects on their way. The reply gets the words of the outcome and goes with the
    /// durable effects, if there are any, else to the peer at once. A slow effect of another actor
    /// keeps no worker's slot.
    pub(crate) fn carry_out<A: SendsThroughOutbox>(
        &self,
        handled: Handled,
        answer: PendingReply,
        outbox: &mut Outbox,
        context: &mut Context<A>,
    ) {
        let (outcome, audit) = (handled.outcome, handled.audit);
        if let Some(work) = outcome.later {
            if let Some(row) = audit {
                // In front of the work, which is not held up by it.
                outbox.push(context, &self.audit, Persist::row(row));
            }
            let user = work.user().unwrap_or_default().to_owned();
            let (queue, asker) = match handled.minion {
                Some(minion) => (&self.renderings, Asker::Minion(minion)),
                None => (&self.wheels, Asker::User(user)),
            };
            queue.push(Rendering {
                asker,
                command: handled.command,
                work,
                answer: answer.with(outcome.reply.clone(), outcome.reply).leaving(),
            });
            return;
        }
        let answer = answer.with(outcome.reply, outcome.reply_if_not_stored);
        let carriers = outcome.effects.iter().filter(|one| carries_answer(one));
        let is_elsewhere = outcome.effects.iter().any(answers_elsewhere);
        let waits = audit.is_some() && !is_elsewhere;
        let mut answers = answer.split(carriers.count() + usize::from(waits));
        match (audit, waits) {
            (Some(row), true) => self.store_row(row, answers.pop(), outbox, context),
            (Some(row), false) => outbox.push(context, &self.audit, Persist::row(row)),
            (None, _) => {}
        }
        let mut events = Vec::new();
        for effect in outcome.effects {
            match effect {
                Effect::Fire(event) => events.push(event),
                Effect::LogIn(log_in) => {
                    if let Some(answer) = answers.pop() {
                        let answer = answer.leaving();
                        self.logins.push(Login { log_in, answer });
                    }
                }
                Effect::StartJob(start) => {
                    if let Some(answer) = answers.pop() {
                        let begin = BeginJob { start, answer };
                        outbox.push(context, &self.begin_job, begin);
                    }
                }
                Effect::Run(run) => {
                    if let Some(answer) = answers.pop() {
                        match self.runs.push(*run) {
                            Ok(()) => outbox.then(context, move || answer.done()),
                            Err(_) => answer.failed(),
                        }
                    }
                }
                Effect::RunPeerCall(call) => {
                    if let Some(answer) = answers.pop() {
                        let answer = answer.leaving();
                        outbox.push(context, &self.peer_calls, TakePeerCall { call, answer });
                    }
                }
                Effect::StartBatch(plan) => {
                    if let Some(answer) = answers.pop() {
                        let begin = BeginBatch { plan, answer };
                        outbox.push(context, &self.begin_batch, begin);
                    }
                }
                Effect::StoreReturn(returned) => {
                    if let Some(answer) = answers.pop() {
                        let take = TakeReturn { returned, answer };
                        outbox.push(context, &self.take_return, take);
                    }
                }
                Effect::ExpectSyndicMinions(leaves) => {
                    if let Some(answer) = answers.pop() {
                        outbox.push(
                            context,
                            &self.take_leaves,
                            TakeSyndicMinions { leaves, answer },
                        );
                    }
                }
                Effect::TakeAnswer(answer) => {
                    outbox.push(context, &self.take_answer, TakeAnswer(answer));
                }
                Effect::TakeVerdicts(verdicts) => {
                    outbox.push(context, &self.take_verdicts, TakeVerdicts(verdicts));
                }
            }
        }
        if !events.is_empty() {
            outbox.push(context, &self.bus, Fire(events));
        }
        // Nothing is durable.
        if let Some(answer) = answers.pop() {
            outbox.then(context, move || answer.done());
        }
    }

    /// Stores a row, for which the answer waits. A call or a refusal without a job is answered all
    /// the same when it cannot be stored: a full disk must not keep an operator from the functions
    /// that help.
    fn store_row<A: SendsThroughOutbox>(
        &self,
        row: Box<AuditRecord>,
        answer: Option<PendingReply>,
        outbox: &mut Outbox,
        context: &mut Context<A>,
    ) {
        let (user, cmd, fun) = (row.user.clone(), row.cmd.clone(), row.fun.clone());
        let (settle, stored) = PendingReply::inside();
        let persist = Persist {
            answer: Some(settle),
            ..Persist::row(row)
        };
        outbox.push(context, &self.audit, persist);
        // A task of its own, so that it survives a panic of this actor.
        actix_rt::spawn(async move {
            if !stored.await {
                tracing::error!(
                    user,
                    cmd,
                    fun,
                    "a row of the audit trail could not be stored"
                );
            }
            if let Some(answer) = answer {
                answer.done();
            }
        });
    }
}

/// Whether the reply is made where this effect is carried out.
fn answers_elsewhere(effect: &Effect) -> bool {
    matches!(effect, Effect::LogIn(_) | Effect::RunPeerCall(_))
}

/// Whether the reply waits for this effect.
fn carries_answer(effect: &Effect) -> bool {
    match effect {
        Effect::LogIn(_)
        | Effect::StartJob(_)
        | Effect::StartBatch(_)
        | Effect::StoreReturn(_)
        | Effect::ExpectSyndicMinions(_)
        | Effect::Run(_)
        | Effect::RunPeerCall(_) => true,
        Effect::Fire(_) | Effect::TakeAnswer(_) | Effect::TakeVerdicts(_) => false,
    }
}
