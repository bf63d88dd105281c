//! Returns that a master above refuses, or that are dropped by policy.

use super::*;

/// A master above that answers as one of stock: nil, or something else whatever the reason is.
#[derive(Default)]
pub(super) struct StockTop {
    above: Above,
    is_full: bool,
    /// Returns of these minions are refused.
    unreadable: BTreeSet<String>,
    /// Minions of the single returns that came, in their order.
    singles: Vec<String>,
}

impl StockTop {
    /// Whether all of these are stored.
    fn store(&mut self, batch: &Batch) -> bool {
        let load = batch.load("relay");
        let jobs = load.as_array().unwrap().iter();
        let minions = jobs.flat_map(|job| job.get("return").and_then(Value::as_map).unwrap());
        let minions: Vec<&str> = minions.map(|(id, _)| id.as_str().unwrap()).collect();
        if let [single] = *minions {
            self.singles.push(single.to_owned());
        }
        if self.is_full || minions.iter().any(|id| self.unreadable.contains(*id)) {
            return false;
        }
        self.above.store(&load);
        true
    }

    /// Attempts of the outbox; what was dropped in them.
    pub(super) fn attempts(
        &mut self,
        queue: &mut OutboxQueue,
        count: usize,
    ) -> Vec<(&'static str, u64)> {
        let mut dropped = Vec::new();
        for _ in 0..count {
            match queue.next(2).unwrap() {
                Next::Idle => break,
                Next::Dropped(it) => dropped.push((it.reason, it.returns)),
                Next::Batch(batch) if self.store(&batch) => {
                    queue.acknowledged(batch, "one:4506").unwrap();
                }
                Next::Batch(batch) => {
                    let it = queue.refused(batch, "refused", "one:4506").unwrap();
                    dropped.extend(it.map(|it| (it.reason, it.returns)));
                }
            }
        }
        dropped
    }

    /// Minions whose returns are stored.
    pub(super) fn stored(&self) -> Vec<&str> {
        let stored = self.above.stored.iter();
        stored.map(|(_, minion)| minion.as_str()).collect()
    }
}

/// A world in which so many returns of one job wait, and the jid of the job.
fn with_waiting(count: usize) -> (World, Jid) {
    let mut world = World::new();
    let jid = world.job_of("one:4506");
    commit_returns(&mut world, count);
    (world, jid)
}

#[test]
fn returns_that_are_too_old_or_too_many_are_dropped_and_named() {
    let mut world = World::new();
    let jid = world.job_of("one:4506");
    for number in 0..4 {
        let record = returned(&jid, number, number as i64 * 1_000_000);
        world.database.commit(&[Write::Return(record)]).unwrap();
    }
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    queue.bound(Some(Duration::from_secs(2)), 2);
    let mut dropped = Vec::new();
    while let Next::Dropped(it) = queue.next(3_000_000).unwrap() {
        dropped.push((it.reason, it.returns));
    }
    assert_eq!(dropped, [("age", 1), ("count", 1)]);
    let mut top = StockTop::default();
    assert_eq!(top.attempts(queue, 5), []);
    assert_eq!(top.stored(), ["m2", "m3"]);
}

/// Stock answers the same to a return that it cannot read and to any while its disk is full.
#[test]
fn returns_that_a_master_refuses_while_it_takes_none_wait_until_it_takes_them() {
    let (mut world, _) = with_waiting(30);
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    let mut top = StockTop {
        is_full: true,
        ..StockTop::default()
    };
    assert_eq!(top.attempts(queue, 500), []);
    top.is_full = false;
    assert_eq!(top.attempts(queue, 100), []);
    let expected: Vec<String> = (0..30).map(|number| format!("m{number}")).collect();
    let mut stored = top.stored();
    stored.sort_by_key(|name| name[1..].parse::<usize>().unwrap());
    assert_eq!(stored, expected, "each once");
    assert_eq!(queue.lag(), 0);
}

#[test]
fn return_that_its_master_refuses_while_it_takes_those_behind_it_is_dropped() {
    for (count, unreadable) in [(4, 0..1), (40, 0..12), (9, 4..5), (12, 0..5)] {
        let (mut world, _) = with_waiting(count);
        let queue = world.outboxes.get_mut("one:4506").unwrap();
        let mut top = StockTop {
            unreadable: unreadable.clone().map(|it| format!("m{it}")).collect(),
            ..StockTop::default()
        };
        let dropped = top.attempts(queue, 1_000);
        let faults = unreadable.len();
        assert_eq!(dropped, vec![("refused", 1); faults], "{unreadable:?}");
        assert_eq!(top.stored().len(), count - faults, "{unreadable:?}");
        assert_eq!(queue.lag(), 0);
        let singles = top.singles.iter();
        let taken = singles.filter(|id| !top.unreadable.contains(*id));
        let once: BTreeSet<&String> = taken.clone().collect();
        assert_eq!(
            taken.count(),
            once.len(),
            "what was taken is not sent again"
        );
    }
}

#[test]
fn lone_return_that_is_refused_waits_until_another_is_taken_or_it_is_too_old() {
    let (mut world, jid) = with_waiting(1);
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    let mut top = StockTop {
        unreadable: BTreeSet::from(["m0".to_owned()]),
        ..StockTop::default()
    };
    assert_eq!(top.attempts(queue, 100), []);
    let record = Write::Return(returned(&jid, 1, 1));
    world.database.commit(&[record]).unwrap();
    assert_eq!(top.attempts(queue, 10), [("refused", 1)]);
    assert_eq!(top.stored(), ["m1"]);

    let (mut world, _) = with_waiting(1);
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    queue.bound(Some(Duration::from_secs(2)), u64::MAX);
    assert_eq!(top.attempts(queue, 100), []);
    let Next::Dropped(dropped) = queue.next(3_000_000).unwrap() else {
        panic!("it is too old")
    };
    assert_eq!((dropped.reason, dropped.returns), ("age", 1));
}

/// Each of many that are at fault needs another one that is taken: none is dropped without.
#[test]
fn refused_returns_wait_for_as_many_that_are_taken() {
    let (mut world, jid) = with_waiting(6);
    let mut top = StockTop {
        unreadable: (0..5).map(|it| format!("m{it}")).collect(),
        ..StockTop::default()
    };
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    assert_eq!(top.attempts(queue, 100), [("refused", 1)]);
    assert_eq!(top.stored(), ["m5"]);
    let records = (10..20).map(|number| Write::Return(returned(&jid, number, 1)));
    let records: Vec<Write> = records.collect();
    world.database.commit(&records).unwrap();
    let before = top.singles.len();
    let dropped = top.attempts(queue, 100);
    assert_eq!(dropped, vec![("refused", 1); 4]);
    assert_eq!(top.stored().len(), 11);
    let requests = top.singles.len() - before;
    assert!(
        requests < 40,
        "those behind the first need no five refusals: {requests}"
    );
}

/// One of two masters is full: what it refuses is not at fault because the other one takes others.
#[test]
fn return_that_a_full_master_refuses_is_not_dropped_because_another_master_takes_others() {
    let (mut world, _) = with_waiting(4);
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    let mut probes = 0;
    for _ in 0..100 {
        let Next::Batch(batch) = queue.next(2).unwrap() else {
            break;
        };
        if batch.is_probe {
            probes += 1;
            queue.acknowledged(batch, "healthy").unwrap();
        } else {
            assert_eq!(queue.refused(batch, "refused", "full").unwrap(), None);
        }
    }
    assert_eq!(probes, 3);
}

/// Killed while a return is refused and others behind it were taken.
#[test]
fn killed_syndic_sends_what_was_taken_behind_a_refused_return_once_more() {
    let (mut world, _) = with_waiting(4);
    let mut top = StockTop {
        unreadable: BTreeSet::from(["m0".to_owned()]),
        ..StockTop::default()
    };
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    while top.stored().is_empty() {
        assert_eq!(top.attempts(queue, 1), []);
    }
    world.open("one:4506").unwrap();
    let queue = world.outboxes.get_mut("one:4506").unwrap();
    assert_eq!(top.attempts(queue, 100), [("refused", 1)]);
    assert_eq!(top.stored().len(), 3);
    assert_eq!(queue.lag(), 0);
}
