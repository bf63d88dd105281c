//! Metrics of the store, and the part of them that the health check reads.

use saltern_base::metrics::{
    Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, SECONDS, counter,
    counter_vec, gauge, gauge_vec, histogram,
};

use saltern_store::jobs::Write;

use super::disk::DiskMetrics;

/// Metrics of the store.
#[derive(Clone)]
pub(crate) struct StoreMetrics {
    pub(super) commits: Histogram,
    pub(crate) writes: IntCounter,
    pub(super) failed: IntCounter,
    pub(super) failing: IntGauge,
    pub(super) restoring: IntGauge,
    pub(super) removed: IntCounterVec,
    pub(super) audit: IntCounterVec,
    pub(super) bytes: IntGaugeVec,
    pub(super) disk: DiskMetrics,
}

/// Health of the job store.
#[derive(Clone)]
pub(crate) struct StoreHealth {
    /// 1 while nothing is written because the disk is full.
    pub(crate) read_only: IntGauge,
    /// 1 while the last commit has failed.
    pub(crate) failing: IntGauge,
    /// Bytes that can still be written.
    pub(crate) room: IntGauge,
}

impl StoreMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            commits: histogram(
                registry,
                "saltern_store_commit_seconds",
                "Time of one commit of the job database.",
                SECONDS,
            ),
            writes: counter(
                registry,
                "saltern_store_writes_total",
                "Changes committed to the job database.",
            ),
            failed: counter(
                registry,
                "saltern_store_commits_failed_total",
                "Commits of the job database that failed.",
            ),
            failing: gauge(
                registry,
                "saltern_store_failing",
                "1 while the last commit of the job database has failed.",
            ),
            restoring: gauge(
                registry,
                "saltern_store_restoring",
                "1 while the job database, which was removed or replaced, is written to its place.",
            ),
            removed: counter_vec(
                registry,
                "saltern_store_rows_removed_total",
                "Rows removed from the job database because they need not be kept, by reason.",
                &["reason"],
            ),
            audit: counter_vec(
                registry,
                "saltern_audit_rows_total",
                "Rows written to the audit trail, by the way in and the verdict.",
                &["door", "verdict"],
            ),
            bytes: gauge_vec(
                registry,
                "saltern_store_bytes",
                "Bytes of the job database's main file: those of rows, and those free for new ones.",
                &["what"],
            ),
            disk: DiskMetrics::new(registry),
        }
    }

    /// Counts the rows of the audit trail among changes that are committed.
    pub(super) fn count_audit(&self, writes: &[Write]) {
        for write in writes {
            if let Write::Audit(row) = write {
                let labels = [row.door.as_str(), row.verdict.as_str()];
                self.audit.with_label_values(&labels).inc();
            }
        }
    }

    /// Gauges for the health check.
    pub(crate) fn health(&self) -> StoreHealth {
        StoreHealth {
            read_only: self.disk.is_full.clone(),
            failing: self.failing.clone(),
            room: self.disk.room.clone(),
        }
    }
}
