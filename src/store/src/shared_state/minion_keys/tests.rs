//! Members with directories of their own over a table in memory: what one does to a key, all have. Long, as each
//! test needs the same machines.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use saltern_base::clock::Clock;
use saltern_crypto::{SecretBytes, StateCipher};
use saltern_model::{Compat, KeyState, MinionId};
use tempfile::TempDir;

use super::round::{Rounds, Standing};
use super::*;
use crate::shared_state::{MAX_ROWS, RowPage, RowPosition};
use crate::{PkiTree, StoreError, StoreOptions};

const ACCEPTED: KeyState = KeyState::Accepted;
const PENDING: KeyState = KeyState::Pending;
const REJECTED: KeyState = KeyState::Rejected;
const DENIED: KeyState = KeyState::Denied;
const MASTER: &str = "public key of all masters";

#[derive(Default)]
struct MemoryTable(Mutex<Rows>);

#[derive(Default)]
struct Rows {
    head: i64,
    rows: HashMap<RowId, StoredRow>,
    /// Writes to come of which the answer is lost.
    lost_answers: u32,
    /// Its clock; without one it has no time.
    clock: Option<Clock>,
    is_away: bool,
    /// A file that is read at each write.
    watched: Option<PathBuf>,
    at_write: String,
}

#[derive(Clone)]
struct StoredRow {
    revision: i64,
    is_tombstone: bool,
    row: SealedRow,
}

impl Rows {
    fn now(&self) -> i64 {
        self.clock.as_ref().map_or(0, Clock::unix_micros)
    }
}

impl MemoryTable {
    fn answer(rows: &Rows) -> Result<()> {
        match rows.is_away {
            true => Err(StoreError::Interrupted {
                path: "memory".into(),
            }),
            false => Ok(()),
        }
    }
}

impl RevisionTable for MemoryTable {
    fn changed_after(&self, position: &RowPosition) -> Result<RowPage> {
        let rows = self.0.lock();
        Self::answer(&rows)?;
        let mut found: Vec<(i64, SealedRow)> = rows
            .rows
            .values()
            .filter(|one| (one.revision, one.row.id) > (position.revision, position.id))
            .map(|one| (one.revision, one.row.clone()))
            .collect();
        found.sort_by_key(|(revision, row)| (*revision, row.id));
        found.truncate(MAX_ROWS);
        Ok(RowPage {
            head: rows.head,
            now: rows.now(),
            is_last: found.len() < MAX_ROWS,
            rows: found,
        })
    }
}

impl KeyTable for MemoryTable {
    fn write(&self, writes: &[KeyWrite]) -> Result<HashSet<RowId>> {
        let mut rows = self.0.lock();
        Self::answer(&rows)?;
        if let Some(watched) = &rows.watched {
            rows.at_write = fs::read_to_string(watched).unwrap_or_default();
        }
        rows.head += 1;
        let revision = rows.head;
        let mut written = HashSet::new();
        for write in writes {
            let present = rows.rows.get(&write.row.id).map(|one| one.row.version);
            if present.is_none_or(|version| version == write.replaces) {
                let row = StoredRow {
                    revision,
                    is_tombstone: write.is_tombstone,
                    row: write.row.clone(),
                };
                rows.rows.insert(write.row.id, row);
                written.insert(write.row.id);
            }
        }
        if rows.lost_answers > 0 {
            rows.lost_answers -= 1;
            return Err(StoreError::Interrupted {
                path: "memory".into(),
            });
        }
        Ok(written)
    }

    fn clear_unless(&self, marker: &RowId) -> Result<()> {
        let mut rows = self.0.lock();
        Self::answer(&rows)?;
        if !rows.rows.contains_key(marker) {
            rows.rows.clear();
        }
        Ok(())
    }

    /// As if all of them were old.
    fn expire(&self, _: Duration) -> Result<u64> {
        Ok(0)
    }
}

/// A machine, and its master while it runs.
struct Machine {
    dir: TempDir,
    table: Arc<MemoryTable>,
    clock: Clock,
    secret: u8,
    rounds: Option<Rounds>,
    is_active: bool,
}

fn clock() -> Clock {
    Clock::manual(std::time::UNIX_EPOCH + Duration::from_secs(1_795_000_000))
}

impl Machine {
    fn new(table: &Arc<MemoryTable>, clock: &Clock) -> Self {
        let mut rows = table.0.lock();
        rows.clock.get_or_insert_with(|| clock.clone());
        drop(rows);
        let dir = TempDir::new().expect("a directory");
        let machine = Self {
            dir,
            table: table.clone(),
            clock: clock.clone(),
            secret: 1,
            rounds: None,
            is_active: false,
        };
        machine.tree();
        fs::write(machine.dir.path().join("pki/master.pub"), MASTER).expect("written");
        machine
    }

    fn options(&self) -> StoreOptions {
        StoreOptions::below(self.dir.path(), Compat::V3007)
    }

    fn tree(&self) -> PkiTree {
        PkiTree::with_options(&self.options(), self.clock.clone()).expect("a tree")
    }

    /// One round of the running master, or of one that starts now.
    fn try_round(&mut self) -> Result<()> {
        self.round_as(Standing {
            is_active: self.is_active,
            takes_over: false,
        })
    }

    fn round_as(&mut self, standing: Standing) -> Result<()> {
        if self.rounds.is_none() {
            let secret = SecretBytes::new(vec![self.secret; 32]);
            let cipher = Arc::new(StateCipher::new(&secret, "saltern").expect("long enough"));
            let (tree, options) = (Arc::new(self.tree()), self.options());
            self.rounds = Some(Rounds::new(
                self.table.clone(),
                cipher,
                (tree, MASTER, &options.cachedir),
                (self.clock.clone(), Duration::ZERO),
            )?);
        }
        let rounds = self.rounds.as_mut().expect("it runs");
        rounds.round(standing)
    }

    fn round(&mut self) {
        self.try_round().expect("a round");
    }

    fn stop(&mut self) {
        if let Some(rounds) = &mut self.rounds {
            rounds.finish().expect("saved");
        }
        self.rounds = None;
    }

    fn take_over(&mut self) -> Result<()> {
        self.round_as(Standing {
            is_active: true,
            takes_over: true,
        })
    }

    fn memory_file(&self) -> PathBuf {
        let cachedir = self.options().cachedir;
        cachedir.join("saltern").join("cluster_keys")
    }

    /// A round of which the machine remembers nothing, as when it is killed before it has saved.
    fn crash(&mut self) {
        let memory = self.memory_file();
        let before = fs::read(&memory).ok();
        drop(self.try_round());
        self.stop();
        match before {
            Some(before) => fs::write(memory, before).expect("written"),
            None => drop(fs::remove_file(memory)),
        }
    }

    /// Why it does not share its keys, as commands of the machine see it.
    fn refusal(&self) -> Option<String> {
        fs::read_to_string(self.memory_file().with_file_name("cluster_keys_refused")).ok()
    }

    /// As an operator confirms that many keys go.
    fn confirm(&self) {
        let memory = self.memory_file();
        let directory = memory.parent().expect("a directory");
        fs::create_dir_all(directory).expect("made");
        fs::write(directory.join("confirm_lost_keys"), "").expect("written");
    }

    fn is_revoked(&mut self) -> bool {
        let rounds = self.rounds.as_mut().expect("it runs");
        let has_revoked = rounds.has_revoked();
        rounds.clear_revoked();
        has_revoked
    }

    fn demoted(&self) -> usize {
        self.rounds.as_ref().expect("it runs").demoted()
    }

    fn put(&self, id: &str, state: KeyState, pem: &str) {
        let directory = self.dir.path().join("pki").join(state.directory());
        fs::write(directory.join(id), pem).expect("written");
    }

    /// As `salt-key` moves a key.
    fn accept(&self, id: &str) {
        let tree = self.tree();
        let id = minion(id);
        tree.move_to(&id, PENDING, ACCEPTED).expect("moved");
    }

    /// As `salt-key` deletes a minion.
    fn delete(&self, id: &str) {
        for state in KeyState::ALL {
            self.tree().remove(&minion(id), state).expect("removed");
        }
    }

    fn keys(&self) -> BTreeMap<(String, KeyStateName), String> {
        let tree = self.tree();
        let mut keys = BTreeMap::new();
        for state in KeyState::ALL {
            for id in tree.list(state).expect("a list") {
                let pem = tree.stored_pem(&id, state).expect("read").expect("there");
                keys.insert((id.to_string(), state.directory()), pem);
            }
        }
        keys
    }

    fn has(&self, id: &str, state: KeyState) -> Option<String> {
        self.tree().stored_pem(&minion(id), state).expect("read")
    }

    fn counts(&self) -> super::round::Counts {
        self.rounds.as_ref().expect("it runs").counts()
    }
}

type KeyStateName = &'static str;

fn minion(id: &str) -> MinionId {
    MinionId::parse(id).expect("an id")
}

/// An active member with these accepted keys, and one that has joined it.
fn pair(ids: &[&str]) -> (Arc<MemoryTable>, Clock, Machine, Machine) {
    let (table, clock) = (Arc::<MemoryTable>::default(), clock());
    let mut a = Machine::new(&table, &clock);
    a.is_active = true;
    for id in ids {
        a.put(id, ACCEPTED, &format!("key of {id}"));
    }
    let mut b = Machine::new(&table, &clock);
    b.round();
    a.round();
    b.round();
    assert_eq!(a.keys(), b.keys());
    assert_eq!(a.keys().len(), ids.len());
    (table, clock, a, b)
}

#[test]
fn change_on_one_member_is_made_on_the_others() {
    let (_, _, mut a, mut b) = pair(&["m1", "m2"]);
    a.put("m3", PENDING, "key of m3");
    a.round();
    b.round();
    assert!(b.has("m3", PENDING).is_some());
    b.accept("m3");
    b.round();
    a.round();
    assert_eq!(a.has("m3", ACCEPTED).as_deref(), Some("key of m3"));
    assert_eq!(a.has("m3", PENDING), None);
    b.delete("m1");
    b.round();
    a.round();
    assert_eq!(a.has("m1", ACCEPTED), None);
    assert!(a.is_revoked());
    assert!(!b.is_revoked(), "it was deleted there");
    b.put("m2", REJECTED, "key of m2");
    b.put("m2", DENIED, "another one");
    b.round();
    a.round();
    assert!(a.is_revoked(), "rejected counts before accepted");
    assert_eq!(a.keys(), b.keys());
    assert_eq!(a.counts().conflicts + b.counts().conflicts, 0);
    // Written in its place, which changes no directory.
    b.clock.advance(Duration::from_secs(60));
    b.put("m3", ACCEPTED, "a new key of m3");
    b.round();
    a.round();
    assert_eq!(a.has("m3", ACCEPTED).as_deref(), Some("a new key of m3"));
    let before = b.table.0.lock().head;
    for _ in 0..3 {
        a.round();
        b.round();
    }
    assert_eq!(b.table.0.lock().head, before, "nothing is left to write");
}

#[test]
fn keys_of_the_active_member_are_those_of_a_new_cluster() {
    let (table, clock) = (Arc::<MemoryTable>::default(), clock());
    let (mut a, mut b) = (Machine::new(&table, &clock), Machine::new(&table, &clock));
    b.put("old", ACCEPTED, "deleted elsewhere");
    b.put("asks", PENDING, "key of asks");
    b.round();
    a.is_active = true;
    a.round();
    assert!(
        table.0.lock().rows.is_empty(),
        "nobody has keys to share yet"
    );
    a.put("m1", ACCEPTED, "key of m1");
    a.round();
    b.round();
    assert_eq!(b.has("m1", ACCEPTED).as_deref(), Some("key of m1"));
    assert!(
        b.has("old", ACCEPTED).is_some(),
        "another may be about to write it"
    );
    a.round();
    assert_eq!(a.has("old", ACCEPTED), None, "it is not shared meanwhile");
    clock.advance(Duration::from_secs(6));
    b.round();
    a.round();
    for machine in [&a, &b] {
        assert_eq!(machine.has("old", ACCEPTED), None);
        assert_eq!(
            machine.has("old", PENDING).as_deref(),
            Some("deleted elsewhere")
        );
        assert!(machine.has("asks", PENDING).is_some());
    }
    assert_eq!(b.rounds.as_ref().map(Rounds::demoted), Some(1));
    b.accept("old");
    b.round();
    assert_eq!(b.rounds.as_ref().map(Rounds::demoted), Some(0));
    a.round();
    assert!(a.has("old", ACCEPTED).is_some());
}

#[test]
fn member_that_takes_over_at_once_accepts_no_key_that_nobody_knows() {
    let (table, clock, _a, _b) = pair(&["m1"]);
    let mut c = Machine::new(&table, &clock);
    c.put("old", ACCEPTED, "deleted elsewhere");
    c.put("m1", ACCEPTED, "an earlier key of m1");
    let takes_over = Standing {
        is_active: true,
        takes_over: true,
    };
    c.round_as(takes_over).expect("a round");
    assert_eq!(c.has("old", ACCEPTED), None);
    assert_eq!(c.has("m1", ACCEPTED).as_deref(), Some("key of m1"));
    let demoted = c.rounds.as_ref().map(Rounds::demoted);
    assert_eq!(demoted, Some(1));
}

#[test]
fn member_that_was_away_takes_deletions_and_brings_its_own() {
    let (_, clock, mut a, mut b) = pair(&["m1", "m2", "m3"]);
    b.stop();
    a.delete("m1");
    a.put("m4", ACCEPTED, "key of m4");
    a.round();
    clock.advance(Duration::from_secs(7 * 24 * 3600));
    a.round();
    b.delete("m2");
    b.round();
    a.round();
    assert_eq!(a.keys(), b.keys());
    let ids: Vec<String> = a.keys().into_keys().map(|(id, _)| id).collect();
    assert_eq!(ids, ["m3", "m4"]);

    // Longer than rows of deleted minions are kept.
    b.stop();
    a.delete("m3");
    a.round();
    clock.advance(TOMBSTONE_AGE);
    b.table.0.lock().rows.retain(|_, one| !one.is_tombstone);
    b.round();
    clock.advance(Duration::from_secs(6));
    b.round();
    a.round();
    for machine in [&a, &b] {
        assert_eq!(machine.has("m3", ACCEPTED), None);
    }
}

#[test]
fn absence_is_measured_by_the_clock_of_the_table() {
    let (table, clock, mut a, mut b) = pair(&["m1", "m2"]);
    let clock_with = |ahead: u64| {
        let now = u64::try_from(clock.unix_micros()).expect("after 1970");
        let now = Duration::from_micros(now) + Duration::from_secs(ahead);
        Clock::manual(std::time::UNIX_EPOCH + now)
    };
    // It was away for longer than deletions are remembered, and its own clock does not know it.
    b.stop();
    b.clock = clock_with(0);
    a.delete("m2");
    a.round();
    clock.advance(TOMBSTONE_AGE);
    table.0.lock().rows.retain(|_, one| !one.is_tombstone);
    a.round();
    b.round();
    b.clock.advance(Duration::from_secs(6));
    b.round();
    a.round();
    for machine in [&a, &b] {
        assert_eq!(machine.has("m2", ACCEPTED), None);
        assert!(machine.has("m1", ACCEPTED).is_some());
    }
    // A clock that is ahead makes no key pending that was accepted here meanwhile.
    b.stop();
    b.clock = clock_with(90 * 24 * 3600);
    b.put("m3", ACCEPTED, "key of m3");
    for _ in 0..2 {
        b.round();
        b.clock.advance(Duration::from_secs(6));
        a.round();
    }
    assert_eq!(b.demoted(), 1, "m2");
    assert!(a.has("m3", ACCEPTED).is_some());
}

#[test]
fn pending_keys_are_remembered_on_disk_only_now_and_then() {
    let (_, clock, mut a, mut b) = pair(&["m1"]);
    let remembers = |machine: &Machine, id: &str| {
        let text = fs::read_to_string(machine.memory_file()).expect("read");
        text.lines().any(|line| line.ends_with(&format!(" {id}")))
    };
    // Any peer can cause one.
    a.put("stranger", PENDING, "key of a stranger");
    a.round();
    b.round();
    assert!(b.has("stranger", PENDING).is_some());
    assert!(!remembers(&a, "stranger") && !remembers(&b, "stranger"));
    clock.advance(Duration::from_secs(5));
    a.round();
    assert!(remembers(&a, "stranger"));
    // With one that is accepted or rejected at once, and at the end.
    a.put("m2", ACCEPTED, "key of m2");
    a.put("m3", REJECTED, "key of m3");
    a.round();
    assert!(remembers(&a, "m2") && remembers(&a, "m3"));
    b.stop();
    assert!(remembers(&b, "stranger"));
}

#[test]
fn revocation_counts_whatever_is_changed_at_the_same_time() {
    let (_, _, mut a, mut b) = pair(&["m1", "m2"]);
    // Anybody can cause a denied key.
    a.put("m1", DENIED, "of an attacker");
    b.delete("m1");
    a.put("m2", ACCEPTED, "another key of m2");
    a.tree().remove(&minion("m2"), ACCEPTED).expect("removed");
    a.put("m2", ACCEPTED, "another key of m2");
    b.put("m2", REJECTED, "key of m2");
    a.round();
    b.round();
    a.round();
    b.round();
    assert_eq!(a.keys(), b.keys());
    assert_eq!(a.has("m1", ACCEPTED), None);
    assert!(a.has("m2", REJECTED).is_some());

    // And the other way round.
    let (_, _, mut a, mut b) = pair(&["m1"]);
    a.put("m1", DENIED, "of an attacker");
    b.delete("m1");
    b.round();
    a.round();
    b.round();
    assert_eq!(a.has("m1", ACCEPTED), None);
    assert_eq!(a.keys(), b.keys());
}

#[test]
fn rows_that_are_made_moved_or_put_back_accept_nobody() {
    let (table, clock, mut a, mut b) = pair(&["m1", "m2"]);
    let of_before = table.0.lock().rows.clone();
    a.delete("m1");
    a.round();
    b.round();
    clock.advance(Duration::from_secs(3600));
    let put_back = |table: &MemoryTable| {
        let mut rows = table.0.lock();
        rows.head += 1;
        let head = rows.head;
        for (id, mut row) in of_before.clone() {
            row.revision = head;
            rows.rows.insert(id, row);
        }
    };
    put_back(&table);
    for _ in 0..3 {
        b.round();
        a.round();
    }
    for machine in [&a, &b] {
        assert_eq!(machine.has("m1", ACCEPTED), None);
        assert!(machine.has("m2", ACCEPTED).is_some());
    }
    assert!(b.counts().refused > 0);
    let is_healed = |row: &StoredRow| row.is_tombstone;
    assert!(table.0.lock().rows.values().any(is_healed));

    // A row that is gone is written again by those who know it.
    table.0.lock().rows.clear();
    clock.advance(Duration::from_secs(2 * 3600));
    for _ in 0..2 {
        a.round();
        b.round();
    }
    assert_eq!(
        table.0.lock().rows.len(),
        3,
        "m2, that m1 was deleted, and the marker"
    );
    let mut c = Machine::new(&table, &clock);
    c.round();
    assert_eq!(c.keys(), a.keys());

    // Of another secret, of another row, and of nobody.
    let other = Arc::<MemoryTable>::default();
    let mut attacker = Machine::new(&other, &clock);
    (attacker.secret, attacker.is_active) = (2, true);
    attacker.put("evil", ACCEPTED, "key of evil");
    attacker.round();
    {
        let foreign: Vec<StoredRow> = other.0.lock().rows.values().cloned().collect();
        let mut rows = table.0.lock();
        rows.head += 1;
        let head = rows.head;
        let own: Vec<StoredRow> = rows.rows.values().cloned().collect();
        for (number, mut row) in foreign.into_iter().chain(own).enumerate() {
            row.revision = head;
            if number % 2 == 1 {
                row.row.id = [u8::try_from(number).expect("few"); 32];
            }
            let id = row.row.id;
            rows.rows.entry(id).or_insert(row);
        }
    }
    let before = a.keys();
    for machine in [&mut a, &mut b, &mut c] {
        machine.round();
        assert_eq!(machine.keys(), before);
    }
}

#[test]
fn directory_that_is_not_there_deletes_nothing() {
    let (_, _, mut a, mut b) = pair(&["m1", "m2"]);
    let pki = a.dir.path().join("pki");
    let aside = a.dir.path().join("aside");
    fs::rename(&pki, &aside).expect("moved");
    a.tree();
    assert!(a.try_round().is_err());
    a.stop();
    assert!(a.try_round().is_err());
    // As a start makes one in a mount point.
    fs::write(pki.join("master.pub"), "another one").expect("written");
    assert!(a.try_round().is_err());
    b.round();
    assert_eq!(b.keys().len(), 2);
    fs::remove_dir_all(&pki).expect("removed");
    fs::rename(&aside, &pki).expect("moved");
    a.round();
    b.round();
    assert_eq!((a.keys().len(), b.keys().len()), (2, 2));
}

#[test]
fn changes_wait_for_a_table_that_is_away() {
    let (table, _, mut a, mut b) = pair(&["m1", "m2"]);
    table.0.lock().is_away = true;
    a.delete("m1");
    assert!(a.try_round().is_err() && b.try_round().is_err());
    a.stop();
    assert!(a.try_round().is_err());
    let mut rows = table.0.lock();
    (rows.is_away, rows.lost_answers) = (false, 1);
    drop(rows);
    assert!(a.try_round().is_err(), "the answer is lost");
    a.round();
    b.round();
    assert_eq!(b.has("m1", ACCEPTED), None);
    assert_eq!(a.counts().conflicts, 0);
}

#[test]
fn more_keys_than_a_page_are_shared() {
    let ids: Vec<String> = (0..MAX_ROWS * 2 + 7).map(|n| format!("m{n:04}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (_, _, mut a, mut b) = pair(&ids);
    for id in &ids {
        b.delete(id);
    }
    assert!(b.try_round().is_err());
    b.confirm();
    b.round();
    a.round();
    assert!(a.keys().is_empty());
}

#[test]
fn pending_keys_found_no_cluster() {
    let (table, clock) = (Arc::<MemoryTable>::default(), clock());
    let (mut a, mut b) = (Machine::new(&table, &clock), Machine::new(&table, &clock));
    a.is_active = true;
    a.put("anybody", PENDING, "of an attacker");
    a.round();
    assert!(table.0.lock().rows.is_empty());
    b.put("m1", ACCEPTED, "key of m1");
    b.take_over().expect("a round");
    a.round();
    assert!(a.has("m1", ACCEPTED).is_some());
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("m{number:03}")).collect()
}

#[test]
fn join_that_takes_many_accepted_keys_away_has_to_be_confirmed() {
    let (table, clock, mut a, _b) = pair(&["web"]);
    let mut c = Machine::new(&table, &clock);
    for id in ids(21) {
        c.put(&id, ACCEPTED, "a key");
    }
    let before = c.keys();
    for _ in 0..2 {
        let refused = c.try_round();
        let numbers = match refused {
            Err(StoreError::TooManyKeysLost { lost, accepted, .. }) => Some((lost, accepted)),
            _ => None,
        };
        assert_eq!(numbers, Some((21, 21)));
        assert!(c.refusal().is_some_and(|why| why.contains("21")));
        assert!(c.take_over().is_err(), "nor does it serve");
        clock.advance(Duration::from_secs(60));
    }
    assert_eq!(c.keys(), before);
    assert_eq!(c.rounds.as_ref().map(Rounds::pending), Some(21));
    c.stop();
    assert!(c.refusal().is_some(), "as it was last");
    c.confirm();
    c.take_over()
        .expect("the process before has said so, and ended");
    assert_eq!(c.refusal(), None);
    clock.advance(Duration::from_secs(6));
    c.round();
    assert_eq!(c.demoted(), 21);
    a.round();
    assert_eq!(a.keys(), c.keys());

    // A fifth of many, and few of few.
    for (known, own) in [(84, 21), (0, 20)] {
        let (table, clock) = (Arc::<MemoryTable>::default(), clock.clone());
        let (mut a, mut b) = (Machine::new(&table, &clock), Machine::new(&table, &clock));
        a.is_active = true;
        a.put("web", ACCEPTED, "key of web");
        for id in ids(known) {
            a.put(&id, ACCEPTED, "a key");
            b.put(&id, ACCEPTED, "a key");
        }
        for id in ids(own) {
            b.put(&format!("own-{id}"), ACCEPTED, "a key");
        }
        a.round();
        b.take_over().expect("it joins");
        assert_eq!(b.demoted(), own);
    }
}

#[test]
fn accepted_keys_that_are_gone_at_once_are_not_deleted_elsewhere() {
    let ids = ids(30);
    let all: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (_, clock, mut a, mut b) = pair(&all);
    let accepted = a.dir.path().join("pki").join(ACCEPTED.directory());
    let aside = a.dir.path().join("aside");
    fs::rename(&accepted, &aside).expect("moved");
    a.tree();
    b.put("other", PENDING, "key of other");
    for _ in 0..3 {
        assert!(matches!(
            a.try_round(),
            Err(StoreError::TooManyKeysLost { lost: 30, .. })
        ));
        b.round();
        clock.advance(Duration::from_secs(60));
    }
    assert_eq!(b.keys().len(), 31);
    assert!(a.refusal().is_some() && b.refusal().is_none());
    assert!(a.has("other", PENDING).is_some(), "others go on");
    fs::remove_dir_all(&accepted).expect("removed");
    fs::rename(&aside, &accepted).expect("moved");
    a.round();
    b.round();
    assert_eq!((a.keys().len(), b.keys().len()), (31, 31));

    // What is moved is not gone, and what is confirmed once is confirmed once.
    for id in &ids {
        let moved = a.tree().move_to(&minion(id), ACCEPTED, REJECTED);
        assert!(moved.expect("moved"));
    }
    a.round();
    b.round();
    assert!(b.keys().keys().all(|(_, state)| *state != "minions"));
    for id in &ids {
        a.tree()
            .move_to(&minion(id), REJECTED, ACCEPTED)
            .expect("moved");
    }
    a.round();
    // What is confirmed for nothing, or before it is reported, is not confirmed.
    a.confirm();
    a.round();
    a.confirm();
    for id in ids.iter().take(21) {
        a.delete(id);
    }
    assert!(a.try_round().is_err());
    a.confirm();
    a.round();
    assert!(!a.memory_file().with_file_name("confirm_lost_keys").exists());
    b.round();
    assert_eq!(b.keys().len(), 10);
}

#[test]
fn refused_takeover_is_confirmed_to_the_process_after_it() {
    let ids = ids(100);
    let all: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (_, _, mut a, mut b) = pair(&all);
    a.stop();
    for id in ids.iter().take(30) {
        a.delete(id);
    }
    // From before anybody said so.
    a.confirm();
    // The service manager starts it again and again.
    for _ in 0..3 {
        assert!(matches!(
            a.take_over(),
            Err(StoreError::TooManyKeysLost { lost: 30, .. })
        ));
        a.stop();
    }
    a.confirm();
    a.take_over().expect("confirmed");
    b.round();
    assert_eq!(b.keys().len(), 70);
    // The next loss is another one.
    for id in ids.iter().skip(30).take(30) {
        a.delete(id);
    }
    a.stop();
    a.confirm();
    assert!(a.take_over().is_err());
    b.round();
    assert_eq!(b.keys().len(), 70);
}

#[test]
fn joining_member_keeps_what_it_rejected_and_loses_no_accepted_key_to_a_pending_one() {
    let (table, clock, mut a, _b) = pair(&["web1", "web2", "web3"]);
    a.put("db1", PENDING, "of a stranger");
    a.put("db2", PENDING, "key of db2");
    a.delete("web3");
    a.round();
    let mut c = Machine::new(&table, &clock);
    c.put("web1", REJECTED, "key of web1");
    c.put("db1", ACCEPTED, "key of db1");
    c.put("db2", ACCEPTED, "key of db2");
    c.put("web3", ACCEPTED, "key of web3");
    c.round();
    a.round();
    c.round();
    assert_eq!(a.keys(), c.keys());
    assert!(a.has("web1", REJECTED).is_some());
    assert_eq!(a.has("db1", PENDING).as_deref(), Some("key of db1"));
    assert_eq!(a.has("db1", DENIED).as_deref(), Some("of a stranger"));
    assert_eq!(a.has("db2", PENDING).as_deref(), Some("key of db2"));
    assert_eq!(a.has("web3", ACCEPTED), None, "it was deleted");
    for id in ["db1", "db2"] {
        assert_eq!(c.has(id, ACCEPTED), None, "{id}");
    }
    assert_eq!(c.demoted(), 2);
}

#[test]
fn removed_row_of_a_deleted_minion_is_written_again() {
    let (table, clock, mut a, mut b) = pair(&["m1", "m2"]);
    let of_before = table.0.lock().rows.clone();
    clock.advance(Duration::from_secs(3600));
    a.delete("m1");
    a.round();
    b.round();
    {
        let mut rows = table.0.lock();
        rows.rows.retain(|_, row| !row.is_tombstone);
        rows.head -= 1;
    }
    for _ in 0..3 {
        a.round();
        b.round();
    }
    let tombstones = |table: &MemoryTable| {
        let rows = table.0.lock();
        rows.rows.values().filter(|row| row.is_tombstone).count()
    };
    assert_eq!(tombstones(&table), 1);
    {
        let mut rows = table.0.lock();
        rows.head += 1;
        let head = rows.head;
        for (id, mut row) in of_before {
            row.revision = head;
            rows.rows.insert(id, row);
        }
    }
    for _ in 0..3 {
        a.round();
        b.round();
    }
    for machine in [&a, &b] {
        assert_eq!(machine.has("m1", ACCEPTED), None);
    }
    // Until nobody needs it.
    clock.advance(TOMBSTONE_AGE / 2);
    b.round();
    table.0.lock().rows.retain(|_, row| !row.is_tombstone);
    clock.advance(TOMBSTONE_AGE / 2);
    b.round();
    assert_eq!(tombstones(&table), 0);
}

#[test]
fn key_that_came_before_a_crash_is_not_accepted_again_after_its_deletion() {
    let (_, _, mut a, mut b) = pair(&["m1"]);
    a.put("m2", ACCEPTED, "key of m2");
    a.put("m3", ACCEPTED, "key of m3");
    a.round();
    b.crash();
    assert!(b.has("m2", ACCEPTED).is_some());
    a.delete("m2");
    a.round();
    b.round();
    a.round();
    for machine in [&a, &b] {
        assert_eq!(machine.has("m2", ACCEPTED), None);
        assert!(machine.has("m3", ACCEPTED).is_some());
    }
    assert_eq!(b.demoted(), 1);
    assert!(b.is_revoked());
}

#[test]
fn pending_key_that_came_before_a_crash_is_gone_after_a_verdict() {
    let (_, _, mut a, mut b) = pair(&["m1"]);
    // One that was deleted before, so that there is a row of it.
    a.put("known", PENDING, "an old key");
    a.round();
    b.round();
    a.delete("known");
    a.round();
    b.round();
    b.stop();
    let minions = ["accepted", "rejected", "deleted", "known", "waiting"];
    for id in minions {
        a.put(id, PENDING, "its key");
    }
    a.put("deleted", DENIED, "another key");
    a.round();
    b.crash();
    assert!(minions.iter().all(|id| b.has(id, PENDING).is_some()));
    for id in ["accepted", "known"] {
        a.accept(id);
    }
    let rejected = a.tree().move_to(&minion("rejected"), PENDING, REJECTED);
    assert!(rejected.expect("moved"));
    a.delete("deleted");
    a.round();
    let after = a.keys();
    for _ in 0..2 {
        b.round();
        a.round();
        assert_eq!((a.keys(), b.keys()), (after.clone(), after.clone()));
    }
    assert!(b.has("waiting", PENDING).is_some());
    assert_eq!(b.has("accepted", PENDING), None);
}

#[test]
fn memory_is_saved_before_changes_of_this_machine_are_written() {
    let (table, _, mut a, mut b) = pair(&["m1"]);
    a.put("m2", ACCEPTED, "key of m2");
    a.round();
    b.put("m3", ACCEPTED, "key of m3");
    let mut rows = table.0.lock();
    rows.watched = Some(b.memory_file());
    drop(rows);
    b.round();
    let memory = &table.0.lock().at_write;
    assert!(memory.contains("m2") && !memory.contains("m3"), "{memory}");
}

#[test]
fn row_that_cannot_be_made_files_is_no_success() {
    let (_, clock, mut a, mut b) = pair(&["m1", "m2"]);
    let in_the_way = b
        .dir
        .path()
        .join("pki")
        .join(REJECTED.directory())
        .join("m1");
    fs::create_dir_all(in_the_way.join("not-empty")).expect("made");
    a.put("m1", REJECTED, "key of m1");
    a.put("m3", ACCEPTED, "key of m3");
    a.round();
    b.put("m4", ACCEPTED, "key of m4");
    b.round();
    let rounds = b.rounds.as_ref().expect("it runs");
    assert!(!rounds.is_complete());
    assert!(rounds.pending() >= 1);
    assert!(b.has("m3", ACCEPTED).is_some(), "it concerns no other one");
    clock.advance(Duration::from_secs(1));
    let why = b.refusal().expect("also of a round that goes on");
    assert!(why.contains("cannot be taken away"), "{why}");
    assert!(b.take_over().is_err());
    b.round();
    assert_eq!(b.refusal(), Some(why), "a takeover would be refused again");
    a.round();
    assert!(a.has("m4", ACCEPTED).is_some(), "it concerns no other one");
    fs::remove_dir_all(in_the_way).expect("removed");
    // That it cannot be noted is no reason to refuse.
    let noted = b.memory_file().with_file_name("cluster_keys_refused");
    fs::remove_file(&noted).expect("removed");
    fs::create_dir_all(noted.join("not-empty")).expect("made");
    b.take_over().expect("a round");
    fs::remove_dir_all(&noted).expect("removed");
    b.round();
    assert_eq!(b.refusal(), None);
    assert!(b.rounds.as_ref().is_some_and(Rounds::is_complete));
    assert!(b.has("m1", REJECTED).is_some());
    assert!(b.is_revoked());
}

#[test]
fn key_that_cannot_be_written_is_noted_until_it_is() {
    let (_, clock, mut a, mut b) = pair(&["m1"]);
    let in_the_way = b.dir.path().join("pki").join(ACCEPTED.directory());
    let in_the_way = in_the_way.join("m2");
    fs::create_dir_all(in_the_way.join("not-empty")).expect("made");
    a.put("m2", ACCEPTED, "key of m2");
    a.round();
    b.round();
    let why = b.refusal().expect("noted");
    assert!(why.contains("cannot be written"), "{why}");
    fs::remove_dir_all(in_the_way).expect("removed");
    clock.advance(Duration::from_secs(6));
    b.round();
    assert_eq!(b.refusal(), None);
    assert!(b.has("m2", ACCEPTED).is_some());
}

#[test]
fn row_that_a_failover_lost_is_written_again_at_once() {
    let (table, _, mut a, mut b) = pair(&["m1"]);
    let of_before = table.0.lock().rows.clone();
    a.put("m2", ACCEPTED, "key of m2");
    a.round();
    b.round();
    table.0.lock().is_away = true;
    assert!(b.try_round().is_err());
    {
        let mut rows = table.0.lock();
        rows.is_away = false;
        rows.rows = of_before;
    }
    b.round();
    assert_eq!(table.0.lock().rows.len(), 3, "m1, m2 and the marker");
}

#[test]
fn table_whose_head_goes_back_is_not_read_for_ever() {
    let many = ids(MAX_ROWS + 10);
    let all: Vec<&str> = many.iter().map(String::as_str).collect();
    let (table, _, _, mut b) = pair(&all);
    table.0.lock().head = 0;
    assert!(matches!(b.try_round(), Err(StoreError::RowsGoBack)));
}

/// Step of an arbitrary history.
#[derive(Clone, Debug)]
enum Step {
    /// A master goes on.
    Round(usize),
    /// It ends, and starts with its next round.
    Stop(usize),
    /// It ends after a round that it does not remember.
    Crash(usize),
    /// The next answer of the table to a write is lost.
    LoseAnswer,
    Put(usize, usize, usize, u8),
    Accept(usize, usize),
    Delete(usize, usize),
}

const MACHINES: usize = 3;
const IDS: [&str; 3] = ["m0", "m1", "m2"];

fn step() -> impl Strategy<Value = Step> {
    let (machine, id) = (0..MACHINES, 0..IDS.len());
    prop_oneof![
        4 => machine.clone().prop_map(Step::Round),
        1 => machine.clone().prop_map(Step::Stop),
        1 => machine.clone().prop_map(Step::Crash),
        1 => Just(Step::LoseAnswer),
        3 => (machine.clone(), id.clone(), 0..4_usize, 0..3_u8).prop_map(|(m, i, s, k)| Step::Put(m, i, s, k)),
        2 => (machine.clone(), id.clone()).prop_map(|(m, i)| Step::Accept(m, i)),
        2 => (machine, id).prop_map(|(m, i)| Step::Delete(m, i)),
    ]
}

fn take_step(machines: &mut [Machine], table: &MemoryTable, step: &Step) {
    let id = |at: &usize| *IDS.get(*at).expect("an id");
    let at = match step {
        Step::Round(at) | Step::Stop(at) | Step::Crash(at) => *at,
        Step::Put(at, ..) | Step::Accept(at, _) | Step::Delete(at, _) => *at,
        Step::LoseAnswer => {
            table.0.lock().lost_answers = 1;
            return;
        }
    };
    let machine = machines.get_mut(at).expect("a machine");
    match step {
        Step::Round(_) => drop(machine.try_round()),
        Step::Stop(_) => machine.stop(),
        Step::Crash(_) => machine.crash(),
        Step::Put(_, of, state, key) => {
            let state = *KeyState::ALL.get(*state).expect("a state");
            let directory = machine.tree();
            directory.remove(&minion(id(of)), state).expect("removed");
            machine.put(id(of), state, &format!("key {key}"));
        }
        Step::Accept(_, of) => machine.accept(id(of)),
        Step::Delete(_, of) => machine.delete(id(of)),
        Step::LoseAnswer => {}
    }
}

/// Rounds until nothing is left to do.
fn settle(machines: &mut [Machine], table: &MemoryTable) {
    table.0.lock().lost_answers = 0;
    for _ in 0..6 {
        for machine in &mut *machines {
            machine.clock.advance(Duration::from_secs(6));
            machine.round();
        }
    }
    let keys: BTreeSet<_> = machines.iter().map(Machine::keys).collect();
    assert_eq!(keys.len(), 1, "all have the same: {keys:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_happens_members_agree_and_a_deleted_key_stays_deleted(
        before in proptest::collection::vec(step(), 0..30),
        (by, id) in (0..MACHINES, 0..IDS.len()),
        after in proptest::collection::vec(step(), 0..20),
    ) {
        let (table, clock) = (Arc::<MemoryTable>::default(), clock());
        let mut machines: Vec<Machine> = (0..MACHINES).map(|_| Machine::new(&table, &clock)).collect();
        let first = machines.first_mut().expect("one");
        first.is_active = true;
        first.put("first", ACCEPTED, "key of the first");
        for one in &before {
            take_step(&mut machines, &table, one);
        }
        settle(&mut machines, &table);
        machines.get(by).expect("a machine").delete(IDS.get(id).expect("an id"));
        // Whatever happens to the others.
        for one in &after {
            let is_of_it = matches!(one, Step::Put(_, of, ..) | Step::Accept(_, of) if *of == id);
            if !is_of_it {
                take_step(&mut machines, &table, one);
            }
        }
        settle(&mut machines, &table);
        let has_crashed = after.iter().any(|step| matches!(step, Step::Crash(_)));
        for machine in &machines {
            let gone = IDS.get(id).expect("an id");
            // After a crash it may be one that somebody accepted there, so it waits for him.
            prop_assert!(machine.has(gone, ACCEPTED).is_none());
            prop_assert!(has_crashed || machine.keys().into_keys().all(|(id, _)| id != *gone));
            prop_assert!(machine.has("first", ACCEPTED).is_some());
        }
    }
}
