//! Purges: by the age of the job, without orphans, in slices, into stock's archive tables.

use std::time::Duration;

use saltern_config::SqlSchema;
use saltern_sql::{Cutoff, SqlCare, purge_steps};
use saltern_store::Followed;
use serde_json::json;

use crate::common::{Site, job_row, load, ret, return_row};

/// A minute behind the jobs of [`rows`] whose number is below 500.
const CUTOFF: i64 = 1_795_244_782_000_500;

/// Old jobs and new ones, each with returns; those of a slice and of an old job came late.
fn rows() -> Vec<Followed> {
    let mut rows = Vec::new();
    for number in [1, 2, 3, 499, 500, 501] {
        rows.push(job_row(&load(number, json!([]))));
        rows.extend((0..400).map(|id| return_row(&ret(number, &format!("web{id}"), json!(id)))));
    }
    rows
}

fn purge_leaves_no_orphans(schema: SqlSchema, archives: bool) {
    let site = Site::new(schema);
    let rows = rows();
    let rows: Vec<&Followed> = rows.iter().collect();
    assert_eq!(site.writer().store(&rows).done, rows.len());
    let store = site.store(&site.options());
    let mut care = SqlCare::connect(&store).expect("a connection");
    let cutoff = Cutoff::before(CUTOFF, Duration::ZERO);
    let mut slices = 0;
    // Twice: what is gone is gone.
    for expected in [[1600, 0, 4, 0], [0; 4]] {
        let gone = purge_steps(schema, cutoff, archives)
            .into_iter()
            .map(|step| {
                let purged = care.purge(&step, |took| {
                    slices += 1;
                    assert!(took < Duration::from_secs(20), "{took:?}");
                    false
                });
                purged.expect("a purge")
            });
        assert_eq!(gone.collect::<Vec<_>>(), expected);
    }
    assert!(slices > 8, "more than one slice of returns: {slices}");
    let count = |sql: &str| site.server.count(sql);
    assert_eq!(count("SELECT COUNT(*) FROM jids"), 2);
    assert_eq!(count("SELECT COUNT(*) FROM salt_returns"), 800);
    let orphans = "SELECT COUNT(*) FROM salt_returns WHERE jid NOT IN (SELECT jid FROM jids)";
    assert_eq!(count(orphans), 0);
    if archives {
        assert_eq!(count("SELECT COUNT(*) FROM jids_archive"), 4);
        let kept = "SELECT COUNT(*) FROM salt_returns_archive WHERE full_ret IS NOT NULL";
        assert_eq!(count(kept), 1600);
        assert_eq!(count("SELECT COUNT(*) FROM salt_events_archive"), 0);
    }
}

#[test]
fn purge_of_pgjsonb_leaves_no_orphans() {
    purge_leaves_no_orphans(SqlSchema::PgJsonb, false);
}

#[test]
fn purge_of_pgjsonb_into_the_archive_keeps_every_row_once() {
    purge_leaves_no_orphans(SqlSchema::PgJsonb, true);
}

#[test]
fn purge_of_mysql_leaves_no_orphans() {
    purge_leaves_no_orphans(SqlSchema::Mysql, false);
}

#[test]
fn purge_of_mysql_into_the_archive_keeps_every_row_once() {
    purge_leaves_no_orphans(SqlSchema::Mysql, true);
}
