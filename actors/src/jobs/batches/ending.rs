//! How a batch ends: complete, at a bad return, or stopped by a user.

use actix::{AsyncContext, Context};
use saltern_model::{Jid, MinionId};
use saltern_requests::{BatchPlan, batch_part};
use saltern_store::jobs::Write;
use saltern_wire::msgpack::Value;

use super::Batches;
use super::batch::{Batch, Phase};
use super::events::BatchNews;
use crate::messages::{BeginJob, FollowUp};
use crate::shared::answer::PendingReply;

impl Batches {
    /// Stops a batch early; with `kills`, also what minions run of it.
    pub(super) fn stop(
        &mut self,
        jid: &Jid,
        reason: &str,
        kills: bool,
        context: &mut Context<Self>,
    ) {
        let Some(batch) = self.batches.get_mut(jid) else {
            let is_stopped = self.stop_foreign(jid, reason, kills, context);
            return self.report_stopped(jid, is_stopped);
        };
        batch.machine.halt(reason);
        if kills {
            let (plan, active) = (batch.plan.clone(), batch.active());
            self.kill(&plan, &active, context);
        }
        self.go_on(jid, true, context);
    }

    /// Answers the callers that wait for the end of a batch.
    fn report_stopped(&mut self, jid: &Jid, is_stopped: bool) {
        for waiting in self.stopping.remove(jid).into_iter().flatten() {
            // A caller that has given up does not listen any more.
            let _ = waiting.try_send(is_stopped);
        }
    }

    /// Has minions end what they run of a batch. Stock's runner publishes that itself.
    pub(super) fn kill(
        &mut self,
        plan: &BatchPlan,
        minions: &[MinionId],
        context: &mut Context<Self>,
    ) {
        let nothing = || Value::Map(Vec::new());
        let order = BatchPlan {
            jid: self.seed.services.minter.mint(),
            fun: "saltutil.kill_job".into(),
            arg: vec![plan.jid.as_str().into()],
            kwargs: nothing(),
            options: nothing(),
            audit: None,
            ret: "".into(),
            ..plan.clone()
        };
        let part = batch_part(&order, minions, &self.seed.services);
        match part.map(|part| part.start) {
            Ok(Some(start)) => {
                // Whether it arrives shows in its own returns.
                let (answer, _) = PendingReply::inside();
                let start = Box::new(start);
                self.outbox
                    .push(context, &self.seed.begin_job, BeginJob { start, answer });
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(jid = %plan.jid, %error, "the signal to end a batch cannot be sent");
            }
        }
    }

    /// Stores the end, then announces it.
    pub(super) fn end(&mut self, batch: &mut Batch, context: &mut Context<Self>) {
        batch.phase = Phase::Ending;
        let (jid, now) = (batch.plan.jid.clone(), self.now());
        self.write_state(batch, now);
        let halted = batch.machine.halted().map(str::to_owned);
        let event = match &halted {
            None => {
                let news = BatchNews::complete(&batch.plan, &batch.machine, now.unix);
                self.event(&batch.plan, &news)
            }
            Some(reason) => {
                let snapshot = batch.snapshot(now);
                let news = BatchNews::halted(&batch.plan, &snapshot, reason, now.unix);
                self.event(&batch.plan, &news)
            }
        };
        let pause = batch.pause();
        let over = Write::BatchOver {
            jid: jid.clone(),
            halted,
        };
        self.persist(
            vec![(over, FollowUp::Fire(vec![event]))],
            context,
            move |batches, is_stored, context| {
                if is_stored {
                    batches.retire(&jid);
                    return;
                }
                context.run_later(pause, move |batches, context| {
                    if let Some(mut batch) = batches.batches.remove(&jid) {
                        batches.end(&mut batch, context);
                        batches.batches.insert(jid, batch);
                    }
                });
            },
        );
    }

    pub(super) fn retire(&mut self, jid: &Jid) {
        let Some(batch) = self.batches.get(jid) else {
            return;
        };
        let halted = batch.machine.halted();
        let verdict = if halted.is_some() {
            "halted"
        } else {
            "complete"
        };
        tracing::info!(%jid, verdict, reason = halted.unwrap_or("-"), "a batch is over");
        let metrics = &self.seed.metrics;
        metrics.finished.with_label_values(&[verdict]).inc();
        let is_stopped = halted.is_some();
        self.set_listed(jid, false);
        self.report_stopped(jid, is_stopped);
        self.forget(jid);
    }
}
