//! Stored events of the bus: read in their order, the oldest removed first.

use std::fs;

use bytes::Bytes;
use rusqlite::Connection;
use saltern_model::Compat;
use saltern_store::{
    DatabaseLimits, EventRange, EventsPage, JobDatabase, NewEvent, Reason, Retention, Write,
};
use saltern_wire::msgpack::Value;
use tempfile::TempDir;

use crate::common::{job, place, ret};

/// A database with ten events, one a microsecond.
fn ten_events(bytes: usize) -> (TempDir, JobDatabase) {
    let (dir, options) = place(Compat::V3008);
    fs::create_dir_all(options.private_dir()).expect("a directory");
    let database = JobDatabase::open(&options.job_database, DatabaseLimits::default());
    let mut database = database.expect("a database");
    let events = (0..10_i64).map(|number| NewEvent {
        received: number,
        tag: format!(
            "t/{}/{number}",
            if number % 2 == 0 { "even" } else { "odd" }
        ),
        data: Bytes::from(vec![b'x'; bytes]),
        of_minion: false,
    });
    let events: Vec<NewEvent> = events.collect();
    let (start, rest) = events.split_at(4);
    for (first, events) in [(1, start), (5, rest)] {
        commit(&mut database, first, events.to_vec());
    }
    (dir, database)
}

fn commit(database: &mut JobDatabase, first: u64, events: Vec<NewEvent>) {
    let write = Write::Events { first, events };
    database.commit(&[write]).expect("committed");
}

fn received(database: &JobDatabase, page: &EventsPage<'_>) -> Vec<i64> {
    let reader = database.reader().expect("a reader");
    let events = reader.events(page).expect("read");
    events.iter().map(|event| event.received).collect()
}

fn all() -> EventsPage<'static> {
    EventsPage {
        limit: 100,
        ..EventsPage::default()
    }
}

#[test]
fn newest_events_of_a_tag_are_listed_in_order() {
    let (_dir, database) = ten_events(1);
    for (page, expected) in [
        (all(), vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (EventsPage { limit: 2, ..all() }, vec![8, 9]),
        (
            EventsPage {
                tag: Some("t/odd/*"),
                limit: 3,
                since: None,
            },
            vec![5, 7, 9],
        ),
        (
            EventsPage {
                since: Some(8),
                ..all()
            },
            vec![8, 9],
        ),
    ] {
        assert_eq!(received(&database, &page), expected, "{page:?}");
    }
}

#[test]
fn retention_removes_oldest_events_by_age_count_and_size() {
    let small = Retention::default();
    for (retention, reason, left) in [
        (
            Retention {
                before: Some(4),
                ..small
            },
            Some(Reason::Age),
            6,
        ),
        (
            Retention {
                most_events: Some(3),
                ..small
            },
            Some(Reason::Count),
            3,
        ),
        (
            Retention {
                most_events: Some(10),
                ..small
            },
            None,
            10,
        ),
        (
            Retention {
                most_bytes: Some(1),
                ..small
            },
            Some(Reason::Size),
            0,
        ),
    ] {
        let (_dir, mut database) = ten_events(1);
        database
            .commit(&[Write::Job(job(1, &["a"]))])
            .expect("committed");
        let mut reasons = Vec::new();
        while let Some(removed) = database.remove_slice(&retention, 2).expect("removed") {
            reasons.push(removed.reason);
        }
        assert!(
            reasons.iter().all(|it| Some(*it) == reason),
            "{retention:?}"
        );
        assert_eq!(reasons.is_empty(), reason.is_none(), "{retention:?}");
        let kept = received(&database, &all());
        assert_eq!(kept.len(), left, "{retention:?}");
        assert!(kept.last().is_none_or(|newest| *newest == 9));
        let reader = database.reader().expect("a reader");
        assert_eq!(reader.counts().expect("counted").0, 1);
    }
}

/// Ten events of the master's own, then a thousand of a minion.
#[test]
fn flood_of_minion_events_evicts_no_master_event() {
    let (_dir, mut database) = ten_events(1);
    let flood = (10..1_010).map(|received| NewEvent {
        received,
        tag: format!("my/{received}"),
        data: Bytes::from_static(b"x"),
        of_minion: true,
    });
    commit(&mut database, 11, flood.collect());
    let retention = Retention {
        most_events: Some(20),
        ..Retention::default()
    };
    while database
        .remove_slice(&retention, 100)
        .expect("removed")
        .is_some()
    {}
    let expected: Vec<i64> = (0..10).chain(1_000..1_010).collect();
    assert_eq!(received(&database, &all()), expected);
}

/// Kinds that a slice removed: `m`inions' events, `j`obs or the `a`udit events of the master.
fn kinds_removed(minions: i64, jobs: u32, masters: i64) -> String {
    let (_dir, options) = place(Compat::V3008);
    fs::create_dir_all(options.private_dir()).expect("a directory");
    let database = JobDatabase::open(&options.job_database, DatabaseLimits::default());
    let mut database = database.expect("a database");
    let event = |received, of_minion| NewEvent {
        received,
        tag: "t".to_owned(),
        data: Bytes::from_static(b"x"),
        of_minion,
    };
    let mut writes = vec![Write::Job(job(99, &["a"]))];
    let of_minions = (0..minions).map(|number| event(100 + number, true));
    let of_master = (0..masters).map(|number| event(number, false));
    writes.push(Write::Events {
        first: 1,
        events: of_minions.chain(of_master).collect(),
    });
    for number in 0..jobs {
        let (job, reporter) = (job(number, &["a"]), None);
        writes.push(Write::ClosedJob { job, reporter });
    }
    database.commit(&writes).expect("committed");
    let retention = Retention {
        most_bytes: Some(1),
        ..Retention::default()
    };
    let counts = |database: &JobDatabase| {
        let reader = database.reader().expect("a reader");
        let events = reader.events(&all()).expect("read");
        let of_minions = events.iter().filter(|event| event.of_minion).count();
        let jobs = usize::try_from(reader.counts().expect("counted").0).expect("few");
        (of_minions, jobs, events.len() - of_minions)
    };
    let mut order = String::new();
    let mut before = counts(&database);
    while let Some(removed) = database.remove_slice(&retention, 1).expect("removed") {
        assert_eq!(removed.reason, Reason::Size);
        let after = counts(&database);
        order.push(
            match (before.0 - after.0, before.1 - after.1, before.2 - after.2) {
                (1, 0, 0) => 'm',
                (0, 1, 0) => 'j',
                (0, 0, 1) => 'a',
                // A part of a job.
                (0, 0, 0) => continue,
                other => panic!("{other:?} at once"),
            },
        );
        before = after;
    }
    assert_eq!(before, (0, 1, 0), "a job that is waited for stays");
    order
}

#[test]
fn size_retention_removes_minion_events_then_jobs_then_master_events() {
    for (minions, jobs, masters, order) in [
        (3, 3, 3, "mmmjjjaaa"),
        (0, 3, 2, "jjjaa"),
        (2, 0, 2, "mmaa"),
        (0, 0, 3, "aaa"),
        (2, 2, 0, "mmjj"),
        (0, 0, 0, ""),
    ] {
        assert_eq!(kinds_removed(minions, jobs, masters), order);
    }
}

/// An event of the master's or a minion's; the data says its number.
fn numbered(number: i64, of_minion: bool) -> NewEvent {
    NewEvent {
        received: 100 - number,
        tag: "t".to_owned(),
        data: Bytes::from(number.to_string()),
        of_minion,
    }
}

fn data_of(database: &JobDatabase) -> Vec<String> {
    let reader = database.reader().expect("a reader");
    let slice = reader.events_between(&range(0, 99)).expect("read");
    let data = slice.events.iter();
    data.map(|event| String::from_utf8_lossy(&event.data).into_owned())
        .collect()
}

fn positions(database: &JobDatabase, range: &EventRange) -> (Vec<i64>, i64) {
    let reader = database.reader().expect("a reader");
    let slice = reader.events_between(range).expect("read");
    let positions = slice.events.iter().map(|event| event.position);
    (positions.collect(), slice.through)
}

fn range(after: i64, through: i64) -> EventRange {
    EventRange {
        after,
        through,
        max_events: 100,
        max_bytes: 1 << 20,
    }
}

fn open_empty() -> (TempDir, JobDatabase, std::path::PathBuf) {
    let (dir, options) = place(Compat::V3008);
    fs::create_dir_all(options.private_dir()).expect("a directory");
    let path = options.job_database.clone();
    let database = JobDatabase::open(&path, DatabaseLimits::default()).expect("a database");
    (dir, database, path)
}

#[test]
fn range_of_events_is_read_in_order_of_positions_from_both_tables() {
    let (_dir, mut database, _) = open_empty();
    assert_eq!(database.next_event_position(), 1);
    let events = (1..=9).map(|position| numbered(position, position % 3 == 0));
    commit(&mut database, 1, events.collect());
    assert_eq!(database.next_event_position(), 10);
    for (range, expected) in [
        (range(0, 100), ((1..=9).collect(), 100)),
        (range(2, 5), (vec![3, 4, 5], 5)),
        (range(9, 9), (vec![], 9)),
        (
            EventRange {
                max_bytes: 4,
                ..range(3, 9)
            },
            (vec![4, 5], 5),
        ),
        (
            EventRange {
                max_events: 3,
                ..range(3, 9)
            },
            (vec![4, 5, 6], 6),
        ),
    ] {
        assert_eq!(positions(&database, &range), expected, "{range:?}");
    }
}

#[test]
fn range_of_events_is_read_backwards_from_both_tables() {
    let (_dir, mut database, _) = open_empty();
    let events = (1..=9).map(|position| numbered(position, position % 3 == 0));
    commit(&mut database, 1, events.collect());
    let reader = database.reader().expect("a reader");
    let bounded = |max_events, max_bytes| EventRange {
        max_events,
        max_bytes,
        ..range(0, 9)
    };
    for (range, expected) in [
        (range(0, 100), ((1..=9).rev().collect(), 0)),
        (range(2, 5), (vec![5, 4, 3], 2)),
        (range(9, 9), (vec![], 9)),
        (bounded(100, 4), (vec![9, 8], 7)),
        (bounded(3, 1 << 20), (vec![9, 8, 7], 6)),
    ] {
        let slice = reader.events_backwards(&range).expect("read");
        let positions = slice.events.iter().map(|event| event.position);
        let found: (Vec<i64>, i64) = (positions.collect(), slice.through);
        assert_eq!(found, expected, "{range:?}");
    }
}

#[test]
fn events_written_once_more_are_not_kept_twice() {
    let (_dir, mut database, _) = open_empty();
    let events = |numbers: std::ops::RangeInclusive<i64>| -> Vec<NewEvent> {
        numbers
            .map(|number| numbered(number, number % 2 == 0))
            .collect()
    };
    commit(&mut database, 1, events(1..=2));
    commit(&mut database, 1, events(1..=2));
    // With more behind them.
    commit(&mut database, 1, events(1..=3));
    commit(&mut database, 3, events(3..=5));
    assert_eq!(data_of(&database), ["1", "2", "3", "4", "5"]);
    assert_eq!(database.next_event_position(), 6);
}

#[test]
fn events_of_changes_are_kept_with_them_unless_the_change_is_repeated() {
    let (_dir, mut database, path) = open_empty();
    let of_job = || (Write::Job(job(1, &["a"])), vec![numbered(1, false)]);
    let of_return = |value: bool| {
        let write = Write::Return(ret(1, "a", Value::Bool(value)));
        (write, vec![numbered(2, true), numbered(3, true)])
    };
    let mut kept = |changes: Vec<(Write, Vec<NewEvent>)>| -> Vec<i64> {
        let (writes, caused): (Vec<_>, Vec<_>) = changes.into_iter().unzip();
        let committed = database.commit_with_events(&writes, &caused);
        let committed = committed.expect("committed");
        assert_eq!(committed.written.len(), writes.len());
        let events = committed.events.iter();
        events.map(|event| event.position).collect()
    };
    let sent = Write::Events {
        first: 1,
        events: vec![numbered(9, true)],
    };
    assert_eq!(kept(vec![of_job(), (sent, vec![])]), [1, 2]);
    assert_eq!(kept(vec![of_return(true)]), [3, 4]);
    assert!(kept(vec![of_return(true)]).is_empty());
    // Another return of the same minion is on the bus, too.
    assert_eq!(kept(vec![of_return(false)]), [5, 6]);
    drop(database);
    let database = JobDatabase::open(&path, DatabaseLimits::default()).expect("a database");
    assert_eq!(data_of(&database), ["1", "9", "2", "3", "2", "3"]);
    assert_eq!(database.next_event_position(), 7);
}

#[test]
fn position_is_never_used_twice_though_its_events_are_removed() {
    let (_dir, mut database, path) = open_empty();
    let events = vec![numbered(1, false), numbered(2, true)];
    commit(&mut database, 1, events);
    let retention = Retention {
        before: Some(i64::MAX),
        ..Retention::default()
    };
    while database
        .remove_slice(&retention, 100)
        .expect("removed")
        .is_some()
    {}
    assert!(positions(&database, &range(0, 9)).0.is_empty());
    drop(database);
    let database = JobDatabase::open(&path, DatabaseLimits::default()).expect("a database");
    assert_eq!(database.next_event_position(), 3);
}

/// Takes the database back to the last layout without positions.
fn without_positions(path: &std::path::Path) {
    let raw = Connection::open(path).expect("sqlite");
    raw.execute_batch(
        "DROP INDEX events_position;
         DROP INDEX minion_events_position;
         DROP INDEX jobs_user;
         DROP INDEX jobs_incomplete;
         DROP INDEX returns_failed;
         DROP TABLE audit;
         ALTER TABLE batches DROP COLUMN paused_since;
         ALTER TABLE jobs DROP COLUMN returns_before;
         ALTER TABLE events DROP COLUMN position;
         ALTER TABLE minion_events DROP COLUMN position;
         PRAGMA user_version = 8;",
    )
    .expect("the layout before");
}

#[test]
fn events_of_the_layout_before_are_numbered_by_their_times() {
    let (_dir, mut database, path) = open_empty();
    let events = vec![numbered(1, false), numbered(2, true), numbered(3, false)];
    commit(&mut database, 1, events);
    drop(database);
    without_positions(&path);
    let database = JobDatabase::open(&path, DatabaseLimits::default()).expect("a database");
    // Their times fall where their first positions rose.
    assert_eq!(data_of(&database), ["3", "2", "1"]);
    assert_eq!(database.next_event_position(), 4);
}
