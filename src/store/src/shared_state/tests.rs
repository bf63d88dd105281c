//! The state of one master on the next one, over a table in memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_crypto::{SecretBytes, StateCipher};
use saltern_model::{Compat, MinionId};
use tempfile::TempDir;

use super::*;
use crate::files::Version;
use crate::{Claims, Sessions, SharedKeys, StoreError, StoreOptions, Tokens};

/// Longer than a test takes.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Default)]
struct MemoryTable {
    rows: Mutex<BTreeMap<RowId, SealedRow>>,
    has_other_owner: AtomicBool,
    /// Failures to come before it answers again.
    failures: Mutex<u32>,
}

impl StateTable for MemoryTable {
    fn first_version(&self) -> i64 {
        1
    }

    fn write(&self, batch: &StateBatch) -> Result<bool> {
        if self.has_other_owner.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let mut failures = self.failures.lock();
        if *failures > 0 {
            *failures -= 1;
            let path = "memory".into();
            return Err(StoreError::Interrupted { path });
        }
        let mut rows = self.rows.lock();
        rows.extend(batch.written.iter().map(|row| (row.id, row.clone())));
        for id in &batch.removed {
            rows.remove(id);
        }
        Ok(true)
    }

    fn read_after(&self, row: Option<&RowId>) -> Result<Vec<SealedRow>> {
        let rows = self.rows.lock();
        let behind = rows
            .values()
            .filter(|one| row.is_none_or(|row| one.id > *row));
        Ok(behind.take(MAX_ROWS).cloned().collect())
    }
}

fn cipher(secret: u8) -> Arc<StateCipher> {
    let secret = SecretBytes::new(vec![secret; 32]);
    Arc::new(StateCipher::new(&secret, "saltern").expect("long enough"))
}

/// A machine with the files of a master.
struct Machine {
    dir: TempDir,
    options: StoreOptions,
    places: StatePlaces,
}

impl Machine {
    fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        let options = StoreOptions::below(dir.path(), Compat::V3008);
        let places = StatePlaces::new(&options.cachedir, &dir.path().join("tokens"));
        Self {
            dir,
            options,
            places,
        }
    }

    /// A master that takes over here.
    fn take_over(&self, table: &Arc<MemoryTable>, secret: u8) -> (Running, Restored) {
        let cipher = cipher(secret);
        let limits = (Path::new("memory"), PATIENCE);
        let state = SharedState::start(table.clone(), cipher.clone(), limits).expect("a thread");
        let restored = restore(&**table, &cipher, (&self.places, &state)).expect("restored");
        let (options, clock) = (&self.options, Clock::system);
        let keys = SharedKeys::with_options(options, clock()).expect("a key");
        let sessions = Sessions::with_options(options, clock()).expect("sessions");
        let tokens = Tokens::at(&self.dir.path().join("tokens"), Compat::V3008, clock());
        let running = Running {
            keys: keys.shared_by(&state),
            sessions: sessions.shared_by(&state),
            tokens: tokens.expect("tokens").shared_by(&state),
            state,
        };
        (running, restored)
    }

    /// Admits a minion, whose key is younger than no session.
    fn admit(&self, running: &Running, id: &str) -> String {
        let file = self.dir.path().join("key");
        fs::write(&file, "").expect("a file");
        let old = fs::File::options()
            .write(true)
            .open(&file)
            .expect("it opens");
        old.set_modified(std::time::SystemTime::UNIX_EPOCH)
            .expect("a time");
        let version = Version::of(&file, true)
            .expect("read")
            .expect("there")
            .version;
        let session = running.sessions.get_or_create(&minion(id), &version);
        session.expect("a session").key.as_str().to_owned()
    }
}

struct Running {
    keys: SharedKeys,
    sessions: Sessions,
    tokens: Tokens,
    state: SharedState,
}

impl Running {
    fn session(&self, id: &str) -> Option<String> {
        let session = self.sessions.get(&minion(id)).expect("read");
        session.map(|session| session.key.as_str().to_owned())
    }

    fn log_in(&self) -> String {
        let token = self.tokens.create(Claims {
            name: "ann".to_owned(),
            eauth: "file".to_owned(),
            groups: Vec::new(),
            auth_list: None,
            lasts: Duration::from_secs(3600),
        });
        let token = token.expect("a token");
        let name = token.to_value().get("token").and_then(|name| name.as_str());
        name.expect("a name").to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.state.close();
    }
}

fn minion(id: &str) -> MinionId {
    MinionId::parse(id).expect("an id")
}

#[test]
fn next_master_has_keys_serial_sessions_and_tokens_of_the_one_before() {
    let (first, second) = (Machine::new(), Machine::new());
    let table = Arc::<MemoryTable>::default();
    let stale = second.options.cachedir.join("sessions/stale");
    fs::create_dir_all(stale.parent().expect("a parent")).expect("a directory");
    fs::write(&stale, "a key of another time").expect("written");
    // It has a shared key of its own from its trial start.
    SharedKeys::with_options(&second.options, Clock::system()).expect("a key");

    let (a, restored) = first.take_over(&table, 1);
    assert_eq!(restored, Restored::default());
    let (m1, m2) = (first.admit(&a, "m1"), first.admit(&a, "m2"));
    let (kept, ended) = (a.log_in(), a.log_in());
    assert!(a.tokens.remove(&ended).expect("removed"));
    a.keys.rotate().expect("rotated");
    let (key, serial) = a.keys.next().expect("a number");
    assert!(a.sessions.remove(&minion("m2")).expect("removed"));
    a.state.flush().expect("written");
    assert_eq!(a.state.figures().pending, 0);

    let (b, restored) = second.take_over(&table, 1);
    assert_eq!((restored.rows, restored.unusable), (3, 0));
    assert_eq!((restored.written, restored.removed), (3, 1));
    assert!(!stale.exists());
    assert_eq!(b.session("m1").as_deref(), Some(m1.as_str()));
    assert_eq!(b.session("m2"), None);
    assert!(!m2.is_empty());
    assert!(b.tokens.find(&kept).expect("read").is_some());
    assert!(b.tokens.find(&ended).expect("read").is_none());
    let (same, next) = b.keys.next().expect("a number");
    assert!(
        same.key.same_as(&key.key) && next > serial,
        "{next} after {serial}"
    );
    assert!(b.keys.previous().is_some());
    let times = |machine: &Machine| {
        let file = machine.options.cachedir.join("sessions/m1");
        let version = Version::of(&file, false).expect("read").expect("there");
        version.version.modified_micros()
    };
    assert_eq!(times(&second), times(&first));

    // A second time there is nothing to do.
    b.state.flush().expect("written");
    let (_, again) = second.take_over(&table, 1);
    assert_eq!((again.rows, again.written, again.removed), (3, 0, 0));
}

#[test]
fn first_owner_of_a_table_gives_it_the_files_of_its_machine() {
    let (first, second) = (Machine::new(), Machine::new());
    let alone = Running {
        keys: SharedKeys::with_options(&first.options, Clock::system()).expect("a key"),
        sessions: Sessions::with_options(&first.options, Clock::system()).expect("sessions"),
        tokens: Tokens::at(
            &first.dir.path().join("tokens"),
            Compat::V3008,
            Clock::system(),
        )
        .expect("tokens"),
        state: SharedState::default(),
    };
    let (m1, token) = (first.admit(&alone, "m1"), alone.log_in());
    assert_eq!(alone.state.figures(), StateFigures::default());
    let table = Arc::<MemoryTable>::default();
    let (a, restored) = first.take_over(&table, 1);
    assert_eq!((restored.shared, restored.removed), (3, 0));
    assert_eq!(a.session("m1").as_deref(), Some(m1.as_str()));
    a.state.flush().expect("written");
    let (b, _) = second.take_over(&table, 1);
    assert_eq!(b.session("m1").as_deref(), Some(m1.as_str()));
    assert!(b.tokens.find(&token).expect("read").is_some());
    let key = &alone.keys.current().key;
    assert!(b.keys.current().key.same_as(key));
}

#[test]
fn rows_that_were_changed_renamed_or_sealed_by_others_are_not_used() {
    let (first, second) = (Machine::new(), Machine::new());
    let table = Arc::<MemoryTable>::default();
    let (a, _) = first.take_over(&table, 1);
    let keys = ["m1", "m2", "m3", "m4"].map(|id| first.admit(&a, id));
    a.state.flush().expect("written");
    let id_of = |id: &str| {
        let (kind, name) = (StateKind::Session, id.to_owned());
        row::StateName { kind, name }.row_id(&cipher(1))
    };
    {
        let mut rows = table.rows.lock();
        // Neither names nor keys are in it.
        for row in rows.values() {
            for part in keys.iter().map(String::as_str).chain(["m1", "session"]) {
                let has = |bytes: &[u8]| bytes.windows(part.len()).any(|at| at == part.as_bytes());
                assert!(part.len() < 7 || !has(&row.sealed), "{part}");
                assert!(part.len() < 7 || !has(&row.id), "{part}");
            }
        }
        rows.get_mut(&id_of("m1")).expect("a row").sealed[40] ^= 1;
        let of_second = rows.get(&id_of("m2")).expect("a row").clone();
        let third = rows.get_mut(&id_of("m3")).expect("a row");
        (third.version, third.sealed) = (of_second.version, of_second.sealed);
    }
    let (b, restored) = second.take_over(&table, 1);
    assert_eq!(restored.unusable, 2);
    let found = ["m1", "m2", "m3", "m4"].map(|id| b.session(id));
    assert_eq!(
        found,
        [None, Some(keys[1].clone()), None, Some(keys[3].clone())]
    );

    let (c, restored) = Machine::new().take_over(&table, 2);
    assert_eq!((restored.unusable, restored.written), (restored.rows, 0));
    assert_eq!(c.session("m4"), None);
}

#[test]
fn nothing_is_used_before_the_table_has_it() {
    let machine = Machine::new();
    let table = Arc::<MemoryTable>::default();
    let (a, _) = machine.take_over(&table, 1);
    let before = a.keys.current();
    *table.failures.lock() = 2;
    let after = a.keys.rotate().expect("it is tried again");
    assert!(!after.key.same_as(&before.key));

    table.has_other_owner.store(true, Ordering::Relaxed);
    let refused = a.keys.rotate().err().expect("another owner");
    assert!(matches!(refused, StoreError::NotShared { .. }), "{refused}");
    assert!(a.keys.current().key.same_as(&after.key));
    let token = a.log_in();
    assert!(a.tokens.remove(&token).is_err());
    assert!(a.tokens.find(&token).expect("read").is_none());
}

#[test]
fn secret_of_others_or_of_few_bytes_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("secret");
    assert!(read_secret(&path).expect("no file").is_none());
    assert!(create_secret(&path, None).expect("made"));
    assert!(!create_secret(&path, None).expect("there"));
    let secret = read_secret(&path).expect("read").expect("a secret");
    assert!(secret.expose().len() >= 64);
    let text = fs::read_to_string(&path).expect("a file") + "\n";
    fs::write(&path, text).expect("written");
    let same = read_secret(&path).expect("read").expect("a secret");
    assert_eq!(same.expose(), secret.expose());

    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode));
    let refusal = || read_secret(&path).err().map(|error| error.to_string());
    mode(0o400).expect("a mode");
    assert_eq!(refusal(), None);
    mode(0o640).expect("a mode");
    let said = refusal().expect("others may read it");
    assert!(said.contains("(mode 640): chmod 0400"), "{said}");
    mode(0o600).expect("a mode");
    fs::write(&path, "0123456789\n").expect("written");
    let said = refusal().expect("too short");
    assert!(said.contains("has 10 bytes"), "{said}");
}
