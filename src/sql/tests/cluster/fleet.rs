//! Grains of a large fleet, from one member to another by a real server: how long it takes, and what it takes there.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_crypto::{SecretBytes, StateCipher};
use saltern_model::{Compat, MinionId};
use saltern_sql::{Membership, init_cluster};
use saltern_store::minion_data::DataKind;
use saltern_store::shared_state::minion_data::{DataSyncParts, MinionDataSync};
use saltern_store::{MinionDataStore, StoreOptions};
use saltern_wire::msgpack::Value;
use tempfile::TempDir;

use crate::members::{GLANCE, config, is_active, join, me, standing};
use crate::site::Database;

const MINIONS: usize = 20_000;

/// Bytes of the grains of one of them, as those of a server are.
const GRAINS_LEN: usize = 8 << 10;

/// A member with its own `cachedir`.
struct Machine {
    dir: TempDir,
    store: Arc<MinionDataStore>,
    sync: MinionDataSync,
}

impl Machine {
    fn start(member: &Arc<Membership>, name: &str, fill: impl FnOnce(&MinionDataStore)) -> Self {
        let dir = TempDir::new().expect("a directory");
        let options = StoreOptions::below(dir.path(), Compat::V3008);
        let store = Arc::new(MinionDataStore::with_options(&options));
        fill(&store);
        let secret = SecretBytes::new(vec![1; 32]);
        let cipher = StateCipher::new(&secret, "saltern").expect("long enough");
        let parts = DataSyncParts {
            table: member.data_table().expect("a table"),
            cipher: Arc::new(cipher),
            instance: name.to_owned(),
            store: store.clone(),
            kinds: vec![DataKind::Grains],
            keys: None,
            is_admitted: Box::new(|| true),
            report: Box::new(|_| {}),
        };
        let sync = MinionDataSync::start(dir.path(), parts).expect("started");
        Self { dir, store, sync }
    }

    fn files(&self) -> usize {
        let grains = StoreOptions::below(self.dir.path(), Compat::V3008).cachedir;
        count(&grains.join("grains"))
    }
}

fn count(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

fn minion(number: usize) -> MinionId {
    MinionId::parse(&format!("web{number}.example.com")).expect("an id")
}

/// Grains that nothing compresses, as hashes and addresses are not.
fn grains(number: usize) -> Value {
    let mut state = number as u64 + 1;
    let bytes = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(b'0' + (state >> 60) as u8)
    });
    Value::map([("id", bytes.take(GRAINS_LEN).collect::<String>())])
}

fn seconds_until(is_done: impl Fn() -> bool) -> f64 {
    let clock = Clock::system();
    let began = clock.unix_micros();
    while !is_done() {
        thread::sleep(GLANCE);
    }
    Duration::from_micros(clock.unix_micros().abs_diff(began)).as_secs_f64()
}

#[test]
fn grains_of_20000_minions_are_written_by_one_member_and_read_by_another() {
    let database = Database::start();
    let config = config(&database);
    init_cluster(&config).expect("made");
    let (first, _losses) = join(&config, me("a", "a", "key"));
    standing(&first, is_active).expect("a member");
    let a = Machine::start(&first, "a", |store| {
        for number in 0..MINIONS {
            let stored = store.store_grains(&minion(number), &grains(number));
            stored.expect("stored");
        }
    });
    a.sync.begin_takeover();
    a.sync.finish_takeover();
    let number = |sql| database.server.count(sql);
    let rows = "SELECT count(*) FROM saltern.minion_data";
    let written = seconds_until(|| number(rows) == MINIONS as u64);
    let size = number("SELECT pg_total_relation_size('saltern.minion_data')") >> 20;

    let (second, _losses) = join(&config, me("b", "b", "key"));
    let b = Machine::start(&second, "b", |_| {});
    let read = seconds_until(|| b.files() == MINIONS);
    for number in [0, MINIONS / 2, MINIONS - 1] {
        let kept = b.store.grains(&minion(number)).expect("read");
        assert_eq!(kept.as_deref(), Some(&grains(number)));
    }
    println!("written in {written:.1} s, {size} MiB in the database, read in {read:.1} s");

    // A takeover of a member that has them all writes nothing, and does not wait for their comparison.
    a.sync.stop();
    first.leave();
    standing(&second, is_active).expect("it follows");
    let clock = Clock::system();
    let began = clock.unix_micros();
    b.sync.begin_takeover();
    b.sync.finish_takeover();
    let waited = clock.unix_micros() - began;
    println!("a takeover waited {} ms", waited / 1_000);
    assert!(waited < 1_000_000, "{waited} us");
    second.leave();
}
