//! How a batch begins or resumes: its plan is stored, and it goes on from the store.
//!
//! The same way for a new batch, an adopted one, one of before a restart, and one of which a part
//! could not be stored: when in doubt, the store counts.

use std::time::Duration;

use actix::{AsyncContext, Context};
use saltern_model::{Jid, Packed};
use saltern_requests::BatchPlan;
use saltern_store::StoredBatch;
use saltern_store::jobs::Write;
use tokio::time::Instant;

use super::batch::{Batch, Phase};
use super::events::BatchNews;
use super::{Batches, Sent};
use crate::messages::{Fire, FollowUp};

impl Batches {
    /// Resumes all open batches after a restart.
    pub(super) fn take_up(&mut self, context: &mut Context<Self>) {
        let open = match self.seed.reader.open_batches() {
            Ok(open) => open,
            Err(error) => {
                tracing::error!(%error, "open batches cannot be taken up");
                return;
            }
        };
        for stored in open {
            self.seed.feed.follow(&stored.jid);
            self.resume(&stored, Sent::Perhaps, context);
            let Some(batch) = self.batches.get(&stored.jid) else {
                continue;
            };
            let age = self.now().unix.saturating_sub(batch.last_progress);
            tracing::info!(jid = %stored.jid, "a batch goes on where it was");
            let event = self.event(&batch.plan, &BatchNews::recover(age));
            self.outbox.push(context, &self.seed.bus, Fire(vec![event]));
            self.go_on(&stored.jid, true, context);
        }
        self.count_open();
    }

    /// Stores the plan of a new batch; once stored, it begins, or goes on where its state says.
    /// `after` gets whether it was.
    pub(super) fn store_plan(
        &mut self,
        mut plan: BatchPlan,
        state: Packed,
        sent: Sent,
        context: &mut Context<Self>,
        after: impl FnOnce(&mut Self, bool, &mut Context<Self>) + 'static,
    ) {
        let jid = plan.jid.clone();
        let row = plan.audit.take();
        self.seed.feed.follow(&jid);
        self.batches.insert(jid.clone(), Batch::new(plan));
        self.count_open();
        let write = Write::Batch {
            jid: jid.clone(),
            plan: state,
        };
        let row = row.map(|row| (Write::Audit(row), FollowUp::Nothing));
        let writes = [(write, FollowUp::Nothing)].into_iter().chain(row);
        self.persist(
            writes.collect(),
            context,
            move |batches, is_stored, context| {
                after(batches, is_stored, context);
                if is_stored {
                    batches.retake(&jid, sent, context);
                } else {
                    batches.forget(&jid);
                }
            },
        );
    }

    pub(super) fn forget(&mut self, jid: &Jid) {
        if let Some(batch) = self.batches.remove(jid) {
            self.seed.metrics.running.sub(batch.counted);
        }
        self.seed.feed.forget(jid);
        // Callers that still wait for its end learn that there is none.
        self.stopping.remove(jid);
        self.count_open();
    }

    /// Sets a batch to its stored state, and sends once more what may not have left.
    pub(super) fn resume(&mut self, stored: &StoredBatch, sent: Sent, context: &mut Context<Self>) {
        let (jid, now) = (&stored.jid, self.now());
        let before = self.batches.remove(jid);
        match Batch::resumed(stored, before.as_ref(), now) {
            Ok(mut batch) => {
                // Kept over the wait: what is sent again meanwhile may be lost too.
                batch.is_unsure |= sent == Sent::Perhaps && stored.published.is_none();
                let left = self.seed.gathered.saturating_duration_since(Instant::now());
                if sent == Sent::Perhaps && !left.is_zero() {
                    self.wait(&mut batch, left, context);
                } else if std::mem::take(&mut batch.is_unsure) {
                    self.send_again(&mut batch, context);
                }
                self.batches.insert(jid.clone(), batch);
            }
            Err(error) => {
                tracing::error!(%jid, %error, "a stored batch cannot be read; it ends here");
                self.batches
                    .extend(before.map(|before| (jid.clone(), before)));
                self.forget(jid);
            }
        }
    }

    /// Reads a batch from the store again and goes on.
    pub(super) fn retake(&mut self, jid: &Jid, sent: Sent, context: &mut Context<Self>) {
        match self.seed.reader.batch(jid) {
            Ok(Some(stored)) if stored.is_open => {
                self.resume(&stored, sent, context);
                self.go_on(jid, true, context);
            }
            Ok(_) => {
                tracing::error!(%jid, "a batch is not in the store any more; it ends here");
                self.forget(jid);
            }
            Err(error) => {
                tracing::error!(%jid, %error, "a batch cannot be read");
                if let Some(batch) = self.batches.get_mut(jid) {
                    batch.phase = Phase::Running;
                }
                self.stall(jid, context);
            }
        }
    }

    /// Sends minions that have not returned their part once more.
    pub(super) fn send_again(&mut self, batch: &mut Batch, context: &mut Context<Self>) {
        let active = batch.active();
        if !active.is_empty() && !batch.machine.is_over() {
            self.send(batch, &active, context);
        }
    }

    /// After a failure: waits a little, then resumes from the store.
    pub(super) fn stall(&mut self, jid: &Jid, context: &mut Context<Self>) {
        if let Some(mut batch) = self.batches.remove(jid) {
            if !matches!(batch.phase, Phase::Stalled | Phase::Ending) {
                let pause = batch.pause();
                self.wait(&mut batch, pause, context);
            }
            self.batches.insert(jid.clone(), batch);
        }
    }

    /// Resumes the batch from the store after this time.
    pub(super) fn wait(&self, batch: &mut Batch, pause: Duration, context: &mut Context<Self>) {
        batch.phase = Phase::Stalled;
        let jid = batch.plan.jid.clone();
        context.run_later(pause, move |batches, context| {
            batches.retake(&jid, Sent::Perhaps, context);
        });
    }
}
