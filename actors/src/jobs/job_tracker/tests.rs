//! Tests of the shell over a real database, with recorders for all other actors and a paused
//! clock.
//!
//! Longer than 500 lines because it is a list: one test for each guarantee of the shell.

mod alone;
mod below;
mod large;
mod syndics;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use actix::Addr;
use bytes::Bytes;
use saltern_base::metrics::Registry;
use saltern_model::Tag;
use saltern_model::{
    AuditDoor, AuditProof, AuditRecord, AuditVerdict, JobRecord, Packed, ReturnRecord,
};
use saltern_requests::{ProbeAnswer, Publication, SignalTargets, Topics};
use saltern_store::jobs::JobNotes;
use saltern_store::sqlite::{DatabaseLimits, JobDatabase};
use saltern_supervise::{ChildSpec, Tree};
use saltern_wire::msgpack::{Dialect, Value, decode_exact, encode};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::machine::Rules;
use super::*;
use crate::shared::testing::{Port, closed, event, in_system, ping, recorder, tree};
use crate::shared::window::Windows;

/// Microseconds since 1970, at every call.
const NOW: i64 = 1_000_000_000;

/// Dependencies in which every minion is reachable and the clock of the day stands still.
struct Still {
    minted: AtomicU32,
    rules: Rules,
}

impl Default for Still {
    fn default() -> Self {
        Self {
            minted: AtomicU32::default(),
            rules: Rules {
                timeout: Duration::from_secs(5),
                gather: GATHER,
                interval: Duration::from_secs(60),
                patience: Duration::from_secs(300),
                leaves_wait: Duration::ZERO,
                probe_rate: 2,
                most: (100, 100),
            },
        }
    }
}

impl TrackerDeps for Still {
    fn absence(&self, _: &MinionId) -> Option<Arc<str>> {
        None
    }

    fn is_asked(&self, minion: &MinionId) -> bool {
        minion.as_str() != "resource"
    }

    fn below(&self, _: &MinionId, minions: Vec<MinionId>) -> Vec<MinionId> {
        minions
    }

    fn moved(&self, _: &MinionId, _: Vec<MinionId>) -> Vec<MinionId> {
        Vec::new()
    }

    fn syndics(&self) -> Vec<MinionId> {
        Vec::new()
    }

    fn mint(&self) -> Jid {
        jid(900_000 + self.minted.fetch_add(1, Ordering::Relaxed))
    }

    fn micros(&self) -> i64 {
        NOW
    }

    fn stamp(&self) -> String {
        "2026-01-02T03:04:05.000006".to_owned()
    }

    fn rules(&self) -> Rules {
        self.rules.clone()
    }

    fn probe(&self, _: &Jid, minions: Vec<MinionId>) -> Publication {
        Publication {
            entries: 0,
            packed: Bytes::new(),
            topics: Topics::Minions(minions),
            trace: None,
        }
    }

    fn again(&self, job: &JobRecord) -> Option<Publication> {
        (job.fun != "no.load").then(|| self.probe(&job.jid, job.minions.clone()))
    }

    fn replayed(&self) -> usize {
        RECALLED
    }

    fn announced(&self, job: &JobRecord) -> Vec<Event> {
        vec![event(&format!("again/{}", job.jid))]
    }
}

/// Quota of unsolicited returns a day.
const REPORTS: usize = 1_000;

/// Jobs and returns that are replayed after a start.
const RECALLED: usize = 3;

/// How long a client waits for an answer.
const GATHER: Duration = Duration::from_secs(10);

struct Rig {
    _dir: tempfile::TempDir,
    database: JobDatabase,
    tree: Tree,
    tracker: Addr<JobTracker>,
    metrics: TrackerMetrics,
    batches: Arc<BatchFeed>,
    store: UnboundedReceiver<Persist>,
    bus: UnboundedReceiver<Fire>,
    /// Events taken off the bus and not yet returned by `Rig::next_event`.
    heard: VecDeque<(String, Value)>,
    publisher: UnboundedReceiver<Publish>,
    windows: Arc<Windows>,
    port: Port,
}

/// A tracker over a database that holds these changes.
fn rig(writes: &[Write]) -> Rig {
    rig_of(writes, Still::default())
}

fn rig_of(writes: &[Write], deps: Still) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs");
    let mut database = JobDatabase::open(&path, DatabaseLimits::default()).unwrap();
    database.commit(writes).unwrap();
    let registry = Registry::new();
    let metrics = TrackerMetrics::new(&registry);
    let (to_store, store) = recorder();
    let (to_bus, bus) = recorder();
    let (to_publisher, publisher) = recorder();
    let batches = Arc::new(BatchFeed::new(closed(), closed()));
    let seed = Seed {
        store: to_store,
        bus: to_bus,
        publisher: to_publisher,
        reader: database.reader().unwrap(),
        batches: batches.clone(),
        ends: Arc::new(JobCompletions::new(closed())),
        deps: Arc::new(deps),
        report_quota: QuotaLimits {
            reports: REPORTS,
            bytes: 0,
        },
        metrics: metrics.clone(),
    };
    let tree = tree(&registry);
    let port = Port::open();
    tokio::time::pause();
    let tracker = tree.root().start_child(ChildSpec::permanent(), seed, 0);
    Rig {
        _dir: dir,
        database,
        tree,
        tracker,
        metrics,
        batches,
        store,
        bus,
        heard: VecDeque::new(),
        publisher,
        windows: Windows::new(1, 1000, closed()),
        port,
    }
}

fn jid(number: u32) -> Jid {
    Jid::parse(&format!(
        "{:020}",
        20_260_102_030_405_000_000_u128 + u128::from(number)
    ))
    .unwrap()
}

fn id(minion: &str) -> MinionId {
    MinionId::parse(minion).unwrap()
}

fn ids(minions: &[&str]) -> Vec<MinionId> {
    minions.iter().map(|minion| id(minion)).collect()
}

fn job(number: u32, minions: &[&str]) -> JobRecord {
    JobRecord {
        created: i64::from(number),
        minions: ids(minions),
        ..ping(jid(number))
    }
}

fn start(job: JobRecord, about: Option<JobRelation>) -> Box<StartJob> {
    Box::new(StartJob {
        publication: Still::default().probe(&job.jid, job.minions.clone()),
        job,
        announce: vec![event("new")],
        about,
        expects_all: false,
        publisher: None,
        audit: None,
    })
}

fn record(number: u32, minion: &str) -> ReturnRecord {
    ReturnRecord {
        jid: jid(number),
        minion: id(minion),
        received: 1,
        fun: "test.ping".to_owned(),
        retcode: 0,
        success: true,
        load: Packed::new(&b"\x80"[..]),
    }
}

fn stored(returns: &[(u32, &str)]) -> Stored {
    let returns = returns.iter().map(|(number, minion)| MinionReturned {
        jid: jid(*number),
        minion: id(minion),
        retcode: 0,
        signalled: false,
        forwarded: false,
    });
    Stored {
        returns: returns.collect(),
        ..Stored::default()
    }
}

fn begun(number: u32, minions: &[&str]) -> Stored {
    let job = job(number, minions);
    Stored {
        jobs: vec![JobBegun {
            jid: job.jid,
            fun: job.fun.into(),
            created: job.created,
            minions: job.minions,
            nocache: false,
            signals: None,
            expects_all: false,
        }],
        ..Stored::default()
    }
}

fn published(number: u32) -> Write {
    Write::Published {
        jid: jid(number),
        at: 1,
    }
}

fn departed(number: u32, has_left: bool) -> Departed {
    Departed {
        jid: jid(number),
        minions: ids(&["a"]),
        has_left,
    }
}

fn lost_departure_of(lost: JobDeparture) -> Stored {
    Stored {
        lost_departures: vec![lost],
        ..Stored::default()
    }
}

impl Persist {
    fn only_writes(&self) -> impl Iterator<Item = &Write> {
        self.writes.iter().map(|(write, _)| write)
    }

    /// The reporter of the job that comes with a return.
    fn brought(&self) -> Option<&Option<MinionId>> {
        self.only_writes().find_map(|write| match write {
            Write::ClosedJob { reporter, .. } => Some(reporter),
            _ => None,
        })
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

    /// Delivers a return; gives the message to the store.
    async fn take(&mut self, number: u32, minion: &str) -> Persist {
        let (answer, _) = self.answer().await;
        let returned = Box::new(ReceivedReturn {
            record: record(number, minion),
            job: job(number, &[minion]),
            reporter: Some(id(minion)),
            standalone: false,
            forwarded: false,
            confirms_only: false,
            events: vec![event("ret")],
            keep: true,
        });
        self.tracker
            .send(TakeReturn { returned, answer })
            .await
            .unwrap();
        self.store.recv().await.unwrap()
    }

    /// The departure in the next message to the store, as reported if it is refused.
    async fn lost_departure(&mut self) -> JobDeparture {
        let persist = self.store.recv().await.unwrap();
        let [(Write::Published { jid, at }, FollowUp::ReportLostDeparture(lost))] =
            &persist.writes[..]
        else {
            panic!("{:?}", persist.only_writes().collect::<Vec<_>>());
        };
        assert_eq!((jid, at), (&lost.jid, &lost.at));
        lost.clone()
    }

    /// Job states in the next message to the store, sorted.
    async fn kept(&mut self) -> Vec<(Jid, JobState)> {
        let persist = self.store.recv().await.unwrap();
        let mut kept: Vec<(Jid, JobState)> = persist
            .only_writes()
            .map(|write| match write {
                Write::JobState { jid, state, at, .. } => {
                    assert_eq!(*at, NOW);
                    (jid.clone(), *state)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        kept.sort_by(|a, b| a.0.as_str().cmp(b.0.as_str()));
        kept
    }

    async fn is_awaited(&self, number: u32, minion: &str) -> bool {
        let question = AwaitedMinions {
            jid: jid(number),
            minions: ids(&[minion]),
        };
        !self.tracker.send(question).await.unwrap().is_empty()
    }

    /// The next event of ours but progress: the end of its tag, and its data.
    async fn next_event(&mut self) -> (String, Value) {
        loop {
            if let Some(event) = self.heard.pop_front() {
                return event;
            }
            let Fire(events) = self.bus.recv().await.unwrap();
            for event in events {
                let tag = event.tag.as_str();
                if tag.starts_with("saltern/") && !tag.ends_with("/progress") {
                    let word = tag.rsplit('/').next().unwrap().to_owned();
                    let data = decode_exact(event.data.as_ref(), &Limits::WIRE).unwrap();
                    self.heard.push_back((word, data));
                }
            }
        }
    }

    fn finished(&self, verdict: &str) -> u64 {
        self.metrics.finished.with_label_values(&[verdict]).get()
    }
}

fn verdict_of<'a>(data: &'a Value, minion: &str) -> &'a str {
    let said = data.get("minions").unwrap().get(minion).unwrap();
    said.get("verdict").and_then(Value::as_str).unwrap()
}

#[test]
fn return_brings_its_job_until_the_store_confirms_it() {
    in_system(async {
        let mut rig = rig(&[]);
        assert!(rig.take(1, "a").await.brought().is_some());
        // The first one may have failed.
        assert!(rig.take(1, "b").await.brought().is_some());
        rig.tracker.send(stored(&[(1, "a")])).await.unwrap();
        assert!(rig.take(1, "c").await.brought().is_none());
        // Nor does a job that was published, which would be closed by it.
        rig.tracker.send(begun(2, &["a", "b"])).await.unwrap();
        assert!(rig.take(2, "a").await.brought().is_none());
    });
}

#[test]
fn job_is_complete_after_all_returns_and_stays_so() {
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
        assert_eq!(rig.kept().await, [(jid(1), JobState::Complete)]);
        let (word, data) = rig.next_event().await;
        assert_eq!(word, "finished");
        assert_eq!(data.get("returned").unwrap().as_array().unwrap().len(), 3);
        assert_eq!(rig.metrics.open.get(), 0);
        rig.tracker
            .send(stored(&[(1, "b"), (1, "d")]))
            .await
            .unwrap();
        assert_eq!(rig.finished("complete"), 1);
        assert!(rig.store.try_recv().is_err());
    });
}

#[test]
fn batch_job_ends_once_with_its_batch() {
    in_system(async {
        let plan = Write::Batch {
            jid: jid(1),
            plan: Packed::new(&b"\x80"[..]),
        };
        // A batch of before a restart, which Batches has not resumed yet.
        let first = [
            plan,
            Write::Job(job(1, &["a"])),
            Write::Return(record(1, "a")),
        ];
        let mut rig = rig(&first);
        for minion in ["b", "c"] {
            rig.tracker.send(begun(1, &[minion])).await.unwrap();
            rig.tracker.send(stored(&[(1, minion)])).await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(rig.metrics.open.get(), 1);
        assert!(rig.store.try_recv().is_err());
        rig.batches.forget(&jid(1));
        assert_eq!(rig.kept().await, [(jid(1), JobState::Complete)]);
        let (word, data) = rig.next_event().await;
        assert_eq!(word, "finished");
        assert_eq!(data.get("returned").unwrap().as_array().unwrap().len(), 3);
        assert_eq!(rig.finished("complete"), 1);
    });
}

#[test]
fn job_begins_only_when_stored() {
    in_system(async {
        let mut rig = rig(&[]);
        let (answer, reply) = rig.answer().await;
        let start = start(job(1, &["a"]), None);
        rig.tracker.send(BeginJob { start, answer }).await.unwrap();
        let persist = rig.store.recv().await.unwrap();
        assert!(matches!(
            persist.writes[..],
            [(Write::JobPart(_), FollowUp::Begin(_))]
        ));
        // The store could not.
        persist.answer.unwrap().failed();
        assert_eq!(reply.await.unwrap(), &b"failed"[..]);
        assert_eq!(rig.metrics.open.get(), 0);
        assert!(rig.take(1, "a").await.brought().is_some());
    });
}

/// One message to the store is one transaction.
#[test]
fn job_and_its_audit_row_are_written_together() {
    in_system(async {
        let mut rig = rig(&[]);
        let (answer, _) = rig.answer().await;
        let mut start = start(job(1, &["a"]), None);
        let row = AuditRecord {
            at: 1,
            door: AuditDoor::Port,
            user: "root".to_owned(),
            backend: None,
            proof: AuditProof::Key,
            origin: None,
            cmd: "publish".to_owned(),
            fun: "test.ping".to_owned(),
            tgt: None,
            tgt_type: None,
            arguments: "[]".to_owned(),
            verdict: AuditVerdict::Allowed,
            reason: None,
            jid: Some(jid(1)),
            suppressed: 0,
        };
        start.audit = Some(Box::new(row.clone()));
        rig.tracker.send(BeginJob { start, answer }).await.unwrap();
        let persist = rig.store.recv().await.unwrap();
        let [(Write::JobPart(_), _), (Write::Audit(written), _)] = &persist.writes[..] else {
            panic!("a job and its row");
        };
        assert_eq!(**written, row);
    });
}

#[test]
fn restart_resumes_open_jobs_and_ends_complete_ones() {
    in_system(async {
        let mut rig = rig(&[
            Write::Job(job(1, &["a", "b"])),
            Write::Job(job(2, &["a"])),
            Write::Return(record(1, "a")),
            Write::Return(record(2, "a")),
            published(1),
            published(2),
        ]);
        assert_eq!(rig.kept().await, [(jid(2), JobState::Complete)]);
        assert_eq!(rig.metrics.open.get(), 1);
        // The second value reads what was stored meanwhile.
        let ended = Write::JobState {
            jid: jid(2),
            state: JobState::Complete,
            at: NOW,
            notes: None,
        };
        let returned = Write::Return(record(1, "b"));
        rig.database.commit(&[ended, returned]).unwrap();
        assert!(rig.tree.inject_panic("job_tracker", 0));
        assert_eq!(rig.kept().await, [(jid(1), JobState::Complete)]);
        // The store's report about it arrives late.
        rig.tracker.send(stored(&[(1, "b")])).await.unwrap();
        assert!(rig.store.try_recv().is_err());
    });
}

#[test]
fn restart_resends_young_jobs_that_may_not_have_left() {
    in_system(async {
        let young = |number: u32, fun: &str| JobRecord {
            created: NOW - 1_000_000,
            fun: fun.to_owned(),
            ..job(number, &["a"])
        };
        let mut rig = rig(&[
            Write::Job(job(1, &["a"])),
            Write::Job(young(2, "test.ping")),
            Write::Job(young(3, "no.load")),
            Write::Job(young(4, "test.ping")),
            published(4),
            // It was returned, so it had left.
            Write::Job(JobRecord {
                minions: ids(&["a", "b"]),
                ..young(5, "test.ping")
            }),
            Write::Return(record(5, "a")),
        ]);
        let began = Instant::now();
        let publish = rig.publisher.recv().await.unwrap();
        assert_eq!((publish.jid, publish.is_job), (jid(2), true));
        // Not before the minions have reconnected.
        assert!(began.elapsed() >= Duration::from_secs(10));
        // It is not known whether the old one and the one without a load were sent.
        let mut never = Vec::new();
        for _ in 0..2 {
            let (word, data) = rig.next_event().await;
            assert_eq!(
                (word.as_str(), verdict_of(&data, "a")),
                ("verdict", "unknown")
            );
            never.push(data.get("jid").and_then(Value::as_str).unwrap().to_owned());
        }
        assert_eq!(never, [jid(1).to_string(), jid(3).to_string()]);
        assert!(rig.publisher.try_recv().is_err());
    });
}

#[test]
fn departure_is_written_with_the_next_commit_or_alone() {
    in_system(async {
        let mut rig = rig(&[]);
        for number in 1..=2 {
            rig.tracker.send(begun(number, &["a"])).await.unwrap();
            rig.tracker.send(departed(number, true)).await.unwrap();
        }
        let persist = rig.take(1, "a").await;
        let writes: Vec<&Write> = persist.only_writes().collect();
        let [first, second, Write::Return(_)] = writes[..] else {
            panic!("{writes:?}");
        };
        for (write, number) in [(first, 1), (second, 2)] {
            let is_meant =
                matches!(write, Write::Published { jid: of, at: NOW } if *of == jid(number));
            assert!(is_meant, "{write:?}");
        }
        rig.tracker.send(begun(3, &["a"])).await.unwrap();
        rig.tracker.send(departed(3, true)).await.unwrap();
        let persist = rig.store.recv().await.unwrap();
        let write = persist.only_writes().next().unwrap();
        assert!(matches!(write, Write::Published { jid: of, .. } if *of == jid(3)));
        // One that cannot be sent is not awaited.
        rig.tracker.send(begun(4, &["a"])).await.unwrap();
        rig.tracker.send(departed(4, false)).await.unwrap();
        assert_eq!(verdict_of(&rig.next_event().await.1, "a"), "unreachable");
        assert_eq!(rig.kept().await, [(jid(4), JobState::Open)]);
    });
}

#[test]
fn unsent_part_makes_only_its_own_minions_unreachable() {
    in_system(async {
        let mut rig = rig(&[]);
        rig.tracker.send(begun(1, &["a"])).await.unwrap();
        rig.tracker.send(departed(1, true)).await.unwrap();
        rig.tracker.send(begun(1, &["b"])).await.unwrap();
        let part = Departed {
            minions: ids(&["b"]),
            ..departed(1, false)
        };
        rig.tracker.send(part).await.unwrap();
        let (_, data) = rig.next_event().await;
        assert_eq!(verdict_of(&data, "b"), "unreachable");
        assert_eq!(data.get("minions").unwrap().as_map().unwrap().len(), 1);
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
        let expired = |number| (jid(number), JobState::Expired);
        assert_eq!(rig.kept().await, [expired(1), expired(2)]);
        assert_eq!(rig.finished("expired"), 2);
        // A late return is announced, and makes the job complete after all.
        rig.tracker.send(stored(&[(1, "a")])).await.unwrap();
        assert_eq!(rig.kept().await, [(jid(1), JobState::Complete)]);
        let mut words = Vec::new();
        for _ in 0..4 {
            words.push(rig.next_event().await.0);
        }
        assert_eq!(words, ["finished", "finished", "verdict", "finished"]);
    });
}

/// The state with which the last return of an ended job is stored.
fn state_beside_return(persist: &Persist) -> Option<JobState> {
    persist.only_writes().find_map(|write| match write {
        Write::JobState { state, .. } => Some(*state),
        _ => None,
    })
}

/// The end of a job in the store.
fn ended(number: u32, state: JobState) -> Write {
    Write::JobState {
        jid: jid(number),
        state,
        at: 2,
        notes: None,
    }
}

#[test]
fn last_late_return_completes_expired_job_after_a_restart() {
    in_system(async {
        let mut rig = rig(&[
            Write::Job(job(1, &["a", "b", "c"])),
            Write::Return(record(1, "a")),
            ended(1, JobState::Expired),
            Write::Job(job(2, &["a"])),
            Write::Return(record(2, "a")),
            ended(2, JobState::Complete),
        ]);
        // The tracker has not seen this job, and looks it up once.
        assert_eq!(state_beside_return(&rig.take(1, "b").await), None);
        rig.tracker.send(stored(&[(1, "b")])).await.unwrap();
        assert_eq!(verdict_of(&rig.next_event().await.1, "b"), "late");
        assert_eq!(rig.kept().await, [(jid(1), JobState::Expired)]);
        // With its last return, the job is complete: in the same transaction.
        let persist = rig.take(1, "c").await;
        assert!(persist.brought().is_none());
        assert_eq!(state_beside_return(&persist), Some(JobState::Complete));
        rig.tracker.send(stored(&[(1, "c")])).await.unwrap();
        assert_eq!(rig.kept().await, [(jid(1), JobState::Complete)]);
        assert_eq!(rig.finished("complete"), 1);
        // Neither a complete job nor one that nobody knows is reloaded.
        assert_eq!(state_beside_return(&rig.take(2, "a").await), None);
        assert!(rig.take(3, "a").await.brought().is_some());
    });
}

/// An expired job that misses the return of `b`.
fn expired_without_b() -> [Write; 3] {
    [
        Write::Job(job(1, &["a", "b"])),
        Write::Return(record(1, "a")),
        ended(1, JobState::Expired),
    ]
}

#[test]
fn unexpected_return_reloads_no_job_nor_hides_it_from_an_expected_one() {
    in_system(async {
        let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut writes = vec![Write::Job(job(2, &names)), ended(2, JobState::Expired)];
        let returns = names.iter().skip(1);
        writes.extend(returns.map(|name| Write::Return(record(2, name))));
        writes.extend(expired_without_b());
        let mut rig = rig(&writes);
        assert_eq!(state_beside_return(&rig.take(1, "x").await), None);
        let last = rig.take(1, "b").await;
        assert_eq!(state_beside_return(&last), Some(JobState::Complete));
        // A job that is too heavy to be remembered is not read.
        assert_eq!(state_beside_return(&rig.take(2, "n0").await), None);
    });
}

#[test]
fn evicted_job_is_reloaded_by_its_next_return() {
    in_system(async {
        let mut rig = rig(&[Write::Job(job(1, &["a", "b"])), ended(1, JobState::Expired)]);
        assert_eq!(state_beside_return(&rig.take(1, "a").await), None);
        let first = Write::Return(record(1, "a"));
        rig.database.commit(&[first]).unwrap();
        rig.tracker.send(stored(&[(1, "a")])).await.unwrap();
        assert_eq!(rig.kept().await, [(jid(1), JobState::Expired)]);
        let names: Vec<String> = (0..99).map(|number| format!("n{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        rig.tracker.send(begun(2, &names)).await.unwrap();
        rig.tracker.send(CloseOlderThan(3)).await.unwrap();
        assert_eq!(rig.kept().await, [(jid(2), JobState::Expired)]);
        let persist = rig.take(1, "b").await;
        assert!(persist.brought().is_none(), "the store has this job");
        assert_eq!(state_beside_return(&persist), Some(JobState::Complete));
    });
}

#[test]
fn reloaded_job_does_not_know_all_its_minions() {
    let mut machine = Machine::new(Still::default().rules(), 1);
    let job = begun(1, &["a"]).jobs.remove(0);
    let ended = Resumed {
        job,
        departure: Departure::Never,
        returned: Vec::new(),
        notes: JobNotes::default(),
    };
    machine.reload_ended(ended, JobState::Expired, Moment::default());
    let reloaded = machine.jobs.get(&jid(1)).unwrap();
    assert!(!reloaded.expects_all && !reloaded.is_open());
}

#[test]
fn refused_departure_is_not_written_for_a_further_part() {
    for is_refused_first in [true, false] {
        in_system(async move {
            let mut rig = rig(&[]);
            rig.tracker.send(begun(1, &["a", "b"])).await.unwrap();
            rig.tracker.send(departed(1, true)).await.unwrap();
            let lost = rig.lost_departure().await;
            if is_refused_first {
                let lost = lost_departure_of(lost.clone());
                rig.tracker.send(lost).await.unwrap();
            }
            // The part is with the store and not confirmed.
            let (answer, _reply) = rig.answer().await;
            let start = start(job(1, &["b"]), None);
            rig.tracker.send(BeginJob { start, answer }).await.unwrap();
            if !is_refused_first {
                rig.tracker.send(lost_departure_of(lost)).await.unwrap();
            }
            tokio::time::sleep(3 * KEPT_AGAIN).await;
            while let Ok(persist) = rig.store.try_recv() {
                let mut writes = persist.only_writes();
                assert!(!writes.any(|write| matches!(write, Write::Published { .. })));
            }
            // The store refuses the part: the load that left is the job's again.
            let refused = Stored {
                unbegun: vec![jid(1)],
                ..lost_departure_of(JobDeparture {
                    jid: jid(1),
                    at: NOW,
                })
            };
            rig.tracker.send(refused).await.unwrap();
            tokio::time::sleep(2 * KEPT_AGAIN).await;
            let mut is_written = false;
            while let Ok(persist) = rig.store.try_recv() {
                let mut writes = persist.only_writes();
                is_written |= writes.any(|write| matches!(write, Write::Published { .. }));
            }
            assert!(is_written);
        });
    }
}

#[test]
fn job_state_is_rewritten_until_stored() {
    in_system(async {
        let mut rig = rig(&[]);
        rig.tracker.send(begun(1, &["a"])).await.unwrap();
        rig.tracker.send(stored(&[(1, "a")])).await.unwrap();
        for _ in 0..3 {
            let persist = rig.store.recv().await.unwrap();
            let [(Write::JobState { state, .. }, FollowUp::ReportFailure(of))] =
                &persist.writes[..]
            else {
                panic!("a state is written");
            };
            assert_eq!((state, of), (&JobState::Complete, &jid(1)));
            let refused = Stored {
                refused: vec![of.clone()],
                ..Stored::default()
            };
            rig.tracker.send(refused).await.unwrap();
        }
    });
}

#[test]
fn departure_is_rewritten_until_stored_or_its_job_is_over() {
    in_system(async {
        let mut rig = rig(&[]);
        rig.tracker.send(begun(1, &["a", "b"])).await.unwrap();
        rig.tracker.send(departed(1, true)).await.unwrap();
        for _ in 0..3 {
            let lost = rig.lost_departure().await;
            assert_eq!(lost.jid, jid(1));
            rig.tracker.send(lost_departure_of(lost)).await.unwrap();
        }
        // A further part has not left because the earlier one has.
        rig.tracker.send(begun(1, &["b"])).await.unwrap();
        // Of a job that is over it need not be known.
        rig.tracker.send(begun(2, &["a"])).await.unwrap();
        rig.tracker.send(departed(2, true)).await.unwrap();
        let lost = rig.lost_departure().await;
        assert_eq!(lost.jid, jid(2));
        rig.tracker.send(lost_departure_of(lost)).await.unwrap();
        rig.tracker.send(stored(&[(2, "a")])).await.unwrap();
        assert_eq!(rig.kept().await, [(jid(2), JobState::Complete)]);
        tokio::time::sleep(3 * KEPT_AGAIN).await;
        while let Ok(persist) = rig.store.try_recv() {
            let writes: Vec<&Write> = persist.only_writes().collect();
            let is_departure = |write: &&Write| matches!(write, Write::Published { .. });
            assert!(!writes.iter().any(is_departure), "{writes:?}");
        }
    });
}

#[test]
fn changes_within_a_second_are_written_once() {
    in_system(async {
        let mut rig = rig(&[]);
        rig.tracker.send(begun(1, &["a", "b"])).await.unwrap();
        for minion in ["a", "b"] {
            let part = Departed {
                minions: ids(&[minion]),
                ..departed(1, false)
            };
            rig.tracker.send(part).await.unwrap();
        }
        assert!(rig.store.try_recv().is_err());
        let persist = rig.store.recv().await.unwrap();
        let [(Write::JobState { notes, .. }, _)] = &persist.writes[..] else {
            panic!("{:?}", persist.only_writes().collect::<Vec<_>>());
        };
        let notes = JobNotes::unpack(notes.as_ref().unwrap());
        assert_eq!(notes.lost.len(), 2);
    });
}

#[test]
fn unstored_return_counts_and_is_answered_after_its_event() {
    in_system(async {
        let mut rig = rig(&[]);
        rig.tracker.send(begun(1, &["a"])).await.unwrap();
        let (answer, reply) = rig.answer().await;
        let returned = Box::new(ReceivedReturn {
            record: record(1, "a"),
            job: job(1, &["a"]),
            reporter: Some(id("a")),
            standalone: false,
            forwarded: false,
            confirms_only: false,
            events: vec![event("ret")],
            keep: false,
        });
        rig.tracker
            .send(TakeReturn { returned, answer })
            .await
            .unwrap();
        assert_eq!(rig.bus.recv().await.unwrap().0.len(), 1);
        assert_eq!(reply.await.unwrap(), &b"done"[..]);
        assert_eq!(rig.kept().await, [(jid(1), JobState::Complete)]);
    });
}

#[test]
fn silent_minion_is_probed_given_up_and_never_failed() {
    in_system(async {
        let mut rig = rig(&[]);
        rig.tracker.send(begun(1, &["a", "b", "c"])).await.unwrap();
        // A resource cannot be probed, and is not judged by its silence.
        let second = begun(2, &["a", "b", "resource"]);
        rig.tracker.send(second).await.unwrap();
        rig.tracker.send(stored(&[(1, "c")])).await.unwrap();
        // One probe for both jobs.
        let probe = rig.publisher.recv().await.unwrap();
        assert!(!probe.is_job);
        assert_eq!(probe.publication.topics, Topics::Minions(ids(&["a", "b"])));
        let description = Packed::new(encode(&Value::map([("pid", 1_i64)]), Dialect::Bin));
        let answer = TakeAnswer(ProbeAnswer {
            probe: probe.jid,
            minion: id("a"),
            running: Some(vec![(jid(1), description.clone()), (jid(2), description)]),
        });
        rig.tracker.send(answer).await.unwrap();
        for number in 1..=2 {
            let (word, data) = rig.next_event().await;
            assert_eq!(word, "verdict");
            assert_eq!(
                data.get("jid").and_then(Value::as_str),
                Some(jid(number).as_str())
            );
            assert_eq!(verdict_of(&data, "b"), "unknown");
            assert_eq!(data.get("minions").unwrap().as_map().unwrap().len(), 1);
        }
        rig.tracker
            .send(stored(&[(1, "b"), (1, "a")]))
            .await
            .unwrap();
        assert_eq!(verdict_of(&rig.next_event().await.1, "b"), "late");
        let (word, data) = rig.next_event().await;
        assert_eq!(word, "finished");
        assert!(data.get("failed").unwrap().as_array().unwrap().is_empty());
    });
}

#[test]
fn jobs_of_a_minion_that_signals_all_are_killed_without_returns() {
    in_system(async {
        let mut rig = rig(&[]);
        rig.tracker.send(begun(1, &["a"])).await.unwrap();
        let mut killer = begun(2, &["a"]);
        killer.jobs[0].signals = Some(SignalTargets::All);
        rig.tracker.send(killer).await.unwrap();
        let mut done = stored(&[(2, "a")]);
        done.returns[0].signalled = true;
        rig.tracker.send(done).await.unwrap();
        assert_eq!(rig.next_event().await.0, "finished");
        // That it runs nothing is not the end yet: its return may be on its way.
        for _ in 0..2 {
            let probe = rig.publisher.recv().await.unwrap();
            assert_eq!(rig.finished("killed"), 0);
            let answer = TakeAnswer(ProbeAnswer {
                probe: probe.jid,
                minion: id("a"),
                running: Some(Vec::new()),
            });
            rig.tracker.send(answer).await.unwrap();
        }
        assert_eq!(rig.next_event().await.0, "verdict");
        assert_eq!(rig.finished("killed"), 1);
    });
}

#[test]
fn client_questions_are_answered_from_one_shared_probe() {
    in_system(async {
        let mut rig = rig(&[]);
        rig.tracker.send(begun(1, &["a", "b"])).await.unwrap();
        for number in [10, 11] {
            let (answer, reply) = rig.answer().await;
            let about = Some(JobRelation::Running(jid(1)));
            let start = start(job(number, &["a", "b"]), about);
            rig.tracker.send(BeginJob { start, answer }).await.unwrap();
            assert_eq!(reply.await.unwrap(), &b"done"[..]);
            assert_eq!(rig.bus.recv().await.unwrap().0.len(), 1);
        }
        let probe = rig.publisher.recv().await.unwrap();
        let running = Packed::new(encode(&Value::map([("pid", 7_i64)]), Dialect::Bin));
        for (minion, running) in [("a", vec![(jid(1), running)]), ("b", Vec::new())] {
            let answer = TakeAnswer(ProbeAnswer {
                probe: probe.jid.clone(),
                minion: id(minion),
                running: Some(running),
            });
            rig.tracker.send(answer).await.unwrap();
            let Fire(events) = rig.bus.recv().await.unwrap();
            let tags: Vec<String> = events.iter().map(|event| event.tag.to_string()).collect();
            let expected = [10, 11].map(|n| Tag::job_return(&jid(n), &id(minion)).to_string());
            assert_eq!(tags, expected);
            let data = decode_exact(events[0].data.as_ref(), &Limits::WIRE).unwrap();
            let returned = data.get("return").unwrap();
            let is_running = returned.get("pid").and_then(Value::as_i64) == Some(7);
            assert_eq!(is_running, minion == "a");
        }
        assert!(rig.store.try_recv().is_err() && rig.publisher.try_recv().is_err());
        assert_eq!((rig.metrics.polls.get(), rig.metrics.probes.get()), (2, 1));
        // An unknown job cannot be answered from here: the question goes out.
        let (answer, _) = rig.answer().await;
        let start = start(job(12, &["a"]), Some(JobRelation::Running(jid(77))));
        rig.tracker.send(BeginJob { start, answer }).await.unwrap();
        let persist = rig.store.recv().await.unwrap();
        assert!(matches!(persist.writes[..], [(_, FollowUp::Begin(_))]));
    });
}

/// Polls like a command line that takes silence for the end of the job.
async fn poll(rig: &mut Rig, number: u32, minions: &[&str]) {
    let (answer, reply) = rig.answer().await;
    let about = Some(JobRelation::Running(jid(1)));
    let start = start(job(number, minions), about);
    rig.tracker.send(BeginJob { start, answer }).await.unwrap();
    assert_eq!(reply.await.unwrap(), &b"done"[..]);
    assert_eq!(rig.bus.recv().await.unwrap().0.len(), 1);
}

/// The next answer to a poll: whether the minion runs the job.
async fn next_answer(rig: &mut Rig, number: u32, minion: &str) -> bool {
    let tag = Tag::job_return(&jid(number), &id(minion));
    loop {
        let Fire(events) = rig.bus.recv().await.unwrap();
        if let Some(event) = events.iter().find(|event| event.tag == tag) {
            let data = decode_exact(event.data.as_ref(), &Limits::WIRE).unwrap();
            return data.get("return").unwrap().get("jid").is_some();
        }
    }
}

#[test]
fn slow_probe_answer_does_not_end_the_job() {
    in_system(async {
        let mut rig = rig(&[]);
        rig.tracker.send(begun(1, &["a"])).await.unwrap();
        let asked = tokio::time::Instant::now();
        poll(&mut rig, 10, &["a"]).await;
        assert!(next_answer(&mut rig, 10, "a").await);
        // While the client still waits.
        assert!(asked.elapsed() < GATHER);
        // It answers at last; from then on its statement holds.
        let probe = rig.publisher.recv().await.unwrap();
        let running = Packed::new(encode(
            &Value::map([("jid", jid(1).as_str())]),
            Dialect::Bin,
        ));
        let answer = TakeAnswer(ProbeAnswer {
            probe: probe.jid,
            minion: id("a"),
            running: Some(vec![(jid(1), running)]),
        });
        rig.tracker.send(answer).await.unwrap();
        tokio::time::sleep(GATHER * 4).await;
        poll(&mut rig, 11, &["a"]).await;
        assert!(next_answer(&mut rig, 11, "a").await);
    });
}

#[test]
fn report_over_quota_is_refused_and_an_expected_return_is_not() {
    in_system(async {
        let ended = Write::ClosedJob {
            job: job(7, &["a", "b"]),
            reporter: None,
        };
        let mut rig = rig(&[ended]);
        rig.tracker.send(begun(1, &["a"])).await.unwrap();
        for number in 0..REPORTS as u32 {
            rig.take(1_000 + number, "a").await;
        }
        let (answer, reply) = rig.answer().await;
        let returned = |number: u32, minion: &str| {
            Box::new(ReceivedReturn {
                record: record(number, minion),
                job: job(number, &[minion]),
                reporter: Some(id(minion)),
                standalone: false,
                forwarded: false,
                confirms_only: false,
                events: vec![event("ret")],
                keep: true,
            })
        };
        let one_more = TakeReturn {
            returned: returned(9_000, "a"),
            answer,
        };
        rig.tracker.send(one_more).await.unwrap();
        assert_eq!(reply.await.unwrap(), &b"failed"[..]);
        while let Ok(persist) = rig.store.try_recv() {
            let is_return = |write: &Write| matches!(write, Write::Return(_));
            assert!(persist.brought().is_none() && !persist.only_writes().any(is_return));
        }
        assert_eq!(rig.metrics.over_quota.get(), 1);
        // One job is open, the other one ended and is in the database alone; both expect the minion.
        assert!(rig.take(1, "a").await.brought().is_none());
        rig.take(7, "a").await;
        // Another minion has a quota of its own, and brings a job that is marked.
        let persist = rig.take(9_001, "b").await;
        assert_eq!(persist.brought(), Some(&Some(id("b"))));
        assert_eq!(rig.metrics.over_quota.get(), 1);
        // Lookups of made-up jids are bounded: the tracker is shared by all minions.
        for number in 0..100 {
            let (answer, reply) = rig.answer().await;
            let returned = returned(10_000 + number, "a");
            rig.tracker
                .send(TakeReturn { returned, answer })
                .await
                .unwrap();
            assert_eq!(reply.await.unwrap(), &b"failed"[..]);
        }
        let (answer, reply) = rig.answer().await;
        let late = TakeReturn {
            returned: returned(7, "a"),
            answer,
        };
        rig.tracker.send(late).await.unwrap();
        assert_eq!(reply.await.unwrap(), &b"failed"[..], "not looked for");
    });
}

#[test]
fn refused_job_that_is_stored_ends_as_not_sent() {
    in_system(async {
        let mut rig = rig(&[]);
        let unsent = |stored: Stored| Stored {
            unsent: stored.jobs,
            ..Stored::default()
        };
        rig.tracker
            .send(unsent(begun(1, &["a", "b"])))
            .await
            .unwrap();
        assert_eq!(verdict_of(&rig.next_event().await.1, "a"), "unreachable");
        rig.tracker.send(CloseOlderThan(2)).await.unwrap();
        while rig.kept().await != [(jid(1), JobState::Expired)] {}
        // A further part of a job that goes on: only its own minions are given up.
        rig.tracker.send(begun(2, &["a"])).await.unwrap();
        rig.tracker
            .send(unsent(begun(2, &["a", "b"])))
            .await
            .unwrap();
        assert!(rig.is_awaited(2, "a").await && !rig.is_awaited(2, "b").await);
        rig.tracker.send(stored(&[(2, "a")])).await.unwrap();
        // One without minions of its own: the state of the job is written again.
        rig.tracker.send(begun(3, &["a"])).await.unwrap();
        rig.tracker.send(stored(&[(3, "a")])).await.unwrap();
        let complete = (jid(3), JobState::Complete);
        while rig.kept().await != [complete.clone()] {}
        rig.tracker.send(unsent(begun(3, &["a"]))).await.unwrap();
        while !rig.kept().await.contains(&complete) {}
    });
}
