//! Outages of the server, and rows that it refuses: what is stored is exact afterwards.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use saltern_config::SqlSchema;
use saltern_sql::{Marks, SqlWriter};
use saltern_store::Followed;
use saltern_wire::msgpack::Value;
use serde_json::json;

use crate::common::{Site, jid, job_row, load, ret, return_of, return_row};

/// Rows, and those of a call.
const ROWS: usize = 3_000;
const BATCH: usize = 100;

/// Kills of the server: `SALTERN_KILLS`, as tests/run.sh sets it for each tier.
fn kills() -> usize {
    let kills = std::env::var("SALTERN_KILLS").ok();
    kills.map_or(5, |kills| kills.parse().expect("a number of kills"))
}

/// How often something is looked at.
const GLANCE: Duration = Duration::from_millis(5);

/// Gives rows until all are done. Every third batch is given twice, as by a master that was killed
/// before it saved its cursor.
fn give(writer: &mut SqlWriter, rows: &[Followed], progress: &AtomicUsize) {
    let rows: Vec<&Followed> = rows.iter().collect();
    let (mut rest, mut batches) = (rows.as_slice(), 0);
    while !rest.is_empty() {
        let batch = &rest[..rest.len().min(BATCH)];
        let stored = writer.store(batch);
        assert_eq!((stored.skipped, stored.marks.cut), (0, 0), "{stored:?}");
        if stored.done == 0 {
            thread::sleep(GLANCE);
            continue;
        }
        batches += 1;
        if batches % 3 == 0 {
            let again = writer.store(&batch[..stored.done]);
            assert_eq!(again.skipped, 0);
        }
        rest = &rest[stored.done..];
        progress.store(rows.len() - rest.len(), Ordering::Release);
    }
}

fn rows_are_exact_after_kills(schema: SqlSchema) {
    let kills = kills();
    // Each of them in the middle of it.
    let between = ROWS / (kills + 1);
    let mut site = Site::new(schema);
    let mut writer = site.writer();
    let mut rows = vec![job_row(&load(1, json!([])))];
    rows.extend((1..ROWS).map(|number| {
        let minion = format!("web{number}");
        return_row(&ret(1, &minion, json!("x".repeat(1000))))
    }));
    let progress = AtomicUsize::new(0);
    thread::scope(|scope| {
        let giving = scope.spawn(|| give(&mut writer, &rows, &progress));
        for kill in 1..=kills {
            while progress.load(Ordering::Acquire) < kill * between && !giving.is_finished() {
                thread::sleep(GLANCE);
            }
            site.server.kill();
            site.server.resume();
        }
    });
    assert_eq!(site.server.count("SELECT COUNT(*) FROM jids"), 1);
    let returns = ROWS as u64 - 1;
    for what in ["*", "DISTINCT id"] {
        let sql = format!("SELECT COUNT({what}) FROM salt_returns");
        assert_eq!(site.server.count(&sql), returns, "{what}");
    }
}

#[test]
fn rows_in_postgresql_are_exact_after_kills_of_the_server() {
    rows_are_exact_after_kills(SqlSchema::PgJsonb);
}

#[test]
fn rows_in_mariadb_are_exact_after_kills_of_the_server() {
    rows_are_exact_after_kills(SqlSchema::Mysql);
}

fn bad_return(minion: &str, fun: &str, value: Value) -> Followed {
    return_of(&Value::map([
        ("jid", Value::from(jid(1))),
        ("id", Value::from(minion)),
        ("fun", Value::from(fun)),
        ("return", value),
        ("retcode", Value::from(0)),
        ("success", Value::from(true)),
    ]))
}

fn bad_rows_are_stored_visibly(schema: SqlSchema) {
    let site = Site::new(schema);
    let mut writer = site.writer();
    let bytes = |bytes: &'static [u8]| Value::Bin(bytes.into());
    let long = "m".repeat(255);
    let (strict, has_widths) = (
        schema == SqlSchema::PgJsonb,
        schema != SqlSchema::PostgresLocalCache,
    );
    let huge = "x".repeat(20 << 20);
    // A name, a function, a value; escapes and cuts where a schema makes some.
    let table = [
        ("nul", "test.a", Value::from("a\0b"), u64::from(strict), 0),
        ("utf8", "test.a", bytes(b"a\xff\xfeb"), 1, 0),
        ("nan", "test.a", f64::NAN.into(), u64::from(strict), 0),
        (
            "key",
            "test.a",
            Value::map([(bytes(b"\xff"), Value::Nil)]),
            1,
            0,
        ),
        ("wide", "test.a", Value::from("😀"), 0, 0),
        (
            "fun",
            &"f".repeat(300),
            Value::Nil,
            0,
            u64::from(has_widths),
        ),
        (&long, "test.a", Value::Nil, 0, 0),
        ("last", "test.a", Value::from("fine"), 0, 0),
    ];
    let rows: Vec<Followed> = table
        .iter()
        .map(|(minion, fun, value, ..)| bad_return(minion, fun, value.clone()))
        .collect();
    for (row, (minion, _, _, escaped, cut)) in rows.iter().zip(&table) {
        let stored = writer.store(&[row]);
        assert_eq!(
            (stored.done, stored.skipped),
            (1, 0),
            "{minion}: {stored:?}"
        );
        assert!(stored.problem.is_none(), "{minion}: {stored:?}");
        if schema != SqlSchema::PostgresLocalCache {
            let marks = Marks {
                escaped: *escaped,
                cut: *cut,
            };
            assert_eq!(stored.marks, marks, "{minion}");
        }
    }
    let count = "SELECT COUNT(*) FROM salt_returns";
    assert_eq!(site.server.count(count), table.len() as u64);
    // Two hundred megabytes of MariaDB's statements are none: it is cut where that is so.
    let stored = writer.store(&[&bad_return("huge", "test.a", Value::from(huge))]);
    assert_eq!((stored.done, stored.skipped), (1, 0), "{stored:?}");
    assert!(stored.problem.is_none(), "{stored:?}");
    assert_eq!(stored.marks.cut > 0, schema == SqlSchema::Mysql);
    let shown = "SELECT return FROM salt_returns WHERE id = 'utf8'";
    let shown = match schema {
        SqlSchema::Mysql => shown
            .replace("return", "`return`")
            .replace("salt_`return`s", "salt_returns"),
        _ => shown.to_owned(),
    };
    let shown = site.server.query(&[&shown]);
    let shown = shown[0][0].as_deref().expect("a text");
    assert!(shown.contains("xff") && shown.contains("xfe"), "{shown}");
}

#[test]
fn bad_rows_are_stored_visibly_in_pgjsonb() {
    bad_rows_are_stored_visibly(SqlSchema::PgJsonb);
}

#[test]
fn bad_rows_are_stored_visibly_in_postgres() {
    bad_rows_are_stored_visibly(SqlSchema::Postgres);
}

#[test]
fn bad_rows_are_stored_visibly_in_postgres_local_cache() {
    bad_rows_are_stored_visibly(SqlSchema::PostgresLocalCache);
}

#[test]
fn bad_rows_are_stored_visibly_in_mysql() {
    bad_rows_are_stored_visibly(SqlSchema::Mysql);
}

#[test]
fn refused_row_keeps_no_other_and_a_missing_table_keeps_all() {
    for schema in [SqlSchema::PgJsonb, SqlSchema::Mysql] {
        let site = Site::new(schema);
        let mut writer = site.writer();
        site.server
            .query(&["ALTER TABLE salt_returns ADD CONSTRAINT no_bad CHECK (id <> 'web7')"]);
        let rows: Vec<Followed> = (0..20)
            .map(|number| return_row(&ret(1, &format!("web{number}"), json!(number))))
            .collect();
        let rows: Vec<&Followed> = rows.iter().collect();
        let stored = writer.store(&rows);
        assert_eq!((stored.done, stored.skipped), (20, 1), "{stored:?}");
        assert!(stored.problem.is_some());
        let count = "SELECT COUNT(*) FROM salt_returns";
        assert_eq!(site.server.count(count), 19);
        // Nothing is passed over while the tables are not there.
        site.server
            .query(&["ALTER TABLE salt_returns RENAME TO elsewhere"]);
        let stored = writer.store(&rows);
        assert_eq!((stored.done, stored.skipped), (0, 0), "{stored:?}");
        site.server
            .query(&["ALTER TABLE elsewhere RENAME TO salt_returns"]);
        assert_eq!(writer.store(&rows).done, 20);
        assert_eq!(site.server.count(count), 19);
    }
}

#[test]
fn password_is_in_no_error() {
    let mut site = Site::new(SqlSchema::PgJsonb);
    let row = return_row(&ret(1, "web1", json!(true)));
    let mut writer = site.writer();
    site.server.query(&["ALTER ROLE salt PASSWORD 'another'"]);
    let stored = writer.store(&[&row]);
    let problem = format!("{:?}", stored.problem.expect("refused"));
    assert!(
        problem.contains("28P01") && !problem.contains("kanaloa"),
        "{problem}"
    );
    site.server.kill();
    let problem = format!("{:?}", writer.store(&[&row]).problem.expect("no server"));
    assert!(!problem.contains("kanaloa"), "{problem}");
}
