//! How a batch pauses and goes on: the change is stored, then the caller is answered.
//!
//! A pause holds at once, before it is stored: what is not sent can still be sent. A batch goes on
//! only when that is stored. Minions that were sent their part are awaited as ever.

use std::sync::mpsc::SyncSender;

use actix::Context;
use saltern_model::Jid;
use saltern_store::jobs::Write;

use super::Batches;
use super::batch::Phase;
use super::events::BatchNews;
use crate::messages::FollowUp;

/// The caller of a change, who waits for it.
pub(super) type Caller = Option<SyncSender<bool>>;

fn answer(caller: Caller, is_done: bool) {
    if let Some(caller) = caller {
        // One that has given up does not listen any more.
        let _ = caller.try_send(is_done);
    }
}

impl Batches {
    /// Pauses a batch of the master's, or has it go on. One that does so already stays as it is.
    pub(super) fn pause(
        &mut self,
        jid: &Jid,
        is_paused: bool,
        caller: Caller,
        context: &mut Context<Self>,
    ) {
        let now = self.now();
        let Some(batch) = self.batches.get_mut(jid) else {
            return answer(caller, false);
        };
        if batch.phase == Phase::Ending {
            return answer(caller, false);
        }
        let before = batch.paused_since;
        // Written even if nothing changes: a write before may not be stored yet.
        let since = is_paused.then(|| before.unwrap_or(now.unix));
        if is_paused {
            batch.set_paused(since);
        }
        let news = BatchNews::paused(&batch.machine, is_paused);
        let plan = batch.plan.clone();
        let follow_up = match before == since {
            true => FollowUp::Nothing,
            false => FollowUp::Fire(vec![self.event(&plan, &news)]),
        };
        let write = Write::BatchPaused {
            jid: jid.clone(),
            since,
        };
        let jid = jid.clone();
        self.persist(
            vec![(write, follow_up)],
            context,
            move |batches, is_stored, context| {
                batches.finish_pause(&jid, if is_stored { since } else { before }, context);
                // Without an answer the caller learns that it was not stored.
                if is_stored {
                    answer(caller, true);
                }
            },
        );
    }

    fn finish_pause(&mut self, jid: &Jid, since: Option<i64>, context: &mut Context<Self>) {
        // It may be over meanwhile: its last minion has returned.
        let Some(batch) = self.batches.get_mut(jid) else {
            return;
        };
        batch.set_paused(since);
        tracing::info!(%jid, is_paused = since.is_some(), "a batch pauses or goes on");
        self.go_on(jid, since.is_none(), context);
    }
}
