//! A damaged job database: what can be read of it is in the new one.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use saltern_store::{DatabaseLimits, JobDatabase, JobState, Recovered, StoreError, Write, Written};
use saltern_wire::msgpack::Value;
use tempfile::TempDir;

use crate::common::{jid, job, ret};

/// A database of this many jobs, each with one return; closed, its log checkpointed.
fn filled(jobs: u32) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("jobs.sqlite");
    let mut database = JobDatabase::open(&path, DatabaseLimits::default()).expect("a database");
    for number in 0..jobs {
        let mut writes = vec![
            Write::Job(job(number, &["a", "b"])),
            Write::Return(ret(number, "a", Value::from("x".repeat(700)))),
        ];
        if number > 0 {
            writes.push(Write::JobState {
                jid: jid(number),
                state: JobState::Expired,
                at: 7,
                notes: None,
            });
        }
        database.commit(&writes).expect("committed");
    }
    database.checkpoint().expect("checkpointed");
    (dir, path)
}

fn recover(path: &Path) -> (JobDatabase, Recovered) {
    let limits = DatabaseLimits::default();
    let opened = JobDatabase::open_or_recover(path, limits, 77, &|| false);
    let (database, recovered) = opened.expect("a database");
    (database, recovered.expect("it was damaged"))
}

fn damage(path: &Path, at: u64, bytes: usize) {
    let file = OpenOptions::new().write(true).open(path).expect("the file");
    file.write_all_at(&vec![0xa5; bytes], at).expect("damage");
}

#[test]
fn intact_database_is_opened_unchanged() {
    let (_dir, path) = filled(3);
    let limits = DatabaseLimits::default();
    let (database, recovered) =
        JobDatabase::open_or_recover(&path, limits, 77, &|| false).expect("a database");
    assert_eq!(recovered, None);
    let counts = database.reader().expect("a reader").counts();
    assert_eq!(counts.expect("counted"), (3, 3));
}

#[test]
fn damaged_pages_lose_only_their_rows() {
    let (_dir, path) = filled(400);
    let pages = fs::metadata(&path).expect("the file").len() / 4096;
    // Neither the first pages, which hold the roots, nor everything behind.
    for page in [pages / 3, pages / 2, pages / 2 + 1] {
        damage(&path, page * 4096, 4096);
    }
    let before = fs::read(&path).expect("the file");
    let (mut database, recovered) = recover(&path);
    // A page has some 30 jobs, or as many returns.
    assert!(recovered.jobs >= 350, "{recovered:?}");
    assert!((350..400).contains(&recovered.returns), "{recovered:?}");
    assert!(!recovered.is_cut_short);
    assert!(recovered.set_aside.ends_with("jobs.sqlite.damaged-77"));
    let kept = fs::read(&recovered.set_aside).expect("the damaged file");
    assert!(kept == before, "the damaged file stays as it was");
    let reader = database.reader().expect("a reader");
    assert_eq!(
        reader.counts().expect("counted"),
        (recovered.jobs, recovered.returns)
    );
    // An open job is open, an ended one has ended as it did.
    let open = reader.open_jobs().expect("read");
    assert!(open.iter().all(|open| open.job.record.jid == jid(0)));
    let last = reader.load(&jid(399)).expect("read").expect("a job");
    assert_eq!((last.state, last.finished), (JobState::Expired, Some(7)));
    assert_eq!(last.record.minions.len(), 2);
    // Numbers go on behind those that were there.
    let written = database
        .commit(&[Write::Job(job(900, &[]))])
        .expect("committed");
    assert_eq!(written, [Written::New { id: last.id + 1 }]);
    drop(database);
    JobDatabase::open(&path, DatabaseLimits::default()).expect("whole again");
}

#[test]
fn database_without_first_page_is_recovered() {
    for bytes in [100, 4096] {
        let (_dir, path) = filled(300);
        damage(&path, 0, bytes);
        let (_, recovered) = recover(&path);
        assert_eq!((recovered.jobs, recovered.returns), (300, 300));
        let mut page = recovered.set_aside.into_os_string();
        page.push(".first-page");
        assert_eq!(fs::read(page).expect("the old page")[..100], [0xa5; 100]);
    }
}

#[test]
fn truncated_database_loses_only_its_tail() {
    let (_dir, path) = filled(300);
    let size = fs::metadata(&path).expect("the file").len();
    let file = OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("the file");
    file.set_len(size / 4096 * 2 / 3 * 4096).expect("cut");
    let (_, recovered) = recover(&path);
    assert!((100..300).contains(&recovered.returns), "{recovered:?}");
}

#[test]
fn file_that_is_no_database_is_replaced_by_a_new_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("jobs.sqlite");
    fs::write(&path, "no database, but long enough to be one".repeat(999)).expect("a file");
    let (database, recovered) = recover(&path);
    assert_eq!((recovered.jobs, recovered.returns), (0, 0));
    let counts = database.reader().expect("a reader").counts();
    assert_eq!(counts.expect("counted"), (0, 0));
    assert!(recovered.set_aside.exists());
}

#[test]
fn recovery_past_its_time_limit_keeps_the_damaged_file() {
    let (_dir, path) = filled(300);
    damage(&path, 5 * 4096, 4096);
    let limits = DatabaseLimits::default();
    let opened = JobDatabase::open_or_recover(&path, limits, 77, &|| true);
    let recovered = opened.expect("a database").1.expect("it was damaged");
    assert!(recovered.is_cut_short);
    assert_eq!(recovered.jobs, 0);
}

#[test]
fn a_large_database_that_was_found_damaged_is_examined_at_the_next_start() {
    let (_dir, path) = filled(300);
    let limits = DatabaseLimits {
        check_bytes: 0,
        ..DatabaseLimits::default()
    };
    let pages = fs::metadata(&path).expect("the file").len() / 4096;
    for page in pages / 4..pages * 3 / 4 {
        damage(&path, page * 4096, 4096);
    }
    // Not examined as a whole, so it opens.
    let mut database = JobDatabase::open(&path, limits).expect("not examined");
    let error = (0..300)
        .find_map(|number| {
            database
                .commit(&[Write::Return(ret(number, "new", Value::Nil))])
                .err()
        })
        .expect("the damage is met");
    assert!(error.is_corrupt(), "{error}");
    drop(database);
    let error = JobDatabase::open(&path, limits).err().expect("examined");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    let (database, recovered) =
        JobDatabase::open_or_recover(&path, limits, 77, &|| false).expect("a database");
    assert!(recovered.is_some());
    drop(database);
    JobDatabase::open(&path, limits).expect("whole again");
}

#[test]
fn every_table_of_the_layout_is_recovered() {
    let (_dir, path) = filled(1);
    let raw = rusqlite::Connection::open(&path).expect("sqlite");
    raw.execute_batch(
        "INSERT INTO batches (jid, is_open, plan) VALUES ('1', 1, x'80');
         INSERT INTO batch_failed (jid, reason, minions) VALUES ('1', 'timeout', '[]');
         INSERT INTO events (received, tag, data) VALUES (1, 'a/tag', x'80');
         INSERT INTO minion_events (received, tag, data) VALUES (1, 'a/tag', x'80');
         INSERT INTO audit (at, door, user, proof, cmd, fun, arguments, verdict, suppressed, hash)
             VALUES (1, 'port', 'root', 'key', 'publish', 'x.y', '[]', 'allowed', 0, x'80');",
    )
    .expect("a batch");
    let tables = |connection: &rusqlite::Connection| -> Vec<(String, i64)> {
        let names: Vec<String> = connection
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'meta'")
            .expect("prepared")
            .query_map([], |row| row.get(0))
            .expect("read")
            .collect::<Result<_, _>>()
            .expect("names");
        let count = |name: &String| {
            let sql = format!("SELECT count(*) FROM {name}");
            connection.query_row(&sql, [], |row| row.get(0))
        };
        let counts = names.iter().map(|name| count(name).expect("counted"));
        names.iter().cloned().zip(counts).collect()
    };
    let before = tables(&raw);
    assert!(before.iter().all(|(_, rows)| *rows > 0), "{before:?}");
    drop(raw);
    damage(&path, 0, 100);
    let (database, _) = recover(&path);
    drop(database);
    let raw = rusqlite::Connection::open(&path).expect("sqlite");
    assert_eq!(tables(&raw), before);
}

#[test]
fn interrupted_recovery_restarts() {
    let (_dir, path) = filled(300);
    damage(&path, 0, 100);
    // What a process leaves that died while it copied.
    let half = path.with_extension("sqlite.recovering");
    drop(JobDatabase::open(&half, DatabaseLimits::default()).expect("a database"));
    let (_, recovered) = recover(&path);
    assert_eq!((recovered.jobs, recovered.returns), (300, 300));
    assert!(!half.exists());
}

#[test]
fn completed_recovery_is_moved_into_place_after_a_crash() {
    let (_dir, path) = filled(300);
    let built = path.with_extension("sqlite.recovered");
    fs::copy(&path, &built).expect("a copy");
    damage(&path, 0, 4096);
    let limits = DatabaseLimits::default();
    let (database, recovered) =
        JobDatabase::open_or_recover(&path, limits, 78, &|| false).expect("a database");
    assert_eq!(recovered, None);
    let counts = database.reader().expect("a reader").counts();
    assert_eq!(counts.expect("counted"), (300, 300));
    assert!(path.with_extension("sqlite.damaged-78").exists() && !built.exists());
}
