//! A job database that is moved into a cluster, and back out of it.

use std::sync::Arc;

use saltern_model::JobRecord;
use saltern_sql::{ClusterError, Tables, export_jobs, import_jobs, init_cluster};
use saltern_store::jobs::{Engine, Retention, TableSource, move_tables, wait};
use saltern_store::sqlite::{NewSqliteTables, SqliteTables};
use saltern_store::{CachedJob, DatabaseLimits, JobDatabase, StoreError};
use saltern_wire::msgpack::Value;

use crate::common::{id, jid, job, ret};
use crate::conformance::Site as _;
use crate::differences::{Chance, view};
use crate::members::{config_of, is_active, join, me, standing};
use crate::site::Database;

const SEEDS: u64 = 2;
const BATCHES: usize = 40;

fn sqlite(path: &std::path::Path) -> Engine {
    let opened = JobDatabase::open(path, DatabaseLimits::default());
    opened.and_then(JobDatabase::into_engine).expect("opened")
}

fn append_some(engine: &Engine, chance: &mut Chance, sent: &mut u64) {
    for _ in 0..BATCHES {
        let batch = Arc::new(chance.batch(sent));
        wait(engine.log.append(batch)).expect("committed");
    }
}

fn identity(engine: &Engine) -> String {
    engine.queries.identity().expect("a read")
}

/// A job of stock's cache, numbered below all others, with names and texts that are unusual.
fn imported() -> CachedJob {
    let odd = "m\u{f8fe}0";
    CachedJob {
        jid: jid(90),
        job: Some(JobRecord {
            user: "nul\0 and \u{f8fe}".to_owned(),
            ..job(90, &[odd, "m1"])
        }),
        reporter: Some(id(odd)),
        returns: vec![
            ret(90, odd, Value::from(true)),
            // More than a statement takes.
            ret(90, "m1", Value::from("x".repeat(9 << 20))),
        ],
        is_whole: true,
    }
}

#[test]
fn moved_databases_answer_as_before_and_go_on_where_they_were() {
    let database = Database::start();
    let directory = tempfile::tempdir().expect("a directory");
    for seed in 0..SEEDS {
        let path = |name: &str| directory.path().join(format!("{name}{seed}.sqlite"));
        let (mut chance, mut sent) = (Chance(seed + 7), 0);
        let name = format!("moved_{seed}");
        let config = config_of(&database, &name);
        assert_eq!(init_cluster(&config).expect("made"), Tables::Made);

        let before = sqlite(&path("before"));
        append_some(&before, &mut chance, &mut sent);
        let retention = Retention {
            most_jobs: Some(4),
            most_audit: Some(3),
            ..Retention::default()
        };
        let remove = || before.housekeeping.remove_slice(retention, 1_000);
        while wait(remove()).expect("removed").is_some() {}
        wait(before.log.import(vec![imported()])).expect("imported");
        wait(before.log.finish_import()).expect("noted");
        let (expected, own) = (view(&before), identity(&before));
        drop(before);

        let mut source = SqliteTables::open(&path("before")).expect("opened");
        let moved = import_jobs(&config, &mut source).expect("moved");
        assert!(moved.iter().any(|(_, rows)| *rows > 0), "{moved:?}");
        let again = import_jobs(&config, &mut source).expect_err("there are jobs");
        assert!(matches!(again, ClusterError::MovedBefore { .. }), "{again}");
        drop(source);
        let within = database.cluster(&name).open();
        assert_eq!(view(&within), expected, "seed {seed}");
        assert_eq!(identity(&within), own);
        assert!(within.queries.has_imported().expect("a read"));
        let check = within.queries.check_audit(None).expect("a read");
        assert!(check.broken.is_none(), "{check:?}");
        append_some(&within, &mut chance, &mut sent);
        let expected = view(&within);

        let create = || NewSqliteTables::create(&path("after"));
        let moved = export_jobs(&config, create).expect("moved");
        let late = Arc::new(chance.batch(&mut sent.clone()));
        let late = wait(within.log.append(late)).expect_err("it has no right any more");
        assert!(matches!(late, StoreError::NotOwner { .. }), "{late}");
        let after = sqlite(&path("after"));
        assert_eq!(view(&after), expected, "seed {seed}: {moved:?}");
        assert_eq!(identity(&after), own);
        let check = after.queries.check_audit(None).expect("a read");
        assert!(check.broken.is_none(), "{check:?}");
        // An owner after the move. Events that a process sent are numbered by it.
        drop(within);
        let (within, mut sent) = (database.cluster(&name).open(), 0);
        for step in 0..BATCHES {
            let batch = Arc::new(chance.batch(&mut sent));
            let [expected, found] = [&within, &after]
                .map(|engine| wait(engine.log.append(batch.clone())).expect("committed"));
            assert_eq!(found, expected, "seed {seed}, step {step}: {batch:?}");
        }
        assert_eq!(view(&after), view(&within), "seed {seed}");
    }
}

#[test]
fn unfinished_move_counts_for_nothing() {
    /// Says no in the middle.
    struct Failing(SqliteTables);

    impl TableSource for Failing {
        fn state(&mut self) -> saltern_store::Result<saltern_store::jobs::DatabaseState> {
            self.0.state()
        }

        fn rows(
            &mut self,
            table: &'static saltern_store::jobs::Table,
            take: &mut dyn FnMut(saltern_store::jobs::TableRow) -> saltern_store::Result<()>,
        ) -> saltern_store::Result<()> {
            match table.name {
                "audit" => Err(StoreError::Full { path: "/".into() }),
                _ => self.0.rows(table, take),
            }
        }

        fn confirm(&mut self) -> saltern_store::Result<()> {
            self.0.confirm()
        }
    }

    let database = Database::start();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("jobs.sqlite");
    let (mut chance, mut sent) = (Chance(3), 0);
    append_some(&sqlite(&path), &mut chance, &mut sent);
    let config = config_of(&database, "unfinished");
    init_cluster(&config).expect("made");

    let mut failing = Failing(SqliteTables::open(&path).expect("opened"));
    import_jobs(&config, &mut failing).expect_err("it fails");
    let other = directory.path().join("other.sqlite");
    let target = NewSqliteTables::create(&other).expect("made");
    move_tables(&mut failing, target).expect_err("it fails");
    let left = std::fs::read_dir(directory.path()).expect("a directory");
    let left = left.map(|entry| entry.expect("an entry").file_name());
    let left: Vec<_> = left
        .filter(|name| name.to_string_lossy().starts_with("other"))
        .collect();
    assert!(left.is_empty(), "{left:?}");

    let target = NewSqliteTables::create(&other).expect("made anew");
    move_tables(&mut failing.0, target).expect("moved");
    NewSqliteTables::create(&other).err().expect("it is there");
    let log = directory.path().join("old.sqlite");
    std::fs::write(directory.path().join("old.sqlite-wal"), "").expect("a file");
    NewSqliteTables::create(&log)
        .err()
        .expect("the log of one is there");
    let config_in_use = config_of(&database, "in_use");
    init_cluster(&config_in_use).expect("made");
    let (member, _losses) = join(&config_in_use, me("a", "1", "key"));
    standing(&member, is_active).expect("active");
    let refused = import_jobs(&config_in_use, &mut failing.0).expect_err("a master lives");
    assert!(matches!(refused, ClusterError::InUse { .. }), "{refused}");
    let create = || NewSqliteTables::create(&log);
    let refused = export_jobs(&config_in_use, create).expect_err("a master lives");
    assert!(matches!(refused, ClusterError::InUse { .. }), "{refused}");
    member.leave();
    import_jobs(&config, &mut failing.0).expect("the cluster has none");
    let within = database.cluster("unfinished").open();
    drop(failing);
    assert_eq!(view(&within), view(&sqlite(&path)));
    assert_eq!(view(&within), view(&sqlite(&other)));
}
