//! The rows of one outbox: which are its own, which go up together, which are dropped by policy.
//! Reads the job database and its cursor; no clock, no actor and no socket.
//!
//! A batch goes up as one `_syndic_return`, or as frames in several lanes. All returns of a minion go
//! by one lane, one frame after the other, so that frames of different lanes may overtake each other
//! and the returns of each minion still keep their order. Batches are read ahead of the cursor, which
//! moves when a batch and all before it are stored.
//!
//! Longer than 500 lines: one cursor, and all that moves it.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use saltern_config::SyndicMode;
use saltern_model::{Jid, ReturnRecord};
use saltern_store::jobs::JobQueries;
use saltern_store::{Followed, JobFollower, ReadTo, StoreError};
use saltern_wire::msgpack::Value;

use super::super::routes::{JobOrigins, Origin, load_upward};
use super::super::upward::{SyndicReturn, master_id};
use super::refusals::Refusals;

/// Rows that are read at once at most.
const MAX_ROWS: usize = 1000;

/// The same of a batch that goes up in frames.
const MAX_FRAMED_ROWS: usize = 4000;

/// About how many bytes of returns and loads of jobs a batch has.
const MAX_BATCH_BYTES: usize = 4 << 20;

/// Batches that are on their way in frames at the same time.
const MAX_BATCHES: usize = 2;

/// Lanes by which frames go up.
pub(crate) const LANES: usize = 4;

/// About how many bytes of returns, and of loads of jobs beside them, a frame has.
const MAX_FRAME_BYTES: usize = 1_000_000;
const MAX_FRAME_LOADS: usize = 4 << 20;

/// Allowance for all of a request but the returns and loads in it, in bytes.
const MAX_OVERHEAD: usize = 64 << 10;

/// How often a master above may refuse a single return in a frame for its content before it is dropped.
const MAX_REFUSALS: u32 = 5;

/// Batches of as many rows as a master above takes before more are tried, when it has refused more.
const MAX_REDUCED: u32 = 64;

/// Jobs that a report of dropped returns names.
pub(super) const MAX_NAMED: usize = 10;

/// Rows among which returns are looked for that came before their job was published here.
const MAX_ROWS_BACK: usize = 10_000;

/// Rows that were passed without being sent before the cursor is saved, and the longest that it is not saved behind any
/// of them. Retention may remove them from then on, and a cursor before them would take them for returns that were lost.
const UNSAVED_ROWS: usize = 5000;
const PASSED_INTERVAL: Duration = Duration::from_secs(60);

/// Age of a return that a salt-syndic beside this master has brought up. Younger ones go up once more when that ends.
const LEFT_AFTER: Duration = Duration::from_secs(60);

/// The longest that the cursor of frames that are stored above is not saved. A save is two writes to the
/// disk, beside those of the job database. What is stored and not saved goes up again after a crash, and
/// a master that takes frames stores it once.
const SAVE_INTERVAL: Duration = Duration::from_millis(250);

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
    /// The returns that were read last were all of others.
    expects_others: bool,
    /// Returns that were read, with what is in them.
    #[cfg(test)]
    pub(super) read: usize,
    /// Called before each read of rows, with how many there were.
    #[cfg(test)]
    pub(super) before_reads: Option<Box<dyn FnMut(usize) + Send>>,
    #[cfg(test)]
    reads: usize,
    /// Jobs whose load has gone up, oldest first.
    loaded: VecDeque<Jid>,
    /// Rows to read at once: fewer while a master above refuses.
    rows: usize,
    /// Refusals of a single return in a frame.
    refusals: u32,
    /// The same of those that go up in one request each.
    refused: Refusals,
    /// Batches that are stored above before there may be more rows in one.
    reduced: u32,
    /// It went back, and is not where it was before yet.
    went_back: Option<WentBackFor>,
    unsaved: usize,
    /// Since when there are unsaved rows, in microseconds since 1970.
    unsaved_since: Option<i64>,
    /// When the cursor of what is stored above has to be saved, in microseconds since 1970.
    save_at: Option<i64>,
    /// When the oldest return that waits was received, in microseconds since 1970.
    oldest: Option<i64>,
    /// All own returns that were received before have gone up, or are given up; in microseconds since 1970.
    waits_since: Option<i64>,
    /// Largest request that the master above takes, where returns go up in frames.
    framed: Option<usize>,
    /// Batches that are on their way in frames, in their order.
    on_their_way: VecDeque<SentBatch>,
    next_batch: u64,
}

/// Returns that go up together, with all rows up to the last of them.
pub(crate) struct Batch {
    rows: Vec<Followed>,
    frames: Vec<Frame>,
    pub(crate) returns: u64,
    /// The number of the first of them.
    first: i64,
    /// When it was received, in microseconds since 1970.
    oldest: Option<i64>,
    /// It is tried because the first one that waits is refused, and lies behind that one.
    pub(super) is_probe: bool,
}

/// Returns of one request.
#[derive(Default)]
pub(crate) struct Frame {
    up: SyndicReturn,
    pub(crate) returns: u64,
    pub(crate) lane: usize,
    bytes: usize,
    load_bytes: usize,
}

impl Frame {
    /// The load of the request, of the syndic `id`.
    pub(crate) fn load(&self, id: &str) -> Value {
        self.up.to_value(id)
    }

    /// The jids of its jobs.
    pub(crate) fn jids(&self) -> impl Iterator<Item = &Jid> {
        self.up.jids()
    }

    /// Whether its request has certainly no more bytes than this: most of what a row has does not go up.
    pub(crate) fn is_below(&self, max_bytes: usize) -> bool {
        self.bytes + self.load_bytes + MAX_OVERHEAD <= max_bytes / 2
    }
}

impl Batch {
    /// The load of its only request, of the syndic `id`, where it does not go up in frames.
    pub(crate) fn load(&self, id: &str) -> Value {
        let none = || Value::Array(Vec::new());
        self.frames.first().map_or_else(none, |all| all.load(id))
    }

    fn jids(&self) -> impl Iterator<Item = &Jid> {
        self.frames.iter().flat_map(|frame| frame.up.jids())
    }
}

/// A batch that is on its way in frames.
struct SentBatch {
    number: u64,
    /// The cursor behind its last row.
    end: ReadTo,
    rows: usize,
    returns: u64,
    jids: Vec<Jid>,
    /// When its first return was received, in microseconds since 1970.
    oldest: Option<i64>,
    is_stored: bool,
}

/// Returns that were dropped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Why: `age`, `count`, `size`, `refused`; or `retention`, of those that were removed from the job database.
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

/// Jobs for which the cursor was taken back. All other returns have gone up before: a master of stock would fire their
/// events once more.
struct WentBackFor {
    jids: HashSet<Jid>,
    /// The last return that had gone up.
    until: i64,
}

/// Owner of the returns of a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// This outbox.
    This,
    /// Another one.
    Other,
    /// This outbox, unless the return names this master as that of its job.
    ByMaster,
}

/// One scan of rows.
#[derive(Default)]
struct Scan {
    frames: Vec<Frame>,
    returns: u64,
    bytes: usize,
    first: i64,
    oldest: Option<i64>,
    /// Returns of those that wait which are more than may wait, as far as was looked.
    excess: Option<u64>,
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
            expects_others: matches!(settings.recipients, Recipients::Any(_)),
            settings,
            follower,
            reader,
            origins: JobOrigins::default(),
            #[cfg(test)]
            read: 0,
            #[cfg(test)]
            before_reads: None,
            #[cfg(test)]
            reads: 0,
            loaded: VecDeque::new(),
            rows: MAX_ROWS,
            refusals: 0,
            refused: Refusals::default(),
            reduced: 0,
            went_back: None,
            unsaved: 0,
            unsaved_since: None,
            save_at: None,
            oldest: None,
            waits_since: None,
            framed: None,
            on_their_way: VecDeque::new(),
            next_batch: 0,
        }
    }

    /// From now on batches go up in frames, to a master that takes requests of at most so many bytes;
    /// or with `None` in one request each. What was on its way is read again.
    pub(crate) fn frame(&mut self, max_bytes: Option<usize>) {
        self.rewind();
        self.forget_loads();
        self.framed = max_bytes;
        (self.rows, self.reduced) = (self.max_rows(), 0);
        self.refused.end();
    }

    /// Largest request that the master above takes, where batches go up in frames.
    pub(crate) fn framed(&self) -> Option<usize> {
        self.framed
    }

    /// The time such that all own returns that were received before have gone up, or are given up, in microseconds
    /// since 1970; `None` before the first look. Jobs from then on are to be kept.
    pub(crate) fn waits_since(&self) -> Option<i64> {
        self.waits_since
    }

    /// Whether it may rest between two looks: it is the outbox for all, and finds nothing of its own. A look costs
    /// more than the few rows of a commit.
    pub(crate) fn may_rest(&self) -> bool {
        self.expects_others && matches!(self.settings.recipients, Recipients::Any(_))
    }

    /// The most rows of a batch.
    fn max_rows(&self) -> usize {
        match self.framed {
            Some(_) => MAX_FRAMED_ROWS,
            None => MAX_ROWS,
        }
    }

    /// Changes the bounds.
    #[cfg(test)]
    pub(super) fn bound(&mut self, keep: Option<Duration>, keep_returns: u64) {
        (self.settings.keep, self.settings.keep_returns) = (keep, keep_returns);
    }

    #[cfg(test)]
    fn count_read(&mut self) {
        if let Some(before) = &mut self.before_reads {
            before(self.reads);
        }
        self.reads += 1;
    }

    /// The next thing to do at `now`. Rows of others are passed; own ones stay until
    /// [`Self::acknowledged`], or until they are [`Self::sent`] and [`Self::stored`]. Nothing is dropped
    /// while something is on its way.
    ///
    /// # Errors
    /// The database cannot be read, or the cursor not be written.
    pub(crate) fn next(&mut self, now: i64) -> Result<Next, StoreError> {
        if let Some(removed) = self.take_removed() {
            return Ok(Next::Dropped(removed));
        }
        if let Some(probe) = self.probe()? {
            return Ok(Next::Batch(probe));
        }
        if self.expects_others {
            self.pass_others()?;
        }
        loop {
            #[cfg(test)]
            self.count_read();
            let rows = self.follower.next(self.rows.min(self.max_rows()))?;
            self.origins.begin_batch();
            #[cfg(test)]
            {
                self.read += returns_in(&rows);
            }
            if self.on_their_way.is_empty() && self.follower.pass_removed(&rows) {
                self.save()?;
                if let Some(removed) = self.take_removed() {
                    return Ok(Next::Dropped(removed));
                }
            }
            if rows.is_empty() {
                if self.on_their_way.is_empty() {
                    self.oldest = None;
                    self.waits_since = Some(now);
                }
                return Ok(Next::Idle);
            }
            let mut scan = Scan::default();
            let mut seen = 0;
            for row in &rows {
                if scan.bytes > MAX_BATCH_BYTES {
                    break;
                }
                if !self.look(row, now, &mut scan)? {
                    break;
                }
                seen += 1;
            }
            let mut rows = rows;
            rows.truncate(seen);
            if self.on_their_way.is_empty() {
                self.oldest = scan.oldest;
            }
            let has_own = scan.returns > 0 || scan.dropped_returns > 0;
            if has_own || returns_in(&rows) > 0 {
                self.expects_others = !has_own;
            }
            if scan.dropped_returns > 0 {
                if !self.on_their_way.is_empty() {
                    return Ok(Next::Idle);
                }
                self.pass(&rows);
                self.save()?;
                return Ok(Next::Dropped(Dropped {
                    reason: scan.reason,
                    returns: scan.dropped_returns,
                    jids: scan.dropped,
                }));
            }
            if scan.returns > 0 {
                if self.on_their_way.is_empty() {
                    self.waits_since = scan.oldest.or(self.waits_since);
                }
                return Ok(Next::Batch(Batch {
                    rows,
                    frames: scan.frames,
                    returns: scan.returns,
                    first: scan.first,
                    oldest: scan.oldest,
                    is_probe: false,
                }));
            }
            rows.iter().for_each(|row| self.follower.read_past(row));
            self.passed_others(rows.len())?;
        }
    }

    /// Passes the returns that came more than [`LEFT_AFTER`] before `now`, and what was removed: a salt-syndic beside this
    /// master brings them up, as they come.
    ///
    /// # Errors
    /// The database cannot be read, or the cursor not be written.
    pub(crate) fn leave_to_another(&mut self, now: i64) -> Result<(), StoreError> {
        self.rewind();
        let age = i64::try_from(LEFT_AFTER.as_micros()).unwrap_or(i64::MAX);
        let before = now.saturating_sub(age);
        let is_left = |row: &&Followed| match row {
            Followed::Job(_) => true,
            Followed::Return(row) => row.record.received < before,
        };
        loop {
            let mut rows = self.follower.next(MAX_ROWS)?;
            let found = rows.len();
            let left = rows.iter().take_while(is_left).count();
            rows.truncate(left);
            self.pass(&rows);
            if left < found || left == 0 {
                break;
            }
        }
        let _ = self.follower.take_removed();
        (self.oldest, self.waits_since) = (None, Some(before));
        self.save_if_moved()
    }

    /// The returns that were removed from the job database before they went up, as far as was looked. Whether they were
    /// its own is not known.
    fn take_removed(&mut self) -> Option<Dropped> {
        let returns = self.follower.take_removed();
        (returns > 0).then(|| Dropped {
            reason: "retention",
            returns,
            jids: Vec::new(),
        })
    }

    /// A single return from behind one that is refused, if one is to be tried and there is one.
    fn probe(&mut self) -> Result<Option<Batch>, StoreError> {
        let Some((refused, distance)) = self.refused.take_probe() else {
            return Ok(None);
        };
        let rows = self.follower.next(MAX_ROWS)?;
        self.origins.begin_batch();
        let (mut found, mut behind) = (None, 0);
        for row in &rows {
            let row = match row {
                Followed::Job(job) => {
                    self.origins.learn(job);
                    continue;
                }
                Followed::Return(row) => row,
            };
            let is_behind = row.id > refused && !self.refused.has_taken(row.id);
            if is_behind && self.is_own(&row.record)? {
                found = Some(row);
                behind += 1;
            }
            if behind == distance {
                break;
            }
        }
        let Some(row) = found else {
            return Ok(None);
        };
        let mut frames = Vec::new();
        self.add(&row.record, &mut frames)?;
        Ok(Some(Batch {
            rows: Vec::new(),
            frames,
            returns: 1,
            first: row.id,
            oldest: None,
            is_probe: true,
        }))
    }

    /// Passes the returns of others that come next. Nothing of them is read but their jobs: a return may be
    /// large, and where there is one master above, none of a job that came from there is of the outbox for all.
    fn pass_others(&mut self) -> Result<(), StoreError> {
        loop {
            #[cfg(test)]
            self.count_read();
            let runs = self.follower.next_runs(self.max_rows())?;
            self.origins.begin_batch();
            let mut others = 0;
            for run in &runs {
                if self.owner(&run.jid)? != Owner::Other {
                    break;
                }
                self.follower.read_past_run(run);
                others += run.rows;
            }
            self.passed_others(others)?;
            if others < self.max_rows() {
                return Ok(());
            }
        }
    }

    /// So many rows of others stand up to where was read: the cursor passes them, when all that is on its way is
    /// stored.
    fn passed_others(&mut self, rows: usize) -> Result<(), StoreError> {
        let end = self.follower.read_to();
        if let Some(last) = self.on_their_way.back_mut() {
            (last.end, last.rows) = (end, last.rows + rows);
            return Ok(());
        }
        self.follower.pass_to(end);
        self.unsaved += rows;
        match self.unsaved {
            0..UNSAVED_ROWS => Ok(()),
            _ => self.save(),
        }
    }

    /// Adds a row to a scan; `false` ends the scan before it.
    fn look(&mut self, row: &Followed, now: i64, scan: &mut Scan) -> Result<bool, StoreError> {
        let (number, record) = match row {
            Followed::Job(job) => {
                self.origins.learn(job);
                return Ok(true);
            }
            Followed::Return(row) => (row.id, &row.record),
        };
        // It is where it was before. One that is read anew goes up once more.
        self.went_back.take_if(|went| number > went.until);
        let has_gone_up = self.refused.has_taken(number) || self.went_up(number, record);
        if has_gone_up || !self.is_own(record)? {
            // It may be passed with those before it.
            return Ok(true);
        }
        if let Some(reason) = self.surplus(record, now, scan) {
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
        scan.bytes += self.add(record, &mut scan.frames)?;
        if scan.returns == 0 {
            scan.first = number;
            scan.oldest = Some(record.received);
        }
        scan.returns += 1;
        Ok(true)
    }

    /// Whether a return went up before the cursor was taken back past it.
    fn went_up(&self, number: i64, record: &ReturnRecord) -> bool {
        let went_back = self.went_back.as_ref();
        went_back.is_some_and(|went| number <= went.until && !went.jids.contains(&record.jid))
    }

    /// Adds a return to the last frame of its lane, while there is room in it, or to a new one. Gives
    /// about how many bytes that adds, with the load of its job.
    fn add(&self, record: &ReturnRecord, frames: &mut Vec<Frame>) -> Result<usize, StoreError> {
        let lane = self.framed.map_or(0, |_| lane_of(record));
        let size = record.load.bytes().len();
        let mut last = frames.iter_mut().rev().find(|frame| frame.lane == lane);
        last = last.filter(|frame| self.has_room(frame, size, 0));
        let mut load = match &last {
            Some(frame) if frame.up.has(&record.jid) => None,
            _ => self.load_of(&record.jid)?,
        };
        // A load that is too large for any frame is left out.
        load = load.filter(|load| self.has_room(&Frame::default(), size, load.bytes));
        let load_size = load.as_ref().map_or(0, |load| load.bytes);
        match last.filter(|frame| self.has_room(frame, size, load_size)) {
            Some(frame) => frame.add(record, load),
            None => {
                let mut frame = Frame {
                    lane,
                    ..Frame::default()
                };
                frame.add(record, load);
                frames.push(frame);
            }
        }
        Ok(size + load_size)
    }

    /// Whether a frame may have another return, with the load of its job. An empty one may have any that
    /// the master above takes.
    fn has_room(&self, frame: &Frame, size: usize, load_size: usize) -> bool {
        let Some(max_bytes) = self.framed else {
            return true;
        };
        let all = frame.bytes + frame.load_bytes + size + load_size;
        let is_large = frame.bytes + size > MAX_FRAME_BYTES || frame.load_bytes > MAX_FRAME_LOADS;
        all + MAX_OVERHEAD <= max_bytes && (frame.returns == 0 || !is_large)
    }

    /// The load of a job that has not gone up yet.
    fn load_of(&self, jid: &Jid) -> Result<Option<JobLoad>, StoreError> {
        if self.loaded.contains(jid) {
            return Ok(None);
        }
        let job = self.reader.load(jid)?;
        Ok(job.map(|job| {
            let minions = job.record.minions.iter();
            let minions: usize = minions.map(|minion| minion.as_str().len() + 5).sum();
            JobLoad {
                bytes: job.record.load.bytes().len() + minions,
                load: load_upward(&job),
            }
        }))
    }

    /// Owner of the returns of a job.
    fn owner(&mut self, jid: &Jid) -> Result<Owner, StoreError> {
        let origin = self.origins.of(jid, || self.reader.load_of(jid))?;
        let is_own = match (&self.settings.recipients, origin) {
            (Recipients::Upper(upper), Origin::Upper(from)) => upper == from,
            (Recipients::Upper(_), Origin::Here) => false,
            (Recipients::Any(uppers), Origin::Upper(from)) => !uppers.contains(from),
            (Recipients::Any(_), Origin::Here) => {
                let is_all =
                    self.settings.mode == SyndicMode::Sync || self.settings.master_id.is_none();
                return Ok(if is_all { Owner::This } else { Owner::ByMaster });
            }
        };
        Ok(if is_own { Owner::This } else { Owner::Other })
    }

    /// Whether a return is one of this outbox.
    fn is_own(&mut self, record: &ReturnRecord) -> Result<bool, StoreError> {
        Ok(match self.owner(&record.jid)? {
            Owner::This => true,
            Owner::Other => false,
            Owner::ByMaster => master_id(record) != self.settings.master_id,
        })
    }

    /// Returns that wait and are more than may wait.
    fn excess(&self) -> u64 {
        let sent: usize = self.on_their_way.iter().map(|batch| batch.rows).sum();
        let waiting = self.lag().saturating_sub(sent as u64);
        waiting.saturating_sub(self.settings.keep_returns)
    }

    /// Why a return does not go up any more, if it does not.
    fn surplus(&self, record: &ReturnRecord, now: i64, scan: &mut Scan) -> Option<&'static str> {
        let keep = self.settings.keep;
        let keep = keep.map(|keep| i64::try_from(keep.as_micros()).unwrap_or(i64::MAX));
        if keep.is_some_and(|keep| record.received < now.saturating_sub(keep)) {
            return Some("age");
        }
        let excess = scan.excess.get_or_insert_with(|| self.excess());
        let is_beyond = *excess > 0;
        *excess = excess.saturating_sub(1);
        if is_beyond {
            return Some("count");
        }
        let size = record.load.bytes().len() + MAX_OVERHEAD;
        self.framed
            .is_some_and(|most| size > most)
            .then_some("size")
    }

    /// The master above of this name has stored these.
    ///
    /// # Errors
    /// The cursor cannot be written; then they are sent once more after a restart.
    pub(crate) fn acknowledged(&mut self, batch: Batch, by: &str) -> Result<(), StoreError> {
        let jids: Vec<Jid> = batch.jids().cloned().collect();
        self.remember(&jids);
        if batch.is_probe {
            // The cursor waits for the refused one before it.
            self.refused.probe_taken(batch.first, by);
            return Ok(());
        }
        self.refused.end();
        self.grow();
        self.oldest = None;
        self.pass(&batch.rows);
        self.save()
    }

    /// A request had no answer, or did not go out.
    pub(crate) fn lost(&mut self) {
        self.refused.lost();
    }

    /// The loads of these jobs do not go up a second time.
    fn remember(&mut self, jids: &[Jid]) {
        for jid in jids {
            if !self.loaded.contains(jid) {
                self.loaded.push_back(jid.clone());
            }
        }
        while self.loaded.len() > self.settings.remembered_jobs {
            self.loaded.pop_front();
        }
    }

    /// The loads of all jobs go up once more: another database may stand behind the name of the master above.
    pub(crate) fn forget_loads(&mut self) {
        self.loaded.clear();
    }

    /// A batch is stored above: the next one may be larger, unless such a one was refused lately.
    fn grow(&mut self) {
        self.refusals = 0;
        self.reduced = self.reduced.saturating_sub(1);
        if self.reduced == 0 {
            self.rows = (self.rows * 2).min(self.max_rows());
        }
    }

    /// So many rows were refused together.
    fn reduce(&mut self, rows: usize) {
        self.rows = (rows / 2).max(1);
        (self.refusals, self.reduced) = (0, MAX_REDUCED);
    }

    /// A single return was refused for good: it may have been the only fault of those that were refused with it.
    fn dropped_one(&mut self) {
        (self.refusals, self.reduced) = (0, 0);
    }

    /// A batch goes up in these frames: the next one is read behind it. The number is that of the batch.
    pub(crate) fn sent(&mut self, batch: Batch) -> (u64, Vec<Frame>) {
        let number = self.next_batch;
        self.next_batch += 1;
        let oldest = batch.oldest;
        for row in &batch.rows {
            self.follower.read_past(row);
        }
        let jids: Vec<Jid> = batch.jids().cloned().collect();
        // A master of ours has stored the jobs that it published; with a frame that is lost, it misses
        // nothing. Where another process answers for it, they are forgotten.
        if matches!(self.settings.recipients, Recipients::Upper(_)) {
            self.remember(&jids);
        }
        self.on_their_way.push_back(SentBatch {
            number,
            end: self.follower.read_to(),
            rows: batch.rows.len(),
            returns: batch.returns,
            jids,
            oldest,
            is_stored: false,
        });
        (number, batch.frames)
    }

    /// A master above has stored all frames of a batch, at `now`. The cursor passes it when all before it
    /// are stored, too, and is saved within [`SAVE_INTERVAL`].
    ///
    /// # Errors
    /// The cursor cannot be written; then they are sent once more after a restart.
    pub(crate) fn stored(&mut self, number: u64, now: i64) -> Result<(), StoreError> {
        let mut sent = self.on_their_way.iter_mut();
        if let Some(batch) = sent.find(|batch| batch.number == number) {
            batch.is_stored = true;
        }
        while let Some(batch) = self.on_their_way.pop_front_if(|batch| batch.is_stored) {
            self.follower.pass_to(batch.end);
            self.remember(&batch.jids);
            self.grow();
            let interval = i64::try_from(SAVE_INTERVAL.as_micros()).unwrap_or(i64::MAX);
            self.save_at.get_or_insert(now.saturating_add(interval));
        }
        if let Some(first) = self.on_their_way.front() {
            self.waits_since = first.oldest.or(self.waits_since);
        }
        self.save_if_due(now)
    }

    /// A master above has published these jobs after minions had returned them: their returns go up to that master as
    /// well, which may not have been known when they were passed. What is on its way is read again. Gives the jobs
    /// with returns that do not go up: they are too far back. A later attempt would find them no nearer, as the cursor
    /// moves on with what waits.
    ///
    /// # Errors
    /// The database cannot be read, or the cursor not be written.
    pub(crate) fn go_back_to(&mut self, jids: &HashSet<Jid>) -> Result<HashSet<Jid>, StoreError> {
        self.rewind();
        // More than may wait would have others dropped.
        let room = self
            .settings
            .keep_returns
            .saturating_sub(self.follower.lag()?);
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let went = self.follower.go_back_to(jids, MAX_ROWS_BACK, room)?;
        if went.has_moved || self.went_back.is_some() {
            let before = self.went_back.take();
            let before = before.into_iter().flat_map(|before| before.jids);
            self.went_back = Some(WentBackFor {
                jids: before.chain(jids.iter().cloned()).collect(),
                until: self.follower.farthest(),
            });
        }
        if went.has_moved {
            self.save()?;
        }
        Ok(went.lost)
    }

    /// Whether its returns are those of the jobs of one master above.
    pub(crate) fn is_for_one(&self) -> bool {
        matches!(self.settings.recipients, Recipients::Upper(_))
    }

    /// Reads again what is on its way.
    pub(crate) fn rewind(&mut self) {
        self.on_their_way.clear();
        self.follower.rewind();
    }

    /// A frame of this batch was refused for its content, or is larger than a master above takes
    /// (`size`). What is on its way is read again, in smaller batches; a single return is dropped when it
    /// has been refused several times, or is too large.
    ///
    /// # Errors
    /// The cursor cannot be written.
    pub(crate) fn frame_refused(
        &mut self,
        number: u64,
        reason: &'static str,
    ) -> Result<Option<Dropped>, StoreError> {
        let mut sent = self.on_their_way.iter();
        let rows = sent.find(|batch| batch.number == number);
        let rows = rows.map_or(self.rows, |batch| batch.rows.min(self.rows));
        // Without one, another frame of what was on its way with it was refused before.
        let Some(first) = self.on_their_way.pop_front() else {
            return Ok(None);
        };
        self.rewind();
        let single = Some(first).filter(|first| first.number == number && first.returns == 1);
        let Some(single) = single else {
            self.reduce(rows);
            return Ok(None);
        };
        self.refusals += 1;
        if self.refusals < MAX_REFUSALS && reason != "size" {
            return Ok(None);
        }
        self.dropped_one();
        self.follower.pass_to(single.end);
        self.rewind();
        self.save()?;
        Ok(Some(Dropped {
            reason,
            returns: single.returns,
            jids: single.jids,
        }))
    }

    /// Whether another batch may be read while some are on their way. Only one is, while a master above
    /// refuses.
    pub(crate) fn has_room_for_batch(&self) -> bool {
        let most = match self.rows < self.max_rows() {
            true => 1,
            false => MAX_BATCHES,
        };
        self.on_their_way.len() < most
    }

    /// The master above of this name answered that it could not handle these, or they are too large for any (`size`).
    /// Fewer are tried the next time; a single one is dropped when that master takes others and not this one, or it is
    /// too large.
    ///
    /// # Errors
    /// The cursor cannot be written.
    pub(crate) fn refused(
        &mut self,
        batch: Batch,
        reason: &'static str,
        by: &str,
    ) -> Result<Option<Dropped>, StoreError> {
        if batch.is_probe {
            self.refused.probe_refused(by);
            return Ok(None);
        }
        if batch.returns > 1 {
            self.reduce(batch.rows.len());
            return Ok(None);
        }
        if reason != "size" && !self.refused.refused(batch.first, by) {
            return Ok(None);
        }
        self.dropped_one();
        let dropped = Dropped {
            reason,
            returns: batch.returns,
            jids: batch.jids().cloned().collect(),
        };
        self.pass(&batch.rows);
        self.save()?;
        Ok(Some(dropped))
    }

    fn pass(&mut self, rows: &[Followed]) {
        rows.iter().for_each(|row| self.follower.pass(row));
        let last = rows.iter().rev().find_map(|row| match row {
            Followed::Return(row) => Some(row.id),
            Followed::Job(_) => None,
        });
        if let Some(last) = last {
            self.refused.passed(last);
        }
        self.unsaved += rows.len();
    }

    fn save(&mut self) -> Result<(), StoreError> {
        self.follower.save()?;
        (self.unsaved, self.unsaved_since, self.save_at) = (0, None, None);
        Ok(())
    }

    /// Saves the cursor if it has moved since it was saved.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn save_if_moved(&mut self) -> Result<(), StoreError> {
        match (self.unsaved, self.save_at) {
            (0, None) => Ok(()),
            _ => self.save(),
        }
    }

    /// Saves the cursor, when many rows of others were passed since, or one some time ago, or it is time for what is
    /// stored above.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn save_if_due(&mut self, now: i64) -> Result<(), StoreError> {
        let is_due = self.save_in(now).is_some_and(|wait| wait.is_zero()) || self.is_stale(now);
        match self.unsaved {
            0..UNSAVED_ROWS if !is_due => Ok(()),
            _ => self.save(),
        }
    }

    /// Whether rows were passed that the saved cursor has not passed for [`PASSED_INTERVAL`], as far as was asked.
    fn is_stale(&mut self, now: i64) -> bool {
        if self.unsaved == 0 {
            return false;
        }
        let since = *self.unsaved_since.get_or_insert(now);
        // The clock may have been set back.
        let passed = u64::try_from(now.saturating_sub(since)).unwrap_or(u64::MAX);
        Duration::from_micros(passed) >= PASSED_INTERVAL
    }

    /// How long the cursor need not be saved, if it has to be at all.
    pub(crate) fn save_in(&self, now: i64) -> Option<Duration> {
        let wait = self.save_at?.saturating_sub(now);
        let wait = Duration::from_micros(u64::try_from(wait).unwrap_or(0));
        // More is left when the clock was set back.
        Some(wait).map(|wait| {
            if wait > SAVE_INTERVAL {
                Duration::ZERO
            } else {
                wait
            }
        })
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

/// The load of a job as it goes up.
struct JobLoad {
    load: Value,
    /// About how many bytes it has.
    bytes: usize,
}

impl Frame {
    fn add(&mut self, record: &ReturnRecord, load: Option<JobLoad>) {
        let mut load_bytes = 0;
        self.up.add(record, || {
            load.map(|load| {
                load_bytes = load.bytes;
                load.load
            })
        });
        self.load_bytes += load_bytes;
        self.bytes += record.load.bytes().len();
        self.returns += 1;
    }
}

/// The number of returns among these rows.
fn returns_in(rows: &[Followed]) -> usize {
    let returns = rows.iter().filter(|row| matches!(row, Followed::Return(_)));
    returns.count()
}

/// The lane of a return: that of its minion.
fn lane_of(record: &ReturnRecord) -> usize {
    let mut hasher = DefaultHasher::new();
    record.minion.as_str().hash(&mut hasher);
    let lanes = LANES as u64;
    usize::try_from(hasher.finish() % lanes).unwrap_or(0)
}
