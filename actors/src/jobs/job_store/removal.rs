//! Retention: removes expired jobs and events a slice at a time, and the jobs' files with them.

use std::time::Duration;

use actix::dev::SendError;
use actix::{AsyncContext, Handler, Message};
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
        retention.most_bytes = self.bounded_by_disk(retention.most_bytes);
        self.log_audit_head();
        if self.expiring.replace(retention).is_none() {
            self.expiry = Some(
                self.seed
                    .maintenance_tasks
                    .begin(MaintenanceTask::JobExpiry),
            );
            context.notify(ExpireSlice);
        }
    }
}

impl JobStore {
    /// Logs the end of the audit trail once a day: beside a copy of the log elsewhere, a trail that
    /// was rewritten shows (`saltern audit verify --head`).
    fn log_audit_head(&mut self) {
        let is_due = |at: Instant| at.elapsed() >= HEAD_INTERVAL;
        if !self.head_logged.is_none_or(is_due) {
            return;
        }
        let head = self.database().map(|database| database.audit_head());
        if let Some(head) = head.filter(|head| head.number > 0) {
            tracing::info!(%head, "the audit trail ends here");
            self.head_logged = Some(Instant::now());
        }
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
        let removed = self
            .database()
            .map(|mut database| database.remove_slice(&retention, EXPIRY_SLICE));
        let Some(removed) = removed else {
            context.notify_later(ExpireSlice, PAUSE);
            return;
        };
        match removed {
            Ok(None) => {
                self.expiry_ended(Ok(()));
                self.measure();
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
                context.notify_later(ExpireSlice, began.elapsed());
            }
            Err(error) => {
                self.expiry_ended(Err(TaskError::of(error)));
            }
        }
    }
}

impl JobStore {
    /// A bound on the database's size that its disk can hold.
    fn bounded_by_disk(&self, most_bytes: Option<u64>) -> Option<u64> {
        let room = self
            .database()
            .map(|database| (self.seed.room_of)(&database));
        let share = match room {
            Some(Ok(room)) => room.total / DISK_SHARE,
            _ => u64::MAX,
        };
        most_bytes.map(|most| most.min(share))
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

    pub(super) fn measure(&self) {
        let Some(size) = self.database().map(|database| database.size()) else {
            return;
        };
        match size {
            Ok(size) => {
                let set = |what: &str, bytes: u64| {
                    let gauge = self.seed.metrics.bytes.with_label_values(&[what]);
                    gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
                };
                set("rows", size.file.saturating_sub(size.free));
                set("free", size.free);
            }
            Err(error) => tracing::error!(%error, "the job database cannot be measured"),
        }
    }
}
