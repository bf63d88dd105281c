//! Jobs for which an outbox has to go back: over restarts, damaged files and full ones.

use std::collections::HashSet;
use std::fs;

use saltern_model::{Compat, Jid};
use saltern_store::{DatabaseLimits, EarlyJobs, JobDatabase, StoreOptions, Write};
use saltern_wire::msgpack::Value;

use crate::common::{id, jid, job, place, ret};

/// A database with jobs 1 to 3, each reported with a return before it was published.
fn database(options: &StoreOptions) -> JobDatabase {
    fs::create_dir_all(options.private_dir()).expect("a directory");
    let database = JobDatabase::open(&options.job_database, DatabaseLimits::default());
    let mut database = database.expect("a database");
    for number in 1..=3 {
        let reported = Write::ClosedJob {
            job: job(number, &["m"]),
            reporter: Some(id("m")),
        };
        let returned = Write::Return(ret(number, "m", Value::from(true)));
        let published = Write::JobPart(job(number, &["m"]));
        database
            .commit(&[reported, returned, published])
            .expect("committed");
    }
    database
}

fn open(database: &JobDatabase, options: &StoreOptions) -> EarlyJobs {
    let reader = database.reader().expect("a reader");
    EarlyJobs::with_options(options, "syndic_top", &*reader).expect("they can be read")
}

fn jids(numbers: &[u32]) -> HashSet<Jid> {
    numbers.iter().map(|number| jid(*number)).collect()
}

#[test]
fn early_jobs_are_due_until_the_outbox_went_back_over_restarts() {
    let (_dir, options) = place(Compat::V3008);
    let database = database(&options);
    let early = open(&database, &options);
    early.begin(&jid(1)).expect("written");
    assert!(!early.are_due(), "it is not published yet");
    assert!(early.end(&jid(1), true).expect("written"));
    assert!(
        early.end(&jid(2), true).expect("written"),
        "without a beginning"
    );
    early.begin(&jid(3)).expect("written");
    assert_eq!(early.due(), jids(&[1, 2]));
    let again = open(&database, &options);
    assert_eq!(again.due(), jids(&[1, 2, 3]), "the process was killed");
    again.went_back(&jids(&[1, 3])).expect("written");
    assert_eq!(again.due(), jids(&[2]));
    assert_eq!(open(&database, &options).due(), jids(&[2]));

    // The actor ended, the process did not.
    early.end_all();
    assert_eq!(early.due(), jids(&[1, 2, 3]));
}

#[test]
fn job_that_was_not_returned_early_is_not_due() {
    let (_dir, options) = place(Compat::V3008);
    let database = database(&options);
    let early = open(&database, &options);
    for number in [1, 4] {
        early.begin(&jid(number)).expect("written");
    }
    assert!(early.end(&jid(1), false).expect("written"));
    assert!(!early.are_due());
    let again = open(&database, &options);
    assert!(!again.are_due(), "number 4 was never published");
}

#[test]
fn early_jobs_are_bounded_and_a_damaged_file_counts_as_none() {
    let (_dir, options) = place(Compat::V3008);
    let database = database(&options);
    let early = open(&database, &options);
    early.begin(&jid(1)).expect("written");
    for number in 2..=1_000 {
        assert!(early.end(&jid(number), true).expect("written"), "{number}");
    }
    early.begin(&jid(1_001)).expect("left out");
    assert!(!early.end(&jid(1_001), true).expect("nothing to write"));
    assert!(early.end(&jid(1), true).expect("written"), "it was begun");
    assert!(early.end(&jid(2), true).expect("written"), "it waits");
    assert_eq!(early.due().len(), 1_000);

    let path = options.private_dir().join("syndic_top_early");
    for damage in [
        &b"\xff\xfe"[..],
        b"saltern-early-jobs-2\n1\n",
        &[b'x'; 65_000],
    ] {
        fs::write(&path, damage).expect("damaged");
        assert!(!open(&database, &options).are_due());
    }
}
