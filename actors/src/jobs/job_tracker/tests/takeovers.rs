//! Masters in a row that take over and are lost soon: no verdict is put off for longer than the first one noted.

use super::super::job::MinionState;
use super::super::moment::Moment;
use super::alone::{Present, begin, returned, rules};
use super::*;
use saltern_store::jobs::LostReason;

/// Milliseconds until the next master takes over.
const LEASE: u64 = 15_000;

/// Milliseconds after a takeover by which all minions are judged: they reconnect, answer, and the slack.
const JUDGED: u64 = 22_000;

/// Milliseconds after each further takeover in which minions can answer.
const MIN_TIME: u64 = 4_000;

/// Milliseconds between two steps.
const STEP: u64 = 100;

/// Minions, by what they answer to a probe.
const SILENT: &str = "silent";
const IDLE: &str = "idle";
const BUSY: &str = "busy";

/// The job database, and the master that is active.
struct Masters {
    /// Milliseconds since 1970.
    now: u64,
    started: u64,
    machine: Machine,
    world: Present,
    notes: JobNotes,
    /// Each verdict with its time; `None` when a minion is awaited again.
    verdicts: Vec<(u64, MinionId, Option<LostReason>)>,
}

impl Masters {
    /// A master that has sent a job to these minions, and is lost at once.
    fn of(minions: &[&str]) -> Self {
        let mut masters = Self {
            now: 0,
            started: 0,
            machine: Machine::new(rules(), 1),
            world: Present::default(),
            notes: JobNotes::default(),
            verdicts: Vec::new(),
        };
        masters.step(begin(1, minions));
        masters.step(JobEvent::Left(jid(1)));
        masters
    }

    fn step(&mut self, event: JobEvent) {
        let moment = Moment::at(Duration::from_millis(self.now - self.started));
        let effects = self.machine.step(moment, event, &self.world);
        for effect in effects {
            match effect {
                // What is written is what the next master reads.
                TrackerEffect::Keep { notes, .. } => {
                    self.notes = JobNotes::unpack(&notes.pack());
                }
                TrackerEffect::Report(JobNews::Verdict { changes, .. }) => {
                    for change in changes {
                        let reason = change.after.reason().cloned();
                        self.verdicts.push((self.now, change.minion, reason));
                    }
                }
                TrackerEffect::Probe { probe, minions } => {
                    for minion in minions {
                        self.answer(&probe, minion);
                    }
                }
                _ => {}
            }
        }
    }

    fn answer(&mut self, probe: &Jid, minion: MinionId) {
        let description = Packed::new(encode(&Value::map([("pid", 1_i64)]), Dialect::Bin));
        let running = match minion.as_str() {
            IDLE => Vec::new(),
            BUSY => vec![(jid(1), description)],
            _ => return,
        };
        self.step(JobEvent::Answered(Answered {
            probe: probe.clone(),
            minion,
            running: Some(running),
        }));
    }

    /// The active master lives for so many milliseconds.
    fn live(&mut self, time: u64) {
        for _ in 0..time / STEP {
            self.now += STEP;
            self.step(JobEvent::Tick);
        }
    }

    /// The master is lost, and the next one takes over.
    fn take_over(&mut self, minions: &[&str]) {
        self.now += LEASE;
        self.started = self.now;
        self.machine = Machine::new(rules(), self.now);
        let JobEvent::Begun(job) = begin(1, minions) else {
            panic!("it begins a job")
        };
        self.step(JobEvent::Resumed(Resumed {
            job,
            departure: Departure::Left,
            returned: Vec::new(),
            notes: self.notes.clone(),
            at: i64::try_from(self.now * 1_000).unwrap(),
        }));
        self.step(JobEvent::KeepAll);
    }

    /// The verdicts on a minion: when, and why.
    fn verdicts_on(&self, minion: &str) -> Vec<(u64, Option<LostReason>)> {
        let of_it = self
            .verdicts
            .iter()
            .filter(|(_, id, _)| id.as_str() == minion);
        of_it.map(|(at, _, reason)| (*at, reason.clone())).collect()
    }
}

#[test]
fn takeovers_in_a_row_put_no_verdict_off_for_longer_than_the_first_noted() {
    let minions = [SILENT, IDLE, BUSY];
    // Up to a master that lives for long enough to judge by itself.
    for life in 5..30 {
        let mut masters = Masters::of(&minions);
        for _ in 0..10 {
            masters.take_over(&minions);
            masters.live(life * 1_000);
        }
        // The first one took over after a lease. Where none is active at that time, the next one judges. One that
        // says that it does not run the job may have the time of one more answer.
        let latest = LEASE + JUDGED + LEASE + MIN_TIME;
        for (minion, latest) in [(SILENT, latest), (IDLE, latest + 10_000)] {
            let verdicts = masters.verdicts_on(minion);
            let first = verdicts.first().expect("a verdict");
            assert!(
                first.0 <= latest,
                "masters of {life} s: {minion} {verdicts:?}"
            );
            assert!(first.1.is_some());
        }
        let busy = masters.verdicts_on(BUSY);
        assert!(
            busy.is_empty(),
            "masters of {life} s: it runs, and {busy:?}"
        );
    }
}

#[test]
fn minion_that_was_judged_unheard_is_awaited_again_when_it_answers() {
    let mut masters = Masters::of(&[SILENT]);
    for _ in 0..2 {
        masters.take_over(&[SILENT]);
        masters.live(9_000);
    }
    let unheard = LostReason::NotHeard;
    assert_eq!(
        masters.verdicts_on(SILENT),
        [(LEASE + 9_000 + LEASE + MIN_TIME, Some(unheard))]
    );
    // The next one reads it, and does not ask again what is known.
    masters.take_over(&[SILENT]);
    let state = |masters: &Masters| {
        let job = masters.machine.jobs.get(&jid(1)).unwrap();
        job.entry(&id(SILENT)).unwrap().state().clone()
    };
    assert!(state(&masters).is_lost());
    let probe = loop {
        masters.now += STEP;
        let moment = Moment::at(Duration::from_millis(masters.now - masters.started));
        let effects = masters.machine.step(moment, JobEvent::Tick, &masters.world);
        let probe = effects.into_iter().find_map(|effect| match effect {
            TrackerEffect::Probe { probe, .. } => Some(probe),
            _ => None,
        });
        if let Some(probe) = probe {
            break probe;
        }
    };
    // It does not run the job: its return may be on its way, as after any takeover.
    masters.step(JobEvent::Answered(Answered {
        probe,
        minion: id(SILENT),
        running: Some(Vec::new()),
    }));
    assert!(matches!(state(&masters), MinionState::Ending { .. }));
    masters.step(returned(1, SILENT, false));
    assert_eq!(masters.machine.open_count(), 0);
    assert_eq!(masters.verdicts_on(SILENT).len(), 2);
}

#[test]
fn clock_that_was_ahead_or_behind_gives_no_minion_more_time() {
    for skew in [-3_600_000_000_i64, 3_600_000_000] {
        let mut masters = Masters::of(&[SILENT]);
        masters.take_over(&[SILENT]);
        for (_, by) in &mut masters.notes.awaited {
            *by += skew;
        }
        masters.live(5_000);
        masters.take_over(&[SILENT]);
        masters.live(JUDGED);
        let verdicts = masters.verdicts_on(SILENT);
        assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    }
}
