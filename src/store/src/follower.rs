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

/// Durable cursor of one returner, which reads jobs and returns in order, at least once.
pub struct JobFollower {
    reader: Arc<dyn JobQueries>,
    path: PathBuf,
    /// Header of the cursor file: the database and the returner that it belongs to.
    owner: String,
    place: JobCursor,
    /// Up to where rows were read ahead of `place`; never behind it.
    ahead: JobCursor,
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

impl Followed {
    /// Moves a cursor behind this row.
    fn advance(&self, cursor: &mut JobCursor) {
        match self {
            Self::Job(job) => cursor.jobs = job.id,
            Self::Return(row) => cursor.returns = row.id,
        }
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
        Self::with_options(&StoreOptions::from(config), owner, reader)
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
        let saved = saved.and_then(|text| JobCursor::parse(text.strip_prefix(&owner)?));
        let end = JobCursor::end_of(&*reader)?;
        let place = saved.map_or(end, |saved| saved.at_most(end));
        let follower = Self {
            place,
            ahead: place,
            farthest: place.returns,
            reader,
            path,
            owner,
        };
        // Also one that was taken back: rows that come before the next save would lie behind it.
        if saved != Some(place) {
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
        let (jobs, left) = reader.jobs_within(self.ahead.jobs, limit, BATCH_BYTES)?;
        let room = limit.saturating_sub(jobs.len());
        let jobs = jobs.into_iter().map(|job| Followed::Job(Box::new(job)));
        let mut next: Vec<Followed> = jobs.collect();
        if room > 0 && left > 0 {
            let returns = self.reader.returns_within(self.ahead.returns, room, left)?;
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
        self.reader.return_runs(self.ahead.returns, limit)
    }

    /// Reads on behind these returns, without having read them.
    pub fn read_past_run(&mut self, run: &ReturnRun) {
        self.ahead.returns = run.last;
    }

    /// The returner has this, or is not to have it.
    pub fn pass(&mut self, followed: &Followed) {
        let mut place = self.place;
        followed.advance(&mut place);
        self.pass_to(place);
        self.rewind();
    }

    /// Reads on behind this, which the returner does not have yet.
    pub fn read_past(&mut self, followed: &Followed) {
        followed.advance(&mut self.ahead);
    }

    /// Up to where was read.
    pub fn read_to(&self) -> JobCursor {
        self.ahead
    }

    /// The returner has everything up to here, where was read to before.
    pub fn pass_to(&mut self, cursor: JobCursor) {
        self.place = cursor;
        self.farthest = self.farthest.max(cursor.returns);
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
        let place = self.place.returns;
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
            self.place.returns = to;
            self.rewind();
        }
        Ok(went)
    }

    /// Forgets what was read ahead: it is read again.
    pub fn rewind(&mut self) {
        self.ahead = self.place;
    }

    /// Whether the returner has this job.
    pub fn has_passed(&self, jid: &Jid) -> Result<bool> {
        let job = self.reader.load(jid)?;
        Ok(job.is_none_or(|job| job.id <= self.place.jobs))
    }

    /// Saves the cursor to the disk.
    pub fn save(&self) -> Result<()> {
        let text = format!("{} {}\n", self.owner, self.place);
        files::write_atomic(&self.path, text.as_bytes(), Create::PRIVATE)
    }

    /// How many rows the returner is behind.
    pub fn lag(&self) -> Result<u64> {
        let (jobs, returns) = self.place.behind(JobCursor::end_of(&*self.reader)?);
        Ok(jobs + returns)
    }
}
