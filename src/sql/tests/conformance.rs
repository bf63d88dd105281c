//! Stock's returners read our rows as their own: with 3008, in the long tests
//! with each release.

use saltern_config::SqlSchema;
use saltern_store::Followed;
use serde_json::{Value as Json, json};

use crate::common::{Site, jid, job_row, load, ret, return_row};

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

/// The releases of this run (`tests/run.sh`).
fn releases() -> Vec<String> {
    let releases = std::env::var("SALTERN_SQL_RELEASES");
    let releases = releases.unwrap_or_else(|_| saltern_stock::NEWEST.to_owned());
    releases.split_whitespace().map(str::to_owned).collect()
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
    let mut writer = site.writer();
    for release in &releases() {
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
        // So that failures of everything are not taken for agreement.
        assert_eq!(found[0].as_object().map(serde_json::Map::len), Some(3));
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
