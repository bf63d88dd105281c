//! The reader over outages, in pages, and with rows that other programs wrote.

use std::time::Duration;

use saltern_config::SqlSchema;
use saltern_model::Jid;
use saltern_sql::{JobRange, SqlError};
use serde_json::json;

use crate::common::{Site, jid, job_row, load, ret, return_row};

fn some_jobs(site: &Site) {
    let mut rows = Vec::new();
    for number in 1..=7 {
        rows.push(job_row(&load(number, json!([number]))));
    }
    for minion in ["a", "B", "c", "b"] {
        rows.push(return_row(&ret(7, minion, json!("x".repeat(1000)))));
    }
    let rows: Vec<_> = rows.iter().collect();
    assert_eq!(site.writer().store(&rows).done, rows.len());
}

fn pages_are_complete_and_in_order(schema: SqlSchema) {
    let site = Site::new(schema);
    some_jobs(&site);
    let reader = site.reader();
    let (mut range, mut found) = (
        JobRange {
            limit: 3,
            ..JobRange::default()
        },
        Vec::new(),
    );
    loop {
        let slice = reader.jobs(&range).expect("a page");
        assert!(slice.jobs.len() <= 3);
        found.extend(slice.jobs.into_iter().map(|job| job.jid.to_string()));
        match slice.next {
            Some(next) => range.before = Some(next),
            None => break,
        }
    }
    let expected: Vec<String> = (1..=7).rev().map(jid).collect();
    assert_eq!(found, expected);
    let bounded = reader.jobs(&JobRange {
        before: Some(jid(5)),
        from: Some(jid(3)),
        limit: 10,
    });
    let bounded = bounded.expect("a page").jobs;
    assert_eq!(
        bounded
            .iter()
            .map(|job| job.jid.to_string())
            .collect::<Vec<_>>(),
        [jid(4), jid(3)]
    );

    let last = Jid::parse(&jid(7)).expect("a jid");
    let page = |after: Option<&str>, limit, bytes| {
        let page = reader.returns(&last, after, limit, bytes).expect("a page");
        let minions: Vec<String> = page
            .returns
            .iter()
            .map(|one| one.minion.to_string())
            .collect();
        (minions.join(" "), page.is_cut)
    };
    // By their bytes, whatever the collation of the database is.
    assert_eq!(page(None, 100, usize::MAX), ("B a b c".to_owned(), false));
    assert_eq!(page(None, 2, usize::MAX), ("B a".to_owned(), false));
    assert_eq!(page(Some("a"), 2, usize::MAX), ("b c".to_owned(), false));
    assert_eq!(page(Some("a"), 2, 1), ("b".to_owned(), true));
    assert_eq!(page(Some("c"), 2, 1), (String::new(), false));
}

#[test]
fn pages_of_pgjsonb_are_complete_and_in_order() {
    pages_are_complete_and_in_order(SqlSchema::PgJsonb);
}

#[test]
fn pages_of_mysql_are_complete_and_in_order() {
    pages_are_complete_and_in_order(SqlSchema::Mysql);
}

#[test]
fn argument_that_is_too_long_for_a_list_is_marked_there_and_whole_in_its_job() {
    let site = Site::new(SqlSchema::PgJsonb);
    let long = load(1, json!(["x".repeat(1 << 20)]));
    assert_eq!(site.writer().store(&[&job_row(&long)]).done, 1);
    let reader = site.reader();
    let slice = reader
        .jobs(&JobRange {
            limit: 9,
            ..JobRange::default()
        })
        .expect("a page");
    let [listed] = slice.jobs.as_slice() else {
        panic!("{slice:?}");
    };
    assert_eq!(
        (listed.fun.as_str(), listed.tgt.as_str()),
        ("test.echo", "web*")
    );
    assert!(listed.load.as_ref().len() < 1000);
    let whole = reader
        .job(&listed.jid)
        .expect("an answer")
        .expect("the job");
    assert!(whole.load.as_ref().len() > 1 << 20);
}

#[test]
fn reader_survives_a_restart_of_the_server_and_refuses_at_once_while_it_is_away() {
    for schema in [SqlSchema::PgJsonb, SqlSchema::Mysql] {
        let mut site = Site::new(schema);
        some_jobs(&site);
        let reader = site.reader();
        let first = Jid::parse(&jid(1)).expect("a jid");
        assert!(reader.job(&first).expect("an answer").is_some());
        site.server.kill();
        assert!(reader.job(&first).is_err());
        let refused = reader
            .job(&first)
            .expect_err("no attempt before the back-off is over");
        assert!(matches!(refused, SqlError::Away { .. }), "{refused:?}");
        assert!(!refused.to_string().contains("kanaloa"));
        site.server.resume();
        // The back-off of the first failures is short.
        let mut tries = 0..6_000;
        while reader.job(&first).is_err() {
            assert!(tries.next().is_some(), "it does not come back");
            std::thread::sleep(Duration::from_millis(20));
        }
        // A restart between two questions costs none of them.
        site.server.kill();
        site.server.resume();
        assert!(reader.job(&first).expect("an answer").is_some());
    }
}

#[test]
fn rows_of_others_are_read_as_far_as_they_can_be() {
    let site = Site::new(SqlSchema::Postgres);
    some_jobs(&site);
    let insert = |id: &str, full: &str| {
        format!(
            "INSERT INTO salt_returns (fun, jid, return, full_ret, id, success) VALUES \
             ('test.echo', '{}', '1', {full}, '{id}', 'True')",
            jid(6)
        )
    };
    let statements = [
        "INSERT INTO jids (jid, load) VALUES ('req', '{}'), ('20261121070623000000', 'no JSON')"
            .to_owned(),
        insert("twice", r#"'{"return": 1, "retcode": 3}'"#),
        insert("twice", r#"'{"return": 2, "retcode": {"a": 0, "b": 7}}'"#),
        insert("null", "NULL"),
        insert("a/b", "'{}'"),
    ];
    site.server
        .query(&statements.each_ref().map(String::as_str));
    let reader = site.reader();
    let slice = reader
        .jobs(&JobRange {
            limit: 100,
            ..JobRange::default()
        })
        .expect("a page");
    assert_eq!(slice.jobs.len(), 8, "the name that is no jid is left out");
    let sixth = Jid::parse(&jid(6)).expect("a jid");
    let page = reader
        .returns(&sixth, None, 100, usize::MAX)
        .expect("a page");
    let found: Vec<_> = page
        .returns
        .iter()
        .map(|one| (one.minion.as_str(), one.retcode, one.success))
        .collect();
    assert_eq!(found, [("null", 0, true), ("twice", 7, true)]);
}
