//! Random batches for two engines, which must answer the same and read the same.

use std::sync::Arc;

use saltern_model::{JobRecord, Packed, ReturnRecord};
use saltern_store::jobs::{
    AuditPage, Batch, Engine, IncompleteJob, JobSearch, JobsPage, StateFilter, wait,
};
use saltern_store::{
    DatabaseLimits, EventsPage, JobDatabase, JobState, NewEvent, Retention, Write,
};
use saltern_wire::msgpack::Value;

use crate::common::{audit_row, id, jid, job, ret};
use crate::conformance::Site;
use crate::site::Database;

const SEEDS: u64 = 3;
const BATCHES: usize = 60;
const JOBS: u32 = 6;

/// Numbers that follow from a seed.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as u32) % end
    }

    fn name(&mut self) -> &'static str {
        ["m1", "m2", "m\"3", "m4"][self.below(4) as usize]
    }

    fn job(&mut self) -> JobRecord {
        let number = self.below(JOBS);
        let minions: Vec<&str> = (0..self.below(3)).map(|_| self.name()).collect();
        JobRecord {
            fun: ["test.ping", "state.apply", "test.ping,x.y"][self.below(3) as usize].to_owned(),
            user: ["root", "me"][self.below(2) as usize].to_owned(),
            created: 1_795_244_782_000_000 + i64::from(self.below(9)),
            load: Packed::new(vec![0x81, 0xa1, b'a', self.below(9) as u8]),
            ..job(number, &minions)
        }
    }

    fn event(&mut self) -> NewEvent {
        NewEvent {
            received: i64::from(self.below(100)),
            tag: format!("salt/{}/{}", self.name(), self.below(4)),
            data: vec![self.below(200) as u8].into(),
            of_minion: self.below(2) == 0,
        }
    }

    /// A change; `sent` are the events so far.
    fn write(&mut self, sent: &mut u64) -> Write {
        let jid = jid(self.below(JOBS));
        let minions = vec![id(self.name())];
        match self.below(16) {
            0 => Write::Job(self.job()),
            1 => Write::JobPart(self.job()),
            2 => Write::ClosedJob {
                job: self.job(),
                reporter: (self.below(2) == 0).then(|| id("m1")),
            },
            3 => Write::Expected { jid, minions },
            4..=6 => {
                let record = ret(self.below(JOBS), self.name(), Value::from(self.below(2)));
                Write::Return(ReturnRecord {
                    received: 1_795_244_782_000_000 + i64::from(self.below(9)),
                    retcode: i64::from(self.below(2)),
                    ..record
                })
            }
            7 => Write::JobState {
                jid,
                state: [
                    JobState::Open,
                    JobState::Complete,
                    JobState::Expired,
                    JobState::Killed,
                ][self.below(4) as usize],
                at: i64::from(self.below(50)),
                notes: (self.below(2) == 0).then(|| vec![self.below(9) as u8].into()),
            },
            8 => Write::Published {
                jid,
                at: i64::from(self.below(50)),
            },
            9 => Write::PublishedFor {
                jid,
                minion: id(self.name()),
            },
            10 => Write::Batch {
                jid,
                plan: Packed::new(vec![self.below(9) as u8]),
            },
            11 => Write::BatchFailed {
                jid,
                minions,
                reason: "gone",
            },
            12 => match self.below(2) {
                0 => Write::BatchPaused {
                    jid,
                    since: (self.below(2) == 0).then_some(5),
                },
                _ => Write::BatchOver {
                    jid,
                    halted: (self.below(2) == 0).then(|| "halted".to_owned()),
                },
            },
            13 => {
                // Some of them once more.
                let first = (*sent + 1).saturating_sub(u64::from(self.below(3))).max(1);
                let events: Vec<_> = (0..4).map(|_| self.event()).collect();
                *sent = (*sent).max(first + events.len() as u64 - 1);
                Write::Events { first, events }
            }
            14 => Write::Audit(Box::new(audit_row(self.below(50)))),
            _ => Write::DeleteJob { jid },
        }
    }

    pub(crate) fn batch(&mut self, sent: &mut u64) -> Batch {
        let writes: Vec<Write> = (0..1 + self.below(8)).map(|_| self.write(sent)).collect();
        let caused = writes
            .iter()
            .map(|_| (0..self.below(2)).map(|_| self.event()).collect());
        Batch {
            caused: caused.collect(),
            writes,
        }
    }
}

/// Whether a job ended without all its returns and expects the minion; the count of its minions may
/// differ between engines.
fn expects_late(found: saltern_store::Result<Option<IncompleteJob>>) -> Option<bool> {
    found.expect("a read").map(|job| job.expects)
}

/// Everything that can be read, as text.
pub(crate) fn view(engine: &Engine) -> String {
    let queries = &engine.queries;
    let mut texts = Vec::new();
    for number in 0..JOBS {
        let jid = jid(number);
        texts.push(format!(
            "{:?} {:?} {:?} {:?} {:?} {:?} {:?}",
            queries.load(&jid).expect("a read"),
            queries.returns(&jid).expect("a read"),
            queries.return_heads(&jid).expect("a read"),
            queries
                .returns_page(&jid, Some("m1"), 2, 30)
                .expect("a read"),
            queries.batch(&jid).expect("a read"),
            queries.is_published_for(&jid, &id("m1")).expect("a read"),
            expects_late(queries.incomplete(&jid, &id("m1"))),
        ));
    }
    let page = JobsPage {
        limit: 4,
        function: Some("test.ping"),
        ..JobsPage::default()
    };
    texts.push(format!("{:?}", queries.jobs_page(&page).expect("a read")));
    texts.push(format!("{:?}", queries.latest_jobs(4).expect("a read")));
    texts.push(format!("{:?}", queries.functions("te", 4).expect("a read")));
    texts.push(format!("{:?}", queries.open_jobs().expect("a read")));
    let before = jid(3);
    let open = queries.open_page(Some(before.as_str()), 2);
    texts.push(format!("{:?}", open.expect("a read")));
    texts.push(format!("{:?}", queries.open_batches().expect("a read")));
    texts.push(format!("{:?}", queries.counts().expect("a read")));
    for bytes in [1, 150, 1_000] {
        texts.push(format!(
            "{:?}",
            queries.jobs_within(1, 5, bytes).expect("a read")
        ));
        texts.push(format!(
            "{:?}",
            queries.returns_within(1, 5, bytes).expect("a read")
        ));
    }
    let functions = ["test.ping", "other"];
    texts.push(format!(
        "{:?}",
        queries.returns_of(&functions, 2).expect("a read")
    ));
    let minion = id("m1");
    for search in [
        (None, None, None),
        (Some("me"), None, None),
        (None, Some(StateFilter::Failed), None),
        (None, Some(StateFilter::Open), None),
        (None, Some(StateFilter::Ended), Some(&minion)),
    ] {
        let (user, state, minion) = search;
        let search = JobSearch {
            user,
            state,
            minion,
            since: Some(1_795_244_782_000_003),
            limit: 3,
            ..JobSearch::default()
        };
        // Where a page ends may be seen with the page, or with the next one.
        let found = queries.search_jobs(&search).expect("a read").jobs;
        texts.push(format!("{found:?}"));
    }
    for tag in [
        "*",
        "salt/m[1-2]/?",
        "salt/[^m]*",
        "salt/m\"3/*",
        "s[z-a]*",
        "[",
        "*/[]0]",
    ] {
        let page = EventsPage {
            tag: Some(tag),
            since: Some(20),
            limit: 30,
        };
        texts.push(format!(
            "{tag} {:?}",
            queries.events(&page).expect("a read")
        ));
    }
    let page = AuditPage {
        user: Some("user1"),
        fun: Some("test.*"),
        limit: 9,
        ..AuditPage::default()
    };
    let rows = queries.audit(&page).expect("a read").into_iter();
    // The databases' identities differ, and so do their chains.
    let rows: Vec<_> = rows.map(|row| (row.number, row.record)).collect();
    texts.push(format!("{rows:?}"));
    texts.join("\n")
}

#[test]
fn postgresql_answers_and_reads_as_sqlite() {
    let database = Database::start();
    let directory = tempfile::tempdir().expect("a directory");
    for seed in 0..SEEDS {
        let path = directory.path().join(format!("jobs{seed}.sqlite"));
        let sqlite = JobDatabase::open(&path, DatabaseLimits::default());
        let sqlite = sqlite.and_then(JobDatabase::into_engine).expect("opened");
        let postgresql = database.cluster(&format!("seed_{seed}")).open();
        let (mut chance, mut sent) = (Chance(seed + 1), 0);
        for step in 0..BATCHES {
            let batch = Arc::new(chance.batch(&mut sent));
            let [expected, found] = [&sqlite, &postgresql]
                .map(|engine| wait(engine.log.append(batch.clone())).expect("committed"));
            assert_eq!(found, expected, "seed {seed}, step {step}: {batch:?}");
            if step % 20 == 19 {
                let retention = Retention {
                    before: Some(1_795_244_782_000_001),
                    most_jobs: Some(5),
                    most_events: Some(40),
                    most_audit: Some(3),
                    ..Retention::default()
                };
                // How rows are divided into slices differs; what is left does not.
                for engine in [&sqlite, &postgresql] {
                    while wait(engine.housekeeping.remove_slice(retention, 3))
                        .expect("removed")
                        .is_some()
                    {}
                }
            }
            if step % 10 == 9 {
                let (found, expected) = (view(&postgresql), view(&sqlite));
                for (found, expected) in found.lines().zip(expected.lines()) {
                    assert_eq!(found, expected, "seed {seed}, step {step}");
                }
            }
        }
    }
}
