//! A round of one member: reads what the others changed, makes its files so, and writes what was changed here.
//!
//! One of these holds of each minion: its files are as the row that was seen last, or a change of this machine
//! waits to be written, or the row is older than one that was seen and is to be replaced, or this member has
//! joined and nobody knows its key.
//!
//! Long, as all steps of a round change one state; reading and writing the table are in files of their own.

mod pull;
mod push;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use saltern_base::chain;
use saltern_base::clock::Clock;
use saltern_base::log_throttle::LogThrottle;
use saltern_crypto::StateCipher;
use saltern_model::{KeyState, MinionId};

use super::memory::Memory;
use super::record::Digests;
use super::refusal::Refusal;
use super::scan::Scanner;
use super::{KIND, KeyTable, MARKER, TOMBSTONE_AGE};
use crate::PkiTree;
use crate::error::{Result, StoreError};
use crate::shared_state::mass_loss::MassLoss;
use crate::shared_state::{RowId, RowPosition, row};

/// Microseconds between two readings of the whole table, which finds rows that somebody removed.
const READ_INTERVAL: i64 = 3_600_000_000;

/// The same, when a row could not be used for want of the disk.
const RETRY_INTERVAL: i64 = 5_000_000;

/// Microseconds between two looks at all files.
const SCAN_INTERVAL: i64 = 30_000_000;

/// Microseconds between two removals of rows of deleted minions.
const EXPIRE_INTERVAL: i64 = 3_600_000_000;

/// Microseconds for which a member that joins waits for the row of a key that only it has: another one, with
/// the same directory, may be about to write it.
const UNKNOWN_WAIT: i64 = 5_000_000;

/// Microseconds that a row of a minion that was never seen may be older than the last round: clocks differ.
const MAX_ROW_AGE: i64 = 24 * 3_600_000_000;

/// The file by which an operator confirms that many accepted keys go at once.
const CONFIRMATION: &str = "confirm_lost_keys";

/// Minions named in the log when their keys count no longer.
const MAX_NAMED: usize = 50;

/// Minimum time between two log lines about rows or files that cannot be used.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A member's standing during a round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    pub(super) is_active: bool,
    /// It has just become the active one, and its ports are closed: there is no other time to wait for.
    pub(super) takes_over: bool,
}

/// Numbers of all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) published: u64,
    pub(super) applied: u64,
    pub(super) conflicts: u64,
    pub(super) refused: u64,
}

impl Counts {
    /// In the order of the counters of a member.
    pub(super) const fn all(&self) -> [u64; 4] {
        [self.published, self.applied, self.conflicts, self.refused]
    }
}

/// A member's part of the table.
pub(super) struct Rounds {
    table: Arc<dyn KeyTable>,
    cipher: Arc<StateCipher>,
    tree: Arc<PkiTree>,
    /// The master's own public key, which its directory has.
    master_key: String,
    /// Many keys do not go at once.
    mass_loss: MassLoss,
    clock: Clock,
    /// Time after which a missing file is looked for once more: stock's `salt-key` removes a key here before it
    /// writes it there.
    settle: Duration,
    memory: Memory,
    refusal: Refusal,
    /// The time of the table when rows were read last, by its clock.
    table_now: i64,
    scanner: Scanner,
    position: RowPosition,
    /// While the whole table is read.
    reading: Option<Reading>,
    read_at: Option<i64>,
    scanned_at: Option<i64>,
    expired_at: Option<i64>,
    must_read: bool,
    /// A statement failed: the next one may meet another server, which lost commits in a failover.
    has_failed: bool,
    is_founded: bool,
    /// Minions whose files may differ from their row.
    candidates: HashSet<MinionId>,
    /// Rows that are older than what was seen, with their version; 0 for one that is gone.
    older: HashMap<MinionId, i64>,
    /// Minions that are accepted here and that nobody else knows, since when.
    unknown: HashMap<MinionId, i64>,
    /// Minions whose last write found another row.
    collided: HashSet<MinionId>,
    /// Minions whose row could not be made files; whether an accepted key is to go by it.
    failed: HashMap<MinionId, bool>,
    /// Accepted keys that would go unless somebody confirms it.
    held_back: usize,
    /// Minions whose accepted key was made pending since the last log line.
    made_pending: BTreeSet<MinionId>,
    /// Minions whose files are not surely on the disk yet.
    unsynced: HashSet<MinionId>,
    /// An accepted key was taken away here by another member since somebody asked.
    has_revoked: bool,
    counts: Counts,
    row_failures: LogThrottle,
    file_failures: LogThrottle,
}

#[derive(Default)]
struct Reading {
    seen: HashSet<MinionId>,
    has_marker: bool,
}

impl Rounds {
    pub(super) fn new(
        table: Arc<dyn KeyTable>,
        cipher: Arc<StateCipher>,
        (tree, master_key, cachedir): (Arc<PkiTree>, &str, &Path),
        (clock, settle): (Clock, Duration),
    ) -> Result<Self> {
        let memory = Memory::load(cachedir, &cipher)?;
        let refusal = Refusal::load(cachedir)?;
        Ok(Self {
            candidates: memory.ids().cloned().collect(),
            scanner: Scanner::new(tree.clone()),
            table,
            cipher,
            tree,
            master_key: master_key.to_owned(),
            mass_loss: MassLoss::new(cachedir, CONFIRMATION),
            clock,
            settle,
            memory,
            refusal,
            table_now: 0,
            position: RowPosition::default(),
            reading: None,
            read_at: None,
            scanned_at: None,
            expired_at: None,
            must_read: false,
            has_failed: false,
            is_founded: false,
            older: HashMap::new(),
            unknown: HashMap::new(),
            collided: HashSet::new(),
            failed: HashMap::new(),
            held_back: 0,
            made_pending: BTreeSet::new(),
            unsynced: HashSet::new(),
            has_revoked: false,
            counts: Counts::default(),
            row_failures: LogThrottle::new(LOG_INTERVAL),
            file_failures: LogThrottle::new(LOG_INTERVAL),
        })
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Minions whose keys the table does not have as they are here.
    pub(super) fn pending(&self) -> usize {
        let failed = (self.failed.keys()).filter(|id| !self.candidates.contains(*id));
        (self.candidates.len() + failed.count()).max(self.held_back)
    }

    /// Whether all rows that were read are files here.
    pub(super) fn is_complete(&self) -> bool {
        self.failed.is_empty()
    }

    /// Why it does not share its keys as it should, if it does not.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.text()
    }

    /// Minions that were accepted here only, and wait for somebody to accept them.
    pub(super) fn demoted(&self) -> usize {
        self.memory.demoted.len()
    }

    /// Whether an accepted key was taken away here by another member since it was cleared.
    pub(super) fn has_revoked(&self) -> bool {
        self.has_revoked
    }

    /// A new shared key was asked for.
    pub(super) fn clear_revoked(&mut self) {
        self.has_revoked = false;
    }

    /// One round. What it did before an error stays done, and the next one goes on.
    ///
    /// # Errors
    /// The table does not answer, or a directory or the memory of this member cannot be read or written.
    pub(super) fn round(&mut self, standing: Standing) -> Result<()> {
        self.held_back = 0;
        let done = self.steps(standing);
        if done.is_ok() {
            self.mass_loss.end();
        }
        if done.is_ok() && self.memory.is_joined {
            if self.is_complete() {
                self.memory.synced = self.table_now;
            }
            let scanner = &self.scanner;
            self.memory.retain_demoted(|id| {
                let keys = scanner.keys(id).unwrap_or_default();
                keys.get(KeyState::Pending).is_some() && keys.get(KeyState::Accepted).is_none()
            });
        }
        match self.incomplete() {
            Some(error) if done.is_ok() => self.refusal.note(&Err(error)),
            _ => self.refusal.note(&done),
        }
        done.and(self.save())
    }

    /// Why not all rows that were read are files here: what a takeover is refused for counts first.
    fn incomplete(&self) -> Option<StoreError> {
        let takes_away = self.failed.values().filter(|takes_away| **takes_away);
        match (takes_away.count(), self.failed.len()) {
            (0, 0) => None,
            (0, minions) => Some(StoreError::KeysNotWritten { minions }),
            (minions, _) => Some(StoreError::KeysNotTakenAway { minions }),
        }
    }

    fn steps(&mut self, standing: Standing) -> Result<()> {
        self.require_directory()?;
        if !self.memory.is_joined {
            let Some(rows) = self.survey()? else {
                return match standing.is_active {
                    true => self.found(),
                    false => Ok(()),
                };
            };
            self.require_known_keys(&rows)?;
            self.begin_reading();
        } else if self.has_failed || (self.reading.is_none() && self.is_reading_due(standing)) {
            self.begin_reading();
        }
        self.pull()?;
        if !self.memory.is_joined {
            return Ok(());
        }
        if standing.takes_over
            && let Some(error @ StoreError::KeysNotTakenAway { .. }) = self.incomplete()
        {
            return Err(error);
        }
        // A key that is a file and not in the memory would be one that somebody accepted here since.
        self.save()?;
        if !self.is_founded && standing.is_active && self.is_outdated() {
            self.memory.clear();
            return self.found();
        }
        self.scan()?;
        self.demote(standing)?;
        self.push()?;
        if standing.is_active {
            if !self.is_founded {
                self.write_marker()?;
            }
            self.expire()?;
        }
        Ok(())
    }

    /// A directory without the key of this master is not the one that this member had: that of a file system
    /// that is not mounted has no keys at all, or those that another start has made in its place.
    fn require_directory(&self) -> Result<()> {
        if self.tree.is_of_master(&self.master_key)? {
            return Ok(());
        }
        let path = self.tree.master_public_files().first();
        Err(StoreError::Missing {
            path: path.cloned().unwrap_or_default(),
            reason: "or it is not the public key of this master, so the directory is taken for another one, and no \
                     keys are compared",
        })
    }

    /// Refuses a join that takes away many keys that are accepted here: the cluster may have been founded with the
    /// wrong ones, or this member is of another one.
    fn require_known_keys(&mut self, rows: &HashMap<MinionId, Digests>) -> Result<()> {
        self.scanner.scan(true)?;
        let (mut lost, mut accepted) = (0, 0);
        for id in self.scanner.ids() {
            let own = self.scanner.keys(id).unwrap_or_default();
            let row = rows.get(id).copied().unwrap_or_default();
            if let Some(own) = own.get(KeyState::Accepted) {
                accepted += 1;
                lost += usize::from(row.get(KeyState::Accepted) != Some(own));
            }
        }
        self.require_few(
            (lost, accepted),
            "of this machine are not accepted in the cluster that it joins, and would be no longer accepted here",
        )
    }

    /// Refuses to go on when more of the accepted keys go at once than may, unless an operator has confirmed it.
    fn require_few(
        &mut self,
        (lost, accepted): (usize, usize),
        reason: &'static str,
    ) -> Result<()> {
        if self.mass_loss.allows((lost, accepted))? {
            return Ok(());
        }
        self.held_back = lost;
        Err(StoreError::TooManyKeysLost {
            lost,
            accepted,
            reason,
            confirmation: self.mass_loss.confirmation().to_owned(),
        })
    }

    fn is_over(&self, since: Option<i64>, interval: i64) -> bool {
        let now = self.clock.unix_micros();
        since.is_none_or(|since| now.abs_diff(since) >= interval.unsigned_abs())
    }

    fn is_reading_due(&self, standing: Standing) -> bool {
        let interval = match self.must_read {
            true if standing.takes_over => 0,
            true => RETRY_INTERVAL,
            false => READ_INTERVAL,
        };
        self.is_over(self.read_at, interval)
    }

    /// Whether rows of deleted minions may be gone that this member has not seen. They expire by the clock of the
    /// table, so that of this machine does not count.
    fn is_outdated(&self) -> bool {
        let age = i64::try_from(TOMBSTONE_AGE.as_micros()).unwrap_or(i64::MAX) - MAX_ROW_AGE;
        self.table_now.saturating_sub(self.memory.synced) >= age
    }

    fn begin_reading(&mut self) {
        self.position = RowPosition::default();
        self.reading = Some(Reading::default());
        self.must_read = false;
        self.has_failed = false;
    }

    fn marker(&self) -> RowId {
        row::row_id(&self.cipher, KIND, MARKER)
    }

    fn scan(&mut self) -> Result<()> {
        let is_full = self.is_over(self.scanned_at, SCAN_INTERVAL);
        self.scanner.scan(is_full)?;
        if is_full {
            self.scanned_at = Some(self.clock.unix_micros());
        }
        self.candidates.extend(self.scanner.take_changed());
        let lost = |id: &&MinionId| {
            let (known, now) = (self.memory.get(id).keys, self.scanner.keys(id));
            let has_lost = |state| {
                known.get(state).is_some() && now.is_some_and(|now| now.get(state).is_none())
            };
            KeyState::ALL.into_iter().any(has_lost)
        };
        let lost: Vec<MinionId> = self.candidates.iter().filter(lost).cloned().collect();
        if !lost.is_empty() {
            thread::sleep(self.settle);
            for id in &lost {
                self.scanner.look_at(id);
            }
        }
        self.require_directory()
    }

    /// Makes keys pending that were accepted on this machine before it joined, and that no other member knows.
    fn demote(&mut self, standing: Standing) -> Result<()> {
        let now = self.clock.unix_micros();
        let is_over =
            |since: i64| standing.takes_over || now.abs_diff(since) >= UNKNOWN_WAIT.unsigned_abs();
        let due = self.unknown.iter().filter(|(_, since)| is_over(**since));
        let due: Vec<MinionId> = due.map(|(id, _)| id.clone()).collect();
        let mut failure = None;
        for id in &due {
            let moved = self.tree.move_to(id, KeyState::Accepted, KeyState::Pending);
            let moved = match moved {
                Ok(moved) => moved,
                Err(error) => {
                    self.failed.insert(id.clone(), true);
                    failure = Some(error);
                    continue;
                }
            };
            self.failed.remove(id);
            self.unknown.remove(id);
            self.scanner.look_at(id);
            self.candidates.insert(id.clone());
            if moved {
                self.unsynced.insert(id.clone());
                self.memory.demote(id);
                self.has_revoked = true;
                self.made_pending.insert(id.clone());
            }
        }
        let made_pending = std::mem::take(&mut self.made_pending);
        if !made_pending.is_empty() {
            let minions = made_pending.len();
            let named = made_pending.iter().map(MinionId::as_str);
            let named: Vec<&str> = named.take(MAX_NAMED).collect();
            let named = named.join(", ");
            tracing::warn!(
                minions,
                named,
                "keys that were accepted on this machine only are pending now: accept those that are right \
                 (salt-key -a)"
            );
        }
        match failure {
            Some(error) if standing.takes_over => Err(error),
            Some(error) => {
                self.log_file_failure(&error);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Logs that a file of one minion cannot be read or written, which concerns no other one.
    fn log_file_failure(&mut self, error: &StoreError) {
        if let Some(times) = self.file_failures.record() {
            let error = chain(error);
            tracing::warn!(
                error,
                times,
                "a minion's key is not shared with the cluster"
            );
        }
    }

    /// Gives the table the keys of this machine, which are those of the cluster from then on.
    fn found(&mut self) -> Result<()> {
        self.scanner.scan(true)?;
        let ids: HashSet<MinionId> = self.scanner.ids().cloned().collect();
        let is_accepted = |id| {
            let keys = self.scanner.keys(id).unwrap_or_default();
            keys.admitted().is_some()
        };
        if !ids.iter().any(is_accepted) {
            // Whoever has some first. Anybody can cause a pending one.
            return Ok(());
        }
        self.table.clear_unless(&self.marker())?;
        self.memory.clear();
        self.older.clear();
        self.unknown.clear();
        self.candidates = ids;
        let minions = self.candidates.len();
        while self.candidates.iter().any(|id| self.is_to_be_written(id)) {
            let before = self.counts.published;
            self.push()?;
            if self.counts.published == before {
                // Another member writes, too.
                return Ok(());
            }
        }
        self.write_marker()?;
        self.memory.is_joined = true;
        self.read_at = Some(self.clock.unix_micros());
        tracing::info!(minions, "the keys of this machine are those of the cluster");
        Ok(())
    }

    fn is_to_be_written(&self, id: &MinionId) -> bool {
        let keys = self.scanner.keys(id);
        keys.is_some_and(|keys| keys != self.memory.get(id).keys)
    }

    fn expire(&mut self) -> Result<()> {
        if !self.is_over(self.expired_at, EXPIRE_INTERVAL) {
            return Ok(());
        }
        let rows = self.table.expire(TOMBSTONE_AGE)?;
        self.expired_at = Some(self.clock.unix_micros());
        if rows > 0 {
            tracing::debug!(rows, "rows of deleted minions are removed");
        }
        Ok(())
    }

    /// The files first: a key that is remembered and not there was deleted.
    fn save(&mut self) -> Result<()> {
        // After a restart they would be keys that somebody accepted here since.
        if !self.unknown.is_empty() {
            return Ok(());
        }
        match self.memory.is_due(self.clock.unix_micros()) {
            true => self.save_now(),
            false => Ok(()),
        }
    }

    /// Saves what is not saved yet: after the last round.
    ///
    /// # Errors
    /// The memory of this member cannot be written.
    pub(super) fn finish(&mut self) -> Result<()> {
        match self.unknown.is_empty() && self.memory.is_unsaved() {
            true => self.save_now(),
            false => Ok(()),
        }
    }

    fn save_now(&mut self) -> Result<()> {
        let unsynced: Vec<MinionId> = self.unsynced.iter().cloned().collect();
        self.tree.sync_keys(&unsynced)?;
        self.unsynced.clear();
        self.memory.save(self.clock.unix_micros())
    }
}
