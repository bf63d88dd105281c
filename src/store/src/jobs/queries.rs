//! Reads of the job database, by name.

use std::sync::Arc;

use saltern_model::{AuditRow, Jid, MinionId, Packed, ReturnRecord};

use super::{
    AuditCheck, AuditHead, AuditPage, EventRange, EventSlice, EventsPage, FoundJobs, IncompleteJob,
    JobHead, JobSearch, JobSummary, JobsPage, KeptEvent, Numbered, OpenJob, PresenceEvents,
    ReturnHead, ReturnRun, ReturnSearch, ReturnsOf, ReturnsPage, StoredBatch, StoredJob,
};
use crate::error::Result;

/// Reads of the job database, each by its name; nobody is handed a connection.
///
/// A reader sees the last committed state; it never waits for the writer and never holds it up. It
/// may be shared, but then its users may wait for each other: give every busy user one of its own
/// ([`JobQueries::another`]).
///
/// The trait is used as `Arc<dyn JobQueries>`, so reads can be composed: a reader that asks another
/// store for what the database no longer has holds such an `Arc`, answers what it knows better, and
/// hands everything else on.
pub trait JobQueries: Send + Sync {
    /// A further reader of the same database.
    fn another(&self) -> Result<Arc<dyn JobQueries>>;

    /// Identity of this database: a word that no other database has.
    fn identity(&self) -> Result<String>;

    // ---- one job -------------------------------------------------------------------------------

    /// One job, with all minions it expects.
    fn load(&self, jid: &Jid) -> Result<Option<StoredJob>>;

    /// Whether there is a job of this jid; its load is not read.
    fn has(&self, jid: &Jid) -> Result<bool>;

    /// Whether there is a job of this jid that the master published or ran, and that expects this
    /// minion; neither its load nor its other minions are read into memory.
    fn is_published_for(&self, jid: &Jid, minion: &MinionId) -> Result<bool>;

    /// Whether there is a job of this jid that a peer has reported, and this master has not published; nothing
    /// else of it is read.
    fn is_reported(&self, jid: &Jid) -> Result<bool>;

    /// Whether there are returns of this job from before the last publication of it or of a part of it.
    fn has_early_returns(&self, jid: &Jid) -> Result<bool>;

    /// A job of the master's own that ended without all its returns, if there is one of this jid and
    /// its returns are stored; neither its load nor its minions are read into memory.
    fn incomplete(&self, jid: &Jid, minion: &MinionId) -> Result<Option<IncompleteJob>>;

    /// The minion that a job was published for, if it was one that published it.
    fn publisher_of(&self, jid: &Jid) -> Result<Option<MinionId>>;

    /// The load of a job.
    fn load_of(&self, jid: &Jid) -> Result<Option<Packed>>;

    /// One batch; `None` when no batch has this jid.
    fn batch(&self, jid: &Jid) -> Result<Option<StoredBatch>>;

    /// Since when an open batch pauses, in microseconds since 1970; `None` also when there is no
    /// such batch.
    fn batch_paused_since(&self, jid: &Jid) -> Result<Option<i64>>;

    // ---- its returns ---------------------------------------------------------------------------

    /// All returns of one job in the order of their arrival.
    fn returns(&self, jid: &Jid) -> Result<Vec<ReturnRecord>>;

    /// One minion's return of one job.
    fn return_of(&self, jid: &Jid, minion: &MinionId) -> Result<Option<ReturnRecord>>;

    /// Returns of a job by minion, from behind `after` on. Ends early, but not before the first
    /// return, when they have more than `most_bytes`.
    fn returns_page(
        &self,
        jid: &Jid,
        after: Option<&str>,
        limit: usize,
        most_bytes: usize,
    ) -> Result<ReturnsPage>;

    /// All returns of a job, without their loads, in the order of their arrival.
    fn return_heads(&self, jid: &Jid) -> Result<Vec<ReturnHead>>;

    /// Minions that returned a job, sorted.
    fn returned_minions(&self, jid: &Jid) -> Result<Vec<MinionId>>;

    /// When the latest return of a job came, in microseconds since 1970.
    fn last_return_at(&self, jid: &Jid) -> Result<Option<i64>>;

    // ---- lists ---------------------------------------------------------------------------------

    /// The jobs of a page, highest jid first.
    fn jobs_page(&self, page: &JobsPage<'_>) -> Result<Vec<JobHead>>;

    /// A page of the jobs that match, highest jid first.
    fn search_jobs(&self, search: &JobSearch<'_>) -> Result<FoundJobs>;

    /// The latest jobs, newest first. Counts the returns of each: not for every second.
    fn latest_jobs(&self, limit: usize) -> Result<Vec<JobSummary>>;

    /// The functions of all jobs that begin with a text, sorted, each once. Its cost does not depend
    /// on how many jobs there are.
    fn functions(&self, prefix: &str, limit: usize) -> Result<Vec<String>>;

    /// Gives a search the returns of all jobs that are numbered above the first number of `span` and
    /// not above the second, newest first.
    fn newest_returns(&self, span: (i64, i64), search: &mut dyn ReturnSearch) -> Result<()>;

    /// The open jobs, newest first, each with the minions that returned; below the job `before`
    /// when that is given and known.
    fn open_page(&self, before: Option<&str>, limit: usize) -> Result<Vec<OpenJob>>;

    /// How many jobs and returns there are. Counts rows: not for every second.
    fn counts(&self) -> Result<(u64, u64)>;

    // ---- for a start and for followers ---------------------------------------------------------

    /// The open jobs, oldest first, each with the minions that returned.
    fn open_jobs(&self) -> Result<Vec<OpenJob>>;

    /// The batches that are not over, oldest first.
    fn open_batches(&self) -> Result<Vec<StoredBatch>>;

    /// The lowest and the highest number of a return, 0 when there are none.
    fn return_span(&self) -> Result<(i64, i64)>;

    /// The highest numbers of a job and of a return, 0 when there are none.
    fn last_ids(&self) -> Result<(i64, i64)>;

    /// The jobs numbered above `cursor`, lowest first, at most `limit`: at least one, and otherwise
    /// no more than have so many bytes together; with how many bytes are left, none if others were
    /// left out.
    fn jobs_within(
        &self,
        cursor: i64,
        limit: usize,
        bytes: usize,
    ) -> Result<(Vec<StoredJob>, usize)>;

    /// The returns numbered above `cursor`, lowest first, at most `limit`: at least one, and
    /// otherwise no more than have so many bytes together.
    fn returns_within(
        &self,
        cursor: i64,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Numbered<ReturnRecord>>>;

    /// The jobs of the returns numbered above `cursor`, lowest first, of at most `limit` returns; those
    /// that follow each other together. Nothing else of them is read.
    fn return_runs(&self, cursor: i64, limit: usize) -> Result<Vec<ReturnRun>>;

    /// The lowest number above `cursor` of a return of this job.
    fn first_return(&self, jid: &Jid, cursor: i64) -> Result<Option<i64>>;

    /// As [`Self::jobs_within`], whatever bytes they have.
    fn jobs_after(&self, cursor: i64, limit: usize) -> Result<Vec<StoredJob>> {
        Ok(self.jobs_within(cursor, limit, usize::MAX)?.0)
    }

    /// As [`Self::returns_within`], whatever bytes they have.
    fn returns_after(&self, cursor: i64, limit: usize) -> Result<Vec<Numbered<ReturnRecord>>> {
        self.returns_within(cursor, limit, usize::MAX)
    }

    /// The next returns of these functions, named by this program, numbered above `cursor`. A step of
    /// a longer walk: it may give none although more follow, as long as `through` is below `last`.
    fn returns_of(&self, functions: &[&str], cursor: i64) -> Result<ReturnsOf>;

    /// Whether stock's job cache has been read into this database.
    fn has_imported(&self) -> Result<bool>;

    // ---- events and the audit trail ------------------------------------------------------------

    /// The newest events of a page, in their order.
    fn events(&self, page: &EventsPage<'_>) -> Result<Vec<KeptEvent>>;

    /// The events of a range, the oldest first.
    fn events_between(&self, range: &EventRange) -> Result<EventSlice>;

    /// The events of a range, the newest first. Behind `through` of the slice none was left out; the
    /// rest of the range may have more.
    fn events_backwards(&self, range: &EventRange) -> Result<EventSlice>;

    /// Events that may be about the presence of a minion: its start, authentications, keys and changes
    /// of presence. A bounded part of those before a position; of the newest without one.
    fn presence_events(&self, minion: &str, before: Option<i64>) -> Result<PresenceEvents>;

    /// The rows of a page of the audit trail, the newest first. A row that is not readable as one is
    /// left out: the check names it.
    fn audit(&self, page: &AuditPage<'_>) -> Result<Vec<AuditRow>>;

    /// The last row that retention has removed, or what stands for it before the first time, and the
    /// last row; both are the same in an empty trail.
    fn audit_ends(&self) -> Result<(AuditHead, AuditHead)>;

    /// The row of the audit trail that led to a job. It was written about `at`, in microseconds since
    /// 1970: numbers follow the time, so few rows are read, however many there are.
    fn audit_of_job(&self, jid: &Jid, at: i64) -> Result<Option<AuditRow>>;

    /// Recomputes the chain of the audit trail from its anchor to its end, and compares it with a
    /// row that was noted elsewhere. Holds the database up no longer than other readers do.
    fn check_audit(&self, noted: Option<AuditHead>) -> Result<AuditCheck>;
}
