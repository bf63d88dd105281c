//! The machine's invariants, under random orders of returns, losses, repetitions, time and
//! restarts.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn id(number: usize) -> MinionId {
    MinionId::parse(&format!("m{number:03}")).unwrap()
}

fn ids(count: usize) -> Vec<MinionId> {
    (0..count).map(id).collect()
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn rules(size: usize) -> Rules {
    Rules {
        size,
        wait: Duration::ZERO,
        patience: seconds(15),
        failhard: false,
    }
}

fn sent(machine: &mut Machine, now: u64) -> Vec<String> {
    let send = machine.advance(seconds(now));
    send.iter().map(ToString::to_string).collect()
}

#[test]
fn free_slots_are_filled_in_plan_order() {
    let mut machine = Machine::new(rules(2), &ids(4));
    assert_eq!(sent(&mut machine, 0), ["m000", "m001"]);
    assert_eq!(sent(&mut machine, 1), [""; 0]);
    assert!(machine.returned(&id(1), 0, seconds(2)));
    assert!(!machine.returned(&id(1), 0, seconds(2)), "a repetition");
    assert_eq!(sent(&mut machine, 2), ["m002"]);
    for minion in [0, 2] {
        machine.returned(&id(minion), 0, seconds(3));
    }
    assert_eq!(sent(&mut machine, 3), ["m003"]);
    assert!(!machine.is_over());
    machine.returned(&id(3), 7, seconds(4));
    assert!(machine.is_over() && machine.halted().is_none());
    assert_eq!(machine.counts().done, 4);
    assert_eq!(machine.wakes_at(), None);
}

#[test]
fn slot_rests_after_a_return_and_after_a_loss() {
    let mut machine = Machine::new(
        Rules {
            wait: seconds(5),
            ..rules(1)
        },
        &ids(3),
    );
    assert_eq!(sent(&mut machine, 0), ["m000"]);
    machine.returned(&id(0), 0, seconds(1));
    assert_eq!(sent(&mut machine, 1), [""; 0]);
    assert_eq!(machine.wakes_at(), Some(seconds(6)));
    assert_eq!(sent(&mut machine, 6), ["m001"]);
    assert_eq!(machine.time_out(seconds(21)), [id(1)]);
    assert_eq!(sent(&mut machine, 21), [""; 0]);
    assert_eq!(sent(&mut machine, 26), ["m002"]);
}

#[test]
fn void_deadline_wakes_nobody() {
    let mut machine = Machine::new(rules(1), &ids(2));
    machine.advance(seconds(0));
    assert!(machine.returned(&id(0), 0, seconds(2)));
    assert_eq!(sent(&mut machine, 2), ["m001"]);
    // That of the first minion was at 15.
    assert_eq!(machine.wakes_at(), Some(seconds(17)));
    machine.is_awaited(&id(1), seconds(17));
    assert_eq!(sent(&mut machine, 17), [""; 0]);
    assert_eq!(machine.wakes_at(), Some(seconds(32)));
}

#[test]
fn late_minion_is_given_up_unless_it_may_still_run() {
    let mut machine = Machine::new(rules(2), &ids(3));
    machine.advance(seconds(0));
    assert_eq!(machine.late(seconds(15)), [id(0), id(1)]);
    machine.is_awaited(&id(0), seconds(15));
    assert_eq!(machine.time_out(seconds(15)), [id(1)]);
    assert_eq!(sent(&mut machine, 15), ["m002"]);
    assert_eq!(machine.wakes_at(), Some(seconds(30)));
    assert!(machine.returned(&id(1), 0, seconds(16)), "late, but true");
    let counts = machine.counts();
    assert_eq!((counts.active, counts.done, counts.failed), (2, 1, 0));
    assert_eq!(machine.time_out(seconds(30)), [id(0), id(2)]);
    assert!(machine.is_over());
}

#[test]
fn failhard_halts_at_the_first_bad_return_only() {
    for (failhard, retcode, halts) in [(true, 1, true), (true, 0, false), (false, 1, false)] {
        let mut machine = Machine::new(
            Rules {
                failhard,
                ..rules(1)
            },
            &ids(3),
        );
        machine.advance(seconds(0));
        machine.returned(&id(0), retcode, seconds(1));
        assert_eq!(machine.halted(), halts.then_some(FAILHARD));
        assert_eq!(machine.advance(seconds(1)).is_empty(), halts);
        assert_eq!(machine.is_over(), halts);
    }
    let mut machine = Machine::new(
        Rules {
            failhard: true,
            ..rules(1)
        },
        &ids(2),
    );
    machine.advance(seconds(0));
    assert_eq!(machine.time_out(seconds(15)), [id(0)]);
    assert_eq!(sent(&mut machine, 15), ["m001"], "a loss is no bad return");
}

#[test]
fn second_halt_keeps_the_first_reason() {
    let mut machine = Machine::new(rules(1), &ids(2));
    machine.advance(seconds(0));
    machine.halt("stop");
    machine.halt("other");
    assert_eq!(machine.halted(), Some("stop"));
    assert_eq!(machine.pending().cloned().collect::<Vec<_>>(), [id(1)]);
    assert_eq!(machine.counts().active, 1);
}

#[test]
fn unasked_return_counts_and_a_strangers_does_not() {
    let mut machine = Machine::new(rules(1), &ids(2));
    machine.advance(seconds(0));
    assert!(machine.returned(&id(1), 0, seconds(1)));
    assert!(!machine.returned(&id(9), 0, seconds(1)));
    assert_eq!(machine.pending_count(), 0);
    machine.returned(&id(0), 0, seconds(2));
    assert!(machine.advance(seconds(2)).is_empty());
    assert!(machine.is_over());
}

#[test]
fn minion_named_twice_is_sent_its_part_once() {
    let mut machine = Machine::new(rules(5), &[id(0), id(1), id(0)]);
    assert_eq!(sent(&mut machine, 0), ["m000", "m001"]);
    assert_eq!(machine.total(), 2);
}

#[test]
fn paused_batch_sends_nothing_and_still_hears_returns() {
    let mut machine = Machine::new(rules(1), &ids(3));
    assert_eq!(sent(&mut machine, 0), ["m000"]);
    machine.set_paused(true);
    machine.returned(&id(0), 0, seconds(1));
    assert_eq!(sent(&mut machine, 1), [""; 0]);
    assert!(!machine.is_over());
    assert_eq!(machine.wakes_at(), None, "nothing wakes it but a user");
    machine.set_paused(false);
    assert_eq!(sent(&mut machine, 20), ["m001"]);
    machine.returned(&id(1), 0, seconds(21));
    assert_eq!(sent(&mut machine, 21), ["m002"]);
    machine.set_paused(true);
    machine.returned(&id(2), 0, seconds(22));
    assert!(machine.is_over(), "nobody is left to be sent a part");
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Act {
    /// A minion returns, whether or not it was asked.
    Return(usize, i64),
    Awaited(usize),
    Pass(u64),
    Restart,
    Pause(bool),
    Stop,
}

fn acts(minions: usize) -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => (0..minions + 1, prop_oneof![9 => Just(0_i64), 1 => Just(2)])
            .prop_map(|(minion, code)| Act::Return(minion, code)),
        2 => (0..minions).prop_map(Act::Awaited),
        4 => (0..8_u64).prop_map(Act::Pass),
        1 => Just(Act::Restart),
        2 => any::<bool>().prop_map(Act::Pause),
        1 => Just(Act::Stop),
    ];
    prop::collection::vec(act, 0..80)
}

/// Model of the rows of a batch in the database.
#[derive(Default)]
struct Stored {
    sent: Vec<MinionId>,
    failed: Vec<(MinionId, &'static str)>,
    returned: BTreeMap<MinionId, (i64, Moment)>,
    is_paused: bool,
    halted: Option<String>,
}

impl Stored {
    fn resumed(&self, rules: &Rules, plan: &[MinionId], now: Moment) -> Machine {
        let returned: Vec<(MinionId, i64, Duration)> = self
            .returned
            .iter()
            .map(|(minion, (code, at))| (minion.clone(), *code, now - *at))
            .collect();
        let mut machine = Machine::new(rules.clone(), plan);
        machine.recall(
            &Past {
                sent: &self.sent,
                failed: &self.failed,
                returned: &returned,
            },
            now,
        );
        machine.set_paused(self.is_paused);
        if let Some(reason) = &self.halted {
            machine.halt(reason);
        }
        machine
    }
}

fn check(machine: &Machine, plan: &[MinionId]) {
    let counts = machine.counts();
    let mut counted = Counts::default();
    for (_, fate) in machine.fates() {
        match fate {
            Fate::Active(_) => counted.active += 1,
            Fate::Done(_) => counted.done += 1,
            Fate::Failed(_) => counted.failed += 1,
        }
    }
    assert_eq!(counts, counted);
    assert_eq!(machine.pending().count(), machine.pending_count());
    assert_eq!(
        machine.pending_count() + counts.active + counts.done + counts.failed,
        plan.len()
    );
}

proptest! {
    #[test]
    fn random_events_keep_size_order_and_single_sends(
        minions in 1..12_usize,
        size in 1..6_usize,
        wait in 0..4_u64,
        failhard in any::<bool>(),
        acts in acts(12),
    ) {
        let plan = ids(minions);
        let rules = Rules { wait: seconds(wait), failhard, ..rules(size) };
        let mut machine = Machine::new(rules.clone(), &plan);
        let mut stored = Stored::default();
        let mut now = seconds(0);
        let mut asked = BTreeSet::new();
        for act in acts.into_iter().chain([Act::Pass(0)]) {
            match act {
                Act::Return(minion, code) => {
                    let minion = id(minion);
                    stored.returned.entry(minion.clone()).or_insert((code, now));
                    machine.returned(&minion, code, now);
                }
                Act::Awaited(minion) => machine.is_awaited(&id(minion), now),
                Act::Pass(time) => now += seconds(time),
                Act::Restart => machine = stored.resumed(&rules, &plan, now),
                Act::Pause(is_paused) => {
                    stored.is_paused = is_paused;
                    machine.set_paused(is_paused);
                }
                Act::Stop => machine.halt("stop"),
            }
            check(&machine, &plan);
            let was_halted = machine.halted().is_some();
            let late = machine.late(now);
            let timed_out = machine.time_out(now);
            let send = machine.advance(now);
            stored.halted = machine.halted().map(str::to_owned);
            stored.failed.extend(timed_out.iter().map(|minion| (minion.clone(), TIMEOUT)));
            stored.sent.extend(send.iter().cloned());
            prop_assert_eq!(&timed_out, &late);
            prop_assert!(!(was_halted || stored.is_paused) || send.is_empty());
            prop_assert!(send.is_empty() || machine.counts().active <= size);
            let room = size.saturating_sub(machine.resting().count());
            prop_assert!(send.is_empty() || machine.counts().active <= room);
            for minion in &send {
                prop_assert!(asked.insert(minion.clone()), "{minion} was asked twice");
            }
            check(&machine, &plan);
        }
        let order: Vec<MinionId> = stored.sent.clone();
        prop_assert!(order.is_sorted());
        // Left alone, every batch ends, once it does not pause.
        machine.set_paused(false);
        machine.advance(now);
        while let Some(wakes_at) = machine.wakes_at() {
            now = now.max(wakes_at);
            machine.time_out(now);
            machine.advance(now);
        }
        prop_assert!(machine.is_over());
        if machine.halted().is_none() {
            prop_assert_eq!(machine.pending_count(), 0);
        }
    }
}
