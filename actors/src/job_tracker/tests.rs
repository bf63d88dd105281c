//! The tracker over a real database, the store recorded.

use actix::Addr;
use bytes::Bytes;
use saltern_model::{JobRecord, Packed, ReturnRecord};
use saltern_requests::{Class, Publication, Topics};
use saltern_store::jobs::{DatabaseLimits, JobDatabase};
use saltern_supervise::{ChildSpec, Tree};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::*;
use crate::messages::StoredReturn;
use crate::testing::{Port, event, in_system, recorder, tree};
use crate::window::Windows;

struct Rig {
    _dir: tempfile::TempDir,
    database: JobDatabase,
    tree: Tree,
    tracker: Addr<JobTracker>,
    metrics: TrackerMetrics,
    store: UnboundedReceiver<Persist>,
    bus: UnboundedReceiver<Fire>,
    windows: Arc<Windows>,
    port: Port,
}

/// A tracker over a database that holds these changes.
fn rig(writes: &[Write]) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs");
    let mut database = JobDatabase::open(&path, DatabaseLimits::default()).unwrap();
    database.commit(writes).unwrap();
    let registry = Registry::new();
    let metrics = TrackerMetrics::new(&registry);
    let (to_store, store) = recorder();
    let (to_bus, bus) = recorder();
    let seed = Seed {
        store: to_store,
        bus: to_bus,
        reader: Arc::new(database.reader().unwrap()),
        batches: Arc::default(),
        clock: Clock::system(),
        metrics: metrics.clone(),
    };
    let tree = tree(&registry);
    let tracker = tree.root().start_child(ChildSpec::permanent(), seed, 0);
    Rig {
        _dir: dir,
        database,
        tree,
        tracker,
        metrics,
        store,
        bus,
        windows: Windows::new(1, 1000),
        port: Port::open(),
    }
}

fn jid(number: u32) -> Jid {
    Jid::parse(&format!(
        "{:020}",
        20_260_102_030_405_000_000_u128 + u128::from(number)
    ))
    .unwrap()
}

fn ids(minions: &[&str]) -> Vec<MinionId> {
    minions
        .iter()
        .map(|id| MinionId::parse(id).unwrap())
        .collect()
}

fn job(number: u32, minions: &[&str]) -> JobRecord {
    JobRecord {
        jid: jid(number),
        created: i64::from(number),
        user: "root".to_owned(),
        fun: "test.ping".to_owned(),
        tgt: "*".to_owned(),
        tgt_type: "glob".to_owned(),
        load: Packed::new(&b"\x80"[..]),
        minions: ids(minions),
        nocache: false,
    }
}

fn record(number: u32, minion: &str) -> ReturnRecord {
    ReturnRecord {
        jid: jid(number),
        minion: MinionId::parse(minion).unwrap(),
        received: 1,
        fun: "test.ping".to_owned(),
        retcode: 0,
        success: true,
        load: Packed::new(&b"\x80"[..]),
    }
}

fn stored(returns: &[(u32, &str)]) -> Stored {
    let returns = returns.iter().map(|(number, minion)| StoredReturn {
        jid: jid(*number),
        minion: MinionId::parse(minion).unwrap(),
        retcode: 0,
        is_new: true,
    });
    Stored {
        jobs: Vec::new(),
        returns: returns.collect(),
    }
}

fn begun(number: u32, minions: &[&str]) -> Stored {
    Stored {
        jobs: vec![BegunJob {
            jid: jid(number),
            created: i64::from(number),
            minions: ids(minions),
            nocache: false,
        }],
        returns: Vec::new(),
    }
}

impl Rig {
    async fn answer(&mut self) -> (Answer, JoinHandle<Bytes>) {
        let (request, reply) = self.port.ask(b"x").await;
        let place = self.windows.take(Class::Minion).unwrap();
        let (done, failed) = (Bytes::from_static(b"done"), Bytes::from_static(b"failed"));
        (Answer::new(request.reply, done, failed, place), reply)
    }

    /// A return comes in; what the store is asked for.
    async fn take(&mut self, number: u32, minion: &str) -> Persist {
        let (answer, _) = self.answer().await;
        let returned = Box::new(StoreReturn {
            record: record(number, minion),
            job: job(number, &[minion]),
            standalone: false,
            events: vec![event("ret")],
            keep: true,
        });
        self.tracker
            .send(TakeReturn { returned, answer })
            .await
            .unwrap();
        self.store.recv().await.unwrap()
    }

    /// The jids that the next message to the store closes.
    async fn closed(&mut self) -> Vec<Jid> {
        let persist = self.store.recv().await.unwrap();
        let mut jids: Vec<Jid> = persist
            .writes
            .iter()
            .map(|write| match write {
                Write::JobState {
                    jid,
                    state: JobState::Complete | JobState::Expired,
                    ..
                } => jid.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        jids.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        jids
    }
}

#[test]
fn a_return_brings_its_job_along_until_the_store_says_that_it_is_there() {
    in_system(async {
        let mut rig = rig(&[]);
        assert!(rig.take(1, "a").await.brought.is_some());
        // The first one may have failed.
        assert!(rig.take(1, "b").await.brought.is_some());
        rig.tracker.send(stored(&[(1, "a")])).await.unwrap();
        assert!(rig.take(1, "c").await.brought.is_none());
        // Nor does a job that was published, which would be closed by it.
        rig.tracker.send(begun(2, &["a", "b"])).await.unwrap();
        assert!(rig.take(2, "a").await.brought.is_none());
    });
}

#[test]
fn a_job_is_closed_when_all_have_returned_and_later_returns_do_not_matter() {
    in_system(async {
        let mut rig = rig(&[]);
        rig.tracker.send(begun(1, &["a", "b"])).await.unwrap();
        assert_eq!(rig.metrics.open.get(), 1);
        rig.tracker
            .send(stored(&[(1, "a"), (1, "a"), (1, "x")]))
            .await
            .unwrap();
        assert_eq!(rig.metrics.open.get(), 1);
        // A further part of the same job (a batch).
        rig.tracker.send(begun(1, &["c"])).await.unwrap();
        rig.tracker
            .send(stored(&[(1, "b"), (1, "c")]))
            .await
            .unwrap();
        assert_eq!(rig.closed().await, [jid(1)]);
        assert_eq!(rig.metrics.open.get(), 0);
        rig.tracker
            .send(stored(&[(1, "b"), (1, "d")]))
            .await
            .unwrap();
        assert_eq!(
            rig.metrics.finished.with_label_values(&["complete"]).get(),
            1
        );
        assert!(rig.store.try_recv().is_err());
    });
}

#[test]
fn a_job_begins_only_when_it_is_stored() {
    in_system(async {
        let mut rig = rig(&[]);
        let (answer, reply) = rig.answer().await;
        let start = Box::new(StartJob {
            job: job(1, &["a"]),
            announce: Vec::new(),
            publication: Publication {
                entries: 0,
                packed: Bytes::new(),
                topics: Topics::Broadcast,
            },
        });
        rig.tracker.send(BeginJob { start, answer }).await.unwrap();
        let persist = rig.store.recv().await.unwrap();
        assert!(matches!(persist.writes[..], [Write::JobPart(_)]));
        // The store could not.
        persist.then.answer.unwrap().failed();
        assert_eq!(reply.await.unwrap(), &b"failed"[..]);
        assert_eq!(rig.metrics.open.get(), 0);
        assert!(rig.take(1, "a").await.brought.is_some());
    });
}

#[test]
fn a_restart_takes_up_what_is_open_and_closes_what_is_complete() {
    in_system(async {
        let mut rig = rig(&[
            Write::Job(job(1, &["a", "b"])),
            Write::Job(job(2, &["a"])),
            Write::Return(record(1, "a")),
            Write::Return(record(2, "a")),
        ]);
        assert_eq!(rig.closed().await, [jid(2)]);
        assert_eq!(rig.metrics.open.get(), 1);
        // The second value reads what was stored meanwhile.
        rig.database
            .commit(&[
                ending(&jid(2), JobState::Complete, 7),
                Write::Return(record(1, "b")),
            ])
            .unwrap();
        assert!(rig.tree.inject_panic("job_tracker", 0));
        assert_eq!(rig.closed().await, [jid(1)]);
        // What the store had said of it is heard late.
        rig.tracker.send(stored(&[(1, "b")])).await.unwrap();
        assert!(rig.store.try_recv().is_err());
    });
}

#[test]
fn jobs_expire() {
    in_system(async {
        let mut rig = rig(&[]);
        for number in 1..=3 {
            rig.tracker.send(begun(number, &["a"])).await.unwrap();
        }
        rig.tracker.send(CloseOlderThan(3)).await.unwrap();
        assert_eq!(rig.closed().await, [jid(1), jid(2)]);
        assert_eq!(
            rig.metrics.finished.with_label_values(&["expired"]).get(),
            2
        );
    });
}

#[test]
fn a_return_that_is_not_kept_counts_and_is_answered_after_it_was_fired() {
    in_system(async {
        let mut rig = rig(&[]);
        rig.tracker.send(begun(1, &["a"])).await.unwrap();
        let (answer, reply) = rig.answer().await;
        let returned = Box::new(StoreReturn {
            record: record(1, "a"),
            job: job(1, &["a"]),
            standalone: false,
            events: vec![event("ret")],
            keep: false,
        });
        rig.tracker
            .send(TakeReturn { returned, answer })
            .await
            .unwrap();
        assert_eq!(rig.bus.recv().await.unwrap().0.len(), 1);
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        assert_eq!(rig.closed().await, [jid(1)]);
    });
}

#[test]
fn what_is_waited_for_is_bounded_and_the_oldest_goes_first() {
    let mut open = OpenJobs::new(10);
    for number in 0..3 {
        open.open(jid(number), 0, ids(&["a", "b"]));
    }
    assert_eq!((open.weight, open.too_many()), (9, Vec::new()));
    // The first two do not wait for so many any more.
    assert!(!open.returned(&jid(0), &ids(&["a"])[0]));
    assert!(!open.returned(&jid(1), &ids(&["b"])[0]));
    open.open(jid(3), 0, ids(&["a", "b", "c"]));
    assert_eq!(open.weight, 11);
    let oldest = open.too_many();
    assert_eq!(oldest, [jid(0)]);
    open.close(&jid(0));
    assert_eq!((open.weight, open.too_many()), (9, Vec::new()));
    // Opened and closed for ever, it does not grow.
    for number in 10..10_000 {
        open.open(jid(number), 0, ids(&["a"]));
        assert!(open.returned(&jid(number), &ids(&["a"])[0]));
        open.close(&jid(number));
    }
    assert_eq!((open.weight, open.jobs.len()), (9, 3));
    assert!(open.order.len() < 2_000);

    let mut known = KnownJobs::default();
    for number in 0..2 * u32::try_from(REMEMBERED_JOBS).unwrap() {
        known.learn(&jid(number));
        known.learn(&jid(number));
    }
    assert_eq!(
        (known.set.len(), known.order.len()),
        (REMEMBERED_JOBS, REMEMBERED_JOBS)
    );
    assert!(!known.set.contains(&jid(0)));
}
