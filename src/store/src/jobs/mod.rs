//! The job database: every job, whom it expects, and every return.
//!
//! Here is the seam between the master and whatever keeps its jobs, the *engine*: what can be
//! written ([`Write`]) and what becomes of it ([`Written`]), the rows that readers get, and three
//! traits. [`JobLog`] appends batches, [`JobQueries`] are the reads, [`Housekeeping`] is what an
//! engine needs from time to time. What has been committed survives `kill -9` and a power loss; a
//! return is kept once per jid and minion, however often it is sent.
//!
//! SQLite is the engine ([`crate::sqlite`]); nothing outside its module knows how it keeps rows.
//! PostgreSQL is another one, in `saltern-sql`, for the masters of a cluster.
//! What every engine has to do stands in `tests/conformance`.
//!
//! Not here: when to commit (the JobStore actor), what a job's state means (the JobTracker), and
//! the files for stock's tools ([`crate::mirror`]).

mod audit;
mod audit_chain;
mod events;
mod housekeeping;
mod last_returns;
mod log;
mod notes;
mod pages;
mod queries;
mod retention;
mod rows;
mod same_return;
mod search;
mod table;

pub use audit::{AuditBreak, AuditCheck, AuditHead, AuditHeadError, AuditPage, BrokenRow};
pub use audit_chain::{
    AUDIT_COLUMNS, AuditValue, audit_row_of, check_audit_chain, genesis, next_audit_row,
};
pub use events::{EventRange, EventSlice, EventsPage, KeptEvent, NewEvent};
pub use housekeeping::{
    Condition, Engine, FreeSpace, Housekeeping, Imported, Recovered, Restored, Scrub, ScrubSlice,
};
pub use last_returns::{LastReturn, LastReturns, MAX_LAST_RETURNS, ReturnSearch};
pub use log::{Batch, JobLog, Pending, wait};
pub use notes::{JobNotes, LostReason, SyndicSays};
pub use pages::{
    FoundJobs, JobSearch, JobsPage, PresenceEvents, ReturnsOf, ReturnsPage, StateFilter,
};
pub use queries::JobQueries;
pub use retention::{Reason, Removed, Retention, Size};
pub use rows::{
    JobHead, JobSummary, NewestReturn, Numbered, OpenJob, ReturnHead, ReturnRun, StoredBatch,
    StoredJob,
};
pub use same_return::says_the_same;
pub use search::{JidRange, JobIndex, SearchQueries, search_page};
pub use table::{
    ColumnType, DatabaseState, EVENTS, Moved, Table, TableRow, TableSource, TableTarget,
    TableValue, move_tables,
};

use bytes::Bytes;
use saltern_model::{AuditRecord, Jid, JobRecord, MinionId, Packed, ReturnRecord};

/// Outcome of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Returns are awaited; a restart takes the job up again.
    Open,
    /// All expected minions returned.
    Complete,
    /// Some returns are missing, and are no longer awaited.
    Expired,
    /// It was ended on request before all minions returned.
    Killed,
}

impl JobState {
    /// Its number in a database.
    pub fn code(self) -> i64 {
        match self {
            Self::Open => 0,
            Self::Complete => 1,
            Self::Expired => 2,
            Self::Killed => 3,
        }
    }

    /// The outcome of a number in a database.
    pub fn from_code(code: i64) -> Self {
        match code {
            0 => Self::Open,
            1 => Self::Complete,
            3 => Self::Killed,
            _ => Self::Expired,
        }
    }

    /// Whether the job ended without all its returns.
    pub fn is_incomplete_end(self) -> bool {
        matches!(self, Self::Expired | Self::Killed)
    }
}

/// Result of [`JobQueries::incomplete`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncompleteJob {
    /// Number of minions that the job expects; a minion of several of its parts may count in each.
    pub minions: usize,
    /// Whether the job expects the minion in question.
    pub expects: bool,
}

/// One change; several make one transaction.
#[derive(Clone, Debug)]
pub enum Write {
    /// A new job and the minions it expects. Answers [`Written::Duplicate`], and changes nothing,
    /// when the jid is taken.
    Job(JobRecord),
    /// A job that may be there already: 3008 publishes every part of a batch under one jid. The
    /// load is replaced as in stock's `save_load`, expected minions are added, the job is open.
    JobPart(JobRecord),
    /// A job that comes with its return and that nobody waits for: complete when it is new. Answers
    /// [`Written::Duplicate`], and changes nothing, when the jid is taken.
    ClosedJob {
        /// The job.
        job: JobRecord,
        /// The peer that reported it, which this master never published; none of a job of the
        /// master's own. A publication under the same jid replaces the report.
        reporter: Option<MinionId>,
    },
    /// More minions that a job expects (a syndic's, for instance).
    Expected {
        /// The job.
        jid: Jid,
        /// The minions; some may be expected already.
        minions: Vec<MinionId>,
    },
    /// One minion's return; [`Written::Duplicate`] or [`Written::Repeated`], and nothing changes,
    /// when it returned before. The job need not be known: stock stores such returns too.
    Return(ReturnRecord),
    /// State of the tracker for a job.
    JobState {
        /// The job.
        jid: Jid,
        /// Its outcome.
        state: JobState,
        /// When, in microseconds since 1970; of an open job it is not kept.
        at: i64,
        /// The tracker's own notes, opaque here; `None` leaves the old ones.
        notes: Option<Bytes>,
    },
    /// The load of a job went to the publish port; the first time counts.
    Published {
        /// The job.
        jid: Jid,
        /// When, in microseconds since 1970.
        at: i64,
    },
    /// A job is published for a minion, which alone may ask for its returns.
    PublishedFor {
        /// The job.
        jid: Jid,
        /// The minion.
        minion: MinionId,
    },
    /// A new batch, open; [`Written::Duplicate`], and nothing changes, when its jid is a batch's
    /// already.
    Batch {
        /// The jid of all its parts.
        jid: Jid,
        /// Its plan, opaque here.
        plan: Packed,
    },
    /// Minions of a batch are given up.
    BatchFailed {
        /// The batch.
        jid: Jid,
        /// The minions.
        minions: Vec<MinionId>,
        /// Why, for people.
        reason: &'static str,
    },
    /// An open batch pauses, or goes on; [`Written::NoSuchJob`] when it is over.
    BatchPaused {
        /// The batch.
        jid: Jid,
        /// Since when it pauses, in microseconds since 1970; `None` when it goes on.
        since: Option<i64>,
    },
    /// A batch is over.
    BatchOver {
        /// The batch.
        jid: Jid,
        /// Why it ended before its time.
        halted: Option<String>,
    },
    /// Events of the bus, behind those that are there.
    Events {
        /// The number of the first among all that their sender gives, from 1 on at each start of the
        /// process. Those that it has committed before are left out, so a write whose outcome is
        /// unknown can be repeated, with more behind it.
        first: u64,
        /// The events.
        events: Vec<NewEvent>,
    },
    /// A row of the audit trail, behind those that are there.
    Audit(Box<AuditRecord>),
    /// A job and everything that belongs to it.
    DeleteJob {
        /// The job.
        jid: Jid,
    },
}

/// Outcome of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// The outcome of each change, in the order of the changes.
    pub written: Vec<Written>,
    /// All events that it keeps, in the order of their positions, which are dense.
    pub events: Vec<KeptEvent>,
}

/// Outcome of one [`Write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// A row that was not there before.
    New {
        /// Its number: jobs and returns are each numbered upwards, no number is used twice.
        id: i64,
    },
    /// There was one already, which stays as it is.
    Duplicate,
    /// The same of a return that says what the one that is there says; its job was not published
    /// anew since, by the order of the writes: their times may be those of a clock that was set back.
    Repeated {
        /// The number of the one that is there.
        id: i64,
    },
    /// A row that was there was changed.
    Updated,
    /// Rows were removed.
    Deleted {
        /// How many.
        rows: usize,
    },
    /// The write names a job that is not there; nothing changed.
    NoSuchJob,
}

impl Written {
    /// A row that was not there before.
    pub fn is_new(self) -> bool {
        matches!(self, Self::New { .. })
    }
}
