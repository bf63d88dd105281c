//! The rows of one outbox: which are its own, which go up together, which are dropped by policy.
//! Reads the job database and its cursor; no clock, no actor and no socket.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use saltern_config::SyndicMode;
use saltern_model::{Jid, ReturnRecord};
use saltern_store::jobs::JobQueries;
use saltern_store::{Followed, JobFollower, StoreError};
use saltern_wire::msgpack::Value;

use super::super::routes::{JobOrigins, Origin, load_upward};
use super::super::upward::{SyndicReturn, master_id};

/// Rows that are read at once at most.
const MAX_ROWS: usize = 1000;

/// About how many bytes of returns go up in one request.
const MAX_BATCH_BYTES: usize = 4 << 20;

/// How often a master above may refuse a single return before it is dropped.
const MAX_REFUSALS: u32 = 5;

/// Jobs that a report of dropped returns names.
const MAX_NAMED: usize = 10;

/// Rows that were passed without being sent before the cursor is saved.
const UNSAVED_ROWS: usize = 5000;

/// Owner of the returns of an outbox.
#[derive(Clone, Debug)]
pub(crate) enum Recipients {
    /// Of jobs that this master above published.
    Upper(String),
    /// Of jobs that none of these published.
    Any(BTreeSet<String>),
}

/// Settings of an outbox.
#[derive(Clone, Debug)]
pub(crate) struct OutboxSettings {
    pub(crate) recipients: Recipients,
    pub(crate) mode: SyndicMode,
    /// This master's own `master_id`.
    pub(crate) master_id: Option<String>,
    /// Jobs whose load is remembered to have gone up.
    pub(crate) remembered_jobs: usize,
    pub(crate) keep: Option<Duration>,
    pub(crate) keep_returns: u64,
}

/// The rows of one outbox.
pub(crate) struct OutboxQueue {
    settings: OutboxSettings,
    follower: JobFollower,
    reader: Arc<dyn JobQueries>,
    origins: JobOrigins,
    /// Jobs whose load has gone up, oldest first.
    loaded: VecDeque<Jid>,
    /// Rows to read at once: fewer while a master above refuses.
    rows: usize,
    refusals: u32,
    unsaved: usize,
    /// When the oldest return that waits was received, in microseconds since 1970.
    oldest: Option<i64>,
}

/// Returns that go up together, with all rows up to the last of them.
pub(crate) struct Batch {
    rows: Vec<Followed>,
    up: SyndicReturn,
    pub(crate) returns: u64,
}

impl Batch {
    /// The load of the request, of the syndic `id`. The batch keeps its rows.
    pub(crate) fn load(&self, id: &str) -> Value {
        self.up.to_value(id)
    }
}

/// Returns that were dropped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Why: `age`, `count`, `refused`.
    pub(crate) reason: &'static str,
    pub(crate) returns: u64,
    /// Some of their jobs.
    pub(crate) jids: Vec<Jid>,
}

/// The next thing to do.
pub(crate) enum Next {
    /// Nothing.
    Idle,
    /// Send these.
    Batch(Batch),
    /// Report these; the cursor is behind them already.
    Dropped(Dropped),
}

/// One scan of rows.
#[derive(Default)]
struct Scan {
    up: SyndicReturn,
    returns: u64,
    bytes: usize,
    oldest: Option<i64>,
    dropped: Vec<Jid>,
    reason: &'static str,
    dropped_returns: u64,
}

impl OutboxQueue {
    /// The rows behind the cursor of `follower`; `reader` should not be shared.
    pub(crate) fn new(
        settings: OutboxSettings,
        follower: JobFollower,
        reader: Arc<dyn JobQueries>,
    ) -> Self {
        Self {
            settings,
            follower,
            reader,
            origins: JobOrigins::default(),
            loaded: VecDeque::new(),
            rows: MAX_ROWS,
            refusals: 0,
            unsaved: 0,
            oldest: None,
        }
    }

    /// Changes the bounds.
    #[cfg(test)]
    pub(super) fn bound(&mut self, keep: Option<Duration>, keep_returns: u64) {
        (self.settings.keep, self.settings.keep_returns) = (keep, keep_returns);
    }

    /// The next thing to do at `now`. Rows of others are passed; own ones stay until
    /// [`Self::acknowledged`].
    ///
    /// # Errors
    /// The database cannot be read, or the cursor not be written.
    pub(crate) fn next(&mut self, now: i64) -> Result<Next, StoreError> {
        loop {
            let rows = self.follower.next(self.rows)?;
            if rows.is_empty() {
                self.oldest = None;
                return Ok(Next::Idle);
            }
            let mut excess = self.lag().saturating_sub(self.settings.keep_returns);
            let mut scan = Scan::default();
            let mut seen = 0;
            for row in &rows {
                if scan.bytes > MAX_BATCH_BYTES {
                    break;
                }
                if !self.look(row, (now, &mut excess), &mut scan)? {
                    break;
                }
                seen += 1;
            }
            let mut rows = rows;
            rows.truncate(seen);
            self.oldest = scan.oldest;
            if scan.dropped_returns > 0 {
                self.pass(&rows);
                self.save()?;
                return Ok(Next::Dropped(Dropped {
                    reason: scan.reason,
                    returns: scan.dropped_returns,
                    jids: scan.dropped,
                }));
            }
            if scan.returns > 0 {
                return Ok(Next::Batch(Batch {
                    rows,
                    up: scan.up,
                    returns: scan.returns,
                }));
            }
            self.pass(&rows);
            if self.unsaved >= UNSAVED_ROWS {
                self.save()?;
            }
        }
    }

    /// Adds a row to a scan; `false` ends the scan before it.
    fn look(
        &mut self,
        row: &Followed,
        (now, excess): (i64, &mut u64),
        scan: &mut Scan,
    ) -> Result<bool, StoreError> {
        let record = match row {
            Followed::Job(job) => {
                self.origins.learn(job);
                return Ok(true);
            }
            Followed::Return(row) => &row.record,
        };
        if !self.is_own(record)? {
            // It may be passed with those before it.
            return Ok(true);
        }
        if let Some(reason) = self.surplus(record, now, excess) {
            // What goes up and what is dropped are passed apart.
            if scan.returns > 0 || (scan.dropped_returns > 0 && scan.reason != reason) {
                return Ok(false);
            }
            scan.reason = reason;
            scan.dropped_returns += 1;
            if scan.dropped.len() < MAX_NAMED && !scan.dropped.contains(&record.jid) {
                scan.dropped.push(record.jid.clone());
            }
            return Ok(true);
        }
        if scan.dropped_returns > 0 {
            return Ok(false);
        }
        let mut failed = None;
        let (loaded, reader) = (&self.loaded, &self.reader);
        scan.up.add(record, || {
            if loaded.contains(&record.jid) {
                return None;
            }
            match reader.load(&record.jid) {
                Ok(job) => job.as_ref().map(load_upward),
                Err(error) => {
                    failed = Some(error);
                    None
                }
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        scan.returns += 1;
        scan.bytes += record.load.bytes().len();
        scan.oldest.get_or_insert(record.received);
        Ok(true)
    }

    /// Whether a return is one of this outbox.
    fn is_own(&mut self, record: &ReturnRecord) -> Result<bool, StoreError> {
        let origin = self.origins.of(&record.jid, &*self.reader)?;
        Ok(match (&self.settings.recipients, origin) {
            (Recipients::Upper(upper), Origin::Upper(from)) => *upper == from,
            (Recipients::Upper(_), Origin::Here) => false,
            (Recipients::Any(uppers), Origin::Upper(from)) => !uppers.contains(&from),
            (Recipients::Any(_), Origin::Here) => {
                self.settings.mode == SyndicMode::Sync
                    || self.settings.master_id.is_none()
                    || master_id(record) != self.settings.master_id
            }
        })
    }

    /// Why a return does not go up any more, if it does not.
    fn surplus(&self, record: &ReturnRecord, now: i64, excess: &mut u64) -> Option<&'static str> {
        let keep = self.settings.keep;
        let keep = keep.map(|keep| i64::try_from(keep.as_micros()).unwrap_or(i64::MAX));
        if keep.is_some_and(|keep| record.received < now.saturating_sub(keep)) {
            return Some("age");
        }
        let is_beyond = *excess > 0;
        *excess = excess.saturating_sub(1);
        is_beyond.then_some("count")
    }

    /// A master above has stored these.
    ///
    /// # Errors
    /// The cursor cannot be written; then they are sent once more after a restart.
    pub(crate) fn acknowledged(&mut self, batch: Batch) -> Result<(), StoreError> {
        for jid in batch.up.jids() {
            if !self.loaded.contains(jid) {
                self.loaded.push_back(jid.clone());
            }
        }
        while self.loaded.len() > self.settings.remembered_jobs {
            self.loaded.pop_front();
        }
        (self.rows, self.refusals) = ((self.rows * 2).min(MAX_ROWS), 0);
        self.oldest = None;
        self.pass(&batch.rows);
        self.save()
    }

    /// A master above answered that it could not handle these. Fewer are tried the next time; a
    /// single one is dropped when it has been refused several times.
    ///
    /// # Errors
    /// The cursor cannot be written.
    pub(crate) fn refused(&mut self, batch: Batch) -> Result<Option<Dropped>, StoreError> {
        self.refusals += 1;
        if batch.returns > 1 {
            self.rows = (batch.rows.len() / 2).max(1);
            self.refusals = 0;
            return Ok(None);
        }
        if self.refusals < MAX_REFUSALS {
            return Ok(None);
        }
        self.refusals = 0;
        let dropped = Dropped {
            reason: "refused",
            returns: batch.returns,
            jids: batch.up.jids().cloned().collect(),
        };
        self.pass(&batch.rows);
        self.save()?;
        Ok(Some(dropped))
    }

    fn pass(&mut self, rows: &[Followed]) {
        rows.iter().for_each(|row| self.follower.pass(row));
        self.unsaved += rows.len();
    }

    fn save(&mut self) -> Result<(), StoreError> {
        self.follower.save()?;
        self.unsaved = 0;
        Ok(())
    }

    /// Saves the cursor, when rows of others were passed since.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn save_if_due(&mut self) -> Result<(), StoreError> {
        match self.unsaved {
            0..UNSAVED_ROWS => Ok(()),
            _ => self.save(),
        }
    }

    /// Rows behind the cursor.
    pub(crate) fn lag(&self) -> u64 {
        // The next read reports an error.
        self.follower.lag().unwrap_or(0)
    }

    /// Age of the oldest return that waits, in seconds.
    pub(crate) fn lag_seconds(&self, now: i64) -> u64 {
        let oldest = self.oldest.unwrap_or(now);
        u64::try_from((now - oldest) / 1_000_000).unwrap_or(0)
    }
}
