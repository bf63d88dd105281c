//! The audit trail: a chain of hashes that shows every change, and that retention shortens from its
//! old end only.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use saltern_model::{AuditDoor, AuditRecord, AuditVerdict};
use saltern_store::sqlite::open_reader;
use saltern_store::{
    AuditBreak, AuditCheck, AuditHead, AuditPage, BrokenRow, DatabaseLimits, JobDatabase,
    JobQueries, Reason, Retention, Write, Written,
};
use tempfile::TempDir;

use crate::common::{audit_row as record, jid, job};

fn write(number: u32) -> Write {
    Write::Audit(Box::new(record(number)))
}

/// A database with rows 1 to `rows`, in commits of two.
fn filled(rows: u32) -> (TempDir, PathBuf, JobDatabase) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("jobs.sqlite");
    let mut database = JobDatabase::open(&path, DatabaseLimits::default()).expect("a database");
    let writes: Vec<Write> = (1..=rows).map(write).collect();
    for pair in writes.chunks(2) {
        database.commit(pair).expect("committed");
    }
    (dir, path, database)
}

fn reader(path: &Path) -> Arc<dyn JobQueries> {
    open_reader(path, DatabaseLimits::default()).expect("a reader")
}

fn check(path: &Path, noted: Option<AuditHead>) -> AuditCheck {
    reader(path).check_audit(noted).expect("checked")
}

fn broken(number: i64, fault: AuditBreak) -> Option<BrokenRow> {
    Some(BrokenRow { number, fault })
}

#[test]
fn rows_are_numbered_and_chained_across_commits_and_restarts() {
    let (_dir, path, mut database) = filled(5);
    let written = database
        .commit(&[Write::Job(job(9, &["a"])), write(6)])
        .expect("committed");
    assert_eq!(written.last(), Some(&Written::New { id: 6 }));
    drop(database);
    let mut database = JobDatabase::open(&path, DatabaseLimits::default()).expect("a database");
    database.commit(&[write(7)]).expect("committed");
    let checked = check(&path, None);
    assert_eq!((checked.rows, checked.broken), (7, None));
    assert_eq!(checked.head, database.audit_head());
    assert_eq!((checked.head.number, checked.anchor.number), (7, 0));
    let rows = reader(&path).audit(&AuditPage {
        limit: 10,
        ..AuditPage::default()
    });
    let rows = rows.expect("read");
    let numbers: Vec<i64> = rows.iter().map(|row| row.number).collect();
    assert_eq!(numbers, [7, 6, 5, 4, 3, 2, 1]);
    let written: Vec<AuditRecord> = rows.into_iter().rev().map(|row| row.record).collect();
    let expected: Vec<AuditRecord> = (1..=7).map(record).collect();
    assert_eq!(written, expected, "every field is read back");
}

#[test]
fn failed_commit_leaves_no_gap() {
    let (_dir, path, mut database) = filled(2);
    let raw = Connection::open(&path).expect("a connection");
    raw.execute_batch(
        "CREATE TRIGGER refuse BEFORE INSERT ON jobs BEGIN SELECT raise(ABORT, 'no'); END",
    )
    .expect("a trigger");
    database
        .commit(&[write(3), Write::Job(job(1, &[]))])
        .expect_err("the job cannot be written, nor its row");
    raw.execute_batch("DROP TRIGGER refuse").expect("dropped");
    let written = database.commit(&[write(3)]).expect("committed");
    assert_eq!(written, [Written::New { id: 3 }]);
    assert_eq!(check(&path, None).broken, None);
}

#[test]
fn change_of_any_column_is_found_at_its_row() {
    for (column, value) in [
        ("at", "4001"),
        ("door", "'console'"),
        ("user", "'root'"),
        ("backend", "'ldap'"),
        ("backend", "''"),
        ("proof", "'token'"),
        ("origin", "NULL"),
        ("cmd", "'runner'"),
        ("fun", "'test.pin'"),
        ("tgt", "'web1'"),
        ("tgt_type", "NULL"),
        ("arguments", "'[]'"),
        ("verdict", "'allowed'"),
        ("reason", "NULL"),
        ("jid", "NULL"),
        ("suppressed", "1"),
        ("hash", "zeroblob(32)"),
        ("hash", "x'00'"),
    ] {
        let (_dir, path, _database) = filled(9);
        let raw = Connection::open(&path).expect("a connection");
        let sql = format!("UPDATE audit SET {column} = {value} WHERE number = 4");
        assert_eq!(raw.execute(&sql, []).expect("changed"), 1);
        let checked = check(&path, None);
        assert_eq!(checked.broken, broken(4, AuditBreak::Content), "{column}");
        assert_eq!((checked.rows, checked.head.number), (3, 3), "{column}");
    }
}

#[test]
fn text_moved_from_one_column_to_the_next_is_found() {
    let (_dir, path, _database) = filled(3);
    let raw = Connection::open(&path).expect("a connection");
    raw.execute(
        "UPDATE audit SET cmd = 'publishtest', fun = '.ping' WHERE number = 2",
        [],
    )
    .expect("changed");
    assert_eq!(check(&path, None).broken, broken(2, AuditBreak::Content));
}

#[test]
fn removed_and_swapped_rows_are_found() {
    let (_dir, path, mut database) = filled(9);
    let raw = Connection::open(&path).expect("a connection");
    raw.execute("DELETE FROM audit WHERE number IN (3, 4)", [])
        .expect("removed");
    let gap = AuditBreak::Gap { first: 3, last: 4 };
    assert_eq!(check(&path, None).broken, broken(5, gap));

    // The end of it shows as soon as there is a further row, and at once beside a noted head.
    let head = database.audit_head();
    raw.execute("DELETE FROM audit WHERE number > 2", [])
        .expect("removed");
    assert_eq!(check(&path, None).broken, None);
    assert_eq!(
        check(&path, Some(head)).broken,
        broken(9, AuditBreak::Missing)
    );
    database.commit(&[write(10)]).expect("committed");
    let gap = AuditBreak::Gap { first: 3, last: 9 };
    assert_eq!(check(&path, None).broken, broken(10, gap));
}

#[test]
fn rewritten_chain_is_found_beside_a_noted_head_only() {
    let (_dir, path, database) = filled(6);
    let noted = database.audit_head();
    drop(database);
    let raw = Connection::open(&path).expect("a connection");
    raw.execute("DELETE FROM audit WHERE number > 3", [])
        .expect("removed");
    let mut forger = JobDatabase::open(&path, DatabaseLimits::default()).expect("a database");
    let writes: Vec<Write> = [7, 8, 9].map(write).into();
    forger.commit(&writes).expect("committed");
    assert_eq!(
        check(&path, None).broken,
        None,
        "whoever writes can rewrite"
    );
    assert_eq!(
        check(&path, Some(noted)).broken,
        broken(6, AuditBreak::NotAsNoted)
    );
    let text = noted.to_string();
    assert_eq!(text.parse(), Ok(noted));
    for text in [
        "",
        "6",
        "6:",
        "x:00",
        "-1:00",
        &format!("{text}0"),
        &text[1..],
    ] {
        assert!(text.parse::<AuditHead>().is_err(), "{text}");
    }
}

#[test]
fn retention_removes_the_old_end_and_keeps_the_anchor() {
    let (_dir, path, mut database) = filled(20);
    let noted = database.audit_head();
    let by_age = Retention {
        audit_before: Some(6_000),
        ..Retention::default()
    };
    let removed = database.remove_slice(&by_age, 3).expect("removed");
    assert_eq!(removed.map(|removed| removed.rows), Some(3), "a slice");
    while database
        .remove_slice(&by_age, 3)
        .expect("removed")
        .is_some()
    {}
    let checked = check(&path, Some(noted));
    assert_eq!((checked.anchor.number, checked.rows), (5, 15));
    assert_eq!(checked.broken, None);
    let by_count = Retention {
        most_audit: Some(4),
        ..Retention::default()
    };
    let removed = database.remove_slice(&by_count, 100).expect("removed");
    assert_eq!(removed.map(|removed| removed.reason), Some(Reason::Count));
    let old = AuditHead { number: 7, ..noted };
    assert_eq!(
        check(&path, Some(old)).broken,
        broken(7, AuditBreak::Removed)
    );

    // Even when all of them are gone, the numbers and the chain go on.
    let all = Retention {
        audit_before: Some(i64::MAX),
        ..Retention::default()
    };
    while database.remove_slice(&all, 100).expect("removed").is_some() {}
    drop(database);
    let mut database = JobDatabase::open(&path, DatabaseLimits::default()).expect("a database");
    assert_eq!(database.audit_head(), noted);
    let written = database.commit(&[write(21)]).expect("committed");
    assert_eq!(written, [Written::New { id: 21 }]);
    let checked = check(&path, Some(noted));
    assert_eq!((checked.rows, checked.broken), (1, None));

    let raw = Connection::open(&path).expect("a connection");
    raw.execute("UPDATE audit SET number = 3", [])
        .expect("changed");
    assert_eq!(
        check(&path, None).broken,
        broken(3, AuditBreak::BelowAnchor)
    );
}

/// A clock that was set back: an old row behind a young one stays, so that there is no gap.
#[test]
fn retention_leaves_no_gap_when_the_clock_was_set_back() {
    let (_dir, path, mut database) = filled(0);
    let at = |at| {
        let record = AuditRecord { at, ..record(1) };
        Write::Audit(Box::new(record))
    };
    database
        .commit(&[at(1), at(50), at(2), at(60)])
        .expect("committed");
    let retention = Retention {
        audit_before: Some(10),
        ..Retention::default()
    };
    while database
        .remove_slice(&retention, 100)
        .expect("removed")
        .is_some()
    {}
    let checked = check(&path, None);
    assert_eq!((checked.anchor.number, checked.rows), (1, 3));
    assert_eq!(checked.broken, None);
}

#[test]
fn row_of_a_job_is_found_by_its_time() {
    let (_dir, path, _database) = filled(9);
    let reader = reader(&path);
    let number = |of: u32, at: i64| {
        let row = reader.audit_of_job(&jid(of), at).expect("read");
        row.map(|row| row.number)
    };
    for of in 1..=9 {
        assert_eq!(number(of, i64::from(of) * 1_000), Some(i64::from(of)));
    }
    // Long after the last row there is none to look at.
    assert_eq!(number(9, 60_000_000), None);
    assert_eq!(number(10, 10_000), None);
    let (_dir, path, _database) = filled(0);
    let none = self::reader(&path).audit_of_job(&jid(1), 1_000);
    assert_eq!(none.expect("read"), None);
}

#[test]
fn pages_are_filtered_and_walked_by_number() {
    let (_dir, path, _database) = filled(12);
    let reader = reader(&path);
    let numbers = |page: AuditPage<'_>| -> Vec<i64> {
        let rows = reader.audit(&page).expect("read");
        rows.iter().map(|row| row.number).collect()
    };
    let all = || AuditPage {
        limit: 100,
        ..AuditPage::default()
    };
    assert_eq!(
        numbers(AuditPage {
            user: Some("user1"),
            ..all()
        }),
        [10, 7, 4, 1]
    );
    let api = Some(AuditDoor::Api);
    assert_eq!(
        numbers(AuditPage {
            door: api,
            limit: 2,
            ..all()
        }),
        [11, 9]
    );
    assert_eq!(
        numbers(AuditPage {
            door: api,
            limit: 2,
            before: Some(9),
            ..all()
        }),
        [7, 5]
    );
    let refused = Some(AuditVerdict::Refused);
    assert_eq!(
        numbers(AuditPage {
            verdict: refused,
            ..all()
        }),
        [12, 8, 4]
    );
    let range = AuditPage {
        since: Some(3_000),
        until: Some(5_000),
        ..all()
    };
    assert_eq!(numbers(range), [4, 3]);
    assert!(
        numbers(AuditPage {
            fun: Some("state.*"),
            ..all()
        })
        .is_empty()
    );
    assert_eq!(
        numbers(AuditPage {
            fun: Some("test.*"),
            ..all()
        })
        .len(),
        12
    );
}

#[test]
fn database_of_the_layout_before_gets_an_empty_trail() {
    let (_dir, path, database) = filled(1);
    drop(database);
    let raw = Connection::open(&path).expect("a connection");
    let before: i64 = raw
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .expect("a version");
    raw.execute_batch(
        "DROP TABLE audit;
         ALTER TABLE batches DROP COLUMN paused_since;
         ALTER TABLE jobs DROP COLUMN returns_before;",
    )
    .expect("dropped");
    raw.pragma_update(None, "user_version", before - 3)
        .expect("set back");
    drop(raw);
    let mut database = JobDatabase::open(&path, DatabaseLimits::default()).expect("migrated");
    assert_eq!(database.audit_head().number, 0);
    database.commit(&[write(1)]).expect("committed");
    assert_eq!(check(&path, None).rows, 1);
}

/// The recovered database has another identity, from which a chain of its own would begin.
#[test]
fn recovered_database_keeps_the_chain() {
    for prune in [false, true] {
        let (_dir, path, mut database) = filled(300);
        if prune {
            let most = Retention {
                most_audit: Some(200),
                ..Retention::default()
            };
            database.remove_slice(&most, 1_000).expect("removed");
        }
        let noted = database.audit_head();
        let jobs: Vec<Write> = (0..400)
            .map(|number| Write::Job(job(number, &["a"])))
            .collect();
        database.commit(&jobs).expect("committed");
        database.checkpoint().expect("checkpointed");
        drop(database);
        let raw = Connection::open(&path).expect("a connection");
        let page: u64 = raw
            .query_row(
                "SELECT rootpage FROM sqlite_schema WHERE name = 'jobs'",
                [],
                |row| row.get::<_, u32>(0).map(u64::from),
            )
            .expect("a page");
        drop(raw);
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .expect("the file");
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xa5; 4096], (page - 1) * 4096)
            .expect("damaged");
        let limits = DatabaseLimits::default();
        let (database, recovered) =
            JobDatabase::open_or_recover(&path, limits, 77, &|| false).expect("a database");
        assert!(recovered.is_some(), "it was damaged");
        assert_eq!(database.audit_head(), noted);
        let checked = check(&path, Some(noted));
        assert_eq!(checked.broken, None, "pruned: {prune}");
        assert_eq!(checked.rows, if prune { 200 } else { 300 });
    }
}
