//! Cursor over the job database for a returner that is given every job (`master_job_cache`,
//! `ext_job_cache`).
//!
//! As with the mirror, the database is the source of truth, and the cursor of the returner is on
//! the disk: what was acknowledged reaches the returner however long it, or the Python that runs
//! it, is unavailable, unless retention removes it first. A returner begins with what comes after
//! it was configured.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use saltern_config::MasterConfig;
use saltern_model::{Jid, ReturnRecord};

use crate::error::Result;
use crate::files::{self, Create};
use crate::job_cursor::JobCursor;
use crate::jobs::{JobQueries, Numbered, ReturnRun, StoredJob};
use crate::options::StoreOptions;

/// First word of the cursor file; a change of the format changes it.
const HEADING: &str = "saltern-returner-1";

/// About how many bytes the rows have that are taken at once: a return goes to Python twice, and
/// the pipe takes no more than 64 MiB.
const BATCH_BYTES: usize = 16 << 20;

/// Saved in the place of a number of a return that is not known.
const UNKNOWN: i64 = -1;

/// Durable cursor of one returner, which reads jobs and returns in order, at least once.
pub struct JobFollower {
    reader: Arc<dyn JobQueries>,
    path: PathBuf,
    /// Header of the cursor file: the database and the returner that it belongs to.
    owner: String,
    place: ReadTo,
    /// Up to where rows were read ahead of `place`; never behind it.
    ahead: ReadTo,
    /// Numbers of returns up to here are accounted for: missing ones among them are not counted (again). `None` before the
    /// first return, where it is not known how many numbers were given already.
    accounted: Option<i64>,
    absent: u64,
    /// The last return that it has had in this process; behind `place` once it went back.
    farthest: i64,
}

/// How far a returner went back for jobs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WentBack {
    /// It did.
    pub has_moved: bool,
    /// Jobs with returns that do not come any more: they are too far back, or gone.
    pub lost: HashSet<Jid>,
}

/// The next row.
pub enum Followed {
    /// A job.
    Job(Box<StoredJob>),
    /// A return.
    Return(Box<Numbered<ReturnRecord>>),
}

/// Up to where a follower has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadTo {
    cursor: JobCursor,
    /// Numbers of returns up to here that had no row when they were read.
    absent: u64,
}

impl From<JobCursor> for ReadTo {
    fn from(cursor: JobCursor) -> Self {
        Self { cursor, absent: 0 }
    }
}

impl ReadTo {
    /// Moves behind this row; see [`Self::advance_to`].
    fn advance(&mut self, followed: &Followed, accounted: Option<i64>) {
        match followed {
            Followed::Job(job) => self.cursor.jobs = job.id,
            Followed::Return(row) => self.advance_to(row.id, 1, accounted),
        }
    }

    /// Moves behind the return of this number by so many rows, and counts the numbers above `accounted` that have
    /// none. Numbers are given without gaps, so their rows were removed. Below 1 are those of imported returns, which
    /// nobody follows.
    fn advance_to(&mut self, last: i64, rows: usize, accounted: Option<i64>) {
        let numbers = accounted.map_or(0, |accounted| {
            let from = self.cursor.returns.max(accounted).max(0);
            u64::try_from(last.saturating_sub(from)).unwrap_or(0)
        });
        self.absent += numbers.saturating_sub(rows as u64);
        self.cursor.returns = last;
    }
}

impl JobFollower {
    /// Takes up the work for the returner `name` where it was saved last. `purpose` is the option
    /// that names it. `reader` should not be shared.
    pub fn open(
        config: &MasterConfig,
        owner: (&str, &str),
        reader: Arc<dyn JobQueries>,
    ) -> Result<Self> {
        let mut follower = Self::with_options(&StoreOptions::from(config), owner, reader)?;
        if config.saltern_cluster.is_some() {
            // The cursor is of this machine. Another one may have handed on what is missing since.
            follower.accounted = Some(JobCursor::end_of(&*follower.reader)?.returns);
        }
        Ok(follower)
    }

    /// The same with this crate's options.
    pub fn with_options(
        options: &StoreOptions,
        (purpose, name): (&str, &str),
        reader: Arc<dyn JobQueries>,
    ) -> Result<Self> {
        files::ensure_dir(&options.private_dir(), 0o700)?;
        let path = options.private_dir().join(format!("{purpose}_place"));
        let owner = format!("{HEADING} {} {name:?}", reader.identity()?);
        let saved = files::read_replaceable(&path, 1 << 12)?;
        let saved = saved.and_then(|text| {
            let text = text.strip_prefix(&owner)?;
            let saved = JobCursor::parse(text)?;
            Some((saved, accounted_in(text)))
        });
        let end = JobCursor::end_of(&*reader)?;
        let place = saved.map_or(end, |(saved, _)| saved.at_most(end));
        // The cursor of a database whose rows were all removed is taken back, too; it has had them all the same.
        let accounted = match saved {
            Some((_, accounted)) => accounted,
            // Of an empty database it is not known whether it had rows before.
            None => Some(end.returns).filter(|last| *last > 0),
        };
        let follower = Self {
            place: place.into(),
            ahead: place.into(),
            accounted,
            absent: 0,
            farthest: place.returns,
            reader,
            path,
            owner,
        };
        // Also one that was taken back: rows that come before the next save would lie behind it.
        if saved.map(|(saved, _)| saved) != Some(place) {
            follower.save()?;
        }
        Ok(follower)
    }

    /// At most `limit` of what comes next, behind what was read ahead, and no more than 16 MiB unless
    /// a single one is larger; jobs before returns.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn next(&self, limit: usize) -> Result<Vec<Followed>> {
        let reader = &self.reader;
        let ahead = self.ahead.cursor;
        let (jobs, left) = reader.jobs_within(ahead.jobs, limit, BATCH_BYTES)?;
        let room = limit.saturating_sub(jobs.len());
        let jobs = jobs.into_iter().map(|job| Followed::Job(Box::new(job)));
        let mut next: Vec<Followed> = jobs.collect();
        if room > 0 && left > 0 {
            let returns = self.reader.returns_within(ahead.returns, room, left)?;
            next.extend(
                returns
                    .into_iter()
                    .map(|row| Followed::Return(Box::new(row))),
            );
        }
        Ok(next)
    }

    /// The jobs of the returns that come next, behind what was read ahead, of at most `limit` returns.
    /// Nothing else of them is read: a returner that is not to have them passes them.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn next_runs(&self, limit: usize) -> Result<Vec<ReturnRun>> {
        self.reader.return_runs(self.ahead.cursor.returns, limit)
    }

    /// Reads on behind these returns, without having read them.
    pub fn read_past_run(&mut self, run: &ReturnRun) {
        self.ahead.advance_to(run.last, run.rows, self.accounted);
    }

    /// The returner has this, or is not to have it.
    pub fn pass(&mut self, followed: &Followed) {
        let mut place = self.place;
        place.advance(followed, self.accounted);
        self.pass_to(place);
        self.rewind();
    }

    /// Reads on behind this, which the returner does not have yet.
    pub fn read_past(&mut self, followed: &Followed) {
        self.ahead.advance(followed, self.accounted);
    }

    /// Up to where was read.
    pub fn read_to(&self) -> ReadTo {
        self.ahead
    }

    /// The returner has everything up to here, where was read to before.
    pub fn pass_to(&mut self, end: ReadTo) {
        let returns = end.cursor.returns;
        self.absent += end.absent.saturating_sub(self.place.absent);
        if returns > self.place.cursor.returns {
            self.accounted = self.accounted.max(Some(returns));
        }
        self.place = end;
        self.farthest = self.farthest.max(returns);
    }

    /// Passes the returns and jobs that were removed before the first ones of `next`, the rows that come next; whether
    /// there are such returns. Forgets what was read ahead.
    pub fn pass_removed(&mut self, next: &[Followed]) -> bool {
        let job = next.iter().find_map(|row| match row {
            Followed::Job(job) => Some(job.id),
            Followed::Return(_) => None,
        });
        if let Some(job) = job.filter(|job| job - 1 > self.place.cursor.jobs) {
            self.place.cursor.jobs = job - 1;
            self.rewind();
        }
        let first = next.iter().find_map(|row| match row {
            Followed::Return(row) => Some(row.id),
            Followed::Job(_) => None,
        });
        let before = first.map(|first| first - 1);
        let Some(before) = before.filter(|before| *before > self.place.cursor.returns) else {
            return false;
        };
        let mut place = self.place;
        place.advance_to(before, 0, self.accounted);
        self.pass_to(place);
        self.rewind();
        true
    }

    /// How many returns were removed before the returner had them, as far as it has passed them since the last call.
    /// Whether they were meant for it is not known. Of those that it is given once more ([`Self::go_back_to`]), none
    /// counts.
    pub fn take_removed(&mut self) -> u64 {
        std::mem::take(&mut self.absent)
    }

    /// Takes the returner back to the first return of one of these jobs among the last `limit` that it has had, by at
    /// most `room` of them, so that all from there come to it once more. Forgets what was read ahead. However often it
    /// goes back, it does so within the same `limit`.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn go_back_to(
        &mut self,
        jids: &HashSet<Jid>,
        limit: usize,
        room: usize,
    ) -> Result<WentBack> {
        let back =
            |from: i64, by: usize| from.saturating_sub(i64::try_from(by).unwrap_or(i64::MAX));
        let place = self.place.cursor.returns;
        let bound = back(self.farthest, limit).max(back(place, room)).max(0);
        let mut went = WentBack::default();
        let mut to = place;
        for jid in jids {
            // Those behind the cursor come anyway.
            let mut first = self.reader.first_return(jid, 0)?;
            if first.is_none_or(|first| first <= bound.min(place)) {
                went.lost.insert(jid.clone());
                first = self.reader.first_return(jid, bound)?;
            }
            to = first.map_or(to, |first| to.min(first - 1));
        }
        if to < place {
            went.has_moved = true;
            self.place.cursor.returns = to;
            self.rewind();
        }
        Ok(went)
    }

    /// The last return that the returner has had in this process; behind the cursor once it went back.
    pub fn farthest(&self) -> i64 {
        self.farthest
    }

    /// Forgets what was read ahead: it is read again.
    pub fn rewind(&mut self) {
        self.ahead = self.place;
    }

    /// Whether the returner has this job.
    pub fn has_passed(&self, jid: &Jid) -> Result<bool> {
        let job = self.reader.load(jid)?;
        Ok(job.is_none_or(|job| job.id <= self.place.cursor.jobs))
    }

    /// Saves the cursor to the disk.
    pub fn save(&self) -> Result<()> {
        let (owner, place) = (&self.owner, self.place.cursor);
        let accounted = self.accounted.unwrap_or(UNKNOWN);
        // Releases that do not count removed rows read the first two numbers.
        let text = format!("{owner} {place} {accounted}\n");
        files::write_atomic(&self.path, text.as_bytes(), Create::PRIVATE)
    }

    /// How many rows the returner is behind.
    pub fn lag(&self) -> Result<u64> {
        let end = JobCursor::end_of(&*self.reader)?;
        let (jobs, returns) = self.place.cursor.behind(end);
        Ok(jobs + returns)
    }
}

/// Up to which return removed ones were counted, in what is saved behind the owner. An earlier release saves nothing of
/// it, and may have taken its cursor back.
fn accounted_in(text: &str) -> Option<i64> {
    let number = text.split_whitespace().nth(2)?.parse().ok();
    number.filter(|number| *number != UNKNOWN)
}
