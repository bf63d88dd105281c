//! The job database: commits are durable and idempotent; corruption and a full disk are distinct
//! errors.
//!
//! Longer than 500 lines because it is a list: one test a promise of the database.

use std::fs;
use std::io::{Seek, SeekFrom, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use saltern_model::{Compat, MinionId, Packed, ReturnRecord};
use saltern_store::jobs::{IncompleteJob, JobQueries, Scrub, ScrubSlice};
use saltern_store::sqlite::{Scrubber, open_reader};
use saltern_store::{
    DatabaseLimits, JobDatabase, JobState, Reason, Removed, Retention, StoreError, Write, Written,
    set_aside,
};
use saltern_wire::msgpack::{Dialect, Value, encode};
use tempfile::TempDir;

use crate::common::{id, jid, job, mode, place, ret};

fn open() -> (TempDir, JobDatabase) {
    let (dir, options) = place(Compat::V3008);
    fs::create_dir_all(options.private_dir()).expect("a directory");
    let database = JobDatabase::open(&options.job_database, DatabaseLimits::default());
    (dir, database.expect("a database"))
}

fn names(minions: &[MinionId]) -> Vec<&str> {
    minions.iter().map(MinionId::as_str).collect()
}

fn older_than(before: i64) -> Retention {
    Retention {
        before: Some(before),
        ..Retention::default()
    }
}

/// Removes whatever need not be kept; says what went with each slice.
fn remove(database: &mut JobDatabase, retention: Retention, slice: usize) -> Vec<Removed> {
    std::iter::from_fn(|| database.remove_slice(&retention, slice).expect("removed")).collect()
}

#[test]
fn a_job_is_found_again_with_all_it_expects() {
    let (_dir, mut database) = open();
    let written = database
        .commit(&[
            Write::Job(job(1, &["b", "a"])),
            Write::Expected {
                jid: jid(1),
                minions: vec![id("c"), id("a")],
            },
            Write::Expected {
                jid: jid(9),
                minions: vec![id("a")],
            },
        ])
        .expect("committed");
    assert_eq!(
        written,
        [Written::New { id: 1 }, Written::Updated, Written::NoSuchJob]
    );
    let reader = database.reader().expect("a reader");
    let stored = reader.load(&jid(1)).expect("read").expect("a job");
    assert_eq!(names(&stored.record.minions), ["a", "b", "c"]);
    assert_eq!(stored.record.load.as_ref(), job(1, &[]).load.as_ref());
    assert_eq!(stored.record.created, job(1, &[]).created);
    assert_eq!(stored.state, JobState::Open);
    assert!(reader.load(&jid(2)).expect("read").is_none());
    assert_eq!(mode(database.path()), 0o600);
}

#[test]
fn a_return_is_recorded_once() {
    let (_dir, mut database) = open();
    let first = Write::Return(ret(1, "m1", Value::from("first")));
    let again = Write::Return(ret(1, "m1", Value::from("second")));
    let other = Write::Return(ret(1, "m2", Value::from("other")));
    let written = database
        .commit(&[first.clone(), again.clone(), other])
        .expect("committed");
    assert_eq!(
        written,
        [
            Written::New { id: 1 },
            Written::Duplicate,
            Written::New { id: 2 }
        ]
    );
    assert_eq!(
        database.commit(&[again]).expect("committed"),
        [Written::Duplicate]
    );
    assert_eq!(
        database
            .commit(std::slice::from_ref(&first))
            .expect("committed"),
        [Written::Repeated { id: 1 }]
    );
    let reader = database.reader().expect("a reader");
    let returns = reader.returns(&jid(1)).expect("read");
    assert_eq!(returns.len(), 2);
    let Write::Return(first) = first else {
        unreachable!("it is a return")
    };
    assert_eq!(returns[0].load, first.load);
    assert_eq!(returns[0].received, first.received);
    assert!(returns[0].success);
    let one = reader.return_of(&jid(1), &id("m2")).expect("read");
    assert_eq!(one.map(|record| record.minion), Some(id("m2")));
}

#[test]
fn jid_is_unique_except_for_parts_of_a_batch() {
    let (_dir, mut database) = open();
    database
        .commit(&[Write::Job(job(1, &["a"]))])
        .expect("committed");
    let written = database
        .commit(&[Write::Job(job(1, &["b"]))])
        .expect("committed");
    assert_eq!(written, [Written::Duplicate]);
    let closed = Write::JobState {
        jid: jid(1),
        state: JobState::Complete,
        at: 7,
        notes: Some(Bytes::from_static(b"notes")),
    };
    let mut part = job(1, &["b"]);
    part.fun = "test.version".to_owned();
    let written = database
        .commit(&[closed, Write::JobPart(part)])
        .expect("committed");
    assert_eq!(written, [Written::Updated, Written::Updated]);
    let reader = database.reader().expect("a reader");
    let stored = reader.load(&jid(1)).expect("read").expect("a job");
    assert_eq!(names(&stored.record.minions), ["a", "b"]);
    assert_eq!(stored.record.fun, "test.version");
    assert_eq!(stored.state, JobState::Open);
    assert_eq!(stored.notes.as_deref(), Some(&b"notes"[..]));
}

#[test]
fn a_job_that_comes_with_its_return_changes_no_verdict() {
    let (_dir, mut database) = open();
    let expired = Write::JobState {
        jid: jid(1),
        state: JobState::Expired,
        at: 7,
        notes: None,
    };
    let late = Write::Return(ret(1, "a", Value::from("late")));
    let other = Write::Return(ret(2, "a", Value::from("other")));
    let written = database
        .commit(&[
            Write::Job(job(1, &["a", "b"])),
            expired,
            closed(1, None),
            late,
            closed(2, None),
            other,
        ])
        .expect("committed");
    assert_eq!(written[2], Written::Duplicate);
    assert!(written[3].is_new() && written[4].is_new());
    let reader = database.reader().expect("a reader");
    let ended = |number| {
        let job = reader.load(&jid(number)).expect("read").expect("a job");
        (job.state, job.finished)
    };
    assert_eq!(ended(1), (JobState::Expired, Some(7)));
    let created = job(2, &[]).created;
    assert_eq!(ended(2), (JobState::Complete, Some(created)));
}

#[test]
fn open_jobs_come_back_with_who_returned() {
    let (_dir, mut database) = open();
    database
        .commit(&[
            Write::Job(job(1, &["a", "b"])),
            Write::Job(job(2, &["a"])),
            Write::Return(ret(1, "b", Value::Nil)),
            Write::JobState {
                jid: jid(2),
                state: JobState::Complete,
                at: 7,
                notes: None,
            },
        ])
        .expect("committed");
    let path = database.path().to_path_buf();
    drop(database);
    let database = JobDatabase::open(&path, DatabaseLimits::default()).expect("reopened");
    let open = database
        .reader()
        .expect("a reader")
        .open_jobs()
        .expect("read");
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].job.record.jid, jid(1));
    assert_eq!(names(&open[0].job.record.minions), ["a", "b"]);
    assert_eq!(open[0].returned, [(id("b"), 0)]);
}

#[test]
fn summaries_of_jobs_and_returns_leave_out_loads() {
    let (_dir, mut database) = open();
    let failed = ReturnRecord {
        retcode: 3,
        ..ret(1, "b", Value::Nil)
    };
    database
        .commit(&[
            Write::Job(job(1, &["a", "b"])),
            Write::Job(job(2, &["a"])),
            Write::Expected {
                jid: jid(1),
                minions: vec![id("c")],
            },
            Write::Return(failed),
            Write::Return(ret(1, "a", Value::Nil)),
            Write::JobState {
                jid: jid(2),
                state: JobState::Expired,
                at: 7,
                notes: None,
            },
        ])
        .expect("committed");
    let reader = database.reader().expect("a reader");
    let latest = reader.latest_jobs(1).expect("read");
    assert_eq!(latest.len(), 1);
    assert_eq!(
        (&latest[0].jid, latest[0].state, latest[0].finished),
        (&jid(2), JobState::Expired, Some(7))
    );
    let both = reader.latest_jobs(9).expect("read");
    let first = &both[1];
    assert_eq!((&*first.fun, &*first.tgt), ("test.ping", "*"));
    assert_eq!((first.expected, first.returned, first.failed), (3, 2, 1));
    let heads = reader.return_heads(&jid(1)).expect("read");
    let heads: Vec<_> = heads
        .iter()
        .map(|head| (head.minion.as_str(), head.retcode))
        .collect();
    assert_eq!(heads, [("b", 3), ("a", 0)]);
}

#[test]
fn followers_see_every_row_once_and_in_order() {
    let (_dir, mut database) = open();
    let reader = database.reader().expect("a reader");
    let mut cursor = 0;
    let mut seen = Vec::new();
    for round in 0..4_u32 {
        let writes: Vec<Write> = (0..5)
            .map(|number| Write::Return(ret(number, &format!("m{round}"), Value::Nil)))
            .collect();
        database.commit(&writes).expect("committed");
        loop {
            let rows = reader.returns_after(cursor, 3).expect("read");
            let Some(last) = rows.last() else { break };
            cursor = last.id;
            seen.extend(rows.iter().map(|row| row.id));
        }
    }
    assert_eq!(seen, (1..=20).collect::<Vec<i64>>());
    assert_eq!(reader.last_ids().expect("read"), (0, 20));
    assert_eq!(reader.counts().expect("read"), (0, 20));
}

#[test]
fn numbers_are_not_used_again_after_everything_expired() {
    let (_dir, mut database) = open();
    let path = database.path().to_path_buf();
    database
        .commit(&[
            Write::Job(job(1, &["a"])),
            Write::Return(ret(1, "a", Value::Nil)),
            Write::Return(ret(1, "b", Value::Nil)),
        ])
        .expect("committed");
    remove(&mut database, older_than(i64::MAX), 1);
    drop(database);
    let mut database = JobDatabase::open(&path, DatabaseLimits::default()).expect("reopened");
    let written = database
        .commit(&[
            Write::Job(job(2, &["a"])),
            Write::Return(ret(2, "a", Value::Nil)),
        ])
        .expect("committed");
    assert_eq!(written, [Written::New { id: 2 }, Written::New { id: 3 }]);
}

#[test]
fn retention_by_age_removes_jobs_and_their_rows_in_slices() {
    let (_dir, mut database) = open();
    let mut writes = vec![Write::Job(job(1, &["a"])), Write::Job(job(2, &["a"]))];
    for number in [1, 2, 7] {
        for minion in 0..10 {
            writes.push(Write::Return(ret(
                number,
                &format!("m{minion}"),
                Value::Nil,
            )));
        }
    }
    database.commit(&writes).expect("committed");
    let reader = database.reader().expect("a reader");
    // Job 1 is old, job 2 is not; the returns of 7 have no job and came before the cutoff.
    let cutoff = job(2, &[]).created;
    let slices = remove(&mut database, older_than(cutoff), 4).len();
    assert!(slices >= 3, "{slices}");
    assert!(reader.load(&jid(1)).expect("read").is_none());
    assert_eq!(reader.returns(&jid(1)).expect("read").len(), 0);
    assert_eq!(reader.returns(&jid(2)).expect("read").len(), 10);
    // They are younger than the cutoff by when they arrived, so they stay as well.
    assert_eq!(reader.returns(&jid(7)).expect("read").len(), 10);
    let cutoff = ret(7, "m", Value::Nil).received + 1;
    remove(&mut database, older_than(cutoff), 4);
    assert_eq!(reader.counts().expect("read"), (0, 0));
}

#[test]
fn a_deleted_job_leaves_nothing() {
    let (_dir, mut database) = open();
    let delete = Write::DeleteJob { jid: jid(1) };
    database
        .commit(&[
            Write::Job(job(1, &["a"])),
            Write::Return(ret(1, "a", Value::Nil)),
        ])
        .expect("committed");
    let written = database
        .commit(std::slice::from_ref(&delete))
        .expect("committed");
    assert_eq!(written, [Written::Deleted { rows: 3 }]);
    let written = database.commit(&[delete]).expect("committed");
    assert_eq!(written, [Written::Deleted { rows: 0 }]);
}

/// Ten jobs with a return each, the third open.
fn ten_jobs(database: &mut JobDatabase, bytes: usize) {
    for number in 0..10 {
        let mut writes = vec![
            Write::Job(job(number, &["a"])),
            Write::Return(ret(number, "a", Value::from("x".repeat(bytes)))),
        ];
        if number != 3 {
            writes.push(Write::JobState {
                jid: jid(number),
                state: JobState::Complete,
                at: 0,
                notes: None,
            });
        }
        database.commit(&writes).expect("committed");
    }
}

fn numbers_left(database: &JobDatabase) -> Vec<u32> {
    let reader = database.reader().expect("a reader");
    (0..20)
        .filter(|number| reader.load(&jid(*number)).expect("read").is_some())
        .collect()
}

#[test]
fn retention_by_count_removes_oldest_jobs_but_no_open_one() {
    let (_dir, mut database) = open();
    ten_jobs(&mut database, 1);
    let most = |jobs: u64| Retention {
        most_jobs: Some(jobs),
        ..Retention::default()
    };
    assert!(remove(&mut database, most(10), 100).is_empty());
    let removed = remove(&mut database, most(5), 4);
    assert!(removed.len() > 1, "in slices");
    assert!(removed.iter().all(|slice| slice.reason == Reason::Count));
    let gone: Vec<_> = removed.into_iter().flat_map(|slice| slice.jobs).collect();
    assert_eq!(gone, [jid(0), jid(1), jid(2), jid(4), jid(5)]);
    assert_eq!(numbers_left(&database), [3, 6, 7, 8, 9]);
    remove(&mut database, most(0), 100);
    assert_eq!(numbers_left(&database), [3]);
    // Jobs that come later are counted anew.
    database
        .commit(&[Write::Job(job(11, &["a"]))])
        .expect("committed");
    assert!(remove(&mut database, most(2), 100).is_empty());
}

#[test]
fn retention_by_size_frees_pages_for_reuse() {
    let (_dir, mut database) = open();
    ten_jobs(&mut database, 40_000);
    let full = database.size().expect("measured");
    let most = Retention {
        most_bytes: Some(full.file / 2),
        ..Retention::default()
    };
    let removed = remove(&mut database, most, 2);
    assert!(removed.iter().all(|slice| slice.reason == Reason::Size));
    let left = numbers_left(&database);
    assert!(
        left.contains(&3) && left.contains(&9) && left.len() < 8,
        "{left:?}"
    );
    let size = database.size().expect("measured");
    assert!(size.file - size.free <= full.file / 2);
    let large = Value::from("x".repeat(40_000));
    for number in 0..3 {
        let write = Write::Return(ret(number, "b", large.clone()));
        database.commit(&[write]).expect("committed");
    }
    assert_eq!(database.size().expect("measured").file, full.file);
}

#[test]
fn full_disk_refuses_writes_serves_reads_and_recovers() {
    let (_dir, options) = place(Compat::V3008);
    fs::create_dir_all(options.private_dir()).expect("a directory");
    let path = &options.job_database;
    let limits = DatabaseLimits {
        max_bytes: Some(1 << 20),
        ..DatabaseLimits::default()
    };
    let mut database = JobDatabase::open(path, limits).expect("a database");
    let reader = database.reader().expect("a reader");
    let big = Value::from("x".repeat(50_000).as_str());
    let mut kept = 0_u32;
    let error = loop {
        let batch = [
            Write::Job(job(kept, &["a"])),
            Write::Return(ret(kept, "a", big.clone())),
        ];
        match database.commit(&batch) {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_full(), "{error}");
    assert!(kept > 5, "{kept}");
    // Nothing of the refused batch is there, everything before it is.
    assert_eq!(
        reader.counts().expect("read"),
        (u64::from(kept), u64::from(kept))
    );
    assert!(reader.load(&jid(kept)).expect("read").is_none());
    let again = database.commit(&[Write::Return(ret(kept, "a", big.clone()))]);
    assert!(again.is_err_and(|error| error.is_full()));
    remove(&mut database, older_than(i64::MAX), 100);
    let written = database
        .commit(&[Write::Return(ret(kept, "a", big))])
        .expect("committed");
    assert!(written[0].is_new());
}

#[test]
fn corrupt_database_is_detected_and_set_aside() {
    let (_dir, mut database) = open();
    let path = database.path().to_path_buf();
    let writes: Vec<Write> = (0..200)
        .map(|number| Write::Return(ret(number, "m1", Value::from("x".repeat(300).as_str()))))
        .collect();
    database.commit(&writes).expect("committed");
    drop(database);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("the file");
    file.seek(SeekFrom::Start(8 << 12)).expect("a place");
    file.write_all(&[0xa5; 40 << 10]).expect("damage");
    drop(file);
    let error = JobDatabase::open(&path, DatabaseLimits::default())
        .err()
        .expect("refused");
    assert!(error.is_corrupt(), "{error}");

    fs::write(
        &path,
        "this is no database, but it is long enough to look like one".repeat(99),
    )
    .expect("a file");
    let error = JobDatabase::open(&path, DatabaseLimits::default())
        .err()
        .expect("refused");
    assert!(error.is_corrupt(), "{error}");

    let aside = set_aside(&path, 1_795_244_782).expect("moved");
    assert!(aside.ends_with("jobs.sqlite.damaged-1795244782") && aside.exists());
    assert!(!path.exists());
    JobDatabase::open(&path, DatabaseLimits::default()).expect("a new database");
}

/// One whole look through the database, and how many slices it took.
fn scrub(reader: &Scrubber, rows: usize) -> (usize, Result<(), StoreError>) {
    let (mut scrub, mut slices) = (Scrub::default(), 0);
    let slice = ScrubSlice {
        rows,
        bytes: 1 << 20,
    };
    loop {
        slices += 1;
        match reader.scrub(&mut scrub, slice) {
            Ok(false) => {}
            Ok(true) => return (slices, Ok(())),
            Err(error) => return (slices, Err(error)),
        }
    }
}

#[test]
fn scrub_reads_in_slices_and_records_corruption() {
    let (dir, mut database) = open();
    ten_jobs(&mut database, 20_000);
    let reader = database.scrubber().expect("a reader");
    let (slices, result) = scrub(&reader, 4);
    result.expect("sound");
    assert!(slices > 3, "{slices}");
    database.checkpoint().expect("checkpointed");
    drop(reader);
    let path = database.path().to_path_buf();
    drop(database);

    // Behind the first pages, where the layout is, every other page is overwritten.
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("open");
    let pages = fs::metadata(&path).expect("size").len() / 4096;
    for page in (12..pages).step_by(2) {
        file.seek(SeekFrom::Start(page * 4096)).expect("seek");
        file.write_all(&[0xff; 4096]).expect("write");
    }
    let reader = Scrubber::open(&path, DatabaseLimits::default()).expect("a reader");
    let (_, result) = scrub(&reader, 1_000);
    assert!(
        matches!(result, Err(StoreError::Corrupt { .. })),
        "{result:?}"
    );
    let suspicion = format!("{}.suspect", path.display());
    assert!(
        fs::metadata(suspicion).is_ok(),
        "the next start looks again"
    );
    drop(dir);
}

#[test]
fn a_database_of_a_newer_release_is_refused() {
    let (_dir, database) = open();
    let path = database.path().to_path_buf();
    drop(database);
    let raw = rusqlite::Connection::open(&path).expect("sqlite");
    raw.pragma_update(None, "user_version", 99)
        .expect("a newer layout");
    drop(raw);
    let limits = DatabaseLimits::default();
    for error in [
        JobDatabase::open(&path, limits).err().expect("refused"),
        open_reader(&path, limits).err().expect("refused"),
    ] {
        assert!(
            matches!(error, StoreError::Schema { found: 99, .. }),
            "{error}"
        );
    }
}

#[test]
fn checkpoint_beside_the_writer_resets_the_wal() {
    let limits = DatabaseLimits {
        checkpoint_changes: 100,
        ..DatabaseLimits::default()
    };
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("jobs.sqlite");
    let mut database = JobDatabase::open(&path, limits).expect("a database");
    let checkpointer = database.checkpointer().expect("a second connection");
    let fill = |database: &mut JobDatabase, round: u32| {
        let minions: Vec<String> = (0..100).map(|number| format!("m{number}")).collect();
        let returns = minions
            .iter()
            .map(|minion| Write::Return(ret(round, minion, Value::from("x".repeat(3_000)))));
        for write in returns {
            database.commit(&[write]).expect("committed");
        }
    };
    fill(&mut database, 1);
    assert!(database.checkpoint_is_due());
    let first = checkpointer.fold().expect("checkpointed");
    assert!(first.log > 100 && first.left() == 0, "{first:?}");
    let log = || fs::metadata(dir.path().join("jobs.sqlite-wal")).expect("a log");
    let before = log().len();
    for round in 2..8 {
        database.checkpoint().expect("checkpointed");
        assert!(!database.checkpoint_is_due());
        fill(&mut database, round);
        checkpointer.fold().expect("checkpointed");
    }
    assert!(log().len() < 2 * before, "{} {before}", log().len());
}

#[test]
fn job_has_publish_time_and_outcome() {
    let (_dir, mut database) = open();
    let published = |at| Write::Published { jid: jid(1), at };
    let ended = |state, at| Write::JobState {
        jid: jid(1),
        state,
        at,
        notes: None,
    };
    let stored = |database: &JobDatabase| {
        let reader = database.reader().expect("a reader");
        let job = reader.load(&jid(1)).expect("read").expect("a job");
        (job.state, job.published, job.finished)
    };
    let steps = [
        (Write::Job(job(1, &["a"])), (JobState::Open, None, None)),
        (published(5), (JobState::Open, Some(5), None)),
        (published(6), (JobState::Open, Some(5), None)),
        (
            ended(JobState::Killed, 7),
            (JobState::Killed, Some(5), Some(7)),
        ),
        (
            ended(JobState::Expired, 8),
            (JobState::Expired, Some(5), Some(8)),
        ),
        (
            ended(JobState::Complete, 9),
            (JobState::Complete, Some(5), Some(9)),
        ),
        // The next part of a batch under the same jid has not left yet.
        (Write::JobPart(job(1, &["b"])), (JobState::Open, None, None)),
    ];
    for (write, expected) in steps {
        database.commit(&[write]).expect("committed");
        assert_eq!(stored(&database), expected);
    }
    let unknown = Write::Published { jid: jid(2), at: 5 };
    let written = database.commit(&[unknown]).expect("committed");
    assert_eq!(written, [Written::NoSuchJob]);
}

#[test]
fn job_has_the_minion_that_it_was_published_for() {
    let (_dir, mut database) = open();
    let published = |number| Write::PublishedFor {
        jid: jid(number),
        minion: id("asker"),
    };
    let written = database
        .commit(&[Write::Job(job(1, &["a"])), published(1), published(2)])
        .expect("committed");
    let expected = [Written::New { id: 1 }, Written::Updated, Written::NoSuchJob];
    assert_eq!(written, expected);
    let reader = database.reader().expect("a reader");
    let publisher = |number| reader.publisher_of(&jid(number)).expect("read");
    assert_eq!(publisher(1), Some(id("asker")));
    assert_eq!(publisher(2), None);
    let stored = reader.load(&jid(1)).expect("read").expect("a job");
    assert_eq!(stored.publisher, Some(id("asker")));
    // Who takes the jid for another job does not publish for that minion.
    database
        .commit(&[Write::JobPart(job(1, &["b"]))])
        .expect("committed");
    assert_eq!(publisher(1), None);
}

#[test]
fn database_of_first_release_is_migrated() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("jobs.sqlite");
    let raw = rusqlite::Connection::open(&path).expect("sqlite");
    raw.execute_batch(include_str!("first_release.sql"))
        .expect("the first release's layout");
    drop(raw);
    JobDatabase::open(&path, DatabaseLimits::default()).expect("carried over");
    let database = JobDatabase::open(&path, DatabaseLimits::default()).expect("opened again");
    let reader = database.reader().expect("a reader");
    assert_eq!(reader.identity().expect("read"), "0123");
    let states: Vec<_> = [1, 2, 3]
        .map(|number| reader.load(&jid(number)).expect("read").expect("a job"))
        .iter()
        .map(|job| (job.state, job.published))
        .collect();
    // Jobs were only "closed" then: who did not return makes the difference.
    let expected = [JobState::Open, JobState::Complete, JobState::Expired];
    assert_eq!(states, expected.map(|state| (state, Some(5))));
}

#[test]
fn views_are_readable_with_any_sqlite_tool() {
    let (_dir, mut database) = open();
    database
        .commit(&[
            Write::Job(job(1, &["a", "größe", "c\"d"])),
            Write::Return(ret(1, "a", Value::Nil)),
        ])
        .expect("committed");
    let raw = rusqlite::Connection::open(database.path()).expect("sqlite");
    let mut statement = raw
        .prepare("SELECT minion FROM missing WHERE jid = ?1 ORDER BY minion")
        .expect("a view");
    let rows = statement
        .query_map([jid(1).as_str()], |row| row.get(0))
        .expect("rows");
    let missing: Vec<String> = rows.collect::<Result<_, _>>().expect("names");
    assert_eq!(missing, ["c\"d", "größe"]);
}

#[test]
fn commits_survive_an_unclean_end() {
    let (_dir, mut database) = open();
    let path = database.path().to_path_buf();
    database
        .commit(&[Write::Return(ret(1, "m1", Value::Nil))])
        .expect("committed");
    // What a killed process leaves behind: the files as they are now.
    let copy = path.with_file_name("copy.sqlite");
    for suffix in ["", "-wal"] {
        let name = |path: &std::path::Path| format!("{}{suffix}", path.display());
        fs::copy(name(&path), name(&copy)).expect("copied");
    }
    let survivor = JobDatabase::open(&copy, DatabaseLimits::default()).expect("opened");
    let reader = survivor.reader().expect("a reader");
    assert_eq!(reader.returns(&jid(1)).expect("read").len(), 1);
}

#[test]
fn readers_can_be_shared_and_the_writer_can_move() {
    fn shared<T: Send + Sync>() {}
    fn moved<T: Send>() {}
    shared::<Arc<dyn JobQueries>>();
    moved::<JobDatabase>();
}

/// Waits the five seconds that a commit waits.
#[test]
fn a_database_that_another_program_holds_is_busy_and_not_damaged() {
    let (_dir, mut database) = open();
    let raw = rusqlite::Connection::open(database.path()).expect("sqlite");
    raw.execute_batch("BEGIN IMMEDIATE").expect("held");
    let job = Write::Job(job(1, &["a"]));
    let refused = database.commit(std::slice::from_ref(&job)).unwrap_err();
    assert!(refused.is_busy() && !refused.is_full() && !refused.is_corrupt());
    raw.execute_batch("ROLLBACK").expect("let go");
    database.commit(&[job]).expect("committed");
}

/// A job that comes with its return.
fn closed(number: u32, reporter: Option<&str>) -> Write {
    Write::ClosedJob {
        job: job(number, &["a"]),
        reporter: reporter.map(|name| MinionId::parse(name).expect("an id")),
    }
}

#[test]
fn reported_job_is_marked_until_it_is_published() {
    let (_dir, mut database) = open();
    let reader = database.reader().expect("a reader");
    let stored = |number| reader.load(&jid(number)).expect("read").expect("a job");
    let published = Write::Job(job(1, &["a", "b"]));
    let reports = [closed(1, Some("a")), closed(2, Some("a")), closed(3, None)];
    database.commit(&[published]).expect("committed");
    let written = database.commit(&reports).expect("committed");
    assert_eq!(written[0], Written::Duplicate);
    let reporters = [1, 2, 3].map(|number| stored(number).reporter);
    let reporters = reporters.map(|id| id.map(|id| id.to_string()));
    assert_eq!(reporters, [None, Some("a".to_owned()), None]);
    // Whoever reports a jid before it is published has no part in the job.
    let part = Write::JobPart(job(2, &["b"]));
    database.commit(&[part]).expect("committed");
    let job = stored(2);
    assert_eq!((job.reporter, job.state), (None, JobState::Open));
    assert_eq!(job.record.minions, [MinionId::parse("b").expect("an id")]);
}

#[test]
fn published_job_is_distinct_from_reported_one() {
    let (_dir, mut database) = open();
    let published = Write::Job(job(1, &["b", "a"]));
    let more = Write::Expected {
        jid: jid(1),
        minions: vec![id("c")],
    };
    database
        .commit(&[published, more, closed(2, Some("a")), closed(3, None)])
        .expect("committed");
    let reader = database.reader().expect("a reader");
    let is_for = |number, minion| {
        let answer = reader.is_published_for(&jid(number), &id(minion));
        answer.expect("an answer")
    };
    assert!(["a", "b", "c"].iter().all(|minion| is_for(1, minion)));
    assert!(!is_for(1, "d"), "a job of other minions");
    assert!(!is_for(2, "a"), "a reported one");
    assert!(is_for(3, "a"), "one that the master ran");
    assert!(!is_for(4, "a"), "none");
    // One that ended without all its returns is found with the number of its minions.
    let found = |number, minion| reader.incomplete(&jid(number), &id(minion)).expect("read");
    assert!((1..=4).all(|number| found(number, "a").is_none()));
    let expired = Write::JobState {
        jid: jid(1),
        state: JobState::Expired,
        at: 1,
        notes: None,
    };
    database.commit(&[expired]).expect("committed");
    let of = |expects| {
        Some(IncompleteJob {
            minions: 3,
            expects,
        })
    };
    assert_eq!((found(1, "c"), found(1, "d")), (of(true), of(false)));
    let has = |number| reader.has(&jid(number)).expect("an answer");
    assert_eq!([1, 2, 3, 4].map(has), [true, true, true, false]);
}

/// A return that is sent again, because no answer came, is equal to the first but for stamps.
#[test]
fn repeated_return_is_distinct_from_a_different_one() {
    type Change = fn(&mut ReturnRecord);
    let load =
        |entries: [(&str, Value); 3]| Packed::new(encode(&Value::map(entries), Dialect::Bin));
    let first = ReturnRecord {
        load: load([
            ("return", 1.into()),
            ("retcode", 0.into()),
            ("_stamp", "a".into()),
        ]),
        received: 5,
        ..ret(1, "m1", Value::Nil)
    };
    let changes: [(&str, Change, bool); 5] = [
        ("nothing", |_| {}, true),
        (
            "stamp",
            |record| {
                let entries = [
                    ("retcode", Value::from(0)),
                    ("_stamp", "b".into()),
                    ("return", 1.into()),
                ];
                record.load = Packed::new(encode(&Value::map(entries), Dialect::Bin));
            },
            true,
        ),
        ("time", |record| record.received = 9, true),
        ("function", |record| record.fun = "f.g".to_owned(), false),
        (
            "value",
            |record| {
                let entries = [("return", Value::from(2)), ("retcode", 0.into())];
                record.load = Packed::new(encode(&Value::map(entries), Dialect::Bin));
            },
            false,
        ),
    ];
    let (_dir, mut database) = open();
    let mut published = job(1, &["m1"]);
    published.created = 4;
    let writes = [
        Write::JobPart(published.clone()),
        Write::Return(first.clone()),
    ];
    database.commit(&writes).expect("committed");
    for (what, change, is_the_same) in changes {
        let mut again = first.clone();
        change(&mut again);
        let written = database.commit(&[Write::Return(again)]).expect("committed");
        let expected = match is_the_same {
            true => Written::Repeated { id: 1 },
            false => Written::Duplicate,
        };
        assert_eq!(written, [expected], "{what}");
    }
    // Who publishes under the jid once more waits for a return of now.
    published.created = 6;
    let writes = [Write::JobPart(published), Write::Return(first)];
    let written = database.commit(&writes).expect("committed");
    assert_eq!(written, [Written::Updated, Written::Duplicate]);
}

/// The order of the writes decides, because the clock of the day may be set back between any two.
#[test]
fn repeated_return_is_known_whatever_the_clock_says() {
    let mut first = ret(1, "m1", Value::from(true));
    for created in [first.received + 1_000_000, first.received - 1_000_000] {
        let (_dir, mut database) = open();
        let mut published = job(1, &["m1"]);
        published.created = created;
        let writes = [
            Write::JobPart(published.clone()),
            Write::Return(first.clone()),
            Write::Return(first.clone()),
            Write::JobPart(published),
            Write::Return(first.clone()),
        ];
        let written = database.commit(&writes).expect("committed");
        assert_eq!(
            written[2..],
            [
                Written::Repeated { id: 1 },
                Written::Updated,
                Written::Duplicate
            ],
            "published at {created}"
        );
        // Another return of the republished job is told apart from it.
        first.minion = MinionId::parse("m2").expect("an id");
        let writes = [Write::Return(first.clone()), Write::Return(first.clone())];
        let written = database.commit(&writes).expect("committed");
        let new = [Written::New { id: 2 }, Written::Repeated { id: 2 }];
        assert_eq!(written, new, "published at {created}");
        first.minion = MinionId::parse("m1").expect("an id");
    }
}
