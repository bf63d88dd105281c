//! Rounds of one member: while it stands by, and once when it takes over, it reads what was changed and makes its files
//! so; while it is active it writes what was changed here.
//!
//! The table is the truth, but for files that are newer than the first row that is seen of them: this machine was
//! active without writing to the table, as under a release before, or was killed before it wrote. No row is written before the whole table was
//! read, so a takeover writes what the table lacks and nothing else.

mod forgotten;
mod push;
mod take;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use saltern_base::chain;
use saltern_base::clock::Clock;
use saltern_base::log_throttle::LogThrottle;
use saltern_crypto::StateCipher;
use saltern_model::MinionId;

use super::content::Writer;
use super::past::Past;
use super::{DataTable, DataWrite, KeyLookup, TOMBSTONE_AGE};
use crate::MinionDataStore;
use crate::error::{Result, StoreError};
use crate::minion_data::{DataKind, DataName, Forgotten};
use crate::shared_state::RowPosition;
use crate::shared_state::digest::{Digest, digest};
use crate::shared_state::mass_loss::MassLoss;
use forgotten::Forgetting;

/// The file by which an operator confirms that data of many minions without a key goes.
const CONFIRMATION: &str = "confirm_lost_data";

/// Microseconds between two writes of the same data.
pub(super) const WRITE_INTERVAL: i64 = 60_000_000;

/// Microseconds between two readings of what is behind, of the active member: only its own rows are to be there.
const CHECK_INTERVAL: i64 = 10_000_000;

/// Microseconds between two readings of the whole table, when a file could not be written.
pub(super) const RETRY_INTERVAL: i64 = 600_000_000;

/// Microseconds between two removals of old rows without content, and comparisons of all files.
const UPKEEP_INTERVAL: i64 = 3_600_000_000;

/// Microseconds that a file has to be newer than a row of another member to count: clocks of members differ.
const CLOCKS_DIFFER: i64 = 60_000_000;

/// Microseconds that a file may be older than a row of this member: the kernel stamps files with a clock that ticks.
const TICK: i64 = 50_000;

/// Bytes of the rows of one write, unless one alone has more.
const MAX_WRITE_LEN: usize = 1 << 20;

/// Writes of one round: jobs are committed beside them.
const MAX_WRITES: usize = 4;

/// Microseconds for which the last round goes on writing: the next active member waits for it.
const LAST_ROUND: i64 = 1_000_000;

/// Files that are looked at between two looks at whether it ends.
const MAX_LOOKS: usize = 1_024;

/// Minimum time between two log lines about rows or files that cannot be used.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A row as it was seen or written last, also of what was removed: one that is older was put back by somebody.
#[derive(Clone, Copy)]
struct Known {
    /// The highest that was seen.
    version: i64,
    /// That of the table's data now; `None` where it has none.
    digest: Option<Digest>,
    /// When this process wrote it, in microseconds since 1970; 0 when it did not.
    written: i64,
    /// When it was seen last.
    seen: i64,
}

/// A row that is about to be written.
struct Change {
    subject: Subject,
    write: DataWrite,
}

/// The subject of a row.
enum Subject {
    Data(DataName, Vec<u8>),
    Forgotten(MinionId, Forgotten),
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
    /// Files that are no data, when they were to be shared or replaced.
    pub(super) damaged: u64,
}

impl Counts {
    /// In the order of the counters of a member.
    pub(super) const fn all(&self) -> [u64; 5] {
        [
            self.written,
            self.applied,
            self.refused,
            self.too_large,
            self.damaged,
        ]
    }
}

/// A member's standing during a round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    pub(super) is_active: bool,
    /// It is the last round: nothing waits for its turn, and it is short.
    pub(super) is_last: bool,
}

/// Parts of [`Rounds`].
pub(super) struct RoundParts {
    pub(super) table: Arc<dyn DataTable>,
    pub(super) cipher: Arc<StateCipher>,
    pub(super) writer: Writer,
    pub(super) store: Arc<MinionDataStore>,
    pub(super) cachedir: PathBuf,
    /// The kinds that this member keeps.
    pub(super) kinds: Vec<DataKind>,
    /// `None` where data outlasts the key.
    pub(super) keys: Option<KeyLookup>,
    pub(super) clock: Clock,
}

/// A member between its rounds.
pub(super) struct Rounds {
    parts: RoundParts,
    position: RowPosition,
    known: HashMap<DataName, Known>,
    /// To be compared with its row, and written where it differs.
    dirty: BTreeSet<DataName>,
    /// Data that could not be read, which is tried again.
    unread: BTreeSet<DataName>,
    unread_at: Option<i64>,
    /// Data without rows that is forgotten.
    forgetting: Forgetting,
    past: Past,
    /// Another member was active since this one was.
    has_followed: bool,
    /// Rows that are no files here, for want of the disk or because the files are damaged, which say nothing against
    /// them.
    failed: BTreeSet<DataName>,
    /// The whole table was read since this member is active.
    has_taken_over: bool,
    next_version: Option<i64>,
    read_at: Option<i64>,
    began_at: Option<i64>,
    upkept_at: Option<i64>,
    pruned_at: Option<i64>,
    mass_loss: MassLoss,
    /// Minions without a key whose data stays, because they are many.
    held_back: usize,
    /// The directory of the keys is not this master's, so nothing is removed for want of one.
    are_keys_lost: bool,
    counts: Counts,
    row_failures: LogThrottle,
    file_failures: LogThrottle,
    too_large: LogThrottle,
}

impl Rounds {
    pub(super) fn new(parts: RoundParts) -> Self {
        parts.store.read_removals();
        let mass_loss = MassLoss::new(&parts.cachedir, CONFIRMATION);
        let past = Past::read(&parts.cachedir);
        Self {
            parts,
            position: RowPosition::default(),
            known: HashMap::new(),
            dirty: BTreeSet::new(),
            unread: BTreeSet::new(),
            unread_at: None,
            forgetting: Forgetting::default(),
            past,
            has_followed: false,
            failed: BTreeSet::new(),
            has_taken_over: false,
            next_version: None,
            read_at: None,
            began_at: None,
            upkept_at: None,
            pruned_at: None,
            mass_loss,
            held_back: 0,
            are_keys_lost: false,
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
        self.left() + self.unread.len()
    }

    /// The same, without what could not be read.
    fn left(&self) -> usize {
        self.dirty.len() + self.forgetting.to_write.len()
    }

    /// Rows that are no files here.
    pub(super) fn failed(&self) -> usize {
        self.failed.len() + self.forgetting.failed.len()
    }

    /// Minions whose data is held back, and the file by which an operator confirms that it goes.
    pub(super) fn held_back(&self) -> Option<(usize, &Path)> {
        (self.held_back > 0).then(|| (self.held_back, self.mass_loss.confirmation()))
    }

    /// Whether the directory of the keys is not this master's.
    pub(super) fn are_keys_lost(&self) -> bool {
        self.are_keys_lost
    }

    /// Whether all that others wrote before this member became active is here.
    pub(super) fn has_taken_over(&self) -> bool {
        self.has_taken_over
    }

    /// One round, or what can be done of it until `is_ending`. What it did before an error stays done, and the next
    /// one goes on.
    ///
    /// # Errors
    /// The table does not answer.
    pub(super) fn round(&mut self, standing: Standing, is_ending: &dyn Fn() -> bool) -> Result<()> {
        // The last one writes.
        let may_read = !(standing.is_last && self.has_taken_over);
        if may_read && !self.failed.is_empty() && self.is_over(self.began_at, RETRY_INTERVAL) {
            self.begin_reading();
        }
        if self.is_over(self.pruned_at, UPKEEP_INTERVAL) {
            self.prune();
        }
        let is_due = !self.has_taken_over || self.is_over(self.read_at, CHECK_INTERVAL);
        if may_read && is_due && !self.pull(is_ending)? {
            return Ok(());
        }
        if !standing.is_active {
            return Ok(());
        }
        let has_just_taken_over = !self.has_taken_over;
        self.has_taken_over = true;
        if has_just_taken_over {
            self.parts.store.end_merging();
            self.end_forgetting();
            let removed = self.parts.store.removed().into_iter();
            let kinds = &self.parts.kinds;
            self.dirty
                .extend(removed.filter(|name| kinds.contains(&name.kind)));
        }
        if has_just_taken_over && !standing.is_last {
            // Somebody waits for it, and to compare all files takes longer.
            return Ok(());
        }
        let interval = match self.held_back > 0 || self.are_keys_lost {
            false => UPKEEP_INTERVAL,
            true => RETRY_INTERVAL,
        };
        if !standing.is_last && self.is_over(self.upkept_at, interval) {
            self.compare_all(is_ending);
            self.upkept_at = Some(self.parts.clock.unix_micros());
            self.parts.table.expire(TOMBSTONE_AGE)?;
        }
        for (name, is_removed) in self.parts.store.take_changed() {
            if !self.parts.kinds.contains(&name.kind) {
                // A minion's mine may be removed although none is kept.
                self.parts.store.settle([name].into_iter());
                continue;
            }
            self.failed.remove(&name);
            self.unread.remove(&name);
            if is_removed && (self.has_row(&name) || !self.has_read_all()) {
                self.parts.store.note_removal(&name);
            }
            self.dirty.insert(name);
        }
        // Behind the changes, whose rows say whether the others have something of a minion.
        self.begin_forgetting();
        let is_due = standing.is_last || self.is_over(self.unread_at, CHECK_INTERVAL);
        if is_due && !self.unread.is_empty() {
            self.unread_at = Some(self.parts.clock.unix_micros());
            self.dirty.append(&mut self.unread);
        }
        self.push(standing, is_ending)
    }

    /// Has all files compared with their rows, and removes the data of minions that have no key any more: another
    /// process may have deleted it, or the rows came when its data had been removed.
    fn compare_all(&mut self, is_ending: &dyn Fn() -> bool) {
        let mut names = BTreeSet::new();
        for kind in self.parts.kinds.clone() {
            match self.parts.store.minions_with(kind) {
                Ok(minions) => {
                    names.extend(minions.into_iter().map(|minion| DataName { kind, minion }));
                }
                // The others go on.
                Err(error) => self.log_file_failure(&error),
            }
        }
        self.purge_keyless(&names, is_ending);
        names.retain(|name| !self.failed.contains(name));
        self.dirty.extend(names);
    }

    fn purge_keyless(&mut self, names: &BTreeSet<DataName>, is_ending: &dyn Fn() -> bool) {
        let Some(KeyLookup { has_key, are_here }) = &self.parts.keys else {
            return;
        };
        let mut are_lost = !are_here();
        let mut without = Vec::new();
        let mut all = 0;
        if !are_lost {
            let shared = self.known.keys().filter(|name| self.has_row(name));
            let minions = names.iter().chain(shared);
            let minions: BTreeSet<&MinionId> = minions.map(|name| &name.minion).collect();
            all = minions.len();
            let keyless = minions.into_iter().filter(|minion| !has_key(minion));
            let keyless: Vec<&MinionId> = keyless.take_while(|_| !is_ending()).collect();
            if is_ending() {
                // Of a part nobody knows whether it is too much.
                return;
            }
            // Once more: while it is accepted a key is in no directory for a moment.
            let keyless = keyless.into_iter().filter(|minion| !has_key(minion));
            without.extend(keyless.cloned());
            // It may have been lost meanwhile.
            are_lost = !are_here();
        }
        self.are_keys_lost = are_lost;
        match are_lost {
            false => self.purge_all((&without, all)),
            true => tracing::error!(
                "the directory of minions' keys is not that of this master: grains and mines without a key stay"
            ),
        }
    }

    /// Removes the data of minions without a key, unless that is most of what there is: the directory of the keys may
    /// be lost, or not mounted.
    fn purge_all(&mut self, (without, all): (&[MinionId], usize)) {
        let lost = without.len();
        let may_go = self.mass_loss.allows((lost, all)).unwrap_or_else(|error| {
            let error = chain(&error);
            tracing::error!(
                error,
                "the loss of many keys cannot be confirmed by this file"
            );
            false
        });
        self.held_back = match may_go {
            true => 0,
            false => lost,
        };
        if !may_go {
            let confirmation = self.mass_loss.confirmation().display();
            tracing::error!(
                lost, all, %confirmation,
                "many minions with grains or a mine have no key: they are not removed unless the file confirms it"
            );
            return;
        }
        for minion in without {
            if let Err(error) = self.parts.store.purge(minion) {
                let error = chain(&error);
                tracing::warn!(%minion, error, "grains and a mine without a key cannot be removed");
            }
        }
        self.mass_loss.end();
    }

    fn is_over(&self, since: Option<i64>, interval: i64) -> bool {
        let now = self.parts.clock.unix_micros();
        since.is_none_or(|since| now.abs_diff(since) >= interval.unsigned_abs())
    }

    /// Whether the table has data of that name.
    fn has_row(&self, name: &DataName) -> bool {
        let known = self.known.get(name);
        known.is_some_and(|known| known.digest.is_some())
    }

    /// Whether the table was read to its end. Until then nobody knows that it lacks a row.
    fn has_read_all(&self) -> bool {
        self.read_at.is_some()
    }

    /// Forgets rows that the table has no longer, either.
    fn prune(&mut self) {
        let now = self.parts.clock.unix_micros();
        let age = |known: &Known| u128::from(now.abs_diff(known.seen));
        self.known
            .retain(|_, known| known.digest.is_some() || age(known) < TOMBSTONE_AGE.as_micros());
        self.forgetting.written.clear();
        self.pruned_at = Some(now);
    }

    /// Reads the whole table once more. What was seen stays known.
    fn begin_reading(&mut self) {
        self.position = RowPosition::default();
        for known in self.known.values_mut() {
            known.digest = None;
        }
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
                // Its versions count from an earlier time.
                self.known.clear();
                continue;
            }
            if self.position == RowPosition::default() {
                self.past.note_head(page.head);
                if self.has_taken_over {
                    self.note_active();
                }
            }
            for (revision, sealed) in &page.rows {
                self.take(sealed);
                self.position = RowPosition::of(*revision, sealed);
            }
            if page.is_last {
                self.read_at = Some(self.parts.clock.unix_micros());
                self.note_read(page.head);
                return Ok(true);
            }
            if is_ending() {
                return Ok(false);
            }
        }
    }
}

/// The digest of data; `None` of none.
fn digest_of(content: &[u8]) -> Option<Digest> {
    (!content.is_empty()).then(|| digest(content))
}
