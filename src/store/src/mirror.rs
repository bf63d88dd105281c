//! Mirror: follows the job database and writes new rows as the files that stock's tools read.
//!
//! The database is the source of truth and never waits for the mirror: a master acknowledges a
//! return when it is committed, and the files follow. Their cursor is
//! `cachedir/saltern/mirror_cursor`, saved only after everything up to there is on the disk; after
//! a power loss the rest is written again, and truncated files are repaired (stock's `get_jid`
//! would read an empty `return.p` over and over for ever).
//!
//! No thread in here: an actor calls [`Mirror::step`] when there is something to do.

mod batch_files;
mod clean;
mod job_cache;
mod job_files;
mod publish_auth;

use std::path::PathBuf;
use std::sync::Arc;

use saltern_base::fail_point::FailPoint;
use saltern_config::MasterConfig;
use saltern_model::{Jid, Packed, ReturnRecord};
use saltern_wire::msgpack::{Limits, MapView};

pub use batch_files::BatchFiles;
pub use job_cache::{CachedJob, JobCacheReader, USER_OF_MINION, USER_OF_SYNDIC};
pub use job_files::{JobDir, JobFiles, ReturnParts, endtime_text};

use crate::error::Result;
use crate::files::{self, Create};
use crate::job_cursor::JobCursor;
use crate::jobs::{JobQueries, StoredJob};
use crate::options::{MirrorMode, StoreOptions};

/// Rows after which the cursor is saved without being asked.
const ROWS_A_SAVE: usize = 20_000;

/// Job directories that are held open; returns of one job come close together.
const OPEN_DIRS: usize = 64;

/// The first word of the cursor file; a change of the format changes it.
const HEADING: &str = "saltern-mirror-1";

/// Writes job-cache files after the database.
pub struct Mirror {
    reader: Arc<dyn JobQueries>,
    files: JobFiles,
    mode: MirrorMode,
    cursor_path: PathBuf,
    identity: String,
    place: JobCursor,
    unsaved: usize,
    /// Least recently used first.
    dirs: Vec<(Jid, JobDir)>,
}

/// How far the files are behind the database, in rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorLag {
    /// Jobs.
    pub jobs: u64,
    /// Returns.
    pub returns: u64,
}

impl Mirror {
    /// Resumes at the saved cursor. `reader` should not be shared.
    pub fn open(config: &MasterConfig, reader: Arc<dyn JobQueries>) -> Result<Self> {
        Self::with_options(&StoreOptions::from(config), reader)
    }

    /// The same with this crate's options.
    pub fn with_options(options: &StoreOptions, reader: Arc<dyn JobQueries>) -> Result<Self> {
        files::ensure_dir(&options.private_dir(), 0o700)?;
        let cursor_path = options.private_dir().join("mirror_cursor");
        let identity = reader.identity()?;
        let place = files::read_replaceable(&cursor_path, 1 << 10)?
            .and_then(|text| parse(&text, &identity))
            .unwrap_or_default();
        let saved = place;
        let place = place.at_most(JobCursor::end_of(&*reader)?);
        let mut mirror = Self {
            files: JobFiles::with_options(options)?,
            mode: options.mirror,
            reader,
            cursor_path,
            identity,
            place,
            unsaved: usize::from(saved != place),
            dirs: Vec::new(),
        };
        // One that was taken back: rows that come before the next save would lie behind it.
        mirror.save()?;
        Ok(mirror)
    }

    /// Mirrors up to `limit` jobs and `limit` returns; 0 when there was nothing to do.
    ///
    /// # Errors
    /// Without space, or without access, the cursor does not move and the next call tries again.
    pub fn step(&mut self, limit: usize) -> Result<usize> {
        self.step_while(limit, || true)
    }

    /// The same, but ends after the row after which `goes_on` says no: at the lowest priority a row
    /// may take its time.
    pub fn step_while(&mut self, limit: usize, mut goes_on: impl FnMut() -> bool) -> Result<usize> {
        if self.mode == MirrorMode::Off {
            self.place = self.end()?;
            return Ok(0);
        }
        let mut done = 0;
        for job in self.reader.jobs_after(self.place.jobs, limit)? {
            // A report says less than what the master that published the job has written.
            if job.reporter.is_none() || !self.files.has_load(&job.record.jid)? {
                self.files.complete_load(&job.record)?;
            }
            if let Some(publisher) = &job.publisher {
                self.files.write_publisher(&job.record.jid, publisher)?;
            }
            self.place.jobs = job.id;
            done += 1;
            if !goes_on() {
                return self.end_step(done);
            }
        }
        if self.mode == MirrorMode::Loads {
            self.place.returns = self.end()?.returns;
        } else {
            for row in self.reader.returns_after(self.place.returns, limit)? {
                self.mirror_return(&row.record)?;
                FailPoint::MirrorBetween.pass();
                self.place.returns = row.id;
                done += 1;
                if !goes_on() {
                    break;
                }
            }
        }
        self.end_step(done)
    }

    fn end_step(&mut self, done: usize) -> Result<usize> {
        self.unsaved += done;
        if self.unsaved >= ROWS_A_SAVE {
            self.save()?;
        }
        Ok(done)
    }

    /// Syncs everything written so far to the disk and saves the cursor. For a timer of some
    /// seconds and for the end; costs a flush of the file system when there is something to save.
    pub fn save(&mut self) -> Result<()> {
        if self.unsaved == 0 {
            return Ok(());
        }
        self.files.sync()?;
        let text = format!("{HEADING} {} {}\n", self.identity, self.place);
        files::write_atomic(&self.cursor_path, text.as_bytes(), Create::PRIVATE)?;
        self.unsaved = 0;
        Ok(())
    }

    /// The end of what is stored by now.
    pub fn end(&self) -> Result<JobCursor> {
        JobCursor::end_of(&*self.reader)
    }

    /// Whether everything up to there is in the files.
    pub fn has_reached(&self, end: JobCursor) -> bool {
        self.place.jobs >= end.jobs && self.place.returns >= end.returns
    }

    /// How far the files are behind.
    pub fn lag(&self) -> Result<MirrorLag> {
        if self.mode == MirrorMode::Off {
            return Ok(MirrorLag::default());
        }
        let (jobs, returns) = self.place.behind(self.end()?);
        Ok(MirrorLag {
            jobs,
            returns: match self.mode {
                MirrorMode::Full => returns,
                MirrorMode::Loads | MirrorMode::Off => 0,
            },
        })
    }

    /// The files it writes.
    pub fn files(&self) -> &JobFiles {
        &self.files
    }

    fn mirror_return(&mut self, record: &ReturnRecord) -> Result<()> {
        let Some(load) = split(&record.load) else {
            tracing::warn!(jid = %record.jid, minion = %record.minion,
                "a stored return is no map and has no file");
            return Ok(());
        };
        let parts = ReturnParts::of(&load);
        // A directory held open may have been cleaned away meanwhile: then once more from the path.
        for _ in 0..2 {
            let dir = self.dir(&record.jid)?;
            if dir.nocache() {
                return Ok(());
            }
            if self.files.write_return(&dir, &record.minion, &parts)? {
                if self.files.stores_endtime() {
                    self.files.write_endtime(&dir, record.received)?;
                }
                self.dirs.push((record.jid.clone(), dir));
                return Ok(());
            }
        }
        tracing::warn!(jid = %record.jid, minion = %record.minion,
            "the job's directory is being removed; the return has no file");
        Ok(())
    }

    /// Takes a job's directory out of the open ones, or opens it, or makes it.
    fn dir(&mut self, jid: &Jid) -> Result<JobDir> {
        if let Some(at) = self.dirs.iter().rposition(|(known, _)| known == jid) {
            return Ok(self.dirs.remove(at).1);
        }
        if self.dirs.len() >= OPEN_DIRS {
            self.dirs.remove(0);
        }
        if let Some(dir) = self.files.open_dir(jid)? {
            return Ok(dir);
        }
        // Cleaned away, lost in a crash, or a job that only its minions know of.
        match self.reader.load(jid)? {
            Some(StoredJob { record, .. }) => self.files.complete_load(&record)?,
            None => self.files.prepare(jid, false)?,
        }
        self.files.reopen_dir(jid)
    }
}

fn split(load: &Packed) -> Option<MapView> {
    MapView::parse(load.bytes().clone(), &Limits::WIRE).ok()
}

/// `None` for a damaged file and for one that belongs to another database.
fn parse(text: &str, identity: &str) -> Option<JobCursor> {
    let mut words = text.splitn(3, ' ');
    let known = words.next()? == HEADING && words.next()? == identity;
    known.then_some(())?;
    JobCursor::parse(words.next()?)
}
