//! Stock's returners read our rows as their own, and our reader reads both as they do: with 3008, in the
//! long tests with each release.

use std::collections::BTreeSet;

use saltern_config::SqlSchema;
use saltern_model::{Jid, ReturnRecord};
use saltern_sql::{JobRange, SqlReader};
use saltern_store::Followed;
use serde_json::{Value as Json, json};

use crate::common::{Site, jid, job_row, json_of_packed, load, ret, return_row};

/// Values that differ in their kinds, with what JSON and SQL have to escape.
fn values(schema: SqlSchema) -> Vec<Json> {
    // Stock fails of wider characters in MySQL's `utf8`; ours are among the bad rows.
    let wide = if schema == SqlSchema::Mysql {
        "€"
    } else {
        "😀"
    };
    vec![
        json!(true),
        json!(null),
        json!(wide),
        json!("grüße \"quoted\" 'single' \\ back\nline\ttab %s ?"),
        json!({"a": [1, 2.5, -3, 1e16, {"b": null}], "": "", "ключ": []}),
        json!([]),
        json!(""),
    ]
}

/// Jobs with their returns.
fn rows(schema: SqlSchema) -> (Vec<Json>, Vec<Json>) {
    let jobs = vec![
        load(1, json!([])),
        load(
            2,
            json!(["x'); DROP TABLE jids; --", {"__kwarg__": true, "a": 1}]),
        ),
        load(3, json!([1, null, "größe"])),
    ];
    let mut returns: Vec<Json> = values(schema)
        .into_iter()
        .enumerate()
        .map(|(number, value)| ret(2, &format!("web{number}"), value))
        .collect();
    // The case of names is part of them.
    returns.push(ret(2, "Web1", json!("another minion")));
    returns.push(ret(3, "web1", json!(false)));
    let mut failed = ret(3, "web2", json!("ERROR"));
    failed["success"] = json!(false);
    failed["retcode"] = json!(1);
    returns.push(failed);
    let mut silent = ret(3, "web3", json!("says nothing of its success"));
    silent.as_object_mut().expect("a map").remove("success");
    returns.push(silent);
    (jobs, returns)
}

/// Calls that read everything.
fn reads() -> Json {
    let mut reads = vec![
        json!(["get_jids"]),
        json!(["get_minions"]),
        json!(["get_fun", "test.echo"]),
    ];
    for number in 1..5 {
        reads.push(json!(["get_load", jid(number)]));
        reads.push(json!(["get_jid", jid(number)]));
    }
    Json::Array(reads)
}

/// Columns whose values do not depend on the time.
fn columns(schema: SqlSchema) -> [&'static str; 2] {
    match schema {
        SqlSchema::PgJsonb | SqlSchema::Postgres => [
            "SELECT jid, load FROM jids ORDER BY jid",
            "SELECT fun, jid, return, id, success, full_ret FROM salt_returns ORDER BY jid, id",
        ],
        SqlSchema::Mysql => [
            "SELECT `jid`, `load` FROM jids ORDER BY jid",
            "SELECT `fun`, `jid`, `return`, `id`, `success`, `full_ret` FROM salt_returns \
             ORDER BY jid, BINARY id",
        ],
        SqlSchema::PostgresLocalCache => [
            "SELECT jid, tgt_type, cmd, tgt, kwargs, ret, username, arg, fun FROM jids ORDER BY jid",
            "SELECT fun, jid, return, id, success FROM salt_returns ORDER BY jid, id",
        ],
    }
}

/// The releases of this run (`tests/run.sh`); of one schema each line in every run.
fn releases(schema: SqlSchema) -> BTreeSet<String> {
    let releases = std::env::var("SALTERN_SQL_RELEASES");
    let releases = releases.unwrap_or_else(|_| saltern_stock::NEWEST.to_owned());
    let older: &[&str] = match schema {
        SqlSchema::PgJsonb => &["3006.28", "3007.15"],
        _ => &[],
    };
    let releases = releases.split_whitespace().chain(older.iter().copied());
    releases.map(str::to_owned).collect()
}

fn compare(schema: SqlSchema) {
    let site = Site::new(schema);
    let (jobs, returns) = rows(schema);
    let ours: Vec<Followed> = jobs
        .iter()
        .map(job_row)
        .chain(returns.iter().map(return_row))
        .collect();
    let ours: Vec<&Followed> = ours.iter().collect();
    let (mut writer, reader) = (site.writer(), site.reader());
    for release in &releases(schema) {
        let table_names = ["DELETE FROM jids", "DELETE FROM salt_returns"];
        site.server.query(&table_names);
        let mut calls = Vec::new();
        for job in &jobs {
            calls.push(json!(["save_load", job["jid"], job, ["web1"]]));
        }
        for ret in &returns {
            calls.push(json!(["returner", ret]));
        }
        let writes = calls.len();
        calls.extend(reads().as_array().expect("a list").clone());
        let answers = site.stock(release, &Json::Array(calls));
        let (written, read) = answers.split_at(writes);
        assert!(written.iter().all(Json::is_null), "{written:#?}");
        let theirs: Vec<_> = columns(schema).map(|sql| site.server.query(&[sql])).into();
        assert_eq!(theirs[0].len(), jobs.len());
        assert_reads_as_stock(&reader, schema, read, &format!("rows of stock {release}"));
        assert_eq!(theirs[1].len(), returns.len(), "{theirs:#?}");

        site.server.query(&table_names);
        // Twice: what is there stays.
        for _ in 0..2 {
            let stored = writer.store(&ours);
            assert_eq!((stored.done, stored.skipped), (ours.len(), 0), "{stored:?}");
            assert!(stored.problem.is_none(), "{:?}", stored.problem);
        }
        let written: Vec<_> = columns(schema).map(|sql| site.server.query(&[sql])).into();
        assert_eq!(written, theirs, "the rows, {release}");
        let mut found = site.stock(release, &reads());
        let mut expected = read.to_vec();
        // In the order of the table.
        for answers in [&mut found, &mut expected] {
            if let Some(minions) = answers[1].as_array_mut() {
                minions.sort_by_key(Json::to_string);
            }
        }
        assert_eq!(found, expected, "what stock reads, {release}");
        assert_reads_as_stock(&reader, schema, &found, &format!("our rows, {release}"));
        // So that failures of everything are not taken for agreement.
        assert_eq!(found[0].as_object().map(serde_json::Map::len), Some(3));
    }
}

/// Compares what the reader finds with what stock's functions gave for [`reads`].
fn assert_reads_as_stock(reader: &SqlReader, schema: SqlSchema, stock: &[Json], what: &str) {
    let [jids, minions, newest, loads @ ..] = stock else {
        panic!("{stock:?}");
    };
    let by_minion = |returns: &[ReturnRecord]| {
        let returns = returns.iter().map(|record| {
            let mut load = json_of_packed(&record.load);
            if schema == SqlSchema::PostgresLocalCache {
                // Its returner keeps three parts of a return.
                let load = load.as_object_mut().expect("a map");
                load.retain(|name, _| ["return", "retcode", "success"].contains(&name.as_str()));
            }
            (record.minion.to_string(), load)
        });
        Json::Object(returns.collect())
    };
    for (number, pair) in (1..).zip(loads.chunks(2)) {
        let jid = Jid::parse(&jid(number)).expect("a jid");
        let job = reader.job(&jid).expect("an answer");
        let load = job.map_or(json!({}), |job| json_of_packed(&job.load));
        assert_eq!(load, pair[0], "get_load {jid}, {what}");
        let page = reader.returns(&jid, None, 100, usize::MAX);
        let page = page.expect("an answer");
        assert_eq!(by_minion(&page.returns), pair[1], "get_jid {jid}, {what}");
        for record in &page.returns {
            let one = reader.return_of(&jid, &record.minion).expect("an answer");
            let one = one.expect("the same return");
            assert_eq!(one.load.as_ref(), record.load.as_ref());
        }
        let counts = reader
            .counts(std::slice::from_ref(&jid))
            .expect("an answer");
        assert_eq!(counts[0].returned, page.returns.len(), "{what}");
    }
    let slice = reader.jobs(&JobRange {
        limit: 100,
        ..JobRange::default()
    });
    let slice = slice.expect("an answer");
    let found: Vec<&str> = slice
        .jobs
        .iter()
        .rev()
        .map(|job| job.jid.as_str())
        .collect();
    let stock: Vec<&str> = jids
        .as_object()
        .expect("a map")
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(found, stock, "get_jids, {what}");
    for job in &slice.jobs {
        let stock = &jids[job.jid.as_str()];
        let ours = [
            &job.fun,
            &job.tgt,
            &job.tgt_type,
            &job.user,
            &job.jid.start_time(),
        ];
        let names = ["Function", "Target", "Target-type", "User", "StartTime"];
        assert_eq!(json!(ours), json!(names.map(|name| &stock[name])), "{what}");
    }
    if let Some(stock) = minions.as_array() {
        let stock = stock
            .iter()
            .filter_map(|minion| Some(minion.as_str()?.to_owned()));
        // MySQL's collation takes minions that differ in the case of letters for one.
        let folded = |minions: Vec<String>| match schema {
            SqlSchema::Mysql => minions.iter().map(|id| id.to_lowercase()).collect(),
            _ => minions.into_iter().collect::<BTreeSet<String>>(),
        };
        let ours = reader.minions(100).expect("an answer");
        assert!(ours.is_sorted(), "{ours:?}");
        assert_eq!(folded(ours), folded(stock.collect()), "get_minions, {what}");
    }
    // The statement of stock's `postgres` is none of PostgreSQL, and `postgres_local_cache` has none.
    if newest.is_object() {
        let ours = reader.newest_returns("test.echo", 100).expect("an answer");
        assert_eq!(by_minion(&ours), *newest, "get_fun, {what}");
    }
}

#[test]
fn pgjsonb_rows_are_what_stock_writes() {
    compare(SqlSchema::PgJsonb);
}

#[test]
fn postgres_rows_are_what_stock_writes() {
    compare(SqlSchema::Postgres);
}

#[test]
fn postgres_local_cache_rows_are_what_stock_writes() {
    compare(SqlSchema::PostgresLocalCache);
}

#[test]
fn mysql_rows_are_what_stock_and_its_extension_write() {
    compare(SqlSchema::Mysql);
}

#[test]
fn return_never_replaces_what_was_published() {
    for schema in [SqlSchema::PgJsonb, SqlSchema::Mysql] {
        let site = Site::new(schema);
        let mut writer = site.writer();
        let published = load(1, json!(["published"]));
        let mut reported = load(1, json!(["reported"]));
        reported["return"] = json!(true);
        let rows = [job_row(&published), job_row(&reported)];
        for order in [[0, 1], [1, 0], [0, 1]] {
            for number in order {
                let stored = writer.store(&[&rows[number]]);
                assert!(stored.problem.is_none(), "{stored:?}");
            }
            let loads = site.server.query(&[columns(schema)[0]]);
            let load = format!("{loads:?}");
            assert!(
                load.contains("published") && !load.contains("reported"),
                "{load}"
            );
            site.server.query(&["DELETE FROM jids"]);
        }
    }
}
