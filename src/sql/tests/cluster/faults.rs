//! Faults of the server and of the connection: every batch is stored once, and its caller is answered
//! as if nothing had happened.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use saltern_store::jobs::{Engine, EventRange};
use saltern_store::{NewEvent, StoreError, Write, Written};
use saltern_wire::msgpack::Value;

use crate::common::{audit_row, job, ret};
use crate::conformance::Site;
use crate::proxy::Proxy;
use crate::site::{Database, append};

/// How often something is looked at.
const GLANCE: Duration = Duration::from_millis(5);

fn event(number: u32) -> NewEvent {
    NewEvent {
        received: i64::from(number),
        tag: format!("tag/{number}"),
        data: vec![0x80].into(),
        of_minion: false,
    }
}

/// A batch with a job, its return, an event and a row of the audit trail.
fn batch(number: u32) -> Vec<Write> {
    vec![
        Write::Job(job(number, &["m1"])),
        Write::Return(ret(number, "m1", Value::from(number))),
        Write::Events {
            first: u64::from(number),
            events: vec![event(number)],
        },
        Write::Audit(Box::new(audit_row(number))),
    ]
}

/// Appends so many batches, and checks the answer of each; `begin` is called before each.
fn append_all(engine: &Engine, batches: u32, begin: impl Fn(u32)) {
    for number in 1..=batches {
        begin(number);
        let committed = append(engine, batch(number)).expect("stored in the end");
        let id = i64::from(number);
        let new = Written::New { id };
        assert_eq!(committed.written, [new, new, Written::Updated, new]);
        assert_eq!(committed.events[0].position, id);
    }
}

/// Everything of so many batches is there, once.
fn assert_exact(engine: &Engine, batches: u32) {
    let queries = &engine.queries;
    let number = u64::from(batches);
    assert_eq!(queries.counts().expect("a read"), (number, number));
    let range = EventRange {
        after: 0,
        through: i64::MAX,
        max_events: usize::MAX,
        max_bytes: usize::MAX,
    };
    let events = queries.events_between(&range).expect("a read").events;
    let positions: Vec<i64> = events.iter().map(|event| event.position).collect();
    assert_eq!(positions, (1..=i64::from(batches)).collect::<Vec<_>>());
    let check = queries.check_audit(None).expect("a check");
    assert_eq!((check.rows, check.broken), (number, None));
}

#[test]
fn commits_whose_connection_is_cut_are_neither_lost_nor_doubled() {
    const BATCHES: u32 = 30;
    let database = Database::start_on_tcp();
    let proxy = Proxy::new(database.server.port(), 0);
    let engine = database.cluster_over("cut", proxy.port).open();
    append_all(&engine, BATCHES, |number| {
        assert_eq!(proxy.left.load(Ordering::Acquire), 0, "cuts were made");
        // The last cut is behind the commit, the one before it before the server learns of it. So in turns
        // nothing happens, an answer is lost, and a commit is lost and then the answer to the look for it.
        proxy.left.store(number % 3, Ordering::Release);
    });
    assert_exact(&engine, BATCHES);
}

/// Its caller is not kept for ever; the batch is stored once all the same, and so is what comes next.
#[test]
fn batch_that_is_given_up_is_known_when_it_comes_again() {
    let database = Database::start_on_tcp();
    let proxy = Proxy::new(database.server.port(), 0);
    let mut cluster = database.cluster_over("given_up", proxy.port);
    // Long enough for a database on a busy machine, short enough to be given up here.
    cluster.options.patience = Duration::from_secs(5);
    let engine = cluster.open();
    append(&engine, batch(1)).expect("no fault yet");
    // Committed, and every look for it is cut.
    proxy.left.store(1_000_001, Ordering::Release);
    let given_up = append(&engine, batch(2));
    assert!(matches!(given_up, Err(StoreError::Interrupted { .. })));
    proxy.left.store(0, Ordering::Release);
    let again = append(&engine, batch(2)).expect("no fault any more");
    let kept = Written::Repeated { id: 2 };
    let audit = Written::New { id: 3 };
    assert_eq!(
        again.written,
        [Written::Duplicate, kept, Written::Updated, audit]
    );
    assert_eq!(again.events, [], "they are kept already");
    let third = append(&engine, batch(3)).expect("no fault any more");
    assert_eq!(third.written[0], Written::New { id: 3 });
    assert_eq!(third.events[0].position, 3);
}

/// A machine is lost or frozen in the middle of a transaction, and its connection stays.
#[test]
fn transaction_of_frozen_owner_does_not_keep_another_one_from_the_jobs() {
    let database = Database::start_on_tcp();
    let proxy = Proxy::new(database.server.port(), 0);
    let of = |port| {
        let mut cluster = database.cluster_over("frozen", port);
        cluster.options.idle_limit = Duration::from_secs(2);
        cluster.open()
    };
    let former = of(proxy.port);
    append(&former, batch(1)).expect("no fault yet");
    proxy.freezes.store(true, Ordering::Release);
    thread::scope(|scope| {
        let frozen = scope.spawn(|| append(&former, batch(2)));
        while proxy.freezes.load(Ordering::Acquire) {
            thread::sleep(GLANCE);
        }
        let owner = of(database.server.port());
        // The server has let the former one know, and whether it was the owner still decides.
        let appended = frozen.join().expect("no panic");
        let is_refused = matches!(appended, Err(StoreError::NotOwner { .. }));
        let (jobs, _) = owner.queries.counts().expect("a read");
        assert_eq!(jobs, if is_refused { 1 } else { 2 }, "{appended:?}");
        assert_eq!(appended.is_ok(), !is_refused, "{appended:?}");
        append(&owner, batch(3)).expect("the owner goes on");
    });
    let late = append(&former, batch(4));
    assert!(matches!(late, Err(StoreError::NotOwner { .. })), "{late:?}");
}

#[test]
fn batches_are_exact_after_kills_of_the_server() {
    const KILLS: u32 = 3;
    const BETWEEN: u32 = 80;
    let mut database = Database::start();
    let engine = database.cluster("killed").open();
    let (done, batches) = (AtomicU32::new(0), BETWEEN * (KILLS + 1));
    thread::scope(|scope| {
        let appending = scope.spawn(|| {
            append_all(&engine, batches, |number| {
                done.store(number, Ordering::Release)
            });
        });
        for kill in 1..=KILLS {
            while done.load(Ordering::Acquire) < kill * BETWEEN && !appending.is_finished() {
                thread::sleep(GLANCE);
            }
            database.server.kill();
            database.server.resume();
        }
    });
    assert_exact(&engine, batches);
}

/// PostgreSQL warns when a synchronous standby has not confirmed a transaction that is committed: the
/// batch counts only when a standby has it.
#[test]
fn commit_that_no_standby_has_confirmed_is_not_answered() {
    let database = Database::start();
    let engine = database.cluster("standby").open();
    let server = &database.server;
    append(&engine, batch(1)).expect("no standby is asked for");
    let named = |name: &str| {
        let alter = format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'");
        server.query(&[&alter, "SELECT pg_reload_conf()"]);
    };
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    named("nobody");
    thread::scope(|scope| {
        let appending = scope.spawn(|| append(&engine, batch(2)));
        // The commit itself, then a look for it, which is one, too.
        for round in 0..2 {
            while server.count(waiting) == 0 {
                assert!(!appending.is_finished(), "answered in round {round}");
                thread::sleep(GLANCE);
            }
            server.query(&[cancel]);
        }
        // It is visible, as nothing else shows that it may be lost with the machine.
        while server.count("SELECT count(*) FROM standby.jobs") < 2 {
            thread::sleep(GLANCE);
        }
        assert!(!appending.is_finished(), "nobody has confirmed");
        named("");
        let committed = appending.join().expect("no panic").expect("confirmed");
        assert!(committed.written[0].is_new(), "{committed:?}");
    });
    append(&engine, batch(3)).expect("the owner goes on");
    assert_exact(&engine, 3);
}
