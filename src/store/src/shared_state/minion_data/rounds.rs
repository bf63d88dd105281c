//! Rounds of one member: while it stands by, and once when it takes over, it reads what was changed and makes its files
//! so; while it is active it writes what was changed here.
//!
//! The table is the truth, but for files that are newer than the first row that is seen of them: this machine was
//! active without writing to the table, as under a release before. No row is written before the whole table was
//! read, so a takeover writes what the table lacks and nothing else.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use openssl::sha::sha256;
use saltern_base::chain;
use saltern_base::clock::Clock;
use saltern_base::log_throttle::LogThrottle;
use saltern_crypto::StateCipher;
use saltern_model::MinionId;

use super::{DataTable, DataWrite, MAX_DATA_LEN, TOMBSTONE_AGE, number_of};
use crate::MinionDataStore;
use crate::error::{Result, StoreError};
use crate::minion_data::{DataKind, DataName, ReplacedData};
use crate::shared_state::row::{self, RowError};
use crate::shared_state::{MAX_ROWS, RowPosition, SealedRow};

/// Microseconds between two writes of the same data.
pub(super) const WRITE_INTERVAL: i64 = 60_000_000;

/// Microseconds between two readings of what is behind, of the active member: only its own rows are to be there.
const CHECK_INTERVAL: i64 = 10_000_000;

/// Microseconds between two readings of the whole table, when a file could not be written.
const RETRY_INTERVAL: i64 = 600_000_000;

/// Microseconds between two removals of old rows without content, and comparisons of all files.
const UPKEEP_INTERVAL: i64 = 3_600_000_000;

/// Microseconds that a file has to be newer than a row to count: clocks of members differ.
const CLOCKS_DIFFER: i64 = 60_000_000;

/// Bytes of the rows of one write, unless one alone has more.
const MAX_WRITE_LEN: usize = 1 << 20;

/// Writes of one round: jobs are committed beside them.
const MAX_WRITES: usize = 4;

/// Files that are looked at between two looks at whether it ends.
const MAX_LOOKS: usize = 1_024;

/// Minimum time between two log lines about rows or files that cannot be used.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Data, short enough to remember for each minion.
type Digest = [u8; 16];

/// A row with content, as it was seen or written last.
#[derive(Clone, Copy)]
struct Known {
    version: i64,
    digest: Digest,
    /// When this process wrote it, in microseconds since 1970; 0 when it did not.
    written: i64,
}

/// Data that is about to be written.
struct Change {
    name: DataName,
    content: Vec<u8>,
    write: DataWrite,
}

/// Numbers of all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Rows that this member wrote.
    pub(super) written: u64,
    /// Rows of others that are files here.
    pub(super) applied: u64,
    /// Rows that are not used.
    pub(super) refused: u64,
    /// Data that is too large to be shared.
    pub(super) too_large: u64,
}

impl Counts {
    /// In the order of the counters of a member.
    pub(super) const fn all(&self) -> [u64; 4] {
        [self.written, self.applied, self.refused, self.too_large]
    }
}

/// A member's standing during a round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    pub(super) is_active: bool,
    /// It is the last round: nothing waits for its turn.
    pub(super) is_last: bool,
}

/// Parts of [`Rounds`].
pub(super) struct RoundParts {
    pub(super) table: Arc<dyn DataTable>,
    pub(super) cipher: Arc<StateCipher>,
    pub(super) store: Arc<MinionDataStore>,
    /// The kinds that this member keeps.
    pub(super) kinds: Vec<DataKind>,
    pub(super) clock: Clock,
}

/// A member between its rounds.
pub(super) struct Rounds {
    parts: RoundParts,
    position: RowPosition,
    known: HashMap<DataName, Known>,
    /// To be compared with its row, and written where it differs.
    dirty: BTreeSet<DataName>,
    /// Rows that are no files here, for want of the disk: the files say nothing against them.
    failed: BTreeSet<DataName>,
    /// The whole table was read since this member is active.
    has_taken_over: bool,
    next_version: Option<i64>,
    read_at: Option<i64>,
    began_at: Option<i64>,
    upkept_at: Option<i64>,
    counts: Counts,
    row_failures: LogThrottle,
    file_failures: LogThrottle,
    too_large: LogThrottle,
}

impl Rounds {
    pub(super) fn new(parts: RoundParts) -> Self {
        Self {
            parts,
            position: RowPosition::default(),
            known: HashMap::new(),
            dirty: BTreeSet::new(),
            failed: BTreeSet::new(),
            has_taken_over: false,
            next_version: None,
            read_at: None,
            began_at: None,
            upkept_at: None,
            counts: Counts::default(),
            row_failures: LogThrottle::new(LOG_INTERVAL),
            file_failures: LogThrottle::new(LOG_INTERVAL),
            too_large: LogThrottle::new(LOG_INTERVAL),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Data here that may differ from its row.
    pub(super) fn pending(&self) -> usize {
        self.dirty.len()
    }

    /// Rows that are no files here.
    pub(super) fn failed(&self) -> usize {
        self.failed.len()
    }

    /// Whether all that others wrote before this member became active is here.
    pub(super) fn has_taken_over(&self) -> bool {
        self.has_taken_over
    }

    /// One round, or what can be done of it until `is_ending`. What it did before an error stays done, and the next
    /// one goes on.
    ///
    /// # Errors
    /// The table does not answer, or a directory cannot be listed.
    pub(super) fn round(&mut self, standing: Standing, is_ending: &dyn Fn() -> bool) -> Result<()> {
        if !self.failed.is_empty() && self.is_over(self.began_at, RETRY_INTERVAL) {
            self.begin_reading();
        }
        let is_due = !self.has_taken_over || self.is_over(self.read_at, CHECK_INTERVAL);
        if is_due && !self.pull(is_ending)? {
            return Ok(());
        }
        if !standing.is_active {
            return Ok(());
        }
        let has_just_taken_over = !self.has_taken_over;
        self.has_taken_over = true;
        if has_just_taken_over && !standing.is_last {
            // Somebody waits for it, and to compare all files takes longer.
            return Ok(());
        }
        for name in self.parts.store.take_changed() {
            self.failed.remove(&name);
            self.dirty.insert(name);
        }
        if self.is_over(self.upkept_at, UPKEEP_INTERVAL) {
            for kind in self.parts.kinds.clone() {
                let minions = self.parts.store.minions_with(kind)?;
                let names = minions.into_iter().map(|minion| DataName { kind, minion });
                let names = names.filter(|name| !self.failed.contains(name));
                self.dirty.extend(names);
            }
            self.upkept_at = Some(self.parts.clock.unix_micros());
            self.parts.table.expire(TOMBSTONE_AGE)?;
        }
        self.push(standing, is_ending)
    }

    fn is_over(&self, since: Option<i64>, interval: i64) -> bool {
        let now = self.parts.clock.unix_micros();
        since.is_none_or(|since| now.abs_diff(since) >= interval.unsigned_abs())
    }

    /// Reads the whole table once more.
    fn begin_reading(&mut self) {
        self.position = RowPosition::default();
        self.known.clear();
        self.read_at = None;
        // What the table lacks is to be found.
        self.upkept_at = None;
    }

    /// Reads what was changed, and makes the files so; whether all of it was read.
    fn pull(&mut self, is_ending: &dyn Fn() -> bool) -> Result<bool> {
        let mut has_gone_back = false;
        loop {
            if self.position == RowPosition::default() {
                self.began_at = Some(self.parts.clock.unix_micros());
            }
            let page = self.parts.table.changed_after(&self.position)?;
            if self.position.is_ahead_of(&page) {
                if has_gone_back {
                    return Err(StoreError::RowsGoBack);
                }
                has_gone_back = true;
                self.begin_reading();
                continue;
            }
            for (revision, sealed) in &page.rows {
                self.take(sealed);
                self.position = RowPosition::of(*revision, sealed);
            }
            if page.is_last {
                self.read_at = Some(self.parts.clock.unix_micros());
                return Ok(true);
            }
            if is_ending() {
                return Ok(false);
            }
        }
    }

    fn refuse(&mut self, reason: &str) {
        self.counts.refused += 1;
        if let Some(times) = self.row_failures.record() {
            tracing::warn!(reason, times, "a row of a minion's data is not used");
        }
    }

    fn log_file_failure(&self, error: &StoreError) {
        if let Some(times) = self.file_failures.record() {
            let error = chain(error);
            tracing::warn!(
                error,
                times,
                "grains or a mine are not shared with the cluster"
            );
        }
    }

    /// Takes a row over.
    fn take(&mut self, sealed: &SealedRow) {
        let content = match row::open_kind(&self.parts.cipher, sealed) {
            Ok(content) => content,
            Err(error) => return self.refuse(&error.to_string()),
        };
        let mut kinds = [DataKind::Grains, DataKind::Mine].into_iter();
        let kind = kinds.find(|kind| number_of(*kind) == content.kind);
        let (Some(kind), Ok(minion)) = (kind, MinionId::parse(&content.name)) else {
            return self.refuse(&RowError::Unknown.to_string());
        };
        if !self.parts.kinds.contains(&kind) {
            return;
        }
        let name = DataName { kind, minion };
        let known = self.known.get(&name).copied();
        if known.is_some_and(|known| sealed.version < known.version) {
            return self.refuse("it is older than the one that was there");
        }
        // What this member has written as the active one counts, whatever is read later.
        if !self.has_taken_over || self.failed.contains(&name) {
            // A row that follows one that was seen is newer than any file here.
            let newest = match known {
                Some(_) => None,
                None => Some(content.modified.saturating_add(CLOCKS_DIFFER)),
            };
            match self.parts.store.replace(&name, (&content.content, newest)) {
                Ok(replaced) => {
                    self.failed.remove(&name);
                    self.counts.applied += u64::from(replaced == ReplacedData::Written);
                }
                Err(error) => {
                    self.log_file_failure(&error);
                    self.failed.insert(name.clone());
                }
            }
        }
        self.note(name, (sealed.version, &content.content), 0);
    }

    /// Remembers what the table has.
    fn note(&mut self, name: DataName, (version, content): (i64, &[u8]), written: i64) {
        if content.is_empty() {
            self.known.remove(&name);
            return;
        }
        let known = Known {
            version,
            digest: digest(content),
            written,
        };
        self.known.insert(name, known);
    }

    /// Writes what differs from its row.
    fn push(&mut self, standing: Standing, is_ending: &dyn Fn() -> bool) -> Result<()> {
        let mut writes = 0;
        loop {
            let left = self.dirty.len();
            let batch = self.next_batch(standing)?;
            if !batch.is_empty() {
                if !self.write(batch)? {
                    // Another member is active, and this process is about to end.
                    return Ok(());
                }
                writes += 1;
            }
            let has_done_all = self.dirty.len() == left;
            let is_enough = writes == MAX_WRITES || is_ending();
            if has_done_all || (is_enough && !standing.is_last) {
                return Ok(());
            }
        }
    }

    /// Writes rows; whether this member is the active one.
    fn write(&mut self, batch: Vec<Change>) -> Result<bool> {
        let rows: Vec<DataWrite> = batch.iter().map(|change| change.write.clone()).collect();
        let Some(revision) = self.parts.table.write(&rows)? else {
            return Ok(false);
        };
        self.position = self.position.max(RowPosition::behind(revision));
        self.counts.written += batch.len() as u64;
        let now = self.parts.clock.unix_micros();
        for change in batch {
            self.dirty.remove(&change.name);
            let version = change.write.row.version;
            self.note(change.name, (version, &change.content), now);
        }
        Ok(true)
    }

    /// The next rows to be written, with their contents.
    fn next_batch(&mut self, standing: Standing) -> Result<Vec<Change>> {
        let now = self.parts.clock.unix_micros();
        let (mut batch, mut done, mut bytes) = (Vec::new(), Vec::new(), 0);
        for name in &self.dirty {
            if batch.len() == MAX_ROWS || done.len() == MAX_LOOKS {
                break;
            }
            let known = self.known.get(name);
            let is_early = known.is_some_and(|known| {
                known.written > 0 && now.abs_diff(known.written) < WRITE_INTERVAL.unsigned_abs()
            });
            if is_early && !standing.is_last {
                continue;
            }
            let content = match self.parts.store.packed(name) {
                Ok(content) => content,
                Err(error) => {
                    // When it is written the next time.
                    self.log_file_failure(&error);
                    done.push(name.clone());
                    continue;
                }
            };
            if content.len() > MAX_DATA_LEN {
                self.counts.too_large += 1;
                if let Some(times) = self.too_large.record() {
                    let (minion, bytes) = (&name.minion, content.len());
                    tracing::warn!(
                        %minion, bytes, times,
                        "grains or a mine are too large to be shared with the cluster"
                    );
                }
                done.push(name.clone());
                continue;
            }
            let is_same = match known {
                Some(known) => !content.is_empty() && known.digest == digest(&content),
                None => content.is_empty(),
            };
            if is_same {
                done.push(name.clone());
                continue;
            }
            bytes += content.len();
            if bytes > MAX_WRITE_LEN && !batch.is_empty() {
                break;
            }
            let version = match self.next_version {
                Some(version) => version,
                None => self.parts.table.first_version()?,
            };
            self.next_version = Some(version + 1);
            let row = row::seal_kind(
                &self.parts.cipher,
                (number_of(name.kind), name.minion.as_str()),
                // That of the row, not of the file: no member has had it before.
                (now, &content),
                version,
            );
            let row = row.map_err(StoreError::Sealed)?;
            let is_tombstone = content.is_empty();
            batch.push(Change {
                name: name.clone(),
                content,
                write: DataWrite { row, is_tombstone },
            });
        }
        for name in &done {
            self.dirty.remove(name);
        }
        Ok(batch)
    }
}

fn digest(content: &[u8]) -> Digest {
    let mut digest = Digest::default();
    let whole = sha256(content);
    let length = digest.len();
    digest.copy_from_slice(whole.split_at(length).0);
    digest
}
