//! Tests of the machine alone, where a fixed sequence of events shows more than a simulation.

use super::super::machine::{Counted, JobEnvironment};
use super::super::moment::Moment;
use super::*;
use crate::jobs::job_tracker::job::{MinionState, Reason};

/// Every minion is reachable; only these syndics, if any, are not.
#[derive(Default)]
pub(super) struct Present {
    minted: AtomicU32,
    /// How often it was asked which minions are below a syndic.
    pub(super) looks: AtomicU32,
    /// Minions, each with a syndic that it is not below any more.
    pub(super) moved: Vec<(MinionId, MinionId)>,
    unreachable: Vec<(MinionId, Arc<str>)>,
}

impl JobEnvironment for Present {
    fn absence(&self, _: &MinionId) -> Option<Arc<str>> {
        None
    }

    fn is_asked(&self, _: &MinionId) -> bool {
        true
    }

    fn below(&self, syndic: &MinionId, mut minions: Vec<MinionId>) -> Vec<MinionId> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let with = format!("below-{syndic}");
        minions.retain(|minion| minion.as_str().starts_with(&with));
        minions
    }

    fn moved(&self, syndic: &MinionId, mut minions: Vec<MinionId>) -> Vec<MinionId> {
        minions.retain(|minion| self.moved.contains(&(minion.clone(), syndic.clone())));
        minions
    }

    fn unreachable_syndics(&self) -> Vec<(MinionId, Arc<str>)> {
        self.unreachable.clone()
    }

    fn mint(&self) -> Jid {
        jid(1_000 + self.minted.fetch_add(1, Ordering::Relaxed))
    }

    fn is_held(&self, _: &Jid) -> bool {
        false
    }
}

pub(super) fn rules() -> Rules {
    Rules {
        timeout: Duration::from_secs(5),
        gather: Duration::from_secs(10),
        interval: Duration::from_secs(60),
        patience: Duration::from_secs(60),
        leaves_wait: Duration::ZERO,
        probe_rate: 2,
        most: (1_000, 1_000),
    }
}

pub(super) fn at(seconds: u64) -> Moment {
    Moment::at(Duration::from_secs(seconds))
}

pub(super) fn begin(number: u32, minions: &[&str]) -> JobEvent {
    JobEvent::Begun(JobBegun {
        jid: jid(number),
        fun: "test.sleep".into(),
        created: 1,
        minions: ids(minions),
        nocache: false,
        signals: None,
        expects_all: false,
    })
}

pub(super) fn returned(number: u32, minion: &str, forwarded: bool) -> JobEvent {
    JobEvent::Returned(MinionReturned {
        jid: jid(number),
        minion: id(minion),
        retcode: 0,
        signalled: false,
        forwarded,
    })
}

fn joined(number: u32, minions: &[&str]) -> JobEvent {
    JobEvent::Joined(jid(number), ids(minions))
}

fn refused(effects: &[TrackerEffect]) -> usize {
    let counts = effects.iter().filter_map(|effect| match effect {
        TrackerEffect::Count(Counted::LeavesRefused(count)) => Some(*count),
        _ => None,
    });
    counts.sum()
}

fn ending(effects: Vec<TrackerEffect>) -> Option<Value> {
    let mut news = effects.into_iter().filter_map(|effect| match effect {
        TrackerEffect::Report(news @ JobNews::Finished(_)) => Some(news),
        _ => None,
    });
    let event = news.next()?.event("");
    Some(decode_exact(event.data.as_ref(), &Limits::WIRE).unwrap())
}

/// The probe that was sent, and the state of "m1" in a job after it.
fn probed(
    effects: Vec<TrackerEffect>,
    (machine, job): (&Machine, u32),
) -> (Option<Jid>, Option<MinionState>) {
    let probe = effects.into_iter().find_map(|effect| match effect {
        TrackerEffect::Probe { probe, .. } => Some(probe),
        _ => None,
    });
    let job = machine.jobs.get(&jid(job));
    let entry = job.and_then(|job| job.entry(&id("m1")));
    (probe, entry.map(|entry| entry.state().clone()))
}

#[test]
fn syndic_minions_end_no_unrelated_job() {
    let mut rules = rules();
    rules.most = (10, 10);
    let (mut machine, world) = (Machine::new(rules, 1), Present::default());
    let mut step = |event| machine.step(at(0), event, &world);
    step(begin(1, &["a"]));
    step(begin(2, &[]));
    // The second one is over; three of the five places that leaves may take are left.
    let effects = step(joined(1, &["b", "c", "d", "e", "f"]));
    assert_eq!(refused(&effects), 2);
    assert_eq!(refused(&step(returned(1, "g", true))), 1);
    // With the job itself it would be too much.
    assert_eq!(refused(&step(joined(2, &["x"]))), 1);
    assert!(machine.is_awaited(&jid(1), &id("d")));
    assert!(!machine.is_awaited(&jid(1), &id("e")));
    assert_eq!(machine.open_count(), 1);
}

#[test]
fn long_ended_job_is_not_reopened_by_syndic_minions() {
    let (mut machine, world) = (Machine::new(rules(), 1), Present::default());
    machine.step(at(0), begin(1, &["a"]), &world);
    machine.step(at(1), returned(1, "a", false), &world);
    assert_eq!(machine.open_count(), 0);
    machine.step(at(599), joined(1, &["b"]), &world);
    assert_eq!(machine.open_count(), 1);
    machine.step(at(599), returned(1, "b", true), &world);
    assert_eq!(machine.open_count(), 0);
    let effects = machine.step(at(600), joined(1, &["c"]), &world);
    assert_eq!((machine.open_count(), refused(&effects)), (0, 1));
    assert!(machine.lacks(&jid(1), &id("c")));
}

#[test]
fn job_whose_minions_are_all_known_ends_without_syndics() {
    let mut rules = rules();
    rules.leaves_wait = Duration::from_secs(600);
    let world = Present::default();
    let mut machine = Machine::new(rules, 1);
    let of = |number: u32, expects_all: bool| match begin(number, &["a"]) {
        JobEvent::Begun(begun) => JobEvent::Begun(JobBegun {
            expects_all,
            ..begun
        }),
        _ => panic!("it begins"),
    };
    // Of one job all parts are exact, of the next one the second is not.
    for (number, second, open) in [(1, true, 0), (2, false, 1)] {
        machine.step(at(0), of(number, true), &world);
        machine.step(at(0), of(number, second), &world);
        machine.step(at(1), returned(number, "a", true), &world);
        assert_eq!(machine.open_count(), open, "{number}");
    }
    // What was not known shows that there may be more.
    machine.step(at(2), joined(1, &["b"]), &world);
    machine.step(at(3), returned(1, "b", true), &world);
    assert_eq!(machine.open_count(), 2);
    machine.step(at(601), JobEvent::Tick, &world);
    assert_eq!(machine.open_count(), 0);
}

#[test]
fn job_that_no_syndic_could_receive_is_not_complete() {
    let mut rules = rules();
    rules.leaves_wait = Duration::from_secs(5);
    let world = Present {
        unreachable: vec![(id("relay"), "no connection".into())],
        ..Present::default()
    };
    let mut machine = Machine::new(rules.clone(), 1);
    machine.step(at(0), begin(1, &[]), &world);
    let end = ending(machine.step(at(6), JobEvent::Tick, &world)).expect("an end");
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("").to_owned();
    assert_eq!(text(end.get("state")), "expired");
    let unreachable = end.get("unreachable").unwrap();
    assert_eq!(text(unreachable.get("relay")), "no connection");
    // Maintenance ends it the same way.
    machine.step(at(10), begin(2, &[]), &world);
    let end = ending(machine.step(at(10), JobEvent::EndOlderThan(2), &world)).expect("an end");
    assert_eq!(text(end.get("state")), "expired");
    // A syndic that comes back with minions that have it makes it an ordinary job.
    machine.step(at(11), joined(1, &["leaf"]), &world);
    let end = ending(machine.step(at(12), returned(1, "leaf", true), &world)).expect("an end");
    assert_eq!(text(end.get("state")), "complete");
    let mut machine = Machine::new(rules, 1);
    let world = Present::default();
    machine.step(at(0), begin(1, &[]), &world);
    let end = ending(machine.step(at(6), JobEvent::Tick, &world)).expect("an end");
    assert_eq!(
        text(end.get("state")),
        "complete",
        "a syndic may receive it"
    );
}

#[test]
fn job_missing_from_an_answer_may_have_left_after_the_probe() {
    let (mut machine, world) = (Machine::new(rules(), 1), Present::default());
    let mut step = |seconds, event| probed(machine.step(at(seconds), event, &world), (&machine, 2));
    let answer = |probe| {
        JobEvent::Answered(Answered {
            probe,
            minion: id("m1"),
            running: Some(Vec::new()),
            confirms_only: false,
        })
    };
    step(0, begin(1, &["m1"]));
    step(0, JobEvent::Left(jid(1)));
    // The second one is stored when the minion is probed because of the first, and leaves then.
    step(5, begin(2, &["m1"]));
    let probe = step(6, JobEvent::Tick).0.expect("the first question");
    step(7, JobEvent::Left(jid(2)));
    // A client of the second one asks as well, and that is merged into it.
    let asked = Asked {
        question: jid(3),
        about: jid(2),
        minions: ids(&["m1"]),
    };
    step(7, JobEvent::Asked(asked));
    assert_eq!(step(8, answer(probe)).1, Some(MinionState::Expected));
    let asked = (9..60).find_map(|at| Some((at, step(at, JobEvent::Tick).0?)));
    let (at, probe) = asked.expect("another question");
    let (_, state) = step(at + 1, answer(probe));
    assert!(
        matches!(state, Some(MinionState::Ending { .. })),
        "{state:?}"
    );
}

/// A second syndic may know no more of a minion than its public key.
#[test]
fn answer_by_a_second_way_may_only_confirm_that_a_job_runs() {
    let (mut machine, world) = (Machine::new(rules(), 1), Present::default());
    let mut step = |seconds, event| probed(machine.step(at(seconds), event, &world), (&machine, 1));
    step(0, begin(1, &["m1"]));
    step(0, JobEvent::Left(jid(1)));
    let asked = (1..60).find_map(|at| Some((at, step(at, JobEvent::Tick).0?)));
    let (at, probe) = asked.expect("a question");
    let mut answer = |running: Option<&[u32]>, confirms_only| {
        let describe = |number: &u32| (jid(*number), Packed::new(&b"\x80"[..]));
        let answered = Answered {
            probe: probe.clone(),
            minion: id("m1"),
            running: running.map(|running| running.iter().map(describe).collect()),
            confirms_only,
        };
        step(at, JobEvent::Answered(answered)).1
    };
    for running in [None, Some(&[][..]), Some(&[2][..])] {
        let state = answer(running, true);
        assert_eq!(state, Some(MinionState::Expected), "{running:?}");
    }
    assert_eq!(answer(Some(&[2, 1]), true), Some(MinionState::Running));
    for confirms_only in [false, true] {
        let running: &[u32] = if confirms_only { &[1] } else { &[] };
        let state = answer(Some(running), confirms_only);
        assert!(
            matches!(state, Some(MinionState::Ending { .. })),
            "the first way says that it does not run: {state:?}"
        );
    }
}

/// It answers each probe before the first way does, and says that the job runs.
#[test]
fn answer_by_a_second_way_does_not_undo_what_the_first_one_said() {
    let (mut machine, world) = (Machine::new(rules(), 1), Present::default());
    let mut step = |seconds, event| probed(machine.step(at(seconds), event, &world), (&machine, 1));
    let answer = |probe: &Jid, runs: bool, confirms_only| {
        let described = runs.then(|| (jid(1), Packed::new(&b"\x80"[..])));
        JobEvent::Answered(Answered {
            probe: probe.clone(),
            minion: id("m1"),
            running: Some(described.into_iter().collect()),
            confirms_only,
        })
    };
    step(0, begin(1, &["m1"]));
    step(0, JobEvent::Left(jid(1)));
    let mut now = 0;
    let named = |state: Option<MinionState>| match state {
        Some(MinionState::Running) => "running",
        Some(MinionState::Ending { .. }) => "ending",
        Some(MinionState::Unknown(Reason::NotRunning)) => "not running",
        _ => "another",
    };
    for (confirmed, denied) in [
        ("running", "ending"),
        ("ending", "not running"),
        ("not running", "not running"),
    ] {
        let asked = (now + 1..200).find_map(|at| Some((at, step(at, JobEvent::Tick).0?)));
        let (at, probe) = asked.expect("a question");
        now = at;
        let (_, state) = step(at, answer(&probe, true, true));
        assert_eq!(named(state), confirmed, "at {at}");
        let (_, state) = step(at, answer(&probe, false, false));
        assert_eq!(named(state), denied, "at {at}");
    }
}
