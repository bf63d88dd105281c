//! Members over a table in memory: what the active one was sent, the others have, and a takeover changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_crypto::{SecretBytes, StateCipher};
use saltern_model::{Compat, MinionId};
use saltern_wire::msgpack::Value;
use tempfile::TempDir;

use super::content::Writer;
use super::rounds::{Counts, RETRY_INTERVAL, RoundParts, Rounds, Standing, WRITE_INTERVAL};
use super::*;
use crate::shared_state::{RowId, RowPage, RowPosition};
use crate::{MinionDataStore, StoreError, StoreOptions};

/// Rows of a page: few, so that there are several pages.
const PAGE: usize = 3;

/// The owner of the lease that writes, and the rows.
#[derive(Default)]
struct Rows {
    head: i64,
    epoch: i64,
    /// No row without content is old enough to be expired.
    is_young: bool,
    rows: BTreeMap<RowId, (i64, DataWrite)>,
    is_away: bool,
    /// Writes to come of which the answer is lost.
    lost_answers: u32,
    /// How often it was read.
    reads: usize,
    /// Rows of each write so far.
    writes: Vec<usize>,
    /// Time that each write takes.
    slowness: Option<(Clock, Duration)>,
}

/// The table, as the owner of an epoch has it.
struct MemoryTable {
    rows: Arc<Mutex<Rows>>,
    epoch: Mutex<Option<i64>>,
}

fn away<T>() -> Result<T> {
    let path = "memory".into();
    Err(StoreError::Interrupted { path })
}

impl RevisionTable for MemoryTable {
    fn changed_after(&self, position: &RowPosition) -> Result<RowPage> {
        let mut rows = self.rows.lock();
        rows.reads += 1;
        if rows.is_away {
            return away();
        }
        let behind = |(revision, id): (i64, RowId)| RowPosition { revision, id } > *position;
        let found = rows.rows.values();
        let found = found.filter(|(revision, write)| behind((*revision, write.row.id)));
        let mut found: Vec<(i64, SealedRow)> = found
            .map(|(revision, write)| (*revision, write.row.clone()))
            .collect();
        found.sort_by_key(|(revision, row)| (*revision, row.id));
        found.truncate(PAGE);
        Ok(RowPage {
            head: rows.head,
            now: 0,
            is_last: found.len() < PAGE,
            rows: found,
        })
    }
}

impl DataTable for MemoryTable {
    fn first_version(&self) -> Result<i64> {
        Ok(self.epoch.lock().expect("it is the owner") << 40)
    }

    fn write(&self, writes: &[DataWrite]) -> Result<Option<i64>> {
        let mut rows = self.rows.lock();
        if rows.is_away {
            return away();
        }
        if *self.epoch.lock() != Some(rows.epoch) {
            return Ok(None);
        }
        rows.head += 1;
        rows.writes.push(writes.len());
        if let Some((clock, time)) = &rows.slowness {
            clock.advance(*time);
        }
        let revision = rows.head;
        for write in writes {
            assert!(write.row.sealed.len() <= MAX_SEALED_LEN);
            let present = rows.rows.get(&write.row.id);
            if present.is_none_or(|(_, present)| present.row.version < write.row.version) {
                rows.rows.insert(write.row.id, (revision, write.clone()));
            }
        }
        if rows.lost_answers > 0 {
            rows.lost_answers -= 1;
            return away();
        }
        Ok(Some(revision))
    }

    fn expire(&self, _: Duration) -> Result<u64> {
        let mut rows = self.rows.lock();
        let before = rows.rows.len();
        let is_young = rows.is_young;
        rows.rows
            .retain(|_, (_, write)| is_young || !write.is_tombstone);
        Ok((before - rows.rows.len()) as u64)
    }
}

/// All kinds.
const KINDS: [DataKind; 2] = [DataKind::Grains, DataKind::Mine];

/// A machine, and its master while it runs.
struct Machine {
    dir: TempDir,
    compat: Compat,
    clock: Clock,
    rows: Arc<Mutex<Rows>>,
    table: Arc<MemoryTable>,
    store: Arc<MinionDataStore>,
    rounds: Rounds,
    is_active: bool,
    /// Those that are kept.
    kinds: Vec<DataKind>,
    /// Minions without a key.
    keyless: Keyless,
}

/// Stands for the directory of the keys; no minion has this name.
const ALL_KEYS: &str = "";

type Keyless = Arc<Mutex<BTreeSet<String>>>;

impl Machine {
    fn new(rows: &Arc<Mutex<Rows>>, compat: Compat, clock: &Clock) -> Self {
        let dir = TempDir::new().expect("a directory");
        let keyless = Keyless::default();
        let (table, store, rounds) = Self::started(&dir, (rows, compat, clock), (&KINDS, &keyless));
        Self {
            dir,
            compat,
            clock: clock.clone(),
            rows: rows.clone(),
            table,
            store,
            rounds,
            is_active: false,
            kinds: KINDS.to_vec(),
            keyless,
        }
    }

    fn started(
        dir: &TempDir,
        (rows, compat, clock): (&Arc<Mutex<Rows>>, Compat, &Clock),
        (kinds, keyless): (&[DataKind], &Keyless),
    ) -> (Arc<MemoryTable>, Arc<MinionDataStore>, Rounds) {
        let table = Arc::new(MemoryTable {
            rows: rows.clone(),
            epoch: Mutex::default(),
        });
        let options = StoreOptions::below(dir.path(), compat);
        let store = Arc::new(MinionDataStore::with_options(&options));
        let secret = SecretBytes::new(vec![1; 32]);
        let cipher = StateCipher::new(&secret, "saltern").expect("long enough");
        let rounds = Rounds::new(RoundParts {
            table: table.clone(),
            cipher: Arc::new(cipher),
            writer: Writer::new(&dir.path().to_string_lossy()),
            store: store.clone(),
            cachedir: options.cachedir.clone(),
            kinds: kinds.to_vec(),
            keys: Some(KeyLookup {
                has_key: Box::new({
                    let keyless = keyless.clone();
                    move |minion| !keyless.lock().contains(minion.as_str())
                }),
                are_here: Box::new({
                    let keyless = keyless.clone();
                    move || !keyless.lock().contains(ALL_KEYS)
                }),
            }),
            clock: clock.clone(),
        });
        (table, store, rounds)
    }

    /// As the process that is started after it has ended, in whatever way.
    fn restart(&mut self) {
        let parts = (&self.rows, self.compat, &self.clock);
        (self.table, self.store, self.rounds) =
            Self::started(&self.dir, parts, (&self.kinds, &self.keyless));
        self.is_active = false;
    }

    /// Serves, and has not read the table yet.
    fn begin_takeover(&mut self) {
        let epoch = {
            let mut rows = self.rows.lock();
            rows.epoch += 1;
            rows.epoch
        };
        *self.table.epoch.lock() = Some(epoch);
        self.store.note_changes(epoch << 40);
        self.is_active = true;
    }

    fn take_over(&mut self) {
        self.begin_takeover();
        let before = self.counts().written;
        self.round();
        assert!(self.rounds.has_taken_over());
        assert_eq!(self.counts().written, before, "a takeover waits for it");
        self.round();
    }

    fn try_round(&mut self) -> Result<()> {
        let standing = Standing {
            is_active: self.is_active,
            is_last: false,
        };
        self.rounds.round(standing, &|| false)
    }

    fn round(&mut self) {
        self.try_round().expect("a round");
    }

    /// Rounds until all that was changed here is written, which takes few.
    fn write_all(&mut self) {
        for _ in 0..20 {
            if self.rounds.pending() + self.store.changed_len() == 0 {
                return;
            }
            self.round();
        }
        panic!("{} are not written", self.rounds.pending());
    }

    /// A round that has no more time than for one page.
    fn short_round(&mut self) {
        let standing = Standing {
            is_active: self.is_active,
            is_last: false,
        };
        let round = self.rounds.round(standing, &|| true);
        round.expect("a round");
    }

    fn stop(&mut self) {
        let standing = Standing {
            is_active: true,
            is_last: true,
        };
        let stopped = self.rounds.round(standing, &|| true);
        stopped.expect("the last round");
    }

    /// A minion sends its grains, with its pillar.
    fn store(&self, id: &str, os: &str) {
        let stored =
            self.store
                .store_grains_and_pillar(&minion(id), &map("os", os), &map("secret", id));
        stored.expect("stored");
    }

    fn os(&self, id: &str) -> Option<String> {
        let grains = self.store.grains(&minion(id)).expect("read")?;
        let os = grains.get("os").and_then(Value::as_str);
        os.map(str::to_owned)
    }

    fn mine(&self, id: &str) -> Option<Value> {
        let mine = self.store.mine(&minion(id)).expect("read")?;
        Some(mine.as_ref().clone())
    }

    /// As `salt-key -d` does, in its own process.
    fn purge_elsewhere(&self, id: &str) {
        let options = StoreOptions::below(self.dir.path(), self.compat);
        let purged = MinionDataStore::with_options(&options).purge(&minion(id));
        assert!(purged.expect("purged"));
    }

    /// Grains and mine of a minion.
    fn store_all(&self, id: &str, os: &str) {
        self.store(id, os);
        let stored = self.store.mine_update(&minion(id), &map("os", os), false);
        assert!(stored.expect("stored"));
    }

    /// Nothing is left of the minion.
    fn has_nothing_of(&self, id: &str) -> bool {
        self.os(id).is_none() && self.mine(id).is_none()
    }

    fn counts(&self) -> Counts {
        self.rounds.counts()
    }

    fn file(&self, id: &str) -> PathBuf {
        let cachedir = StoreOptions::below(self.dir.path(), self.compat).cachedir;
        match self.compat {
            Compat::V3008 => cachedir.join("grains").join(format!("{id}.p")),
            _ => cachedir.join("minions").join(id).join("data.p"),
        }
    }
}

fn minion(id: &str) -> MinionId {
    MinionId::parse(id).expect("an id")
}

fn map(name: &str, value: &str) -> Value {
    Value::map([(name, Value::from(value))])
}

/// The time of files, so that they can be compared with it.
fn clock() -> Clock {
    Clock::manual(Clock::system().now())
}

/// An active member and one that stands by.
fn pair(compat: Compat) -> (Arc<Mutex<Rows>>, Clock, Machine, Machine) {
    let (rows, clock) = (Arc::default(), clock());
    let mut a = Machine::new(&rows, compat, &clock);
    let b = Machine::new(&rows, compat, &clock);
    a.take_over();
    (rows, clock, a, b)
}

mod faults;
mod forgotten;

#[test]
fn grains_and_mine_that_were_sent_to_one_master_are_those_of_the_next_one() {
    for compat in Compat::ALL {
        let (rows, _, mut a, mut b) = pair(compat);
        for number in 0..10 {
            a.store(&format!("m{number}"), "Debian");
        }
        let mine = map("network.ip_addrs", "192.0.2.1");
        assert!(
            a.store
                .mine_update(&minion("m1"), &mine, false)
                .expect("stored")
        );
        a.round();
        b.round();
        assert_eq!(
            (a.counts().written, b.counts().applied),
            (11, 11),
            "{compat:?}"
        );
        assert_eq!(b.os("m9").as_deref(), Some("Debian"));
        assert_eq!(b.mine("m1"), Some(mine));
        // Of a pillar nothing is known, which is something else than an empty one.
        assert_eq!(b.store.pillar(&minion("m1")).expect("read"), None);
        for (_, write) in rows.lock().rows.values() {
            let has = |part: &[u8]| write.row.sealed.windows(part.len()).any(|at| at == part);
            assert!(!has(b"Debian") && !has(b"network"), "sealed");
        }
        // The pillar of the one that has it stays.
        b.store("m2", "Fedora");
        b.round();
        a.store("m2", "Ubuntu");
        a.stop();
        b.round();
        assert_eq!(b.os("m2").as_deref(), Some("Ubuntu"));
        let pillar = b.store.pillar(&minion("m2")).expect("read");
        assert_eq!(pillar.as_deref(), Some(&map("secret", "m2")));

        // A takeover, and minions that send what they sent before, write nothing.
        let head = rows.lock().head;
        b.take_over();
        for number in 3..10 {
            b.store(&format!("m{number}"), "Debian");
        }
        b.round();
        assert_eq!(rows.lock().head, head, "{compat:?}");
    }
}

#[test]
fn what_is_removed_on_the_active_master_is_removed_on_the_others() {
    for compat in Compat::ALL {
        let (_, clock, mut a, mut b) = pair(compat);
        for id in ["m1", "m2", "m3"] {
            a.store(id, "Debian");
            let mine = map("test.ping", id);
            a.store
                .mine_update(&minion(id), &mine, false)
                .expect("stored");
        }
        a.round();
        b.round();
        assert!(a.store.purge(&minion("m1")).expect("purged"));
        assert!(a.store.mine_flush(&minion("m2")).expect("flushed"));
        // Gone and sent anew before its turn comes.
        a.store.purge(&minion("m3")).expect("purged");
        a.store("m3", "Fedora");
        clock.advance(Duration::from_micros(WRITE_INTERVAL.unsigned_abs()));
        a.round();
        b.round();
        assert_eq!((b.os("m1"), b.mine("m1")), (None, None), "{compat:?}");
        assert!(b.os("m2").is_some() && b.mine("m2").is_none());
        assert_eq!(b.os("m3").as_deref(), Some("Fedora"));
        assert_eq!(b.mine("m3"), None);

        // Also on one that stood still meanwhile, and has to read all.
        b.restart();
        let mut c = Machine::new(&a.rows, compat, &clock);
        c.store("m1", "Debian");
        b.round();
        c.round();
        assert_eq!((b.os("m1"), c.os("m1")), (None, None), "{compat:?}");
    }
}

#[test]
fn data_whose_files_another_process_removed_does_not_come_back_to_the_next_owner() {
    for compat in Compat::ALL {
        let (_, clock, mut a, mut b) = pair(compat);
        for id in ["deleted", "replaced", "unseen", "kept"] {
            a.store_all(id, "Debian");
        }
        a.round();
        b.round();
        for id in ["deleted", "replaced", "unseen", "kept"] {
            a.purge_elsewhere(id);
        }
        // The master sees that a key is gone, or that it is another one.
        assert!(!a.store.purge(&minion("deleted")).expect("purged"));
        a.store.note_owner(&minion("replaced"));
        clock.advance(Duration::from_micros(WRITE_INTERVAL.unsigned_abs()));
        a.round();
        b.round();
        // It does not, and finds it out.
        a.keyless.lock().insert("unseen".to_owned());
        clock.advance(Duration::from_secs(3600));
        a.round();
        b.round();
        for id in ["deleted", "replaced", "unseen"] {
            assert!(b.has_nothing_of(id), "{compat:?}: {id}");
        }
        // That its files are gone says nothing.
        assert_eq!(b.os("kept").as_deref(), Some("Debian"), "{compat:?}");
        a.restart();
        a.take_over();
        for id in ["deleted", "replaced", "unseen"] {
            assert!(a.has_nothing_of(id), "{compat:?}: {id}");
        }
    }
}

#[test]
fn pillar_goes_with_the_grains_and_an_empty_one_stays() {
    let secret = |member: &Machine, id: &str| member.store.pillar(&minion(id)).expect("read");
    let empty = Value::Map(Vec::new());
    for compat in Compat::ALL {
        let (_, _, mut a, mut b) = pair(compat);
        for id in ["gone", "cleared", "empty"] {
            // Of a time when it was the active one.
            b.store(id, "Debian");
            a.store(id, "Fedora");
        }
        b.store
            .store_with_pillarenv(&minion("gone"), &empty, &map("secret", "dev"), "dev")
            .expect("stored");
        b.store
            .store_grains_and_pillar(&minion("empty"), &map("os", "Debian"), &empty)
            .expect("stored");
        a.round();
        b.round();
        assert_eq!(b.os("gone").as_deref(), Some("Fedora"));
        assert_eq!(secret(&b, "empty").as_deref(), Some(&empty), "{compat:?}");
        // As of a release before.
        b.store
            .clear(&minion("cleared"), true, false)
            .expect("cleared");
        a.store.purge(&minion("gone")).expect("purged");
        a.store
            .clear(&minion("cleared"), true, false)
            .expect("cleared");
        let nothing = a
            .store
            .store_grains_and_pillar(&minion("empty"), &empty, &empty);
        nothing.expect("stored");
        a.stop();
        b.round();
        for id in ["gone", "cleared"] {
            assert_eq!(secret(&b, id), None, "{compat:?}: {id}");
            let dev = b.store.pillar_of(&minion(id), Some("dev")).expect("read");
            assert_eq!(dev, None, "{compat:?}: {id}");
        }
        assert_eq!(secret(&b, "empty").as_deref(), Some(&empty), "{compat:?}");
        let grains = b.store.grains(&minion("empty")).expect("read");
        assert_eq!(grains.as_deref(), Some(&empty), "{compat:?}");
    }
}

#[test]
fn changes_of_one_minion_are_written_once_a_minute_and_the_last_one_counts() {
    let (rows, clock, mut a, mut b) = pair(Compat::V3008);
    for number in 0..50 {
        a.store("m1", &number.to_string());
        a.round();
    }
    assert_eq!(rows.lock().writes, [1]);
    assert_eq!(a.rounds.pending(), 1);
    b.round();
    assert_eq!(b.os("m1").as_deref(), Some("0"));
    clock.advance(Duration::from_micros(WRITE_INTERVAL.unsigned_abs()));
    a.round();
    b.round();
    assert_eq!(b.os("m1").as_deref(), Some("49"));
    assert_eq!(
        (rows.lock().writes.as_slice(), a.rounds.pending()),
        (&[1, 1][..], 0)
    );
    // What is removed does not wait for it, and what comes after it does.
    a.store.purge(&minion("m1")).expect("purged");
    a.round();
    b.round();
    assert!(b.has_nothing_of("m1"));
    for _ in 0..5 {
        a.store("m1", "of another owner");
        a.round();
        a.store.purge(&minion("m1")).expect("purged");
        a.round();
    }
    // The tombstone, and the row about pillars.
    assert_eq!(rows.lock().writes, [1, 1, 2]);
    clock.advance(Duration::from_micros(WRITE_INTERVAL.unsigned_abs()));
    // One that ends in order waits for no turn.
    a.store("m1", "last");
    a.stop();
    b.round();
    assert_eq!(b.os("m1").as_deref(), Some("last"));
}

#[test]
fn last_round_writes_for_a_second_at_most_and_compares_nothing() {
    let (rows, clock, mut a, _) = pair(Compat::V3008);
    a.store("m1", "Debian");
    a.round();
    let writes = rows.lock().writes.len();
    rows.lock().slowness = Some((clock.clone(), Duration::from_millis(400)));
    for number in 0..2_000 {
        a.store(&format!("m{number}"), "Fedora");
    }
    // All files would be compared now.
    a.store.purge(&minion("m1")).expect("purged");
    a.keyless.lock().insert("m2".to_owned());
    clock.advance(Duration::from_secs(3600));
    a.stop();
    assert!(a.os("m2").is_some());
    assert_eq!(rows.lock().writes.len() - writes, 3);
    assert!(a.rounds.pending() > 0);
    // What is left is newer than the row, or there is none.
    rows.lock().slowness = None;
    a.restart();
    a.round();
    a.take_over();
    while a.rounds.pending() > 0 {
        a.round();
    }
    let mut c = Machine::new(&rows, Compat::V3008, &clock);
    c.round();
    assert_eq!(c.os("m1999").as_deref(), Some("Fedora"));
}

#[test]
fn kind_that_is_not_kept_is_neither_written_nor_taken() {
    let (rows, clock, mut a, mut b) = pair(Compat::V3008);
    a.store_all("m1", "Debian");
    a.round();
    let head = rows.lock().head;
    b.kinds = vec![DataKind::Grains];
    b.restart();
    b.round();
    assert_eq!(b.mine("m1"), None);
    b.take_over();
    let update = b
        .store
        .mine_update(&minion("m1"), &map("os", "Fedora"), false);
    assert!(update.expect("stored"));
    b.round();
    b.store.mine_flush(&minion("m1")).expect("flushed");
    clock.advance(Duration::from_micros(WRITE_INTERVAL.unsigned_abs()));
    b.round();
    assert_eq!((rows.lock().head, b.rounds.pending()), (head, 0));
    assert_eq!(b.store.removed(), []);
    a.restart();
    a.round();
    assert_eq!(a.mine("m1"), Some(map("os", "Debian")));
}

#[test]
fn nothing_is_lost_while_the_table_is_away() {
    let (rows, _, mut a, mut b) = pair(Compat::V3008);
    rows.lock().is_away = true;
    for number in 0..2_000 {
        a.store(&format!("m{number}"), "Debian");
    }
    assert!(a.try_round().is_err() && b.try_round().is_err());
    assert_eq!(a.rounds.pending(), 2_000);
    {
        let mut rows = rows.lock();
        (rows.is_away, rows.lost_answers) = (false, 1);
    }
    // An answer that is lost leads to the same rows once more.
    assert!(a.try_round().is_err());
    while a.rounds.pending() > 0 {
        a.round();
    }
    b.round();
    assert_eq!(b.counts().applied, 2_000);
    // In portions, so that jobs are committed between them.
    let writes = rows.lock().writes.clone();
    assert!(writes.iter().all(|rows| *rows <= 256), "{writes:?}");
}

#[test]
fn master_that_takes_over_keeps_what_it_was_sent_meanwhile_and_adds_what_the_table_lacks() {
    let (_, clock, mut a, mut b) = pair(Compat::V3007);
    a.store("m1", "Debian");
    a.store("m2", "Debian");
    a.round();
    // Of a time before there was a table.
    b.store("old", "Solaris");
    b.begin_takeover();
    b.store("m1", "Fedora");
    b.round();
    b.round();
    assert_eq!(b.os("m1").as_deref(), Some("Fedora"));
    assert_eq!(b.os("m2").as_deref(), Some("Debian"));
    // The one before writes nothing any more.
    a.store("m2", "late");
    a.stop();
    a.restart();
    clock.advance(Duration::from_secs(1));
    a.round();
    assert_eq!(a.os("m1").as_deref(), Some("Fedora"));
    assert_eq!(a.os("old").as_deref(), Some("Solaris"));
    // What no other member was ever given counts until one of them was sent something else.
    assert_eq!(a.os("m2").as_deref(), Some("late"));
    b.store("m2", "Ubuntu");
    b.round();
    a.round();
    assert_eq!(a.os("m2").as_deref(), Some("Ubuntu"));
}

#[test]
fn what_a_killed_master_had_not_written_is_newer_than_its_own_row() {
    for compat in Compat::ALL {
        let (_, clock, mut a, mut b) = pair(compat);
        for id in ["m1", "m2"] {
            a.store_all(id, "first");
        }
        a.round();
        b.round();
        a.store_all("m1", "second");
        // A file that another program put back is none of those.
        a.store("m2", "older");
        let file = fs::File::options().append(true).open(a.file("m2"));
        let time = clock.now() - Duration::from_secs(1);
        file.and_then(|file| file.set_modified(time))
            .expect("a time");
        a.restart();
        a.round();
        assert_eq!(a.os("m1").as_deref(), Some("second"), "{compat:?}");
        assert_eq!(a.os("m2").as_deref(), Some("first"), "{compat:?}");
        a.take_over();
        b.round();
        assert_eq!(b.os("m1").as_deref(), Some("second"), "{compat:?}");
        assert_eq!(b.mine("m1"), Some(map("os", "second")), "{compat:?}");
    }
}

#[test]
fn removal_is_not_lost_by_a_kill_before_the_table_has_it() {
    for compat in Compat::ALL {
        let (rows, clock, mut a, mut b) = pair(compat);
        for id in ["gone", "flushed", "again", "owned"] {
            a.store_all(id, "Debian");
        }
        a.round();
        b.round();
        rows.lock().is_away = true;
        for id in ["gone", "again", "owned"] {
            assert!(a.store.purge(&minion(id)).expect("purged"));
        }
        a.store.mine_flush(&minion("flushed")).expect("flushed");
        a.store("again", "Fedora");
        clock.advance(Duration::from_micros(WRITE_INTERVAL.unsigned_abs()));
        assert!(a.try_round().is_err());
        let list = StoreOptions::below(a.dir.path(), compat).cachedir;
        let list = list.join("saltern/cluster_removals");
        let mode = fs::metadata(&list).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        a.restart();
        rows.lock().is_away = false;
        // Of another owner, on the member that was active meanwhile.
        b.take_over();
        b.store.purge(&minion("owned")).expect("purged");
        b.store("owned", "Ubuntu");
        b.round();
        a.round();
        assert!(a.has_nothing_of("gone"), "{compat:?}");
        a.take_over();
        b.restart();
        b.round();
        for member in [&a, &b] {
            assert!(member.has_nothing_of("gone"), "{compat:?}");
            assert_eq!(member.os("flushed").as_deref(), Some("Debian"));
            assert_eq!(member.mine("flushed"), None, "{compat:?}");
            assert_eq!(member.os("again").as_deref(), Some("Fedora"));
            assert_eq!(member.mine("again"), None, "{compat:?}");
            assert_eq!(member.os("owned").as_deref(), Some("Ubuntu"));
            assert_eq!(member.mine("owned"), None, "{compat:?}");
        }
        assert!(!list.exists(), "all of it is in the table");
    }
}

#[test]
fn mine_that_is_changed_before_the_table_was_read_keeps_its_other_functions() {
    for compat in Compat::ALL {
        let (rows, _, mut a, mut b) = pair(compat);
        let all = ["update", "old", "clear", "delete", "flush", "owner", "gone"];
        let shared = Value::map([("f", "shared"), ("g", "shared")]);
        for id in all {
            a.store
                .mine_update(&minion(id), &shared, false)
                .expect("stored");
        }
        a.round();
        // Of a time long ago.
        b.store
            .mine_update(&minion("old"), &map("h", "old"), false)
            .expect("stored");
        b.begin_takeover();
        let sent = map("f", "sent");
        for id in ["update", "old"] {
            b.store
                .mine_update(&minion(id), &sent, false)
                .expect("sent");
        }
        b.store
            .mine_update(&minion("clear"), &sent, true)
            .expect("sent");
        b.store
            .mine_delete(&minion("delete"), &Value::from("g"))
            .expect("deleted");
        b.store.mine_flush(&minion("flush")).expect("flushed");
        b.store.purge(&minion("owner")).expect("purged");
        b.store
            .mine_update(&minion("owner"), &sent, false)
            .expect("sent");
        b.keyless.lock().insert("gone".to_owned());
        b.round();
        b.round();
        let both = Value::map([("g", "shared"), ("f", "sent")]);
        let expected = [
            Some(both.clone()),
            Some(both),
            Some(sent.clone()),
            Some(map("f", "shared")),
            None,
            Some(sent),
            None,
        ];
        // And so on a member that knows nothing but the table.
        let mut c = Machine::new(&rows, compat, &b.clock);
        c.round();
        for (id, expected) in all.iter().zip(expected) {
            assert_eq!(b.mine(id), expected, "{compat:?}: {id}");
            assert_eq!(c.mine(id), expected, "{compat:?}: {id}");
        }
    }
}

#[test]
fn file_of_a_time_without_rows_counts_and_an_older_one_does_not() {
    let (_, clock, mut a, mut b) = pair(Compat::V3008);
    a.store("m1", "row");
    a.store("m2", "row");
    a.round();
    b.store("m1", "file");
    b.store("m2", "file");
    let later = fs::File::options()
        .append(true)
        .open(b.file("m1"))
        .expect("a file");
    let time = clock.now() + Duration::from_secs(3600);
    later.set_modified(time).expect("a time");
    b.round();
    assert_eq!(b.os("m1").as_deref(), Some("file"));
    assert_eq!(b.os("m2").as_deref(), Some("row"));
    b.take_over();
    a.restart();
    a.round();
    assert_eq!(a.os("m1").as_deref(), Some("file"));
}

#[test]
fn rows_that_are_not_authentic_or_older_are_not_used() {
    let (rows, clock, mut a, mut b) = pair(Compat::V3008);
    for id in ["m1", "m2", "m3"] {
        a.store(id, "first");
    }
    a.round();
    let before: Vec<DataWrite> = {
        let rows = rows.lock();
        rows.rows.values().map(|(_, write)| write.clone()).collect()
    };
    b.round();
    clock.advance(Duration::from_micros(WRITE_INTERVAL.unsigned_abs()));
    for id in ["m1", "m2", "m3"] {
        a.store(id, "second");
    }
    a.round();
    b.round();
    {
        let mut rows = rows.lock();
        rows.head += 1;
        let head = rows.head;
        let [older, other, changed] = &before[..] else {
            panic!("three rows");
        };
        rows.rows.insert(older.row.id, (head, older.clone()));
        let mut renamed = rows.rows.get(&changed.row.id).expect("a row").1.clone();
        renamed.row.id = other.row.id;
        rows.rows.insert(other.row.id, (head, renamed));
        let (revision, write) = rows.rows.get_mut(&changed.row.id).expect("a row");
        *revision = head;
        let byte = write.row.sealed.get_mut(40).expect("a byte");
        *byte ^= 1;
    }
    b.round();
    assert_eq!(b.counts().refused, 3);
    for id in ["m1", "m2", "m3"] {
        assert_eq!(b.os(id).as_deref(), Some("second"));
    }
}

#[test]
fn older_row_that_somebody_put_back_is_not_used_and_the_active_master_replaces_it() {
    for compat in Compat::ALL {
        let (rows, clock, mut a, mut b) = pair(compat);
        for id in ["changed", "removed"] {
            a.store_all(id, "first");
        }
        a.round();
        b.round();
        let before: Vec<DataWrite> = {
            let rows = rows.lock();
            rows.rows.values().map(|(_, write)| write.clone()).collect()
        };
        clock.advance(Duration::from_micros(WRITE_INTERVAL.unsigned_abs()));
        a.store_all("changed", "second");
        a.store.purge(&minion("removed")).expect("purged");
        a.round();
        b.round();
        {
            let mut rows = rows.lock();
            rows.head += 1;
            let head = rows.head;
            for write in before {
                rows.rows.insert(write.row.id, (head, write));
            }
        }
        b.round();
        assert_eq!(b.counts().refused, 4, "{compat:?}");
        assert!(b.has_nothing_of("removed"), "{compat:?}");
        assert_eq!(b.os("changed").as_deref(), Some("second"), "{compat:?}");
        clock.advance(Duration::from_secs(10));
        a.round();
        assert_eq!((a.counts().refused, a.rounds.pending()), (4, 0));
        // One that has not seen the newer rows.
        let mut c = Machine::new(&rows, compat, &clock);
        c.round();
        b.round();
        assert!(c.has_nothing_of("removed"), "{compat:?}");
        assert_eq!(c.os("changed").as_deref(), Some("second"), "{compat:?}");
        assert_eq!(b.rounds.pending(), 0, "{compat:?}");
    }
}

#[test]
fn file_that_cannot_be_written_takes_nothing_from_the_others() {
    let (_, clock, mut a, mut b) = pair(Compat::V3008);
    a.store("m1", "Debian");
    a.store("m2", "Debian");
    a.round();
    // Whatever the user: a directory cannot be replaced by a file.
    fs::create_dir_all(b.file("m1")).expect("a directory");
    b.round();
    assert_eq!(
        (b.rounds.failed(), b.os("m2").as_deref()),
        (1, Some("Debian"))
    );
    b.take_over();
    b.round();
    a.restart();
    a.round();
    assert_eq!(
        a.os("m1").as_deref(),
        Some("Debian"),
        "it is not taken for removed"
    );
    fs::remove_dir(b.file("m1")).expect("removed");
    clock.advance(Duration::from_secs(3600));
    b.round();
    assert_eq!(
        (b.rounds.failed(), b.os("m1").as_deref()),
        (0, Some("Debian"))
    );
}

#[test]
fn damaged_file_is_not_shared_and_the_row_mends_it() {
    let garbage: [&[u8]; 3] = [b"", b"\x81\xa1", b"\xa1x"];
    for (compat, bytes) in Compat::ALL
        .into_iter()
        .flat_map(|compat| garbage.map(|bytes| (compat, bytes)))
    {
        let (rows, clock, mut a, mut b) = pair(compat);
        a.store("m1", "Debian");
        a.round();
        b.round();
        let head = rows.lock().head;
        for member in [&a, &b] {
            fs::write(member.file("m1"), bytes).expect("damaged");
            fs::create_dir_all(member.file("m2").parent().expect("one")).expect("made");
            fs::write(member.file("m2"), bytes).expect("damaged");
            let file = fs::File::options().append(true).open(member.file("m1"));
            let time = clock.now() + Duration::from_secs(7200);
            file.and_then(|file| file.set_modified(time))
                .expect("a time");
        }
        // It compares all of them once an hour.
        clock.advance(Duration::from_secs(3600));
        a.round();
        assert_eq!(rows.lock().head, head, "{compat:?}: {bytes:?}");
        assert!(a.counts().damaged >= 2);
        a.round();
        assert_eq!(
            a.os("m1").as_deref(),
            Some("Debian"),
            "{compat:?}: {bytes:?}"
        );
        assert_eq!((a.rounds.failed(), a.rounds.pending()), (0, 0));
        // One that starts reads them all.
        b.restart();
        b.round();
        assert_eq!(
            b.os("m1").as_deref(),
            Some("Debian"),
            "{compat:?}: {bytes:?}"
        );
        assert_eq!((b.counts().damaged, b.rounds.failed()), (1, 0));
    }
}

#[test]
fn table_that_went_back_gets_what_it_lacks_and_changes_nothing_on_the_active_master() {
    let (rows, clock, mut a, _) = pair(Compat::V3008);
    a.store("m1", "first");
    a.round();
    let (head, before) = {
        let rows = rows.lock();
        (rows.head, rows.rows.clone())
    };
    clock.advance(Duration::from_micros(WRITE_INTERVAL.unsigned_abs()));
    a.store("m1", "second");
    a.store("m2", "second");
    a.round();
    {
        let mut rows = rows.lock();
        (rows.head, rows.rows) = (head, before);
    }
    clock.advance(Duration::from_secs(3600));
    a.round();
    assert_eq!(a.os("m1").as_deref(), Some("second"));
    let mut c = Machine::new(&rows, Compat::V3008, &clock);
    c.round();
    assert_eq!(c.os("m1").as_deref(), Some("second"));
    assert_eq!(c.os("m2").as_deref(), Some("second"));
}

#[test]
fn data_that_is_too_large_is_counted_and_what_the_others_had_stays() {
    let (_, clock, mut a, mut b) = pair(Compat::V3008);
    a.store("m1", "Debian");
    a.round();
    clock.advance(Duration::from_micros(WRITE_INTERVAL.unsigned_abs()));
    a.store("m1", &"x".repeat(MAX_DATA_LEN));
    a.round();
    b.round();
    assert_eq!(a.counts().too_large, 1);
    assert_eq!(b.os("m1").as_deref(), Some("Debian"));
    a.store("m1", &"x".repeat(MAX_DATA_LEN - 100));
    a.round();
    b.round();
    assert_eq!(b.os("m1").map(|os| os.len()), Some(MAX_DATA_LEN - 100));
}
