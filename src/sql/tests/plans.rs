//! Plans of the writer on a real PostgreSQL: which indexes it uses.

use std::thread;
use std::time::Duration;

use saltern_config::SqlSchema;
use serde_json::json;

use crate::common::{Site, ret, return_row};

/// How often something is looked at.
const GLANCE: Duration = Duration::from_millis(50);

/// The index of minions has entries of every job: a lookup in it costs more with each job.
#[test]
fn returns_that_are_there_are_found_by_the_index_of_jobs_alone() {
    let site = Site::new(SqlSchema::PgJsonb);
    // As in a new table that grows fast, the planner has no statistics.
    site.server.query(&[
        "ALTER TABLE salt_returns SET (autovacuum_enabled = off)",
        "INSERT INTO salt_returns (fun, jid, return, id, success, full_ret) \
         SELECT 'test.ping', '20261121070622' || lpad((n / 100)::text, 6, '0'), 'true', \
         'web' || (n % 100), 'true', '{}' FROM generate_series(0, 19999) AS n",
    ]);
    // The first ten are there.
    let rows: Vec<_> = (90..190)
        .map(|minion| return_row(&ret(7, &format!("web{minion}"), json!(true))))
        .collect();
    let rows: Vec<_> = rows.iter().collect();
    let mut writer = site.writer();
    let stored = writer.store(&rows);
    assert_eq!((stored.done, stored.skipped), (100, 0), "{stored:?}");
    // A connection reports its use of indexes when it ends.
    drop(writer);
    let scans = |index: &str| {
        let table = "pg_stat_user_indexes WHERE indexrelname";
        site.server.count(&format!(
            "SELECT idx_scan FROM {table} = 'idx_salt_returns_{index}'"
        ))
    };
    let mut tries = 0..2_400;
    while scans("jid") == 0 {
        assert!(tries.next().is_some(), "the index of jobs is not used");
        thread::sleep(GLANCE);
    }
    assert_eq!(scans("id"), 0);
    assert_eq!(
        site.server.count("SELECT COUNT(*) FROM salt_returns"),
        20_090
    );
}
