//! Retention: what need not be kept.

use saltern_model::Jid;

/// Retention bounds; `None` is unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Older rows are removed; in microseconds since 1970-01-01 UTC. A job is as old as its
    /// publish; a return without a job is as old as its arrival.
    pub before: Option<i64>,
    /// Jobs and returns from here on are kept, whatever `before` is, in microseconds since 1970: somebody has not had
    /// all of them. The bounds by number and size hold all the same: they are those of the disk.
    pub held_from: Option<i64>,
    /// Of more jobs than this the oldest go; a job that is waited for stays.
    pub most_jobs: Option<u64>,
    /// Of more kept events than this the oldest go; those of which minions decide how many there
    /// are have no more than half of it.
    pub most_events: Option<u64>,
    /// Older rows of the audit trail are removed, in microseconds since 1970.
    pub audit_before: Option<i64>,
    /// Of more rows of the audit trail than this the oldest go. Their size is no reason to remove
    /// them.
    pub most_audit: Option<u64>,
    /// While rows take more bytes than this, the oldest events go of which minions decide how many
    /// there are, then the oldest jobs, as above, and the master's own events last: who did what is
    /// to be known for longest.
    pub most_bytes: Option<u64>,
}

impl Retention {
    /// Older jobs and returns are removed; in microseconds since 1970.
    pub fn jobs_before(&self) -> Option<i64> {
        let held_from = self.held_from.unwrap_or(i64::MAX);
        self.before.map(|before| before.min(held_from))
    }
}

/// Why rows were removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// They were too old.
    Age,
    /// There were too many jobs.
    Count,
    /// They were too large together.
    Size,
}

impl Reason {
    /// The label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Count => "count",
            Self::Size => "size",
        }
    }
}

/// One slice.
#[derive(Clone, Debug)]
pub struct Removed {
    /// Why.
    pub reason: Reason,
    /// How many rows.
    pub rows: usize,
    /// Jobs removed although they were not too old: their files, which go by age, have to be
    /// removed explicitly.
    pub jobs: Vec<Jid>,
}

/// Size of the database on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Bytes of the main file.
    pub file: u64,
    /// Bytes of free pages, which are used before the file grows.
    pub free: u64,
}
