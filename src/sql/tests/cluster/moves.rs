//! A job database that is moved into a cluster, and back out of it.

use std::sync::Arc;

use saltern_sql::{ClusterError, export_jobs, import_jobs, init_cluster};
use saltern_store::jobs::{Engine, Retention, TableSource, move_tables, wait};
use saltern_store::sqlite::{NewSqliteTables, SqliteTables};
use saltern_store::{DatabaseLimits, JobDatabase, StoreError};

use crate::conformance::Site as _;
use crate::differences::{Chance, view};
use crate::members::config_of;
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

#[test]
fn moved_databases_answer_as_before_and_go_on_where_they_were() {
    let database = Database::start();
    let directory = tempfile::tempdir().expect("a directory");
    for seed in 0..SEEDS {
        let path = |name: &str| directory.path().join(format!("{name}{seed}.sqlite"));
        let (mut chance, mut sent) = (Chance(seed + 7), 0);
        let name = format!("moved_{seed}");
        let config = config_of(&database, &name);
        assert!(init_cluster(&config).expect("made"));

        let before = sqlite(&path("before"));
        append_some(&before, &mut chance, &mut sent);
        let retention = Retention {
            most_jobs: Some(4),
            most_audit: Some(3),
            ..Retention::default()
        };
        let remove = || before.housekeeping.remove_slice(retention, 1_000);
        while wait(remove()).expect("removed").is_some() {}
        wait(before.log.finish_import()).expect("noted");
        let (expected, own) = (view(&before), identity(&before));
        drop(before);

        let mut source = SqliteTables::open(&path("before")).expect("opened");
        let moved = import_jobs(&config, &mut source).expect("moved");
        assert!(moved.iter().any(|(_, rows)| *rows > 0), "{moved:?}");
        let again = import_jobs(&config, &mut source).expect_err("there are jobs");
        assert!(matches!(again, ClusterError::HasJobs { .. }), "{again}");
        drop(source);
        let within = database.cluster(&name).open();
        assert_eq!(view(&within), expected, "seed {seed}");
        assert_eq!(identity(&within), own);
        assert!(within.queries.has_imported().expect("a read"));
        let check = within.queries.check_audit(None).expect("a read");
        assert!(check.broken.is_none(), "{check:?}");
        append_some(&within, &mut chance, &mut sent);
        let expected = view(&within);

        let after = NewSqliteTables::create(&path("after")).expect("made");
        let moved = export_jobs(&config, after).expect("moved");
        let after = sqlite(&path("after"));
        assert_eq!(view(&after), expected, "seed {seed}: {moved:?}");
        assert_eq!(identity(&after), own);
        let check = after.queries.check_audit(None).expect("a read");
        assert!(check.broken.is_none(), "{check:?}");
        // Events that a process sent are numbered by it.
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
    assert!(!other.exists());

    let target = NewSqliteTables::create(&other).expect("made anew");
    move_tables(&mut failing.0, target).expect("moved");
    NewSqliteTables::create(&other).err().expect("it is there");
    import_jobs(&config, &mut failing.0).expect("the cluster has none");
    let within = database.cluster("unfinished").open();
    drop(failing);
    assert_eq!(view(&within), view(&sqlite(&path)));
    assert_eq!(view(&within), view(&sqlite(&other)));
}
