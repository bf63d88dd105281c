//! A job of more than 20,000 minions that is open while the master dies, twice.

use std::collections::BTreeSet;
use std::ops::Range;

use super::*;
use saltern_store::jobs::LostReason;

const MINIONS: u32 = 21_000;
/// Those that returned before the first start.
const RETURNED: Range<u32> = 0..14_000;
/// Given up before the first start; nobody knows why they are silent.
const GIVEN_UP: Range<u32> = 14_000..16_000;
/// Some of them return after all.
const LATE: Range<u32> = 14_000..14_100;
/// They return between the two starts, and what the store says of it is lost.
const UNNOTICED: Range<u32> = 16_000..17_500;
/// They return after the second start.
const RETURNING: Range<u32> = 17_500..19_000;
/// They run it when they are probed, and return last.
const RUNNING: Range<u32> = 19_000..19_500;
/// They never answer.
const SILENT: Range<u32> = 19_500..21_000;

/// One minion of a thousand fails.
fn retcode(number: u32) -> i64 {
    i64::from(number.is_multiple_of(1_000))
}

fn minion(number: u32) -> MinionId {
    id(&format!("m{number:05}"))
}

fn minions(numbers: Range<u32>) -> Vec<MinionId> {
    numbers.map(minion).collect()
}

fn returns(numbers: Range<u32>) -> Vec<Write> {
    let record = |number: u32| ReturnRecord {
        minion: minion(number),
        retcode: retcode(number),
        success: retcode(number) == 0,
        ..record(1, "any")
    };
    numbers.map(record).map(Write::Return).collect()
}

/// The report of the store about these returns.
fn report(numbers: Range<u32>) -> Stored {
    let returned = |number: u32| MinionReturned {
        jid: jid(1),
        minion: minion(number),
        retcode: retcode(number),
        signalled: false,
        forwarded: false,
    };
    Stored {
        returns: numbers.map(returned).collect(),
        ..Stored::default()
    }
}

fn names(value: &Value) -> BTreeSet<&str> {
    match value {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        Value::Map(entries) => entries
            .iter()
            .filter_map(|(name, _)| name.as_str())
            .collect(),
        _ => BTreeSet::new(),
    }
}

/// Whether these are all of the minions, each once.
fn are(found: &Value, expected: &[Range<u32>]) -> bool {
    let expected: Vec<MinionId> = expected.iter().cloned().flat_map(minions).collect();
    names(found) == expected.iter().map(MinionId::as_str).collect()
}

impl Rig {
    /// The next two probes, which go to all of which nobody knows; answers those that run it.
    async fn probe_all_missing(&mut self) {
        let mut probed = Vec::new();
        let running: BTreeSet<MinionId> = minions(RUNNING).into_iter().collect();
        for _ in 0..2 {
            let probe = self.publisher.recv().await.unwrap();
            let Topics::Minions(named) = probe.publication.topics else {
                panic!("a probe names its minions");
            };
            for minion in named.iter().filter(|id| running.contains(*id)) {
                let description = Packed::new(encode(&Value::map([("pid", 1_i64)]), Dialect::Bin));
                let answer = TakeAnswer(ProbeAnswer {
                    probe: probe.jid.clone(),
                    minion: minion.clone(),
                    running: Some(vec![(jid(1), description)]),
                });
                self.tracker.send(answer).await.unwrap();
            }
            probed.extend(named);
        }
        probed.sort_unstable();
        let missing = [LATE.end..GIVEN_UP.end, RUNNING, SILENT];
        let missing: Vec<MinionId> = missing.into_iter().flat_map(minions).collect();
        assert!(probed == missing, "{} were probed", probed.len());
    }

    /// Writes of the job's end, and those before it.
    async fn writes_until_the_end(&mut self) -> Vec<Write> {
        let mut writes = Vec::new();
        let is_end = |write: &Write| {
            let Write::JobState { state, .. } = write else {
                return false;
            };
            *state != JobState::Open
        };
        while !writes.last().is_some_and(is_end) {
            let persist = self.store.recv().await.unwrap();
            writes.extend(persist.writes.into_iter().map(|(write, _)| write));
        }
        writes
    }
}

#[test]
fn open_job_of_20_000_minions_is_judged_after_two_restarts() {
    in_system(async {
        let given_up = minions(GIVEN_UP).into_iter();
        let notes = JobNotes {
            lost: given_up.map(|id| (id, LostReason::NoAnswer)).collect(),
            signalled: Vec::new(),
            below: Vec::new(),
        };
        let mut writes = vec![
            Write::Job(JobRecord {
                minions: minions(0..MINIONS),
                ..job(1, &[])
            }),
            published(1),
            Write::JobState {
                jid: jid(1),
                state: JobState::Open,
                at: NOW,
                notes: Some(notes.pack()),
            },
        ];
        writes.extend(returns(RETURNED));
        let mut deps = Still::default();
        deps.rules.most = (30_000, 30_000);
        // The test has a minute of its own clock.
        deps.rules.patience = Duration::from_secs(15);
        let mut rig = rig_of(&writes, deps);
        assert!(rig.is_awaited(1, minion(UNNOTICED.start).as_str()).await);
        assert!(!rig.is_awaited(1, minion(0).as_str()).await);

        rig.database.commit(&returns(UNNOTICED)).unwrap();
        assert!(rig.tree.inject_panic("job_tracker", 0));
        assert!(!rig.is_awaited(1, minion(UNNOTICED.start).as_str()).await);
        assert!(!rig.is_awaited(1, minion(GIVEN_UP.start).as_str()).await);
        assert!(rig.is_awaited(1, minion(RETURNING.start).as_str()).await);
        assert_eq!(rig.metrics.open.get(), 1);
        rig.tracker.send(report(RETURNING)).await.unwrap();
        rig.tracker.send(report(LATE)).await.unwrap();
        for number in LATE {
            let (word, data) = rig.next_event().await;
            assert_eq!(word, "verdict");
            assert_eq!(verdict_of(&data, minion(number).as_str()), "late");
        }

        rig.probe_all_missing().await;
        let mut silent = BTreeSet::new();
        while silent.len() < SILENT.len() {
            let (word, data) = rig.next_event().await;
            assert_eq!(word, "verdict");
            for name in names(data.get("minions").unwrap()) {
                assert_eq!(verdict_of(&data, name), "unknown");
                assert!(silent.insert(name.to_owned()), "{name} once");
            }
        }
        let expected = minions(SILENT).into_iter();
        assert!(silent == expected.map(|id| id.to_string()).collect());

        rig.tracker.send(report(RUNNING)).await.unwrap();
        let (word, data) = rig.next_event().await;
        assert_eq!(word, "finished");
        assert_eq!(data.get("state").and_then(Value::as_str), Some("expired"));
        let lost = [LATE.end..GIVEN_UP.end, SILENT];
        assert!(are(data.get("unknown").unwrap(), &lost));
        let back = [RETURNED, LATE, UNNOTICED, RETURNING, RUNNING];
        assert!(are(data.get("returned").unwrap(), &back));
        let counts = data.get("counts").unwrap();
        let count = |name: &str| counts.get(name).and_then(Value::as_i64);
        let named = [
            "expected",
            "awaited",
            "returned",
            "failed",
            "unknown",
            "unreachable",
        ];
        assert_eq!(
            named.map(count),
            [21_000, 0, 17_600, 19, 3_400, 0].map(Some)
        );

        // What it leaves for the next start is its end, which is announced once.
        let writes = rig.writes_until_the_end().await;
        rig.database.commit(&writes).unwrap();
        assert!(rig.tree.inject_panic("job_tracker", 0));
        assert!(!rig.is_awaited(1, minion(SILENT.start).as_str()).await);
        assert_eq!((rig.metrics.open.get(), rig.finished("expired")), (0, 1));
        let stored = rig.database.reader().unwrap().load(&jid(1)).unwrap();
        let stored = stored.unwrap();
        assert_eq!(stored.state, JobState::Expired);
        let notes = JobNotes::unpack(&stored.notes.unwrap());
        assert_eq!(notes.lost.len(), 3_400);
        let no_answer = |(_, reason): &(MinionId, LostReason)| *reason == LostReason::NoAnswer;
        assert!(notes.lost.iter().all(no_answer));
    });
}
