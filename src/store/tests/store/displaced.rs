//! A job database that is removed or replaced while it is open.

use std::fs;
use std::path::{Path, PathBuf};

use saltern_model::Compat;
use saltern_store::sqlite::{incidents, note_incident};
use saltern_store::{DatabaseLimits, JobDatabase, StoreOptions, Write};
use saltern_wire::msgpack::Value;
use tempfile::TempDir;

use crate::common::{jid, job, mode, place, ret};

fn open() -> (TempDir, StoreOptions, JobDatabase) {
    let (dir, options) = place(Compat::V3008);
    fs::create_dir_all(options.private_dir()).expect("a directory");
    let mut database =
        JobDatabase::open(&options.job_database, DatabaseLimits::default()).expect("a database");
    let writes = [
        Write::Job(job(1, &["m1"])),
        Write::Return(ret(1, "m1", Value::from(true))),
    ];
    database.commit(&writes).expect("committed");
    (dir, options, database)
}

fn part(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_path_buf().into_os_string();
    name.push(suffix);
    name.into()
}

/// Goes on, and has everything once it is opened anew.
fn is_whole(options: &StoreOptions, mut database: JobDatabase) {
    assert!(!database.is_displaced().expect("a look"));
    assert_eq!(database.restore_if_displaced(2).expect("a look"), None);
    assert_eq!(mode(&options.job_database), 0o600);
    database
        .commit(&[Write::Job(job(2, &["m1"]))])
        .expect("committed");
    // Whatever a process holds open is gone with it.
    std::mem::forget(database);
    let again =
        JobDatabase::open(&options.job_database, DatabaseLimits::default()).expect("a database");
    let reader = again.reader().expect("a reader");
    assert!(reader.load(&jid(1)).expect("read").is_some());
    assert!(reader.load(&jid(2)).expect("read").is_some());
    assert_eq!(reader.returns(&jid(1)).expect("read").len(), 1);
}

#[test]
fn removed_database_is_written_anew_and_readers_follow() {
    let (_dir, options, mut database) = open();
    let reader = database.reader().expect("a reader");
    let checkpointer = database.checkpointer().expect("a checkpointer");
    let identity = reader.identity().expect("read");
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(part(&options.job_database, suffix)).expect("removed");
    }
    assert!(database.is_displaced().expect("a look"));
    assert!(
        reader.load(&jid(1)).expect("read").is_some(),
        "the open file"
    );
    let restored = database.restore_if_displaced(1).expect("restored");
    assert_eq!(restored.expect("it was displaced").set_aside, None);
    database
        .commit(&[Write::Job(job(3, &["m1"]))])
        .expect("committed");
    assert!(
        reader.load(&jid(3)).expect("read").is_some(),
        "the new file"
    );
    assert_eq!(reader.identity().expect("read"), identity);
    let (jobs, returns) = reader.last_ids().expect("read");
    assert_eq!((jobs, returns), (2, 1));
    checkpointer.fold().expect("checkpointed");
    is_whole(&options, database);
}

#[test]
fn removed_wal_counts_as_displaced() {
    let (_dir, options, mut database) = open();
    fs::remove_file(part(&options.job_database, "-wal")).expect("removed");
    assert!(database.is_displaced().expect("a look"));
    assert!(
        database
            .restore_if_displaced(1)
            .expect("restored")
            .is_some()
    );
    is_whole(&options, database);
}

#[test]
fn foreign_file_in_place_of_database_is_set_aside() {
    let (_dir, options, mut database) = open();
    fs::remove_file(&options.job_database).expect("removed");
    fs::write(&options.job_database, "a backup, perhaps").expect("written");
    let restored = database.restore_if_displaced(7).expect("restored");
    let aside = restored
        .expect("it was displaced")
        .set_aside
        .expect("a file");
    assert_eq!(aside, part(&options.job_database, ".replaced-7"));
    assert_eq!(
        fs::read_to_string(aside).expect("a file"),
        "a backup, perhaps"
    );
    is_whole(&options, database);
}

#[test]
fn displaced_database_refuses_commits_until_restored() {
    let (_dir, options, mut database) = open();
    let folder = options.private_dir();
    let moved = folder.with_file_name("moved");
    fs::rename(&folder, &moved).expect("moved");
    fs::write(&folder, "no directory").expect("written");
    assert!(database.restore_is_due(1));
    assert!(database.restore_if_displaced(1).is_err());
    assert!(!database.restore_is_due(2), "not with every commit");
    assert!(database.restore_is_due(3));
    assert!(database.restore_if_displaced(3).is_err());
    assert!(!database.restore_is_due(6), "later each time");
    fs::remove_file(&folder).expect("removed");
    fs::rename(&moved, &folder).expect("moved back");
    is_whole(&options, database);
}

#[test]
fn failed_restore_leaves_no_part_of_a_file() {
    let (_dir, options, mut database) = open();
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(part(&options.job_database, suffix)).expect("removed");
    }
    // What is written is whole by the time that this is in its way.
    let obstacle = part(&options.job_database, "-wal");
    fs::create_dir(&obstacle).expect("a directory");
    assert!(database.restore_if_displaced(1).is_err());
    assert!(!part(&options.job_database, ".restoring").exists());
    fs::remove_dir(&obstacle).expect("removed");
    assert!(
        database
            .restore_if_displaced(3)
            .expect("restored")
            .is_some()
    );
    is_whole(&options, database);
}

#[test]
fn incidents_are_kept_for_the_doctor() {
    let (_dir, options, _database) = open();
    let path = &options.job_database;
    assert!(incidents(path).expect("listed").is_empty());
    for stamp in 100..120 {
        note_incident(path, stamp, "it was removed").expect("noted");
    }
    let found = incidents(path).expect("listed");
    assert_eq!(found.len(), 8);
    assert_eq!(found[0].1, "it was removed");
}

#[test]
fn two_incidents_of_one_second_are_both_kept() {
    let (_dir, options, _database) = open();
    let path = &options.job_database;
    for what in ["it was removed", "there was none"] {
        note_incident(path, 100, what).expect("noted");
    }
    let found = incidents(path).expect("listed");
    let texts: Vec<_> = found.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["it was removed", "there was none"]);
}
