//! Rows of the job database as its readers see them.

use bytes::Bytes;
use saltern_model::{Jid, JidError, JobRecord, MinionId, Packed};

use super::JobState;

/// A job as it is stored.
#[derive(Clone, Debug)]
pub struct StoredJob {
    /// Its number: later jobs have higher ones.
    pub id: i64,
    /// The job; its `minions` are all that are expected, sorted, each once.
    pub record: JobRecord,
    /// Its outcome.
    pub state: JobState,
    /// When its load went to the publish port, in microseconds since 1970; `None` when that is not
    /// known.
    pub published: Option<i64>,
    /// When it ended, in microseconds since 1970.
    pub finished: Option<i64>,
    /// The tracker's own notes.
    pub notes: Option<Bytes>,
    /// The minion that it was published for; none when a user published it.
    pub publisher: Option<MinionId>,
    /// The peer that reported it; none of a job that this master published or ran.
    pub reporter: Option<MinionId>,
}

/// An open job, and the minions that returned already.
#[derive(Clone, Debug)]
pub struct OpenJob {
    /// The job.
    pub job: StoredJob,
    /// Minions that returned, sorted, with their return codes.
    pub returned: Vec<(MinionId, i64)>,
}

impl OpenJob {
    /// Expected minions that have not returned.
    pub fn outstanding(&self) -> impl Iterator<Item = &MinionId> {
        let place = |id: &MinionId| self.returned.binary_search_by(|(one, _)| one.cmp(id));
        let is_missing = move |id: &&MinionId| place(id).is_err();
        self.job.record.minions.iter().filter(is_missing)
    }
}

/// A record with the number of its row, for those who follow the database.
#[derive(Clone, Debug)]
pub struct Numbered<T> {
    /// Its number: later rows have higher ones.
    pub id: i64,
    /// The record.
    pub record: T,
}

/// Returns of one job that follow each other, and how they are followed without being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnRun {
    /// Their job.
    pub jid: Jid,
    /// The number of the last of them.
    pub last: i64,
    /// How many there are.
    pub rows: usize,
}

impl ReturnRun {
    /// Adds the next return, as it stands in the database, to these runs.
    ///
    /// # Errors
    /// Its jid is none; then it is in no run.
    pub fn add(runs: &mut Vec<Self>, id: i64, jid: &str) -> Result<(), JidError> {
        match runs.last_mut().filter(|run| run.jid.as_str() == jid) {
            Some(run) => (run.last, run.rows) = (id, run.rows + 1),
            None => runs.push(Self {
                jid: Jid::parse(jid)?,
                last: id,
                rows: 1,
            }),
        }
        Ok(())
    }
}

/// A batch as it is stored.
#[derive(Clone, Debug)]
pub struct StoredBatch {
    /// The jid that all its parts bear.
    pub jid: Jid,
    /// Its plan, opaque here.
    pub plan: Packed,
    /// It is not over.
    pub is_open: bool,
    /// Why it ended before its time.
    pub halted: Option<String>,
    /// Since when it pauses, in microseconds since 1970; `None` while it goes on.
    pub paused_since: Option<i64>,
    /// Minions that were given up, and why; some may have returned since.
    pub failed: Vec<(MinionId, String)>,
    /// Minions that were sent their part, sorted.
    pub sent: Vec<MinionId>,
    /// Minions that returned, in the order of arrival.
    pub returned: Vec<ReturnHead>,
    /// When the last part went to the publish port, in microseconds since 1970; `None` when that
    /// is not known.
    pub published: Option<i64>,
}

impl StoredBatch {
    /// When the last return came, in microseconds since 1970; 0 when none did.
    pub fn last_return(&self) -> i64 {
        self.returned.last().map_or(0, |last| last.received)
    }
}

/// A job in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSummary {
    /// Its id.
    pub jid: Jid,
    /// When it was made, in microseconds since 1970.
    pub created: i64,
    /// When it ended, in microseconds since 1970; none while it is open.
    pub finished: Option<i64>,
    /// The user that published it.
    pub user: String,
    /// The function, or the functions of a compound command joined by commas.
    pub fun: String,
    /// The target as text.
    pub tgt: String,
    /// The name of the target's type.
    pub tgt_type: String,
    /// Its outcome.
    pub state: JobState,
    /// How many minions are expected.
    pub expected: usize,
    /// How many returned.
    pub returned: usize,
    /// How many of these with a return code other than 0.
    pub failed: usize,
}

/// A return without its load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnHead {
    /// The minion.
    pub minion: MinionId,
    /// When it came, in microseconds since 1970.
    pub received: i64,
    /// Its return code.
    pub retcode: i64,
}

/// A return with its job, without the load; as it stands in the database, so that nothing is copied
/// that a search does not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewestReturn<'a> {
    /// The number of the return.
    pub id: i64,
    /// The minion.
    pub minion: &'a str,
    /// The job.
    pub jid: &'a str,
    /// The function.
    pub fun: &'a str,
    /// When it came, in microseconds since 1970.
    pub received: i64,
    /// Its return code.
    pub retcode: i64,
}

/// Properties by which a listing selects a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobHead {
    /// Its id.
    pub jid: Jid,
    /// The function, or the functions of a compound command joined by commas.
    pub fun: String,
    /// The target as text.
    pub tgt: String,
    /// The name of the target's type.
    pub tgt_type: String,
}
