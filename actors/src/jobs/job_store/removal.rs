//! Retention: removes expired jobs and events a slice at a time, and the jobs' files with them.

use std::time::Duration;

use actix::dev::SendError;
use actix::fut::wrap_future;
use actix::{ActorFutureExt, AsyncContext, Context, Handler, Message};
use saltern_store::StoreError;
use saltern_store::jobs::{Removed, Retention};
use tokio::time::Instant;

use super::JobStore;
use crate::messages::MaintenanceTask;
use crate::messages::{ExpireJobs, RemoveJobFiles};
use crate::upkeep::maintenance_tasks::TaskError;

/// Rows deleted in one transaction when old jobs expire: short, because returns wait meanwhile.
const EXPIRY_SLICE: usize = 500;

/// The database takes at most this part of its disk, where its size is bounded at all.
const DISK_SHARE: u64 = 2;

/// Interval of the log lines with the end of the audit trail.
const HEAD_INTERVAL: Duration = Duration::from_secs(86_400);

/// Delay before a retry while the mirror is busy, or while the database is being restored.
const PAUSE: Duration = Duration::from_secs(1);

/// Remove the next slice of old jobs.
#[derive(Message)]
#[rtype(result = "()")]
struct ExpireSlice;

impl Handler<ExpireJobs> for JobStore {
    type Result = ();

    fn handle(&mut self, ExpireJobs(mut retention): ExpireJobs, context: &mut Self::Context) {
        self.log_audit_head(context);
        let room = wrap_future::<_, Self>(self.seed.engine.housekeeping.room());
        context.wait(room.map(move |room, store, context| {
            // A bound on its size that its disk can hold.
            let share = match room {
                Ok(Some(room)) => room.total / DISK_SHARE,
                _ => u64::MAX,
            };
            retention.most_bytes = retention.most_bytes.map(|most| most.min(share));
            store.expire(retention, context);
        }));
    }
}

impl JobStore {
    /// Logs the end of the audit trail once a day: beside a copy of the log elsewhere, a trail that
    /// was rewritten shows (`saltern audit verify --head`).
    fn log_audit_head(&self, context: &mut Context<Self>) {
        let is_due = |at: Instant| at.elapsed() >= HEAD_INTERVAL;
        if !self.head_logged.is_none_or(is_due) {
            return;
        }
        let head = wrap_future::<_, Self>(self.seed.engine.log.audit_head());
        context.wait(head.map(|head, store, _| {
            if let Some(head) = head.ok().filter(|head| head.number > 0) {
                tracing::info!(%head, "the audit trail ends here");
                store.head_logged = Some(Instant::now());
            }
        }));
    }
}

impl Handler<ExpireSlice> for JobStore {
    type Result = ();

    fn handle(&mut self, _: ExpireSlice, context: &mut Self::Context) {
        let Some(retention) = self.expiring else {
            return;
        };
        if !self.notify_cleaner() {
            context.notify_later(ExpireSlice, PAUSE);
            return;
        }
        let began = Instant::now();
        let housekeeping = &self.seed.engine.housekeeping;
        let removed = wrap_future::<_, Self>(housekeeping.remove_slice(retention, EXPIRY_SLICE));
        context.wait(removed.map(move |removed, store, context| {
            store.removed(removed, began.elapsed(), context);
        }));
    }
}

impl JobStore {
    fn expire(&mut self, retention: Retention, context: &mut Context<Self>) {
        if self.expiring.replace(retention).is_none() {
            self.expiry = Some(
                self.seed
                    .maintenance_tasks
                    .begin(MaintenanceTask::JobExpiry),
            );
            context.notify(ExpireSlice);
        }
    }

    fn removed(
        &mut self,
        removed: Result<Option<Removed>, StoreError>,
        took: Duration,
        context: &mut Context<Self>,
    ) {
        match removed {
            Ok(None) => {
                self.expiry_ended(Ok(()));
                self.measure(context);
            }
            Ok(Some(removed)) => {
                tracing::debug!(
                    rows = removed.rows,
                    reason = removed.reason.label(),
                    "removed"
                );
                let counted = &self.seed.metrics.removed;
                let counted = counted.with_label_values(&[removed.reason.label()]);
                counted.inc_by(removed.rows as u64);
                self.gone = removed.jobs;
                // At most half of the time goes into this, so that returns are not held up.
                context.notify_later(ExpireSlice, took);
            }
            Err(StoreError::Displaced { .. }) => {
                context.notify_later(ExpireSlice, PAUSE);
            }
            Err(error) => self.expiry_ended(Err(TaskError::of(error))),
        }
    }

    fn expiry_ended(&mut self, result: Result<(), TaskError>) {
        self.expiring = None;
        if let Some(expiry) = self.expiry.take() {
            expiry.ended(result);
        }
    }

    /// Has the mirror remove the files of removed jobs; `false` while the mirror is busy.
    fn notify_cleaner(&mut self) -> bool {
        let gone = std::mem::take(&mut self.gone);
        let Some(cleaner) = self.seed.cleaner.as_ref().filter(|_| !gone.is_empty()) else {
            return true;
        };
        match cleaner.try_send(RemoveJobFiles(gone)) {
            Err(SendError::Full(RemoveJobFiles(gone))) => {
                self.gone = gone;
                false
            }
            _ => true,
        }
    }

    pub(super) fn measure(&self, context: &mut Context<Self>) {
        let size = wrap_future::<_, Self>(self.seed.engine.housekeeping.size());
        context.wait(size.map(|size, store, _| match size {
            Ok(Some(size)) => {
                let set = |what: &str, bytes: u64| {
                    let gauge = store.seed.metrics.bytes.with_label_values(&[what]);
                    gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
                };
                set("rows", size.file.saturating_sub(size.free));
                set("free", size.free);
            }
            Ok(None) | Err(StoreError::Displaced { .. }) => {}
            Err(error) => tracing::error!(%error, "the job database cannot be measured"),
        }));
    }
}
