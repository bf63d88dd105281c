//! A round of one member: reads what the others changed, makes its files so, and writes what was changed here.
//!
//! One of these holds of each minion: its files are as the row that was seen last, or a change of this machine
//! waits to be written, or the row is older than one that was seen and is to be replaced, or this member has
//! joined and nobody knows its key.

mod pull;
mod push;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_base::log_throttle::LogThrottle;
use saltern_crypto::StateCipher;
use saltern_model::{KeyState, MinionId};

use super::memory::Memory;
use super::scan::Scanner;
use super::{KIND, KeyPosition, KeyTable, MARKER, TOMBSTONE_AGE};
use crate::PkiTree;
use crate::error::{Result, StoreError};
use crate::shared_state::{RowId, row};

/// Microseconds between two readings of the whole table, which finds rows that somebody removed.
const READ_INTERVAL: i64 = 3_600_000_000;

/// The same, when a row could not be used for want of the disk.
const RETRY_INTERVAL: i64 = 5_000_000;

/// Microseconds between two looks at all files.
const SCAN_INTERVAL: i64 = 30_000_000;

/// Microseconds between two removals of rows of deleted minions.
const EXPIRE_INTERVAL: i64 = 3_600_000_000;

/// Microseconds between two writes of an unchanged memory, whose time counts.
const SAVE_INTERVAL: i64 = 3_600_000_000;

/// Microseconds for which a member that joins waits for the row of a key that only it has: another one, with
/// the same directory, may be about to write it.
const UNKNOWN_WAIT: i64 = 5_000_000;

/// Microseconds that a row of a minion that was never seen may be older than the last round: clocks differ.
const MAX_ROW_AGE: i64 = 24 * 3_600_000_000;

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

/// A member's part of the table.
pub(super) struct Rounds {
    table: Arc<dyn KeyTable>,
    cipher: Arc<StateCipher>,
    tree: Arc<PkiTree>,
    clock: Clock,
    /// Time after which a missing file is looked for once more: stock's `salt-key` removes a key here before it
    /// writes it there.
    settle: Duration,
    memory: Memory,
    scanner: Scanner,
    position: KeyPosition,
    /// While the whole table is read.
    reading: Option<Reading>,
    read_at: Option<i64>,
    scanned_at: Option<i64>,
    expired_at: Option<i64>,
    must_read: bool,
    is_founded: bool,
    /// Minions whose files may differ from their row.
    candidates: HashSet<MinionId>,
    /// Rows that are older than what was seen, with their version; 0 for one that is gone.
    older: HashMap<MinionId, i64>,
    /// Minions that are accepted here and that nobody else knows, since when.
    unknown: HashMap<MinionId, i64>,
    /// Minions whose last write found another row.
    collided: HashSet<MinionId>,
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
        (tree, cachedir): (Arc<PkiTree>, &Path),
        (clock, settle): (Clock, Duration),
    ) -> Result<Self> {
        let memory = Memory::load(cachedir, &cipher)?;
        Ok(Self {
            candidates: memory.ids().cloned().collect(),
            scanner: Scanner::new(tree.clone()),
            table,
            cipher,
            tree,
            clock,
            settle,
            memory,
            position: KeyPosition::default(),
            reading: None,
            read_at: None,
            scanned_at: None,
            expired_at: None,
            must_read: false,
            is_founded: false,
            older: HashMap::new(),
            unknown: HashMap::new(),
            collided: HashSet::new(),
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
        self.candidates.len()
    }

    /// Minions that were accepted here only, and wait for somebody to accept them.
    pub(super) fn demoted(&self) -> usize {
        self.memory.demoted.len()
    }

    /// Whether an accepted key was taken away here by another member since the last call.
    pub(super) fn take_revoked(&mut self) -> bool {
        std::mem::take(&mut self.has_revoked)
    }

    /// One round. What it did before an error stays done, and the next one goes on.
    ///
    /// # Errors
    /// The table does not answer, or a directory or the memory of this member cannot be read or written.
    pub(super) fn round(&mut self, standing: Standing) -> Result<()> {
        let done = self.steps(standing);
        if done.is_ok() && self.memory.is_joined {
            self.memory.synced = self.clock.unix_micros();
            let scanner = &self.scanner;
            self.memory.retain_demoted(|id| {
                let keys = scanner.keys(id).unwrap_or_default();
                keys.get(KeyState::Pending).is_some() && keys.get(KeyState::Accepted).is_none()
            });
        }
        done.and(self.save())
    }

    fn steps(&mut self, standing: Standing) -> Result<()> {
        self.require_directory()?;
        if !self.memory.is_joined {
            if !self.has_marker()? {
                return match standing.is_active {
                    true => self.found(),
                    false => Ok(()),
                };
            }
            self.begin_reading();
        } else if self.reading.is_none() && self.is_reading_due() {
            self.begin_reading();
        }
        self.pull()?;
        if !self.memory.is_joined {
            return Ok(());
        }
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

    /// A directory without the key of the master is not the one that this member had: that of a file system
    /// that is not mounted has no keys at all.
    fn require_directory(&self) -> Result<()> {
        let path = self.tree.master_key_file();
        match path.exists() {
            true => Ok(()),
            false => Err(StoreError::Missing {
                path,
                reason: "without it the directory is taken for another one, and no keys are compared",
            }),
        }
    }

    fn is_over(&self, since: Option<i64>, interval: i64) -> bool {
        let now = self.clock.unix_micros();
        since.is_none_or(|since| now.abs_diff(since) >= interval.unsigned_abs())
    }

    fn is_reading_due(&self) -> bool {
        let interval = match self.must_read {
            true => RETRY_INTERVAL,
            false => READ_INTERVAL,
        };
        self.is_over(self.read_at, interval)
    }

    /// Whether rows of deleted minions may be gone that this member has not seen.
    fn is_outdated(&self) -> bool {
        let age = i64::try_from(TOMBSTONE_AGE.as_micros()).unwrap_or(i64::MAX) - MAX_ROW_AGE;
        self.clock.unix_micros().saturating_sub(self.memory.synced) >= age
    }

    fn begin_reading(&mut self) {
        self.position = KeyPosition::default();
        self.reading = Some(Reading::default());
        self.must_read = false;
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
                self.scanner.look_at(id)?;
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
        let mut named = Vec::new();
        for id in &due {
            let moved = self
                .tree
                .move_to(id, KeyState::Accepted, KeyState::Pending)?;
            self.unknown.remove(id);
            self.scanner.look_at(id)?;
            self.candidates.insert(id.clone());
            if moved {
                self.unsynced.insert(id.clone());
                self.memory.demote(id);
                self.has_revoked = true;
                named.push(id.as_str());
            }
        }
        if !named.is_empty() {
            let minions = named.len();
            named.sort_unstable();
            named.truncate(MAX_NAMED);
            let named = named.join(", ");
            tracing::warn!(
                minions,
                named,
                "keys that were accepted on this machine only are pending now: accept those that are right \
                 (salt-key -a)"
            );
        }
        Ok(())
    }

    /// Gives the table the keys of this machine, which are those of the cluster from then on.
    fn found(&mut self) -> Result<()> {
        self.scanner.scan(true)?;
        let ids: HashSet<MinionId> = self.scanner.ids().cloned().collect();
        if ids.is_empty() {
            // Whoever has some first.
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
        if !self.memory.is_due(SAVE_INTERVAL) {
            return Ok(());
        }
        let unsynced: Vec<MinionId> = self.unsynced.iter().cloned().collect();
        self.tree.sync_keys(&unsynced)?;
        self.unsynced.clear();
        self.memory.save()
    }
}
