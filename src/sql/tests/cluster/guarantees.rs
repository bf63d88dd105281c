//! Guarantees of every engine, and those that only this one has.

use std::panic::{AssertUnwindSafe, catch_unwind};

use saltern_model::{JobRecord, ReturnRecord};
use saltern_store::jobs::{AuditPage, EventsPage, JobsPage, wait};
use saltern_store::{NewEvent, StoreError, Write, Written};
use saltern_wire::msgpack::Value;

use crate::common::{audit_row, jid, job, ret};
use crate::conformance::{GUARANTEES, Site};
use crate::site::{Cluster, Database, append};

#[test]
fn every_guarantee_holds_over_postgresql() {
    let database = Database::start();
    let mut broken = Vec::new();
    for (number, (name, guarantee)) in GUARANTEES.iter().enumerate() {
        let cluster = database.cluster(&format!("cluster_{number}"));
        if catch_unwind(AssertUnwindSafe(|| guarantee(&cluster))).is_err() {
            broken.push(*name);
        }
    }
    assert!(GUARANTEES.len() > 15 && broken.is_empty(), "{broken:?}");
}

#[test]
fn owner_that_was_followed_changes_nothing_any_more() {
    let database = Database::start();
    let cluster = database.cluster("followed");
    let first = cluster.open();
    append(&first, vec![Write::Job(job(1, &["m1"]))]).expect("the owner");
    let second = cluster.open();
    // Nobody has written anything since.
    let refused = append(&first, vec![Write::Job(job(3, &["m1"]))]);
    assert!(matches!(refused, Err(StoreError::NotOwner { .. })));
    append(&second, vec![Write::Job(job(2, &["m1"]))]).expect("the owner");
    let refused = append(&first, vec![Write::Job(job(4, &["m1"]))]);
    assert!(matches!(refused, Err(StoreError::NotOwner { .. })));
    let removed = wait(first.housekeeping.remove_slice(Default::default(), 10));
    assert!(matches!(removed, Err(StoreError::NotOwner { .. })));
    append(&second, vec![Write::Job(job(3, &["m1"]))]).expect("the owner");
    let stored = first.queries.jobs_after(0, 10).expect("a read");
    let ids: Vec<i64> = stored.iter().map(|job| job.id).collect();
    assert_eq!(ids, [1, 2, 3], "who owns nothing may read");
    newer_layout_is_refused_once_it_is_contracted(&database, &cluster);
    names_of_schemas_are_checked(&database);
}

fn newer_layout_is_refused_once_it_is_contracted(database: &Database, cluster: &Cluster) {
    let sql = "UPDATE followed.meta SET value = '99' WHERE name = 'layout'";
    database.server.query(&[sql]);
    drop(cluster.try_open().expect("it only adds to what is known"));
    let sql = "UPDATE followed.meta SET value = '99' WHERE name = 'layout_floor'";
    database.server.query(&[sql]);
    let refused = cluster.try_open().map(|_| ());
    assert!(
        matches!(&refused, Err(StoreError::Schema { found: 99, .. })),
        "{refused:?}"
    );
}

fn names_of_schemas_are_checked(database: &Database) {
    for name in ["", "Upper", "a-b", "a\"b", "pg_x", "1a", &"a".repeat(61)] {
        let refused = database.cluster(name).try_open().map(|_| ());
        assert!(matches!(refused, Err(StoreError::Option { .. })), "{name}");
    }
}

/// Texts that PostgreSQL refuses, or that no entry of an index can hold, are kept as they are.
#[test]
fn texts_of_every_kind_come_back() {
    let database = Database::start();
    let engine = database.cluster("texts").open();
    let long = "f".repeat(20_000);
    let texts = ["a\0b", "\u{f8fe}0", "grüße 😀", long.as_str(), "%_\\'\""];
    for (number, text) in (1..).zip(texts) {
        let record = JobRecord {
            fun: text.to_owned(),
            user: text.to_owned(),
            tgt: text.to_owned(),
            ..job(number, &["m1"])
        };
        let returned = ReturnRecord {
            fun: text.to_owned(),
            ..ret(number, "m1", Value::Nil)
        };
        let mut audit = audit_row(number);
        audit.arguments = text.to_owned();
        let events = vec![NewEvent {
            received: 1,
            tag: text.to_owned(),
            data: b"\0\xff"[..].into(),
            of_minion: false,
        }];
        let first = u64::from(number);
        let writes = vec![
            Write::Job(record),
            Write::Return(returned.clone()),
            Write::Audit(Box::new(audit)),
            Write::Events { first, events },
        ];
        append(&engine, writes).expect("kept");
        let again = append(&engine, vec![Write::Return(returned)]).expect("known");
        assert!(matches!(again.written[..], [Written::Repeated { .. }]));
        let stored = engine.queries.load(&jid(number)).expect("a read");
        let stored = stored.expect("kept").record;
        assert_eq!([&stored.fun, &stored.user, &stored.tgt], [text; 3]);
        let page = JobsPage {
            function: Some(text),
            limit: 10,
            ..JobsPage::default()
        };
        let found = engine.queries.jobs_page(&page).expect("a read");
        assert_eq!(found.len(), 1);
        let page = EventsPage {
            limit: 1,
            ..EventsPage::default()
        };
        assert_eq!(engine.queries.events(&page).expect("a read")[0].tag, text);
        let page = AuditPage {
            limit: 1,
            ..AuditPage::default()
        };
        let rows = engine.queries.audit(&page).expect("a read");
        assert_eq!(rows[0].record.arguments, text);
    }
    let check = engine.queries.check_audit(None).expect("a check");
    assert_eq!((check.rows, check.broken), (texts.len() as u64, None));
    let forged = "UPDATE texts.audit SET arguments = 'x' WHERE number = 3";
    database.server.query(&[forged]);
    let check = engine.queries.check_audit(None).expect("a check");
    assert_eq!(check.broken.map(|broken| broken.number), Some(3));
}
