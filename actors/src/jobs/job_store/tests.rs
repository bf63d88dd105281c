//! The store over a real database, its neighbours recorded.
//!
//! Longer than 500 lines because it is a list: one test a guarantee of the store.

mod interrupted;

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use saltern_base::metrics::Registry;
use saltern_model::{JobRecord, MinionId, Packed, ReturnRecord};
use saltern_netapi::stream::{EventStream as _, StreamItem};
use saltern_requests::{Publication, SyndicMinions, Topics};
use saltern_store::jobs::{EventRange, FreeSpace, JobState, Write};
use saltern_store::sqlite::open_reader;
use saltern_store::sqlite::{DatabaseLimits, JobDatabase, SqliteEngine};
use saltern_supervise::{Child as _, ChildSpec, HEARTBEAT, Tree};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::*;
use crate::events::bus::QueueLimits;
use crate::messages::{Beginning, ExpireJobs, FollowUp, JobBegun, JobDeparture, MinionReturned};
use crate::shared::answer::PendingReply;
use crate::shared::testing::{NOT_HANDLED, Port, closed, event, in_system, ping, recorder, tree};
use crate::shared::window::Windows;
use crate::upkeep::maintenance_tasks::MaintenanceTasks;
use interrupted::{Fault, FaultyLog};

const JID: &str = "20260102030405060708";

/// `saltern_disk_low` of these tests.
const LOW: u64 = 1_600 << 20;

struct Rig {
    dir: tempfile::TempDir,
    tree: Tree,
    clock: Clock,
    address: actix::Addr<JobStore>,
    database: Arc<Mutex<JobDatabase>>,
    /// The fault that the next commit meets.
    fault: Arc<Mutex<Option<Fault>>>,
    /// The free space that the engine measures.
    room: Arc<AtomicU64>,
    store: Recipient<Persist>,
    metrics: StoreMetrics,
    bus: UnboundedReceiver<Fire>,
    /// Events that were committed with their changes.
    kept_bus: UnboundedReceiver<FireKept>,
    feed: Option<Arc<EventFeed>>,
    publisher: UnboundedReceiver<Publish>,
    tracker: UnboundedReceiver<Stored>,
    folder: UnboundedReceiver<Checkpoint>,
    windows: Arc<Windows>,
    port: Port,
}

fn rig(limits: DatabaseLimits) -> Rig {
    rig_with(limits, false)
}

/// With the API, events are committed with their changes.
fn rig_with(limits: DatabaseLimits, has_api: bool) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs");
    let database = Arc::new(Mutex::new(JobDatabase::open(&path, limits).unwrap()));
    let clock = Clock::manual(std::time::SystemTime::UNIX_EPOCH);
    let registry = Registry::new();
    let metrics = StoreMetrics::new(&registry);
    let (to_bus, bus) = recorder();
    let (to_kept_bus, kept_bus) = recorder();
    let durable_events = has_api.then(|| {
        let reader = database.lock().reader().unwrap();
        let limits = QueueLimits {
            frames: 100,
            bytes: 1 << 20,
        };
        DurableEvents {
            feed: EventFeed::new(reader, 1, limits, &registry).unwrap(),
            bus: to_kept_bus,
        }
    });
    let feed = durable_events.as_ref().map(|events| events.feed.clone());
    let (to_publisher, publisher) = recorder();
    let (to_tracker, tracker) = recorder();
    let (to_folder, folder) = recorder();
    let room = Arc::new(AtomicU64::new(u64::MAX));
    let measured = room.clone();
    let engine = SqliteEngine::new(database.clone()).unwrap();
    let engine = engine.with_room(move |_| {
        Ok(FreeSpace {
            free: measured.load(Ordering::Relaxed),
            total: 1 << 40,
        })
    });
    let fault = Arc::default();
    let seed = Seed {
        engine: FaultyLog::before(engine.shared().unwrap(), &database, &fault),
        job_files: None,
        bus: to_bus,
        durable_events,
        publisher: to_publisher,
        followers: Vec::new(),
        job_cache: None,
        cleaner: None,
        folder: to_folder,
        tracker: to_tracker,
        disk_low: LOW,
        compat: Compat::V3008,
        clock: clock.clone(),
        maintenance_tasks: MaintenanceTasks::new(Clock::system(), closed(), &registry),
        metrics: metrics.clone(),
        commits: Arc::default(),
    };
    let spec = ChildSpec::permanent().with_work(seed.commits.clone());
    let tree = tree(&registry);
    let address: actix::Addr<JobStore> = tree.root().start_child(spec, seed, 0);
    let store = address.clone().recipient();
    Rig {
        dir,
        tree,
        clock,
        address,
        database,
        fault,
        room,
        store,
        metrics,
        bus,
        kept_bus,
        feed,
        publisher,
        tracker,
        folder,
        windows: Windows::new(1, 1000, closed()),
        port: Port::open(),
    }
}

fn job(fun: &str) -> JobRecord {
    JobRecord {
        fun: fun.to_owned(),
        minions: vec![MinionId::parse("m1").unwrap()],
        ..ping(Jid::parse(JID).unwrap())
    }
}

fn returned(minion: &str, fun: &str, load: usize) -> ReturnRecord {
    ReturnRecord {
        jid: Jid::parse(JID).unwrap(),
        minion: MinionId::parse(minion).unwrap(),
        received: 1,
        fun: fun.to_owned(),
        retcode: 0,
        success: true,
        load: Packed::new(vec![0_u8; load]),
    }
}

impl Rig {
    async fn answer(&mut self) -> (PendingReply, JoinHandle<Bytes>) {
        let (request, reply) = self.port.ask(b"x").await;
        let place = self.windows.take_any().unwrap();
        let (done, failed) = (Bytes::from_static(b"done"), Bytes::from_static(b"failed"));
        (
            PendingReply::new(request.reply, place).with(done, failed),
            reply,
        )
    }

    /// A return on its way, and the answer to come.
    async fn send(&mut self, record: ReturnRecord) -> JoinHandle<Bytes> {
        let (answer, reply) = self.answer().await;
        self.store.try_send(persist(record, answer)).unwrap();
        reply
    }

    fn remove_database(&self) {
        for name in ["jobs", "jobs-wal", "jobs-shm"] {
            std::fs::remove_file(self.dir.path().join(name)).unwrap();
        }
    }

    /// How many returns the file has, whatever the store believes.
    fn kept(&self) -> usize {
        let path = self.dir.path().join("jobs");
        let reader = open_reader(&path, DatabaseLimits::default());
        reader.unwrap().returns_after(0, 100).unwrap().len()
    }

    fn commits(&self) -> u64 {
        self.metrics.commits.get_sample_count()
    }
}

impl Stored {
    fn is_of_one_new_return(&self) -> bool {
        (self.returns.len(), self.repeated) == (1, 0)
    }
}

/// A return as the tracker hands it over, with the job that it brings along.
fn persist(record: ReturnRecord, answer: PendingReply) -> Persist {
    let closed = Write::ClosedJob {
        job: job("test.ping"),
        reporter: None,
    };
    Persist {
        writes: vec![(closed, FollowUp::Nothing), stored_return(record, "ret")],
        answer: Some(answer),
    }
}

/// The write of a return, and the event that follows it.
fn stored_return(record: ReturnRecord, tag: &str) -> (Write, FollowUp) {
    let returned = MinionReturned {
        jid: record.jid.clone(),
        minion: record.minion.clone(),
        retcode: record.retcode,
        signalled: false,
        forwarded: false,
    };
    let events = vec![event(tag)];
    (Write::Return(record), FollowUp::Return { returned, events })
}

/// The follow-up of the write of a job.
fn beginning(record: JobRecord, announce: Vec<saltern_model::Event>) -> FollowUp {
    FollowUp::Begin(Box::new(Beginning {
        job: JobBegun {
            jid: record.jid,
            fun: record.fun.as_str().into(),
            created: record.created,
            minions: record.minions,
            nocache: false,
            signals: None,
            expects_all: false,
        },
        announce,
        load: record.load,
        publication: Publication {
            entries: 0,
            packed: Bytes::new(),
            topics: Topics::Broadcast,
            trace: None,
        },
    }))
}

#[test]
fn job_is_stored_announced_published_and_answered_in_order() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let (answer, reply) = rig.answer().await;
        let record = job("test.ping");
        let begin = beginning(record.clone(), vec![event("a"), event("b")]);
        let persist = Persist {
            writes: vec![(Write::JobPart(record), begin)],
            answer: Some(answer),
        };
        rig.store.try_send(persist).unwrap();
        let Fire(events) = rig.bus.recv().await.unwrap();
        let tags: Vec<&str> = events.iter().map(|event| event.tag.as_str()).collect();
        assert_eq!(tags, ["a", "b"]);
        assert_eq!(rig.publisher.recv().await.unwrap().jid.as_str(), JID);
        let stored = rig.tracker.recv().await.unwrap();
        assert_eq!(stored.jobs[0].jid.as_str(), JID);
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        assert_eq!(rig.windows.in_hand(), 0);
    });
}

#[test]
fn waiting_writes_share_one_commit_and_duplicates_succeed() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let (mut records, mut replies) = (Vec::new(), Vec::new());
        for number in 0..100 {
            records.push((
                returned(&format!("m{}", number % 50), "f", 1),
                rig.answer().await,
            ));
        }
        // More than the actor takes in one turn, all there before it has the first.
        for (record, (answer, reply)) in records {
            rig.store.try_send(persist(record, answer)).unwrap();
            replies.push(reply);
        }
        for reply in replies {
            assert_eq!(reply.await.unwrap(), &b"done"[..]);
        }
        assert_eq!(rig.commits(), 1);
        // 100 returns, and one job that the first of them brought.
        assert_eq!(rig.metrics.writes.get(), 101);
        let stored = rig.tracker.recv().await.unwrap();
        assert_eq!(stored.returns.len(), 100);
        assert_eq!(stored.repeated, 50);
        assert_eq!(rig.windows.in_hand(), 0);
    });
}

#[test]
fn lone_write_commits_at_once_and_group_commits_are_paced() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let mut waiting = Vec::new();
        for number in 0..GROUP_COMMIT_SIZE + 3 {
            let record = returned(&format!("m{number}"), "f", 1);
            waiting.push((record, rig.answer().await));
        }
        let mut waiting = waiting.into_iter();
        let mut replies = Vec::new();
        let mut send = |count: usize| {
            for (record, (answer, reply)) in waiting.by_ref().take(count) {
                rig.store.try_send(persist(record, answer)).unwrap();
                replies.push(reply);
            }
        };
        // The clock stands as long as there is something to do.
        tokio::time::pause();
        for (count, commits) in [(1, 1), (GROUP_COMMIT_SIZE, 2), (1, 2), (1, 2)] {
            send(count);
            // A commit is made on a thread, which does not go by the clock of the runtime.
            #[allow(clippy::disallowed_types, reason = "the clock of the runtime stands")]
            let began = std::time::Instant::now();
            let committed = || rig.metrics.commits.get_sample_count();
            while committed() < commits || began.elapsed() < Duration::from_millis(30) {
                tokio::task::yield_now().await;
            }
            assert_eq!(committed(), commits);
        }
        tokio::time::advance(PACE).await;
        tokio::time::resume();
        for reply in replies {
            assert_eq!(reply.await.unwrap(), &b"done"[..]);
        }
        assert_eq!(rig.commits(), 3);
    });
}

#[test]
fn long_log_is_checkpointed_and_reset() {
    in_system(async {
        let limits = DatabaseLimits {
            checkpoint_changes: 10,
            ..DatabaseLimits::default()
        };
        let mut rig = rig(limits);
        let checkpointer = JobDatabase::open(&rig.dir.path().join("jobs"), limits)
            .and_then(|database| database.checkpointer())
            .unwrap();
        for round in 0..3 {
            for number in 0..10 {
                let minion = format!("m{round}-{number}");
                let reply = rig.send(returned(&minion, "f", 10)).await;
                assert_eq!(reply.await.unwrap(), &b"done"[..]);
            }
            rig.folder.recv().await.unwrap();
            let folded = checkpointer.fold().unwrap();
            assert_eq!(folded.left(), 0);
            // Ten commits of a few pages each: had the log gone on, the next rounds' were longer.
            assert!((1..200).contains(&folded.log), "{folded:?}");
            rig.address.send(CheckpointDone).await.unwrap();
            while rig.folder.try_recv().is_ok() {}
        }
    });
}

#[test]
fn commit_without_space_fails_every_request_and_has_no_effects() {
    in_system(async {
        let limits = DatabaseLimits {
            max_bytes: Some(200_000),
            ..DatabaseLimits::default()
        };
        let mut rig = rig(limits);
        let reply = rig.send(returned("m1", "f", 1_000_000)).await;
        assert_eq!(reply.await.unwrap(), &b"failed"[..]);
        assert_eq!(rig.metrics.failed.get(), 1);
        assert!(rig.bus.try_recv().is_err() && rig.tracker.try_recv().is_err());
        // The tracker, which has to write it again, is notified.
        let jid = Jid::parse(JID).unwrap();
        let state = Write::JobState {
            jid: jid.clone(),
            state: JobState::Expired,
            at: 1,
            notes: None,
        };
        let large = returned("m1", "f", 1_000_000);
        let departure = JobDeparture {
            jid: jid.clone(),
            at: 1,
        };
        let published = Write::Published {
            jid: jid.clone(),
            at: 1,
        };
        let persist = Persist {
            writes: vec![
                (published, FollowUp::ReportLostDeparture(departure.clone())),
                (state, FollowUp::ReportFailure(jid.clone())),
                (Write::Return(large), FollowUp::Nothing),
            ],
            answer: None,
        };
        rig.store.try_send(persist).unwrap();
        let lost = rig.tracker.recv().await.unwrap();
        assert_eq!(
            (lost.refused, lost.lost_departures),
            (vec![jid], vec![departure])
        );
        // A smaller return is stored, with the job that the failed one carried.
        let reply = rig.send(returned("m1", "f", 10)).await;
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        assert!(rig.tracker.recv().await.unwrap().is_of_one_new_return());
        assert_eq!(rig.windows.in_hand(), 0);
    });
}

#[test]
fn full_disk_makes_the_store_read_only_until_space_is_free() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let mut number = 0;
        let table = [
            (LOW - 1, Some("low"), "done"),
            (LOW / 16 - 1, Some("full"), "failed"),
            (LOW / 16, None, "failed"),
            (LOW / 2, Some("low"), "done"),
            (LOW * 2, Some("roomy"), "done"),
        ];
        for (free, event, answer) in table {
            rig.room.store(free, Ordering::Relaxed);
            rig.address.send(disk::LookAtDisk).await.unwrap();
            let event = event.map(|state| format!("saltern/store/{state}"));
            if event.is_some() {
                let fired = rig.bus.recv().await.unwrap();
                assert_eq!(Some(fired.0[0].tag.to_string()), event, "{free}");
            }
            number += 1;
            let reply = rig.send(returned(&format!("m{number}"), "f", 1)).await;
            assert_eq!(reply.await.unwrap(), answer.as_bytes(), "{free}");
            assert_eq!(
                rig.metrics.disk.is_full.get(),
                i64::from(answer == "failed")
            );
            if answer == "done" {
                let fired = rig.bus.recv().await.unwrap();
                assert_eq!(fired.0[0].tag.to_string(), "ret");
            }
        }
        assert!(rig.bus.try_recv().is_err());
        assert_eq!(rig.metrics.disk.refused.get(), 2);
    });
}

#[test]
fn refused_change_fails_alone() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let path = rig.dir.path().join("jobs");
        rusqlite::Connection::open(path)
            .unwrap()
            .execute_batch(
                "CREATE TRIGGER poison BEFORE INSERT ON returns WHEN NEW.fun = 'poison'
                 BEGIN SELECT RAISE(ABORT, 'poison'); END",
            )
            .unwrap();
        let mut replies = Vec::new();
        for (minion, fun) in [("m1", "f"), ("m2", "poison"), ("m3", "f")] {
            replies.push(rig.send(returned(minion, fun, 1)).await);
        }
        let mut answers = Vec::new();
        for reply in replies {
            answers.push(reply.await.unwrap());
        }
        assert_eq!(answers, ["done", "failed", "done"]);
    });
}

#[test]
fn batch_that_dies_with_the_store_is_refused_and_can_be_sent_again() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let (answer, reply) = rig.answer().await;
        let record = returned("m1", "f", 1);
        let persist = Persist {
            writes: vec![(Write::Return(record.clone()), FollowUp::Nothing)],
            answer: Some(answer),
        };
        // The batch is made, and its commit waits for the other one's.
        let path = rig.database.lock().path().to_owned();
        let other = rusqlite::Connection::open(path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        rig.store.try_send(persist).unwrap();
        // Handled in their order.
        rig.address.send(CheckpointDone).await.unwrap();
        assert!(rig.tree.inject_panic("job_store", 0));
        assert_eq!(reply.await.unwrap(), NOT_HANDLED);
        other.execute_batch("ROLLBACK").unwrap();
        let reply = rig.send(record).await;
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        assert!(rig.tracker.recv().await.unwrap().is_of_one_new_return());
        assert_eq!(rig.windows.in_hand(), 0);
    });
}

/// So the watchdog of systemd notices a disk that is stuck, although the thread is free.
#[test]
fn store_whose_commit_hangs_answers_no_heartbeat() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let age = |rig: &Rig| {
            let all = rig.tree.liveness();
            let store = all.iter().find(|child| child.name == JobStore::NAME);
            store.expect("the store").last_beat_age
        };
        // The commit waits for the other one's, as it would for a disk.
        let path = rig.database.lock().path().to_owned();
        let other = rusqlite::Connection::open(path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let reply = rig.send(returned("m1", "f", 1)).await;
        // Held for so long only by the commit that waits.
        let moment = Duration::from_millis(50);
        while rig.database.try_lock_for(moment).is_some() {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        let pass = async || {
            for _ in 0..5 {
                tokio::time::advance(HEARTBEAT).await;
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
            }
        };
        pass().await;
        assert!(age(&rig) >= HEARTBEAT * 3, "{:?}", age(&rig));
        tokio::time::resume();
        other.execute_batch("ROLLBACK").unwrap();
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        tokio::time::pause();
        pass().await;
        assert!(age(&rig) <= HEARTBEAT, "{:?}", age(&rig));
    });
}

#[test]
fn stopping_store_commits_its_batch() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let mut replies = Vec::new();
        for number in 0..3 {
            replies.push(rig.send(returned(&format!("m{number}"), "f", 1)).await);
        }
        assert!(rig.tree.shutdown().await.is_clean());
        for reply in replies {
            assert_eq!(reply.await.unwrap(), &b"done"[..]);
        }
    });
}

#[test]
fn retention_removes_slices_between_commits() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let writes = (0..2_000)
            .map(|number| Write::Return(returned(&format!("m{number}"), "f", 1)))
            .chain([Write::Job(job("f"))])
            .map(|write| (write, FollowUp::Nothing));
        let (answer, reply) = rig.answer().await;
        let persist = Persist {
            writes: writes.collect(),
            answer: Some(answer),
        };
        rig.store.try_send(persist).unwrap();
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        let retention = Retention {
            before: Some(2),
            ..Retention::default()
        };
        rig.address.try_send(ExpireJobs(retention)).unwrap();
        rig.address.try_send(ExpireJobs(retention)).unwrap();
        let mut newer = returned("new", "f", 1);
        newer.received = 5;
        newer.jid = Jid::parse("20270102030405060708").unwrap();
        let reply = rig.send(newer).await;
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        let reader = {
            let path = rig.dir.path().join("jobs");
            open_reader(&path, DatabaseLimits::default()).unwrap()
        };
        while reader.counts().unwrap().1 > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(reader.returns_after(0, 10).unwrap().len(), 1);
    });
}

fn expected(leaves: &SyndicMinions) -> (Write, FollowUp) {
    let write = Write::Expected {
        jid: leaves.jid.clone(),
        minions: leaves.minions.clone(),
    };
    (write, FollowUp::Expect(leaves.clone()))
}

#[test]
fn each_write_of_a_message_has_its_own_follow_up() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let repeated = returned("m1", "f", 1);
        rig.send(repeated.clone()).await.await.unwrap();
        let _first = (rig.tracker.recv().await, rig.bus.recv().await);
        let leaves = |jid: &str| SyndicMinions {
            jid: Jid::parse(jid).unwrap(),
            syndic: MinionId::parse("relay").unwrap(),
            minions: vec![MinionId::parse("leaf").unwrap()],
        };
        let (known, unknown) = (leaves(JID), leaves("20260102030405999999"));
        let departed = Write::Published {
            jid: known.jid.clone(),
            at: 1,
        };
        // Neither the returns nor the minions of syndics are the last writes.
        let (answer, reply) = rig.answer().await;
        let persist = Persist {
            writes: vec![
                stored_return(returned("m2", "f", 1), "new"),
                expected(&unknown),
                stored_return(repeated, "again"),
                expected(&known),
                (departed, FollowUp::Fire(vec![event("plain")])),
            ],
            answer: Some(answer),
        };
        rig.store.try_send(persist).unwrap();
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        let stored = rig.tracker.recv().await.unwrap();
        let minions = stored.returns.iter().map(|one| one.minion.as_str());
        assert_eq!(minions.collect::<Vec<_>>(), ["m2", "m1"]);
        assert_eq!(stored.repeated, 1);
        assert_eq!(stored.leaves, [known]);
        let Fire(events) = rig.bus.recv().await.unwrap();
        let tags = events.iter().map(|event| event.tag.as_str());
        assert_eq!(tags.collect::<Vec<_>>(), ["new", "plain"]);
    });
}

#[test]
fn syndic_minions_reach_the_tracker_for_stored_jobs_only() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        rig.send(returned("m1", "f", 1)).await.await.unwrap();
        while rig.tracker.try_recv().is_ok() {}
        let leaves = |jid: &str| SyndicMinions {
            jid: Jid::parse(jid).unwrap(),
            syndic: MinionId::parse("relay").unwrap(),
            minions: vec![MinionId::parse("leaf").unwrap()],
        };
        let (answer, reply) = rig.answer().await;
        let all = [leaves(JID), leaves("20260102030405999999")];
        let persist = Persist {
            writes: all.iter().map(expected).collect(),
            answer: Some(answer),
        };
        rig.store.try_send(persist).unwrap();
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        assert_eq!(rig.tracker.recv().await.unwrap().leaves, all[..1]);
    });
}

#[test]
fn displaced_database_is_restored_and_waiting_writes_are_committed() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let reply = rig.send(returned("m1", "f", 1)).await;
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        rig.remove_database();
        let mut replies = Vec::new();
        for number in 2..5 {
            replies.push(rig.send(returned(&format!("m{number}"), "f", 1)).await);
        }
        for reply in replies {
            assert_eq!(reply.await.unwrap(), &b"done"[..]);
        }
        assert_eq!(rig.kept(), 4);
        assert_eq!(rig.metrics.restoring.get(), 0);
        assert_eq!(rig.metrics.disk.refused.get(), 0);
    });
}

/// A thread has the database for as long as the test wants.
fn hold(database: &Arc<Mutex<JobDatabase>>) -> impl FnOnce() + use<> {
    let (database, (held, is_held)) = (database.clone(), std::sync::mpsc::channel());
    let (release, released) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let _database = database.lock();
        held.send(()).unwrap();
        let _ = released.recv();
    });
    is_held.recv().unwrap();
    move || {
        drop(release);
        thread.join().unwrap();
    }
}

#[test]
fn store_refuses_commits_during_a_long_restore() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let release = hold(&rig.database);
        let reply = rig.send(returned("m1", "f", 1)).await;
        // Nothing that the store is asked waits for the lock.
        rig.address.send(CheckpointDone).await.unwrap();
        rig.address.send(disk::LookAtDisk).await.unwrap();
        let imported = rig.address.send(crate::messages::ImportJobs(Vec::new()));
        let refused = imported.await.unwrap().expect_err("not in its place");
        assert!(refused.to_string().contains("not in its place yet"));
        assert_eq!(rig.metrics.restoring.get(), 1);
        assert_eq!(
            rig.metrics.disk.refused.get(),
            0,
            "it may be back in a moment"
        );
        tokio::time::pause();
        tokio::time::advance(in_place::PATIENCE).await;
        assert_eq!(reply.await.unwrap(), &b"failed"[..]);
        tokio::time::resume();
        let reply = rig.send(returned("m2", "f", 1)).await;
        assert_eq!(reply.await.unwrap(), &b"failed"[..], "at once");
        assert_eq!(rig.metrics.failing.get(), 1);
        release();
        let reply = rig.send(returned("m1", "f", 1)).await;
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        assert_eq!(rig.metrics.restoring.get(), 0);
        assert_eq!(rig.metrics.failing.get(), 0);
        assert_eq!(rig.kept(), 1);
    });
}

#[test]
fn failed_restore_refuses_and_a_later_one_succeeds() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let reply = rig.send(returned("m1", "f", 1)).await;
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        rig.remove_database();
        let obstacle = rig.dir.path().join("jobs-wal");
        std::fs::create_dir(&obstacle).unwrap();
        let reply = rig.send(returned("m2", "f", 1)).await;
        assert_eq!(reply.await.unwrap(), &b"failed"[..]);
        std::fs::remove_dir(&obstacle).unwrap();
        let reply = rig.send(returned("m2", "f", 1)).await;
        assert_eq!(reply.await.unwrap(), &b"failed"[..], "not due yet");
        rig.clock.advance(Duration::from_secs(2));
        let reply = rig.send(returned("m2", "f", 1)).await;
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        assert_eq!(rig.kept(), 2);
    });
}

#[test]
fn stopping_store_restores_a_displaced_database() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let reply = rig.send(returned("m1", "f", 1)).await;
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        rig.remove_database();
        assert!(rig.tree.shutdown().await.is_clean());
        assert_eq!(rig.kept(), 1);
    });
}

/// The thread that writes it to its place outlives a restart of the actor.
#[test]
fn stopping_store_waits_while_the_database_is_locked() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let reply = rig.send(returned("m1", "f", 1)).await;
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        let release = hold(&rig.database);
        let mut stopping = std::pin::pin!(rig.tree.shutdown());
        let early = tokio::time::timeout(Duration::from_millis(300), stopping.as_mut()).await;
        assert!(early.is_err(), "it does not wait");
        release();
        assert!(stopping.await.is_clean());
    });
}

#[test]
fn repeated_return_fires_its_events_once_until_the_store_restarts() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let table = [
            ("new", returned("m1", "f", 1), true),
            ("sent again", returned("m1", "f", 1), false),
            ("another value", returned("m1", "f", 2), true),
            ("another minion", returned("m2", "f", 1), true),
            ("sent again after that", returned("m2", "f", 1), false),
        ];
        for (what, record, is_fired) in table.clone() {
            let reply = rig.send(record).await;
            assert_eq!(reply.await.unwrap(), &b"done"[..], "{what}");
            assert_eq!(rig.bus.try_recv().is_ok(), is_fired, "{what}");
        }
        // Nobody knows what became of the events of those before.
        assert!(rig.tree.inject_panic("job_store", 0));
        let reply = rig.send(returned("m1", "f", 1)).await;
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        assert!(rig.bus.try_recv().is_ok(), "stored in an earlier life");
    });
}

/// The job is of a time that is still to come when its returns arrive.
#[test]
fn repeated_return_fires_its_events_once_while_the_clock_is_set_back() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        rig.clock.advance(Duration::from_secs(7_200));
        let mut published = job("f");
        published.created = rig.clock.unix_micros();
        rig.database
            .lock()
            .commit(&[Write::JobPart(published)])
            .unwrap();
        let start = std::time::SystemTime::UNIX_EPOCH;
        for (step, is_fired) in [(3_600, true), (1_800, false), (9_000, false), (60, false)] {
            rig.clock.set(start + Duration::from_secs(step));
            let mut record = returned("m1", "f", 1);
            record.received = rig.clock.unix_micros();
            let reply = rig.send(record).await;
            assert_eq!(reply.await.unwrap(), &b"done"[..], "{step}");
            assert_eq!(rig.bus.try_recv().is_ok(), is_fired, "{step}");
        }
    });
}

#[test]
fn event_of_a_return_is_committed_with_it_and_once() {
    in_system(async {
        let mut rig = rig_with(DatabaseLimits::default(), true);
        let feed = rig.feed.clone().unwrap();
        let mut stream = feed.follow(None);
        let table = [
            ("new", returned("m1", "f", 1), true),
            ("sent again", returned("m1", "f", 1), false),
            ("another minion", returned("m2", "f", 1), true),
        ];
        for (what, record, is_fired) in table {
            let reply = rig.send(record).await;
            assert_eq!(reply.await.unwrap(), &b"done"[..], "{what}");
            assert_eq!(rig.kept_bus.try_recv().is_ok(), is_fired, "{what}");
        }
        assert!(rig.tree.inject_panic("job_store", 0));
        let reply = rig.send(returned("m1", "f", 1)).await;
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        // On the bus, where nobody knows what became of it, but not in the table.
        assert!(rig.kept_bus.try_recv().is_ok() && rig.bus.try_recv().is_err());
        let range = EventRange {
            after: 0,
            through: 100,
            max_events: 100,
            max_bytes: 1 << 20,
        };
        let reader = rig.database.lock().reader().unwrap();
        let kept = reader.events_between(&range).unwrap().events;
        let kept: Vec<_> = kept
            .iter()
            .map(|event| (event.position, &*event.tag))
            .collect();
        assert_eq!(kept, [(1, "ret"), (2, "ret")]);
        for number in [1, 2] {
            let StreamItem::Events { batch, range } = stream.next().await else {
                panic!("event {number} is not given");
            };
            let given = &batch.events()[range];
            assert_eq!(given.len(), 1);
            assert_eq!(given[0].number, number);
        }
    });
}

#[test]
fn events_of_a_return_that_comes_twice_in_one_commit_are_fired_once() {
    in_system(async {
        let mut rig = rig(DatabaseLimits::default());
        let (one, two) = (rig.answer().await, rig.answer().await);
        let mut replies = Vec::new();
        for (answer, reply) in [one, two] {
            let persist = persist(returned("m1", "f", 1), answer);
            rig.store.try_send(persist).unwrap();
            replies.push(reply);
        }
        for reply in replies {
            assert_eq!(reply.await.unwrap(), &b"done"[..]);
        }
        assert_eq!(rig.commits(), 1);
        assert_eq!(rig.bus.try_recv().unwrap().0.len(), 1);
    });
}
