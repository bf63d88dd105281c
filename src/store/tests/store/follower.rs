//! Rows that a follower is given: all that came after it was configured, once its position is saved
//! none twice.

use std::collections::HashSet;
use std::fs;

use saltern_model::Compat;
use saltern_store::{
    DatabaseLimits, Followed, JobDatabase, JobFollower, JobState, Retention, StoreOptions,
    WentBack, Write,
};
use saltern_wire::msgpack::Value;

use crate::common::{jid, job, place, ret};

fn follower(database: &JobDatabase, options: &StoreOptions, name: &str) -> JobFollower {
    let reader = database.reader().expect("a reader");
    JobFollower::with_options(options, ("master_job_cache", name), reader).expect("a follower")
}

fn labels(rows: &[Followed]) -> Vec<String> {
    let rows = rows.iter().map(|row| match row {
        Followed::Job(job) => format!("job {}", job.id),
        Followed::Return(row) => format!("return {} of {}", row.id, row.record.minion),
    });
    rows.collect()
}

#[test]
fn follower_reads_new_rows_in_order_and_resumes_at_its_cursor() {
    let (_dir, options) = place(Compat::V3008);
    fs::create_dir_all(options.private_dir()).expect("a directory");
    let database = JobDatabase::open(&options.job_database, DatabaseLimits::default());
    let mut database = database.expect("a database");
    let done = || Value::from(true);
    let commit = |database: &mut JobDatabase, number: u32| {
        let writes = [
            Write::Job(job(number, &["a"])),
            Write::Return(ret(number, "a", done())),
        ];
        database.commit(&writes).expect("committed");
    };
    commit(&mut database, 1);
    let mut first = follower(&database, &options, "it");
    assert!(first.next(10).expect("read").is_empty());
    commit(&mut database, 2);
    commit(&mut database, 3);
    let rows = first.next(3).expect("read");
    assert_eq!(labels(&rows), ["job 2", "job 3", "return 2 of a"]);
    assert_eq!(first.lag().expect("read"), 4);
    assert!(!first.has_passed(&jid(2)).expect("read"));
    for row in &rows {
        first.pass(row);
    }
    assert!(first.has_passed(&jid(3)).expect("read"));
    // What is not saved is given again; what is saved is not.
    assert_eq!(follower(&database, &options, "it").lag().expect("read"), 4);
    first.save().expect("saved");
    let again = follower(&database, &options, "it");
    assert_eq!(labels(&again.next(10).expect("read")), ["return 3 of a"]);
    // Another returner is another matter.
    assert_eq!(
        follower(&database, &options, "other").lag().expect("read"),
        0
    );
    // A damaged place is one that was not saved.
    let path = options.private_dir().join("master_job_cache_place");
    for damage in [&b"\xff\xfe"[..], &[b'x'; 5000]] {
        fs::write(&path, damage).expect("damaged");
        assert_eq!(follower(&database, &options, "it").lag().expect("read"), 0);
    }
}

#[test]
fn follower_bounds_bytes_and_reads_jobs_before_returns() {
    let (_dir, options) = place(Compat::V3008);
    fs::create_dir_all(options.private_dir()).expect("a directory");
    let database = JobDatabase::open(&options.job_database, DatabaseLimits::default());
    let mut database = database.expect("a database");
    let mut follower = follower(&database, &options, "it");
    let large = || Value::from("x".repeat(7 << 20));
    let writes = [
        Write::Job(job(1, &["a", "b", "c"])),
        Write::Return(ret(1, "a", large())),
        Write::Return(ret(1, "b", large())),
        Write::Return(ret(1, "c", Value::from("x".repeat(20 << 20)))),
        Write::Return(ret(1, "d", Value::from(true))),
    ];
    database.commit(&writes).expect("committed");
    for expected in [
        &["job 1", "return 1 of a", "return 2 of b"][..],
        &["return 3 of c"],
        &["return 4 of d"],
        &[],
    ] {
        let rows = follower.next(50).expect("read");
        assert_eq!(labels(&rows), expected);
        rows.iter().for_each(|row| follower.pass(row));
    }
    let mut many = job(2, &[]);
    many.load = saltern_model::Packed::new(vec![0xc0; 10 << 20]);
    let mut more = many.clone();
    more.jid = jid(3);
    let writes = [
        Write::Job(many),
        Write::Job(more),
        Write::Return(ret(3, "a", Value::from(true))),
    ];
    database.commit(&writes).expect("committed");
    assert_eq!(labels(&follower.next(50).expect("read")), ["job 2"]);
}

#[test]
fn follower_of_a_restored_database_misses_nothing_that_comes_then() {
    let (_dir, options) = place(Compat::V3008);
    fs::create_dir_all(options.private_dir()).expect("a directory");
    let open = || {
        let database = JobDatabase::open(&options.job_database, DatabaseLimits::default());
        database.expect("a database")
    };
    let commit = |database: &mut JobDatabase, number: u32, minion: &str| {
        let done = Value::from(true);
        let writes = [
            Write::Job(job(number, &[minion])),
            Write::Return(ret(number, minion, done)),
        ];
        database.commit(&writes).expect("committed");
    };
    let mut database = open();
    commit(&mut database, 1, "a");
    drop(database);
    let backup = options.private_dir().join("backup");
    fs::copy(&options.job_database, &backup).expect("copied");

    let mut database = open();
    let mut first = follower(&database, &options, "it");
    for number in 2..5 {
        commit(&mut database, number, "lost");
    }
    for row in &first.next(10).expect("read") {
        first.pass(row);
    }
    first.save().expect("saved");
    drop((first, database));
    fs::copy(&backup, &options.job_database).expect("restored");

    let mut database = open();
    let again = follower(&database, &options, "it");
    assert!(again.next(10).expect("read").is_empty());
    for number in 7..12 {
        commit(&mut database, number, "new");
    }
    // Also when nothing was passed until the next start.
    drop(again);
    let again = follower(&database, &options, "it");
    let rows = labels(&again.next(10).expect("read"));
    assert_eq!(rows.len(), 10);
    assert_eq!(rows.first().map(String::as_str), Some("job 2"));
}

#[test]
fn follower_goes_back_to_the_first_return_of_a_set_of_jobs_within_one_bound() {
    let (_dir, options) = place(Compat::V3008);
    fs::create_dir_all(options.private_dir()).expect("a directory");
    let database = JobDatabase::open(&options.job_database, DatabaseLimits::default());
    let mut database = database.expect("a database");
    let mut follower = follower(&database, &options, "it");
    for number in 1..=6 {
        let writes = [
            Write::Job(job(number, &["a"])),
            Write::Return(ret(number, "a", Value::from(true))),
        ];
        database.commit(&writes).expect("committed");
    }
    for row in follower.next(20).expect("read") {
        follower.pass(&row);
    }
    let mut back = |numbers: &[u32], limit: usize, room: usize| {
        let jids: HashSet<_> = numbers.iter().map(|number| jid(*number)).collect();
        let went = follower.go_back_to(&jids, limit, room).expect("read");
        let lag = follower.lag().expect("read");
        (went.has_moved, lag, went.lost.len())
    };
    assert_eq!(back(&[9], 10, 10), (false, 0, 1), "none of it");
    assert_eq!(back(&[1], 5, 10), (false, 0, 1), "it is too far back");
    let without_room = back(&[3], 10, 3);
    assert_eq!(without_room, (false, 0, 1), "it would be the fourth");
    assert_eq!(back(&[6, 4, 5], 4, 3), (true, 3, 0), "the first of them");
    assert_eq!(back(&[2], 4, 10), (false, 3, 1), "the bound is as before");
    assert_eq!(back(&[3], 4, 10), (true, 4, 0));
    assert_eq!(back(&[5], 4, 10), (false, 4, 0), "it comes again anyway");
    assert_eq!(back(&[2, 5, 6], 5, 0), (false, 4, 1));
}

/// One return far back, and one within the bound or still to come: it is counted, and what is near comes.
#[test]
fn job_with_one_return_too_far_back_is_lost_in_part() {
    for (passed, has_moved) in [(6, true), (4, false)] {
        let (_dir, options) = place(Compat::V3008);
        fs::create_dir_all(options.private_dir()).expect("a directory");
        let database = JobDatabase::open(&options.job_database, DatabaseLimits::default());
        let mut database = database.expect("a database");
        let mut follower = follower(&database, &options, "it");
        for (number, minion) in [(1, "a"), (2, "a"), (2, "b"), (3, "a"), (1, "b"), (3, "b")] {
            let writes = [Write::Return(ret(number, minion, Value::from(true)))];
            database.commit(&writes).expect("committed");
        }
        let mut rows = follower.next(20).expect("read");
        rows.retain(|row| matches!(row, Followed::Return(_)));
        rows.truncate(passed);
        for row in &rows {
            follower.pass(row);
        }
        let went = follower.go_back_to(&HashSet::from([jid(1)]), 3, 10);
        let went = went.expect("read");
        assert_eq!(went.lost, HashSet::from([jid(1)]), "{passed}");
        let lag = follower.lag().expect("read");
        assert_eq!((went.has_moved, lag), (has_moved, 2), "{passed}");
    }
}

/// After an outage very many returns wait, and those of the job at their end.
#[test]
fn job_whose_returns_come_far_behind_the_cursor_is_not_lost() {
    let (_dir, options) = place(Compat::V3008);
    fs::create_dir_all(options.private_dir()).expect("a directory");
    let database = JobDatabase::open(&options.job_database, DatabaseLimits::default());
    let mut database = database.expect("a database");
    let mut follower = follower(&database, &options, "it");
    for number in 1..=9 {
        let writes = [Write::Return(ret(number, "a", Value::from(true)))];
        database.commit(&writes).expect("committed");
    }
    let went = follower.go_back_to(&HashSet::from([jid(9)]), 3, 10);
    assert_eq!(went.expect("read"), WentBack::default());
}

/// Commits one return for each of these jobs, which ended.
fn commit_ended(database: &mut JobDatabase, numbers: std::ops::RangeInclusive<u32>) {
    for number in numbers {
        let writes = [
            Write::Job(job(number, &["a"])),
            Write::Return(ret(number, "a", Value::from(true))),
            Write::JobState {
                jid: jid(number),
                state: JobState::Complete,
                at: 1,
                notes: None,
            },
        ];
        database.commit(&writes).expect("committed");
    }
}

/// Removes the oldest jobs of more than so many.
fn keep(database: &mut JobDatabase, most: u64) {
    let retention = Retention {
        most_jobs: Some(most),
        ..Retention::default()
    };
    while database
        .remove_slice(&retention, 9)
        .expect("removed")
        .is_some()
    {}
}

fn pass_all(follower: &mut JobFollower) {
    for row in follower.next(100).expect("read") {
        follower.pass(&row);
    }
}

#[test]
fn removed_returns_are_counted_once_when_the_follower_passes_them() {
    let (_dir, options) = place(Compat::V3008);
    fs::create_dir_all(options.private_dir()).expect("a directory");
    let database = JobDatabase::open(&options.job_database, DatabaseLimits::default());
    let mut database = database.expect("a database");
    let mut first = follower(&database, &options, "it");
    commit_ended(&mut database, 1..=1);
    pass_all(&mut first);
    commit_ended(&mut database, 2..=10);
    keep(&mut database, 6);
    let rows = first.next(100).expect("read");
    assert!(first.pass_removed(&rows) && !first.pass_removed(&rows));
    assert_eq!((first.take_removed(), first.take_removed()), (3, 0));
    assert_eq!(first.lag().expect("read"), 6 + 6, "with the jobs");

    // Those that were read and then removed went up; those that were removed and then read did not.
    first.read_past(&rows[6]);
    let end = first.read_to();
    let run = |follower: &mut JobFollower| {
        for run in follower.next_runs(100).expect("read") {
            follower.read_past_run(&run);
        }
    };
    keep(&mut database, 3);
    first.pass_to(end);
    assert_eq!(first.take_removed(), 0);
    run(&mut first);
    first.pass_to(first.read_to());
    assert_eq!(first.take_removed(), 2);

    // What comes once more is not counted once more.
    let went = first.go_back_to(&HashSet::from([jid(8)]), 9, 9);
    assert!(went.expect("read").has_moved);
    keep(&mut database, 1);
    commit_ended(&mut database, 11..=11);
    keep(&mut database, 0);
    commit_ended(&mut database, 12..=12);
    pass_all(&mut first);
    assert_eq!(first.take_removed(), 1, "number 11");
}

/// The cursor is taken back to the end of the database; the numbers go on where they were.
#[test]
fn rows_that_a_follower_had_before_all_were_removed_are_not_counted_after_a_restart() {
    let (_dir, options) = place(Compat::V3008);
    fs::create_dir_all(options.private_dir()).expect("a directory");
    let open = || {
        let database = JobDatabase::open(&options.job_database, DatabaseLimits::default());
        database.expect("a database")
    };
    let mut database = open();
    let mut first = follower(&database, &options, "it");
    commit_ended(&mut database, 1..=5);
    pass_all(&mut first);
    first.save().expect("saved");
    commit_ended(&mut database, 6..=7);
    keep(&mut database, 0);
    for _ in 0..2 {
        drop(database);
        database = open();
        drop(follower(&database, &options, "it"));
    }
    let mut again = follower(&database, &options, "it");
    commit_ended(&mut database, 8..=8);
    pass_all(&mut again);
    assert_eq!(again.take_removed(), 2, "it has not had 6 and 7");
    // The saved cursor of an earlier release has two numbers.
    again.save().expect("saved");
    let path = options.private_dir().join("master_job_cache_place");
    let text = fs::read_to_string(&path).expect("read");
    let (earlier, accounted) = text.trim_end().rsplit_once(' ').expect("three numbers");
    assert_eq!(accounted, "8");
    fs::write(&path, format!("{earlier}\n")).expect("written");
    let mut again = follower(&database, &options, "it");
    commit_ended(&mut database, 9..=9);
    pass_all(&mut again);
    assert_eq!(again.take_removed(), 0);
    // How many numbers were given in an empty database is not known to a new follower.
    keep(&mut database, 0);
    let mut new = follower(&database, &options, "new");
    drop(new);
    new = follower(&database, &options, "new");
    commit_ended(&mut database, 10..=10);
    pass_all(&mut new);
    assert_eq!(new.take_removed(), 0);
    commit_ended(&mut database, 11..=12);
    keep(&mut database, 1);
    pass_all(&mut new);
    assert_eq!(new.take_removed(), 1);
}
