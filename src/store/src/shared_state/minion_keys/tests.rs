//! Members with directories of their own over a table in memory: what one does to a key, all have. Long, as each
//! test needs the same machines.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
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
use crate::shared_state::MAX_ROWS;
use crate::{PkiTree, StoreError, StoreOptions};

const ACCEPTED: KeyState = KeyState::Accepted;
const PENDING: KeyState = KeyState::Pending;
const REJECTED: KeyState = KeyState::Rejected;
const DENIED: KeyState = KeyState::Denied;

#[derive(Default)]
struct MemoryTable(Mutex<Rows>);

#[derive(Default)]
struct Rows {
    head: i64,
    rows: HashMap<RowId, StoredRow>,
    /// Writes to come of which the answer is lost.
    lost_answers: u32,
    is_away: bool,
}

#[derive(Clone)]
struct StoredRow {
    revision: i64,
    is_tombstone: bool,
    row: SealedRow,
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

impl KeyTable for MemoryTable {
    fn changed_after(&self, position: &KeyPosition) -> Result<KeyPage> {
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
        Ok(KeyPage {
            head: rows.head,
            rows: found,
        })
    }

    fn write(&self, writes: &[KeyWrite]) -> Result<HashSet<RowId>> {
        let mut rows = self.0.lock();
        Self::answer(&rows)?;
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
        fs::write(machine.dir.path().join("pki/master.pem"), "its own").expect("written");
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
                (tree, &options.cachedir),
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
        self.rounds = None;
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
    let is_revoked = |machine: &mut Machine| machine.rounds.as_mut().map(Rounds::take_revoked);
    assert_eq!(is_revoked(&mut a), Some(true));
    assert_eq!(is_revoked(&mut b), Some(false), "it was deleted there");
    b.put("m2", REJECTED, "key of m2");
    b.put("m2", DENIED, "another one");
    b.round();
    a.round();
    assert_eq!(
        is_revoked(&mut a),
        Some(true),
        "rejected counts before accepted"
    );
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
    assert_eq!(table.0.lock().rows.len(), 2, "m2, and the marker");
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
    b.round();
    a.round();
    assert!(a.keys().is_empty());
}

/// Step of an arbitrary history.
#[derive(Clone, Debug)]
enum Step {
    /// A master goes on.
    Round(usize),
    /// It ends, and starts with its next round.
    Stop(usize),
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
        1 => Just(Step::LoseAnswer),
        3 => (machine.clone(), id.clone(), 0..4_usize, 0..3_u8).prop_map(|(m, i, s, k)| Step::Put(m, i, s, k)),
        2 => (machine.clone(), id.clone()).prop_map(|(m, i)| Step::Accept(m, i)),
        2 => (machine, id).prop_map(|(m, i)| Step::Delete(m, i)),
    ]
}

fn take_step(machines: &mut [Machine], table: &MemoryTable, step: &Step) {
    let id = |at: &usize| *IDS.get(*at).expect("an id");
    let at = match step {
        Step::Round(at) | Step::Stop(at) => *at,
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
        for machine in &machines {
            let gone = IDS.get(id).expect("an id");
            prop_assert!(machine.keys().into_keys().all(|(id, _)| id != *gone));
            prop_assert!(machine.has("first", ACCEPTED).is_some());
        }
    }
}
